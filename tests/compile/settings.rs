//! Every setting has an effect.

use std::collections::BTreeSet;
use std::path::Path;

use rlpipe_runtime::compile::pipeline_schema;
use rlpipe_stages::KINDS;
use rlpipe_tests::{compile_text, project};
use serde_json::Value;

/// What the compiler looks up by name: the kind, and an input of a node.
const LOOKED_UP: &[&str] = &["initial_weights", "type"];
/// Settings that have one value in this version: any other is refused when they are decoded.
const ONE_VALUE: &[&str] = &[
    "cpu_offload",
    "expert",
    "loop",
    "order",
    "parallel",
    "reduction",
    "sequence",
    "shard",
    "tensor",
];

/// Names of all properties but the variants of choices, which take exactly one.
fn property_names(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(keys) => {
            let properties = keys.get("properties").and_then(Value::as_object);
            let is_choice = schema["allOf"][0]["maxProperties"] == 1;
            if let Some(properties) = properties.filter(|_| !is_choice) {
                // Old names are read as the new ones.
                let current = properties
                    .iter()
                    .filter(|(_, schema)| schema.get("deprecated").is_none());
                names.extend(current.map(|(name, _)| name.clone()));
            }
            for schema in keys.values() {
                property_names(schema, names);
            }
        }
        Value::Array(schemas) => schemas.iter().for_each(|schema| property_names(schema, names)),
        _ => {}
    }
}

/// Sources without their tests.
fn read_sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = std::fs::read_to_string(&path).unwrap();
            text.push_str(file.split("#[cfg(test)]").next().unwrap_or_default());
        }
    }
}

/// A setting that nothing reads would be accepted and ignored.
#[test]
fn i25b_every_setting_is_read_somewhere() {
    let mut names = BTreeSet::new();
    property_names(&pipeline_schema(KINDS), &mut names);
    assert!(names.len() > 80, "{}", names.len());
    let mut sources = String::new();
    for folder in ["engine", "nodes"] {
        read_sources(&project().join(folder), &mut sources);
    }
    let is_in_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let read: BTreeSet<&str> = sources
        .split('.')
        .skip(1)
        .map(|rest| rest.strip_prefix("r#").unwrap_or(rest))
        .map(|rest| {
            rest.split(|character| !is_in_name(character))
                .next()
                .unwrap_or_default()
        })
        .collect();
    let unread: Vec<&String> = names
        .iter()
        .filter(|name| !read.contains(name.as_str()))
        .filter(|name| !LOOKED_UP.contains(&name.as_str()) && !ONE_VALUE.contains(&name.as_str()))
        .collect();
    assert!(unread.is_empty(), "declared and never read: {unread:?}");
}

/// A variable that is not set anywhere.
const UNSET: &str = "OF_NO_WORTH_HERE";

#[test]
fn a_setting_that_is_an_optional_variable_without_a_value_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let said = |text: &str| -> Vec<String> {
        let outcome = compile_text(folder.path(), "small.yaml", text);
        let of_interest = |code: &str| ["RL0201", "RL0204", "RL0602", "RL0606"].contains(&code);
        let said = outcome.diagnostics.iter().filter(|said| of_interest(said.code.id));
        said.map(|said| format!("{} {}", said.code.id, said.message)).collect()
    };
    let plain = format!(
        "version: 1\nname: small\nenv:\n  vars:\n    {UNSET}: {{ kind: int, optional: true }}\nrun:\n  work_dir: runs\n  total_steps: 3\n"
    );
    for seed in [format!("  seed: ${{{UNSET}}}\n"), format!("  seed: \"${{{UNSET}}}\"\n")] {
        assert_eq!(said(&format!("{plain}{seed}")), [""; 0]);
    }
    let needed = said(&plain.replace("work_dir: runs", &format!("work_dir: runs/${{{UNSET}}}")));
    assert_eq!(needed, [format!("RL0602 the variable `{UNSET}` is not set")]);
}
