//! From the schemas that types give to ones that editors show well.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::super::renamed::{RENAMED, Renamed};

/// Where a number or a switch may stand: `${NAME}` and nothing else.
const REFERENCE: &str = "#/definitions/Reference";
/// Where a text of a certain form may stand: a text with a `${NAME}` in it.
pub const REFERENCE_IN_TEXT: &str = "#/definitions/ReferenceInText";

/// Keys that describe a value instead of bounding it.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "deprecationMessage",
    "doNotSuggest",
];

/// What makes a mapping a choice.
static ONE_KEY: LazyLock<Value> = LazyLock::new(|| json!({ "minProperties": 1, "maxProperties": 1 }));

/// Whether a schema is a mapping with exactly one of its keys.
pub fn is_choice(schema: &Value) -> bool {
    let all = schema.get("allOf").and_then(Value::as_array);
    all.is_some_and(|all| all.contains(&ONE_KEY))
}

/// The definitions that references are checked against.
pub fn reference_definitions() -> [(String, Value); 2] {
    let definition = |pattern: &str| json!({ "description": "A variable of `env.vars`, such as `${NAME}`.", "type": "string", "pattern": pattern });
    [
        (
            "Reference".to_owned(),
            definition(r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}$"),
        ),
        (
            "ReferenceInText".to_owned(),
            definition(r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"),
        ),
    ]
}

/// Calls `visit` for each schema directly below one.
pub fn below(schema: &mut Map<String, Value>, visit: &mut dyn FnMut(&mut Value)) {
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(&mut *visit),
            ("anyOf" | "oneOf" | "allOf" | "items", Value::Array(schemas)) => schemas.iter_mut().for_each(&mut *visit),
            ("items" | "additionalProperties" | "then" | "else", value) if value.is_object() => visit(value),
            _ => {}
        }
    }
}

/// Drops what only Rust knows, and brings the rest into the form that editors show best.
pub fn tidy(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    below(object, &mut tidy);
    bound(object);
    drop_null(object);
    unit_choices(object);
    settings_of_choices(object);
    bare_default(object);
    unwrap_lines(object);
    old_names(object);
}

/// Settings that had another name go on being known by it, and are marked for what they are.
fn old_names(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return;
    };
    let found: Vec<&Renamed> = RENAMED
        .iter()
        .filter(|renamed| properties.contains_key(renamed.new) && !properties.contains_key(renamed.old))
        .collect();
    for renamed in &found {
        let mut setting = properties[renamed.new].clone();
        let message = format!("The old name of `{}`, and works as that does.", renamed.new);
        if let Value::Object(setting) = &mut setting {
            setting.insert("description".to_owned(), message.clone().into());
            setting.insert("deprecated".to_owned(), true.into());
            setting.insert("deprecationMessage".to_owned(), message.into());
            setting.insert("doNotSuggest".to_owned(), true.into());
        }
        properties.insert(renamed.old.to_owned(), setting);
    }
    for renamed in found {
        let Some(Value::Array(required)) = schema.get_mut("required") else {
            continue;
        };
        let before = required.len();
        required.retain(|name| name != renamed.new);
        if required.len() < before {
            let either = json!({ "if": { "required": [renamed.old] }, "else": { "required": [renamed.new] } });
            if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
                all.push(either);
            }
        }
    }
}

/// The bounds that a whole number has by its type, which only Rust calls a format.
fn bound(schema: &mut Map<String, Value>) {
    let largest = match schema.remove("format").as_ref().and_then(Value::as_str) {
        Some("uint32") => i64::from(u32::MAX),
        Some("uint64") => i64::MAX,
        _ => return,
    };
    schema.entry("maximum").or_insert_with(|| largest.into());
}

/// A key that may be left out is not offered as `null`.
fn drop_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        let before = any.len();
        any.retain(|schema| schema.get("type").is_none_or(|name| name != "null"));
        if let ([only], true) = (any.as_slice(), any.len() < before) {
            let only = only.clone();
            schema.remove("anyOf");
            match only {
                // Draft-07 ignores what stands beside a `$ref`.
                Value::Object(only) if only.contains_key("$ref") => {
                    schema.insert("allOf".to_owned(), json!([only]));
                }
                Value::Object(only) => {
                    for (key, value) in only {
                        schema.entry(key).or_insert(value);
                    }
                }
                _ => {}
            }
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}

/// A choice among documented names becomes an enum with a description of each.
fn unit_choices(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get("oneOf") else {
        return;
    };
    let mut names = Vec::new();
    let mut described = Vec::new();
    for variant in variants {
        let listed = variant.get("const").map(std::slice::from_ref);
        let Some(values) = listed.or(variant.get("enum").and_then(Value::as_array).map(Vec::as_slice)) else {
            return;
        };
        for value in values {
            names.push(value.clone());
            described.push(variant.get("description").cloned().unwrap_or_else(|| "".into()));
        }
    }
    schema.remove("oneOf");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), names.into());
    schema.insert("enumDescriptions".to_owned(), described.clone().into());
    schema.insert("markdownEnumDescriptions".to_owned(), described.into());
}

/// The variants `{ name: { settings } }` become one mapping with exactly one key, and an `if` leads to it or to the bare
/// names, so that a fault is at its own place and not "valid under none of these". The `anyOf` beside it only tells
/// editors what there is.
fn settings_of_choices(schema: &mut Map<String, Value>) {
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(variants)) = schema.get(key) else {
            continue;
        };
        let (settings, mut others): (Vec<Value>, Vec<Value>) = variants.iter().cloned().partition(is_variant);
        if settings.is_empty() {
            continue;
        }
        let mut properties = Map::new();
        for variant in settings {
            let description = variant.get("description").cloned();
            let examples = variant.get("examples").and_then(Value::as_array).cloned();
            let Some(Value::Object(variant)) = variant.get("properties") else {
                continue;
            };
            for (name, value) in variant {
                let mut value = described(value.clone(), description.clone());
                // Those of a variant are written as the whole choice is: `{ name: settings }`.
                let examples = examples.iter().flatten().filter_map(|example| example.get(name));
                let examples: Vec<Value> = examples.cloned().collect();
                if let Some(value) = value.as_object_mut().filter(|_| !examples.is_empty()) {
                    value.insert("examples".to_owned(), examples.into());
                }
                properties.insert(name.clone(), value);
            }
        }
        let merged = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
            // Beside the keys, `maxProperties` would keep editors from offering them: they count what is being typed.
            "allOf": [ONE_KEY.clone()],
        });
        schema.remove(key);
        if others.is_empty() {
            schema.extend(merged.as_object().cloned().unwrap_or_default());
        } else {
            let bare = if others.len() == 1 {
                others[0].clone()
            } else {
                json!({ "anyOf": others })
            };
            others.extend([merged.clone(), Value::Bool(true)]);
            // Whatever names a key lets others be: some editors take what it does not name for a slip.
            schema.insert(
                "if".to_owned(),
                json!({ "type": "object", "additionalProperties": true }),
            );
            schema.insert("then".to_owned(), merged);
            schema.insert("else".to_owned(), bare);
            schema.insert("anyOf".to_owned(), Value::Array(others));
        }
    }
}

/// A choice by default without settings is shown by its name.
fn bare_default(schema: &mut Map<String, Value>) {
    let Some(Value::Object(default)) = schema.get("default") else {
        return;
    };
    let mut entries = default.iter();
    if let (Some((name, Value::Object(settings))), None) = (entries.next(), entries.next())
        && settings.is_empty()
    {
        let name = name.clone();
        schema.insert("default".to_owned(), name.into());
    }
}

/// Whether it is `{ name: ... }` of an enum: an object of exactly one key, which must be there.
fn is_variant(schema: &Value) -> bool {
    let keys = schema.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    keys == 1 && required == 1 && schema.get("additionalProperties") == Some(&Value::Bool(false))
}

/// The schema with a description, if it has none of its own.
fn described(schema: Value, description: Option<Value>) -> Value {
    let (Some(description), Value::Object(mut object)) = (description, schema.clone()) else {
        return schema;
    };
    if object.contains_key("$ref") {
        object = Map::from_iter([("allOf".to_owned(), json!([object]))]);
    }
    object.insert("description".to_owned(), description);
    Value::Object(object)
}

/// Line ends within a paragraph of a description are only those of the source.
fn unwrap_lines(schema: &mut Map<String, Value>) {
    let Some(Value::String(description)) = schema.get("description") else {
        return;
    };
    let paragraphs: Vec<String> = description
        .split("\n\n")
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let description = paragraphs.join("\n\n");
    schema.insert("description".to_owned(), description.into());
}

/// Lets a reference to a variable stand for each scalar that is not free text.
pub fn allow_references(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    if object.contains_key("if") {
        for key in ["then", "else"] {
            object.get_mut(key).map(allow_references);
        }
        return;
    }
    let reference = reference_for(object);
    if let Some(Value::Array(any)) = object.get_mut("anyOf") {
        // One reference for all alternatives, not one for each.
        let settings = any
            .iter_mut()
            .filter(|schema| schema.as_object().is_some_and(|it| own_reference(it).is_none()));
        settings.for_each(allow_references);
        any.extend(reference.map(|reference| json!({ "$ref": reference })));
        return;
    }
    below(object, &mut allow_references);
    let Some(reference) = reference else { return };
    let (outside, inside): (Map<String, Value>, Map<String, Value>) = std::mem::take(object)
        .into_iter()
        .partition(|(key, _)| ANNOTATIONS.contains(&key.as_str()));
    *object = outside;
    object.insert("anyOf".to_owned(), json!([inside, { "$ref": reference }]));
}

/// The kind of reference that may stand for a value of this schema.
fn reference_for(schema: &Map<String, Value>) -> Option<&'static str> {
    if let Some(Value::Array(any)) = schema.get("anyOf") {
        let kinds = any.iter().filter_map(Value::as_object).filter_map(own_reference);
        return kinds.max_by_key(|kind| kind.len());
    }
    own_reference(schema)
}

fn own_reference(schema: &Map<String, Value>) -> Option<&'static str> {
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number" | "boolean") => Some(REFERENCE),
        Some("string") if schema.contains_key("enum") || schema.contains_key("pattern") => Some(REFERENCE_IN_TEXT),
        _ => None,
    }
}
