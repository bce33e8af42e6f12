//! What editors show and offer of each key: described, with the defaults that decoding gives, and snippets that decode.

use std::sync::LazyLock;

use rlpipe_core::document::{Format, to_yaml};
use rlpipe_core::kind::Kind;
use rlpipe_runtime::compile::{EnvConfig, ModelConfig, PoolConfig, RunConfig, pipeline_schema};
use rlpipe_stages::KINDS;
use rlpipe_tests::{Schema, compile_text, tree_of};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| pipeline_schema(KINDS));

fn schema(own: &'static Value) -> Schema<'static> {
    Schema {
        definitions: &SCHEMA["definitions"],
        own,
    }
}

/// Calls `visit` with the path and the schema of each key anywhere in the schema.
fn each_key(path: &str, own: &'static Value, visit: &mut dyn FnMut(&str, &'static Value)) {
    match own {
        Value::Object(object) => {
            for (key, below) in object {
                if let ("properties", Value::Object(properties)) = (key.as_str(), below) {
                    for (name, property) in properties {
                        let path = format!("{path}.{name}");
                        visit(&path, property);
                        each_key(&path, property, visit);
                    }
                } else if !matches!(key.as_str(), "default" | "examples" | "defaultSnippets" | "if") {
                    each_key(
                        &if key == "definitions" {
                            String::new()
                        } else {
                            format!("{path}/{key}")
                        },
                        below,
                        visit,
                    );
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| each_key(path, element, visit)),
        _ => {}
    }
}

#[test]
fn every_key_is_described() {
    let mut seen = 0;
    each_key("", &SCHEMA, &mut |path, property| {
        seen += 1;
        let body = schema(property).resolved().own;
        let text = |key: &str| {
            property
                .get(key)
                .or(body.get(key))
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (description, markdown) = (text("description"), text("markdownDescription"));
        assert!(
            description.len() > 5 && description.ends_with('.'),
            "{path}: {description:?}"
        );
        assert!(!description.contains('\n'), "{path}: {description:?}");
        assert!(markdown.starts_with(description), "{path}: {markdown:?}");
        assert_eq!(
            property.get("default").is_some(),
            markdown.contains("\n\nDefault: `"),
            "{path}: {markdown}"
        );
        assert!(!text("title").is_empty(), "{path} has no title");
    });
    assert!(seen > 250, "only {seen} keys");
}

/// Free text, lists and mappings can be anything: an example says what.
#[test]
fn what_is_not_obvious_has_an_example() {
    // Names of what the file itself declares, and the mappings that declare them.
    let names = ["pool", "model", "to", "name", "pools", "models", "nodes"];
    each_key("", &SCHEMA, &mut |path, property| {
        let key = path.rsplit('.').next().unwrap_or_default();
        if property.get("default").is_some_and(|default| *default != json!({}))
            || names.contains(&key)
            || path.contains(".inputs.")
        {
            return;
        }
        let is_free = |form: &Schema<'_>| {
            let is_open = form.own.get("additionalProperties").is_some_and(Value::is_object);
            let kind = form.own["type"].as_str().unwrap_or("several");
            match kind {
                "string" => form.own.get("enum").is_none(),
                "object" => is_open,
                _ => {
                    matches!(kind, "array" | "several")
                        && form.own.get("enum").is_none()
                        && form.own.get("const").is_none()
                }
            }
        };
        if schema(property).alternatives().iter().any(is_free) && !schema(property).alternatives()[0].is_choice() {
            let examples = property.get("examples").and_then(Value::as_array);
            assert!(examples.is_some_and(|list| !list.is_empty()), "{path} has no example");
        }
    });
}

#[test]
fn nothing_is_null() {
    fn check(path: &str, value: &Value) {
        // In an enum it is a value with a meaning: nothing was given.
        assert!(!value.is_null() || path.ends_with("/enum"), "{path} is null");
        assert!(*value != json!("null"), "{path} offers null");
        match value {
            Value::Object(object) => object
                .iter()
                .for_each(|(key, value)| check(&format!("{path}/{key}"), value)),
            Value::Array(list) => list.iter().for_each(|value| check(path, value)),
            _ => {}
        }
    }
    check("", &SCHEMA);
}

#[test]
fn examples_fit() {
    each_key("", &SCHEMA, &mut |path, property| {
        for example in property.get("examples").and_then(Value::as_array).into_iter().flatten() {
            let mut whole = property.clone();
            whole["definitions"] = SCHEMA["definitions"].clone();
            let faults = jsonschema::draft7::new(&whole).unwrap().iter_errors(example).count();
            assert_eq!(faults, 0, "{path}: {example}");
        }
    });
}

/// A choice by its name alone is the choice with no settings.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(entries) => match entries.iter().next() {
            Some((name, Value::Object(settings))) if entries.len() == 1 && settings.is_empty() => name.as_str().into(),
            _ => entries
                .iter()
                .map(|(key, value)| (key.clone(), normal(value)))
                .collect::<Map<_, _>>()
                .into(),
        },
        Value::Array(list) => list.iter().map(normal).collect(),
        Value::Number(number) => number.as_f64().into(),
        other => other.clone(),
    }
}

/// The value of a key, or null.
fn part<'a>(entries: &'a Map<String, Value>, key: &str) -> &'a Value {
    entries.get(key).unwrap_or(&Value::Null)
}

/// Asserts that what was left out is what the schema says; `resolved` is what decoding made of `given`.
fn defaults_hold(path: &str, schema: Schema<'static>, given: &Value, resolved: &Value) {
    for form in schema.alternatives() {
        let (Value::Object(entries), Value::Object(after)) = (given, resolved) else {
            // The name of a choice: it stands for all of its settings.
            if let (Some(name), Value::Object(after)) = (given.as_str(), resolved)
                && let Some((_, settings)) = form.properties().find(|(key, _)| form.is_choice() && *key == name)
            {
                defaults_hold(&format!("{path}.{name}"), settings, &json!({}), part(after, name));
            }
            continue;
        };
        if let Some(below) = form.own.get("additionalProperties").filter(|below| below.is_object()) {
            for (name, value) in entries {
                defaults_hold(&format!("{path}.{name}"), form.with(below), value, part(after, name));
            }
        }
        for (key, property) in form.properties() {
            let path = format!("{path}.{key}");
            match (entries.get(key), property.own.get("default")) {
                (Some(value), _) => defaults_hold(&path, property, value, part(after, key)),
                _ if form.is_choice() || ["type", "inputs"].contains(&key) => {}
                (None, Some(default)) => {
                    // An empty mapping or list may be left out of the resolved file.
                    let found = after.get(key).map_or_else(|| default.clone(), Clone::clone);
                    assert!(
                        after.contains_key(key) || *default == json!({}) || *default == json!([]),
                        "{path} is {default} by default, and nothing after decoding"
                    );
                    let filled = with_own_defaults(property, &normal(default));
                    assert_eq!(normal(&found), filled, "{path}");
                }
                (None, None) => {
                    assert!(
                        after.get(key).is_none_or(Value::is_null),
                        "{path} has no default, but is {}",
                        after[key]
                    );
                }
            }
        }
    }
}

/// A default that is a choice's name, with the defaults of its settings where it has such.
fn with_own_defaults(schema: Schema<'static>, default: &Value) -> Value {
    let Some(name) = default.as_str() else {
        return default.clone();
    };
    for form in schema.alternatives().into_iter().filter(|form| form.is_choice()) {
        if let Some((_, settings)) = form.properties().find(|(key, _)| *key == name) {
            let settings = settings.resolved();
            let own: Map<String, Value> = settings
                .properties()
                .filter_map(|(key, property)| Some((key.to_owned(), normal(property.own.get("default")?))))
                .collect();
            if !own.is_empty() {
                return json!({ name: own });
            }
        }
    }
    default.clone()
}

fn decoded(kind: &Kind, node: &Value) -> Value {
    let (tree, _) = tree_of(&to_yaml(node), Format::Yaml);
    let config = (kind.decode)(&tree.unwrap());
    let config = config.unwrap_or_else(|faults| panic!("{node}: {faults:?}"));
    config.resolved()
}

#[test]
fn defaults_are_those_of_decoding() {
    for (index, kind) in KINDS.iter().enumerate() {
        let body = schema(&SCHEMA["definitions"]["Node"]["allOf"][index]["then"]).resolved();
        for node in body.forms() {
            defaults_hold(kind.name, body, &node, &decoded(kind, &node));
        }
    }
}

fn section<T: DeserializeOwned + Serialize>(name: &str, own: &'static Value) {
    let body = schema(own).resolved();
    for value in body.forms() {
        let config: T =
            serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {value}: {error}"));
        defaults_hold(name, body, &value, &serde_json::to_value(config).unwrap());
    }
}

#[test]
fn defaults_of_sections_are_those_of_decoding() {
    let properties = &SCHEMA["properties"];
    section::<RunConfig>("run", &properties["run"]);
    section::<PoolConfig>("pool", &properties["pools"]["additionalProperties"]);
    section::<ModelConfig>("model", &properties["models"]["additionalProperties"]);
    section::<EnvConfig>("env", &properties["env"]);
}

/// A pipeline with all that examples refer to, to be changed in one place.
fn around(place: &str, body: &Value) -> Value {
    let mut document = json!({
        "version": 1,
        "name": "test",
        "env": { "vars": {} },
        "run": { "work_dir": "runs", "total_steps": 1 },
        "pools": { "gpu": { "accelerator": "cuda" }, "judges": { "accelerator": "none" } },
        "models": { "policy": { "path": "models/policy" } },
        "nodes": {},
    });
    for kind in KINDS {
        let (example, _) = tree_of(kind.example, Format::Yaml);
        document["nodes"][format!("a_{}", kind.name)] = example.unwrap().to_json();
    }
    match place {
        "run" => document["run"] = body.clone(),
        "pools" | "models" => document[place] = body.clone(),
        "vars" => document["env"]["vars"]["NAME"] = body.clone(),
        _ => document[place.trim_end_matches('.')]["new"] = body.clone(),
    }
    document
}

#[test]
fn snippets_decode() {
    let definitions = &SCHEMA["definitions"];
    let lists = [
        ("nodes", &definitions["Node"]["else"]["defaultSnippets"], KINDS.len()),
        ("run", &definitions["RunConfig"]["defaultSnippets"], 2),
        ("pools", &SCHEMA["properties"]["pools"]["defaultSnippets"], 3),
        ("pools.", &definitions["PoolConfig"]["defaultSnippets"], 3),
        ("models", &SCHEMA["properties"]["models"]["defaultSnippets"], 3),
        ("models.", &definitions["ModelConfig"]["defaultSnippets"], 3),
        ("vars", &definitions["VarConfig"]["defaultSnippets"], 4),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (place, list, count) in lists {
        let list = list.as_array().unwrap();
        assert_eq!(list.len(), count, "{place}");
        for snippet in list {
            let (label, body) = (&snippet["label"], &snippet["body"]);
            assert!(
                snippet["description"].as_str().is_some_and(|text| text.len() > 5),
                "{label}"
            );
            // An editor would take it for a place to fill in.
            assert!(!body.to_string().contains('$'), "{label}: {body}");
            let document = around(place, body);
            let faults = jsonschema::draft7::new(&SCHEMA).unwrap().iter_errors(&document).count();
            assert_eq!(faults, 0, "{place} {label}: {body}");
            let outcome = compile_text(folder.path(), "test.yaml", &to_yaml(&document));
            let undecoded = outcome
                .diagnostics
                .iter()
                .filter(|diagnostic| diagnostic.code.id < "RL03");
            let undecoded: Vec<&String> = undecoded.map(|diagnostic| &diagnostic.message).collect();
            assert_eq!(undecoded, [] as [&String; 0], "{place} {label}");
        }
    }
}
