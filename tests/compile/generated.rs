//! Pipelines made of the schema itself: what it lets pass can be decoded, and what it does not, cannot.

use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use rlpipe_core::document::{Format, to_yaml};
use rlpipe_runtime::compile::{Outcome, pipeline_schema};
use rlpipe_runtime::plan::{Plan, resolved};
use rlpipe_stages::KINDS;
use rlpipe_tests::{Schema, compile_text, large_pipeline, project, to_toml, tree_of};
use serde_json::{Map, Value, json};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| pipeline_schema(KINDS));
static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::draft7::new(&SCHEMA).unwrap());

/// What a schema leaves to the compiler in RL02: which of several keys is given, templates, how much all is together.
const ACROSS_KEYS: [&str; 3] = ["RL0205", "RL0209", "RL0211"];

fn at(own: &'static Value) -> Schema<'static> {
    Schema {
        definitions: &SCHEMA["definitions"],
        own,
    }
}

fn node(kind: usize) -> Schema<'static> {
    at(&SCHEMA["definitions"]["Node"]["allOf"][kind]["then"]).resolved()
}

fn section(name: &str) -> Schema<'static> {
    match name {
        "pools" | "models" => at(&SCHEMA["properties"][name]["additionalProperties"]).resolved(),
        _ => at(&SCHEMA["properties"][name]).resolved(),
    }
}

/// Any pipeline with a node of each of some kinds; nothing joins them.
fn pipelines() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::subsequence((0..KINDS.len()).collect::<Vec<_>>(), 1..=4);
    let nodes = kinds.prop_flat_map(|kinds| {
        let nodes: Vec<BoxedStrategy<Value>> = kinds.iter().map(|kind| node(*kind).any()).collect();
        nodes.prop_map(|nodes| {
            let named = nodes.into_iter().enumerate();
            named
                .map(|(index, node)| (format!("node_{index}"), node))
                .collect::<Map<_, _>>()
        })
    });
    let parts = (
        section("run").any(),
        section("pools").any(),
        section("models").any(),
        section("env").any(),
        nodes,
    );
    parts.prop_map(|(run, pool, model, env, nodes)| {
        json!({
            "version": 1,
            "name": "test",
            "env": env,
            "run": run,
            "pools": { "pool": pool },
            "models": { "model": model },
            "nodes": nodes,
        })
    })
}

fn undecoded(outcome: &Outcome) -> Vec<String> {
    let found = outcome
        .diagnostics
        .iter()
        .map(|diagnostic| (diagnostic.code.id, &diagnostic.message));
    found
        .filter(|(code, _)| *code < "RL03" && !ACROSS_KEYS.contains(code))
        .map(|(code, message)| format!("{code}: {message}"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_the_schema_lets_pass_decodes(pipeline in pipelines()) {
        let faults: Vec<String> = VALIDATOR.iter_errors(&pipeline).map(|error| error.to_string()).collect();
        prop_assert!(faults.is_empty(), "generated against the schema: {:?}", faults);
        let folder = tempfile::tempdir().unwrap();
        let yaml = compile_text(folder.path(), "test.yaml", &to_yaml(&pipeline));
        prop_assert_eq!(undecoded(&yaml), Vec::<String>::new());
        let toml = compile_text(folder.path(), "test.toml", &to_toml(&pipeline));
        prop_assert_eq!(undecoded(&toml), Vec::<String>::new());
        let codes = |outcome: &Outcome| {
            let mut codes: Vec<_> = outcome.diagnostics.iter().map(|found| (found.code.id, found.message.clone())).collect();
            codes.sort();
            codes
        };
        prop_assert_eq!(codes(&yaml), codes(&toml));
    }

    /// The settings of one node of the quickstart are others.
    #[test]
    fn what_is_valid_resolves_and_loads_again((name, settings) in changed_nodes()) {
        let pipeline = changed(&name, &settings);
        let folder = tempfile::tempdir().unwrap();
        let outcome = compile_text(folder.path(), "test.yaml", &to_yaml(&pipeline));
        if !outcome.diagnostics.has_errors() {
            let first = outcome.pipeline.unwrap();
            let text = to_yaml(&resolved(&first).unwrap());
            let again = compile_text(folder.path(), "resolved.yaml", &text);
            prop_assert!(!again.diagnostics.has_errors(), "{}", text);
            let second = again.pipeline.unwrap();
            prop_assert_eq!(to_yaml(&resolved(&second).unwrap()), text);
            let plan = |pipeline| serde_json::to_value(Plan::of(pipeline).unwrap()).unwrap();
            prop_assert_eq!(plan(&first), plan(&second));
        }
    }
}

fn quickstart() -> Value {
    let text = std::fs::read_to_string(project().join("pipelines/quickstart.yaml")).unwrap();
    tree_of(&text, Format::Yaml).0.unwrap().to_json()
}

/// The quickstart with other settings of a node. Which nodes, pools and models there are stays.
fn changed(name: &str, settings: &Value) -> Value {
    let mut pipeline = quickstart();
    let kept = ["inputs", "pool", "model", "to", "dataset", "datasets", "mix"];
    for (key, value) in settings.as_object().into_iter().flatten() {
        if !kept.contains(&key.as_str()) {
            pipeline["nodes"][name][key] = value.clone();
        }
    }
    pipeline
}

/// A node of the quickstart with other settings, most of which leave it valid.
fn changed_nodes() -> impl Strategy<Value = (String, Value)> {
    let pipeline = quickstart();
    let nodes = pipeline["nodes"].as_object().unwrap().clone();
    prop::sample::select(nodes.into_iter().collect::<Vec<_>>()).prop_flat_map(|(name, own)| {
        let kind = KINDS.iter().position(|kind| own["type"] == kind.name).unwrap();
        node(kind).any().prop_map(move |settings| (name.clone(), settings))
    })
}

#[test]
fn many_changes_of_a_node_are_valid() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let folder = tempfile::tempdir().unwrap();
    let valid = (0..60).filter(|_| {
        let (name, settings) = changed_nodes().new_tree(&mut runner).unwrap().current();
        let pipeline = changed(&name, &settings);
        let outcome = compile_text(folder.path(), "test.yaml", &to_yaml(&pipeline));
        !outcome.diagnostics.has_errors()
    });
    let valid = valid.count();
    assert!(valid >= 15, "only {valid} of 60 are valid");
}

/// Values that are not of a type.
fn wrong_types() -> [Value; 5] {
    [json!(true), json!(-1.5), json!("§"), json!([[]]), json!({ "§": {} })]
}

/// Whether a schema takes a value.
fn takes(schema: Schema<'_>, value: &Value) -> bool {
    let mut whole = schema.own.clone();
    whole["definitions"] = schema.definitions.clone();
    jsonschema::draft7::new(&whole).unwrap().is_valid(value)
}

/// Each key of each kind with a value of each other type: the schema and decoding agree.
#[test]
fn wrong_types_are_rejected_by_both() {
    let mut rejected = 0;
    for (index, kind) in KINDS.iter().enumerate() {
        let body = node(index);
        let least = body.least();
        for (key, property) in body.properties().filter(|(key, _)| *key != "type" && *key != "inputs") {
            for wrong in wrong_types() {
                let mut node = least.clone();
                node[key] = wrong.clone();
                let (tree, _) = tree_of(&to_yaml(&node), Format::Yaml);
                let decodes = (kind.decode)(&tree.unwrap()).is_ok();
                assert_eq!(decodes, takes(property, &wrong), "{}.{key}: {wrong}", kind.name);
                rejected += usize::from(!decodes);
            }
        }
    }
    assert!(rejected > 200, "only {rejected} are wrong");
}

#[test]
fn ten_thousand_nodes_are_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let wide = large_pipeline(10_000, 10_000);
    let deep = large_pipeline(10_000, 1);
    let yaml = |pipeline: &Value| to_yaml(pipeline).replace("$${", "${");
    for (name, text) in [
        ("wide.yaml", yaml(&wide)),
        ("deep.yaml", yaml(&deep)),
        ("wide.toml", to_toml(&wide)),
    ] {
        let outcome = compile_text(folder.path(), name, &text);
        let found: Vec<&String> = outcome.diagnostics.iter().map(|found| &found.message).take(3).collect();
        assert_eq!(found, [] as [&String; 0], "{name}");
        let pipeline = outcome.pipeline.unwrap();
        assert_eq!(pipeline.nodes.len(), 10_000, "{name}");
        assert!(pipeline.nodes.iter().all(|node| node.live), "{name}");
    }
}
