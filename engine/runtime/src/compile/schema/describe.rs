//! Kinds in words: ports, and every setting with its type, default and meaning, from the schema.

use std::fmt::Write as _;

use rlpipe_core::kind::{Arity, Contract, Field, Kind};
use serde_json::{Map, Value};

use super::tidy::is_choice;
use super::{contract_of_example, pipeline_schema};

/// Lines are at most so wide.
const WIDTH: usize = 100;

/// One setting of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Its key.
    pub key: String,
    /// What it is, in words: "whole number of at least 1".
    pub type_text: String,
    /// Whether it must be given.
    pub required: bool,
    /// What it is where it is left out, in YAML.
    pub default: Option<String>,
    /// What it means.
    pub description: String,
    /// Its choices, each with what it means and its own settings.
    pub choices: Vec<(String, String, Vec<Setting>)>,
    /// Its own settings, where it is a mapping of known keys.
    pub settings: Vec<Setting>,
}

/// The settings of a kind, in the order of its type.
pub fn kind_settings(kind: &Kind) -> Vec<Setting> {
    let schema = pipeline_schema(std::slice::from_ref(kind));
    let definitions = &schema["definitions"];
    let body = resolve(&definitions["Node"]["allOf"][0]["then"], definitions);
    settings(body, definitions)
        .into_iter()
        .filter(|setting| !["type", "inputs"].contains(&setting.key.as_str()))
        .collect()
}

/// The settings of the parts of a pipeline that are not nodes, by where they stand, such as `pools.NAME`.
pub fn section_settings() -> Vec<(&'static str, Vec<Setting>)> {
    let schema = pipeline_schema(&[]);
    let definitions = &schema["definitions"];
    let at = |pointer: &str| resolve(schema.pointer(pointer).unwrap_or(&Value::Null), definitions);
    let env = resolve(&schema["properties"]["env"], definitions);
    let variable = resolve(&env["properties"]["vars"]["additionalProperties"], definitions);
    let rule = resolve(&env["properties"]["rules"]["items"], definitions);
    let test = resolve(&schema["properties"]["tests"]["additionalProperties"], definitions);
    let in_test = |key: &str| resolve(&test["properties"][key]["additionalProperties"], definitions);
    let group = |section: &Value| {
        let groups = resolve(&section["properties"]["groups"], definitions);
        settings(resolve(&groups["items"], definitions), definitions)
    };
    // A rule is a mapping with one key: its choices are its settings.
    let rules = settings(rule, definitions);
    vec![
        ("run", settings(at("/properties/run"), definitions)),
        (
            "pools.NAME",
            settings(at("/properties/pools/additionalProperties"), definitions),
        ),
        (
            "models.NAME",
            settings(at("/properties/models/additionalProperties"), definitions),
        ),
        ("env.vars.NAME", settings(variable, definitions)),
        ("env.rules", rules),
        ("tests.NAME", settings(test, definitions)),
        ("tests.NAME.feed.NODE", settings(in_test("feed"), definitions)),
        ("tests.NAME.feed.NODE.groups", group(in_test("feed"))),
        ("tests.NAME.expect.NODE", settings(in_test("expect"), definitions)),
        ("tests.NAME.expect.NODE.groups", group(in_test("expect"))),
    ]
}

/// A kind's ports, settings and example, as text for the terminal.
pub fn describe_kind(kind: &Kind) -> String {
    let mut out = format!("{}: {}\n{}", kind.name, kind.summary, describe_ports(kind));
    out.push_str("\nsettings\n");
    for setting in kind_settings(kind) {
        describe(&setting, 1, &mut out);
    }
    out.push_str("\nexample\n");
    for line in kind.example.lines() {
        let _ = writeln!(out, "  {line}");
    }
    out
}

/// A kind's inputs and outputs, as text for the terminal.
pub fn describe_ports(kind: &Kind) -> String {
    let mut out = String::new();
    if let Some(contract) = contract_of_example(kind) {
        ports(&contract, &mut out);
    }
    out
}

fn ports(contract: &Contract, out: &mut String) {
    let fields = |verb: &str, fields: &[Field]| {
        let names: Vec<String> = fields.iter().map(Field::to_string).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!("; {verb} {}", names.join(", "))
        }
    };
    let names = contract
        .inputs
        .iter()
        .map(|input| input.name)
        .chain(contract.outputs.iter().map(|output| output.name));
    let width = names.map(str::len).max().unwrap_or(0);
    if !contract.inputs.is_empty() {
        out.push_str("\ninputs\n");
    }
    for input in &contract.inputs {
        let many = match input.arity {
            Arity::One => "",
            Arity::Optional => ", may be left out",
            Arity::Many => ", one or more",
        };
        let _ = writeln!(
            out,
            "  {:width$}  {}{many}{}",
            input.name,
            input.port_type,
            fields("needs", &input.needs)
        );
    }
    if !contract.outputs.is_empty() {
        out.push_str("\noutputs\n");
    }
    for output in &contract.outputs {
        let _ = writeln!(
            out,
            "  {:width$}  {}{}",
            output.name,
            output.port_type,
            fields("adds", &output.adds)
        );
    }
}

fn describe(setting: &Setting, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let when = match (&setting.default, setting.required) {
        (Some(default), _) => format!(" [default: {default}]"),
        (None, true) => " (required)".to_owned(),
        (None, false) => String::new(),
    };
    let _ = writeln!(out, "{indent}{}: {}{when}", setting.key, setting.type_text);
    wrap(&setting.description, depth + 2, out);
    for (name, description, settings) in &setting.choices {
        let _ = writeln!(out, "{indent}    - {name}");
        wrap(description, depth + 4, out);
        for setting in settings {
            describe(setting, depth + 4, out);
        }
    }
    for setting in &setting.settings {
        describe(setting, depth + 2, out);
    }
}

/// The text, broken between words, each line indented.
fn wrap(text: &str, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{indent}{line}");
    }
}

/// The schema that a reference stands for.
fn resolve<'a>(schema: &'a Value, definitions: &'a Value) -> &'a Value {
    let reference = schema
        .get("$ref")
        .or_else(|| schema.get("allOf").and_then(|all| all[0].get("$ref")));
    match reference
        .and_then(Value::as_str)
        .and_then(|reference| reference.rsplit('/').next())
    {
        Some(name) => resolve(&definitions[name], definitions),
        None => schema,
    }
}

fn settings(schema: &Value, definitions: &Value) -> Vec<Setting> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    // A required setting that had another name is required where that is not given.
    let unless_old = schema["allOf"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|either| &either["else"]);
    let required: Vec<&str> = std::iter::once(schema)
        .chain(unless_old)
        .filter_map(|schema| schema["required"].as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let current = properties.iter().filter(|(_, value)| value.get("deprecated").is_none());
    let one = |(key, value): (&String, &Value)| setting(key, value, required.contains(&key.as_str()), definitions);
    current.map(one).collect()
}

/// A setting by its schema, and the definitions that this refers to.
pub fn setting(key: &str, schema: &Value, required: bool, definitions: &Value) -> Setting {
    let body = resolve(schema, definitions);
    let text = |schema: &Value| {
        schema
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (choices, is_choice) = choices(body, definitions);
    let settings = if is_choice {
        Vec::new()
    } else {
        settings(body, definitions)
    };
    let default = schema
        .get("default")
        .filter(|_| settings.is_empty())
        .map(|default| match default {
            // Settings of a choice show their own defaults.
            Value::Object(entries) if is_choice => entries.keys().next().cloned().unwrap_or_default(),
            other => flow(other),
        });
    Setting {
        key: key.to_owned(),
        type_text: if is_choice {
            "one of".to_owned()
        } else {
            type_text(body, definitions)
        },
        required,
        default,
        description: Some(text(schema))
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| text(body)),
        choices,
        settings,
    }
}

/// The named alternatives of a schema, and whether it is a choice among such.
fn choices(schema: &Value, definitions: &Value) -> (Vec<(String, String, Vec<Setting>)>, bool) {
    let alone = std::slice::from_ref(schema);
    let alternatives = schema
        .get("anyOf")
        .and_then(Value::as_array)
        .map_or(alone, Vec::as_slice);
    let mut found: Vec<(String, String, Vec<Setting>)> = Vec::new();
    for alternative in alternatives {
        let names = alternative.get("enum").and_then(Value::as_array).into_iter().flatten();
        for (index, name) in names.filter_map(Value::as_str).enumerate() {
            let description = alternative["enumDescriptions"][index].as_str().unwrap_or_default();
            found.push((name.to_owned(), description.to_owned(), Vec::new()));
        }
        let variants = alternative.get("properties").filter(|_| is_choice(alternative));
        for (name, variant) in variants.and_then(Value::as_object).into_iter().flatten() {
            let description = variant.get("description").and_then(Value::as_str).unwrap_or_default();
            let settings = settings(resolve(variant, definitions), definitions);
            match found.iter_mut().find(|(known, _, _)| known == name) {
                Some((_, _, known)) => *known = settings,
                None => found.push((name.clone(), description.to_owned(), settings)),
            }
        }
    }
    let is_choice = !found.is_empty();
    (found, is_choice)
}

fn type_text(schema: &Value, definitions: &Value) -> String {
    if let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) {
        // Last comes the reference that may stand for the value.
        let own = alternatives.iter().filter(|schema| schema.get("$ref").is_none());
        return own
            .map(|schema| type_text(schema, definitions))
            .collect::<Vec<_>>()
            .join(" or ");
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("integer") => format!("whole number{}", bounds(schema)),
        Some("number") => format!("number{}", bounds(schema)),
        Some("boolean") => "true or false".to_owned(),
        Some("string") => "text".to_owned(),
        Some("array") if schema["items"].is_array() => {
            let elements = schema["items"].as_array().into_iter().flatten();
            let texts: Vec<String> = elements
                .map(|element| type_text(resolve(element, definitions), definitions))
                .collect();
            format!("list of {}: {}", texts.len(), texts.join("; "))
        }
        Some("array") => {
            let element = type_text(resolve(&schema["items"], definitions), definitions);
            match (schema.get("minItems"), schema.get("maxItems")) {
                (Some(least), Some(most)) if least == most => format!("list of {least}: {element}"),
                _ => format!("list: {element}"),
            }
        }
        Some("object") => match schema.get("additionalProperties") {
            Some(value) if value.is_object() => {
                format!(
                    "mapping from names: {}",
                    type_text(resolve(value, definitions), definitions)
                )
            }
            _ => "mapping".to_owned(),
        },
        _ => match schema.get("enum").and_then(Value::as_array) {
            Some(values) => values.iter().map(flow).collect::<Vec<_>>().join(" or "),
            None => "any value".to_owned(),
        },
    }
}

/// Whether a bound is of the setting, and not only of the type that holds it.
fn is_told(bound: &Value) -> bool {
    bound.as_i64().is_none_or(|bound| bound < i64::from(u32::MAX))
}

fn bounds(schema: &Value) -> String {
    if let (Some(least), Some(most)) = (schema.get("minimum"), schema.get("maximum"))
        && least == most
    {
        return format!(", always {}", flow(least));
    }
    let words = [
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    ];
    let found: Vec<String> = words
        .iter()
        .filter_map(|(key, word)| {
            Some(format!(
                "{word} {}",
                flow(schema.get(*key).filter(|bound| is_told(bound))?)
            ))
        })
        .collect();
    if found.is_empty() {
        String::new()
    } else {
        format!(", {}", found.join(" and "))
    }
}

/// A value as it would stand in a line of YAML.
pub fn flow(value: &Value) -> String {
    let entries = |entries: &Map<String, Value>| {
        entries
            .iter()
            .map(|(key, value)| format!("{key}: {}", flow(value)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match value {
        Value::String(text) => text.clone(),
        Value::Array(elements) => format!("[{}]", elements.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(object) if object.is_empty() => "{}".to_owned(),
        Value::Object(object) => format!("{{ {} }}", entries(object)),
        other => other.to_string(),
    }
}
