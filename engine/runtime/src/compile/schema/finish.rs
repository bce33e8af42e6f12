//! What editors show of a key: its name as the title, and its description with the default.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::describe::flow;
use super::tidy::below;

/// Titles and descriptions for the whole schema.
pub fn finish(schema: &mut Value) {
    let mut bare = BTreeSet::new();
    references(schema, &mut bare);
    let Some(Value::Object(definitions)) = schema.get_mut("definitions") else {
        return;
    };
    for (name, definition) in definitions.iter_mut() {
        // Editors show the first description that they meet. Beside that of a key, that of its type is in the way.
        if !bare.contains(name)
            && let Value::Object(definition) = definition
        {
            definition.remove("description");
        }
    }
    each(schema, &mut describe);
}

/// The names of definitions that something refers to without describing them itself.
fn references(schema: &Value, bare: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                bare.extend(reference.rsplit('/').next().map(str::to_owned));
            }
            let described = object.contains_key("description");
            let below = object.iter().filter(|(key, _)| !(described && *key == "allOf"));
            below.for_each(|(_, value)| references(value, bare));
        }
        Value::Array(elements) => elements.iter().for_each(|element| references(element, bare)),
        _ => {}
    }
}

fn each(schema: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Value::Object(object) = schema else { return };
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for (key, property) in properties {
            if let Value::Object(property) = property {
                property.entry("title").or_insert_with(|| key.as_str().into());
            }
        }
    }
    below(object, &mut |schema| each(schema, change));
    if let Some(Value::Object(definitions)) = object.get_mut("definitions") {
        definitions.values_mut().for_each(|schema| each(schema, change));
    }
    change(object);
}

fn describe(schema: &mut Map<String, Value>) {
    schema.remove("markdownDescription");
    let Some(Value::String(description)) = schema.get("description") else {
        return;
    };
    let default = schema
        .get("default")
        .map(|default| format!("\n\nDefault: `{}`", flow(default)));
    let text = format!("{description}{}", default.unwrap_or_default());
    schema.insert("markdownDescription".to_owned(), text.into());
}
