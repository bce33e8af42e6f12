//! The schema for editors: up to date, content with every shipped pipeline, and exact about what is wrong.

use std::sync::LazyLock;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use rlpipe_core::document::{Format, merge};
use rlpipe_runtime::compile::{pipeline_schema, row_schema};
use rlpipe_stages::KINDS;
use rlpipe_tests::{Case, check_generated, project, shipped_pipelines, tree_of};
use serde_json::{Value, json};

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::draft7::new(&pipeline_schema(KINDS)).unwrap());

/// Pointers to what is wrong, and how. Where several alternatives fit, the one that came furthest speaks.
fn faults(document: &Value) -> Vec<String> {
    let mut found: Vec<String> = VALIDATOR.iter_errors(document).map(|error| deepest(&error)).collect();
    found.sort();
    found.dedup();
    found
}

fn deepest(error: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::AnyOf { context } = error.kind() {
        let best = context
            .iter()
            .flatten()
            .max_by_key(|error| error.instance_path().as_str().len());
        if let Some(best) = best.filter(|best| best.instance_path() != error.instance_path()) {
            return deepest(best);
        }
    }
    let what = match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => format!("unknown {}", unexpected.join(", ")),
        ValidationErrorKind::Required { property } => format!("missing {property}"),
        ValidationErrorKind::AnyOf { .. } => "value".to_owned(),
        kind => kind.keyword().to_owned(),
    };
    format!("{}: {what}", error.instance_path())
}

#[test]
fn the_committed_schema_is_up_to_date() {
    let text = serde_json::to_string_pretty(&pipeline_schema(KINDS)).unwrap() + "\n";
    check_generated("schemas/pipeline.schema.json", &text).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_committed_schema_of_rows_is_up_to_date() {
    assert!(jsonschema::meta::is_valid(&row_schema()));
    let text = serde_json::to_string_pretty(&row_schema()).unwrap() + "\n";
    check_generated("schemas/dataset-row.schema.json", &text).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_schema_is_valid_itself() {
    assert!(jsonschema::meta::is_valid(&pipeline_schema(KINDS)));
}

#[test]
fn shipped_pipelines_have_no_faults() {
    let pipelines = shipped_pipelines();
    assert!(!pipelines.is_empty());
    for path in pipelines {
        let text = std::fs::read_to_string(project().join(&path)).unwrap();
        let (tree, diagnostics) = tree_of(&text, Format::of_file(&path));
        assert!(diagnostics.is_empty(), "{path:?}: {diagnostics:?}");
        assert_eq!(faults(&tree.unwrap().to_json()), [] as [&str; 0], "{path:?}");
    }
}

#[test]
fn examples_of_kinds_have_no_faults() {
    for kind in KINDS {
        let (tree, _) = tree_of(kind.example, Format::Yaml);
        assert_eq!(
            faults(&with_node(tree.unwrap().to_json())),
            [] as [&str; 0],
            "{}",
            kind.name
        );
    }
}

fn with_node(node: Value) -> Value {
    json!({
        "version": 1,
        "name": "test",
        "run": { "work_dir": "runs", "total_steps": 1 },
        "pools": {},
        "models": {},
        "nodes": { "node": node },
    })
}

/// A sampler and a trainer that are right, to be changed in one place.
fn document() -> Value {
    let node = json!({
        "type": "trainer",
        "inputs": { "batch": "advantages" },
        "pool": "gpu",
        "model": "policy",
        "optimizer": { "adamw": { "lr": 1e-6 } },
        "loss": { "kl": { "k3": { "coefficient": 0.1 } } },
    });
    let mut document = with_node(node);
    document["pools"] = json!({ "gpu": { "accelerator": "cuda", "host_memory_per_worker": "16GiB" } });
    document["env"] = json!({ "vars": { "SIZE": { "kind": "int" } }, "rules": [{ "at_most_one": ["SIZE"] }] });
    document
}

#[test]
fn faults_are_at_their_place() {
    assert_eq!(faults(&document()), [] as [&str; 0]);
    for (pointer, value, wanted) in [
        (
            "/nodes/node/optimizer_step",
            json!(1),
            "/nodes/node: unknown optimizer_step",
        ),
        ("/nodes/node/type", json!("trianer"), "/nodes/node/type: enum"),
        (
            "/nodes/node/optimizer_steps",
            json!("two"),
            "/nodes/node/optimizer_steps: value",
        ),
        (
            "/nodes/node/optimizer_steps",
            json!(0),
            "/nodes/node/optimizer_steps: value",
        ),
        (
            "/nodes/node/optimizer_steps",
            json!("${A-B}"),
            "/nodes/node/optimizer_steps: value",
        ),
        (
            "/nodes/node/old_logprobs",
            json!("recompte"),
            "/nodes/node/old_logprobs: value",
        ),
        ("/nodes/node/cpu_offload", json!("no"), "/nodes/node/cpu_offload: value"),
        ("/nodes/node/loss/kl", json!("k4"), "/nodes/node/loss/kl: value"),
        (
            "/nodes/node/loss/kl/k4",
            json!({}),
            "/nodes/node/loss/kl: maxProperties\n/nodes/node/loss/kl: unknown k4",
        ),
        (
            "/nodes/node/loss/kl/k3/coeficient",
            json!(1),
            "/nodes/node/loss/kl/k3: unknown coeficient",
        ),
        (
            "/nodes/node/loss/kl/k3/coefficient",
            json!(-1),
            "/nodes/node/loss/kl/k3/coefficient: value",
        ),
        (
            "/nodes/node/optimizer/adamw/betas",
            json!([0.9]),
            "/nodes/node/optimizer/adamw/betas: minItems",
        ),
        (
            "/nodes/node/optimizer/adamw/betas",
            json!([0.9, 1]),
            "/nodes/node/optimizer/adamw/betas/1: value",
        ),
        (
            "/nodes/node/inputs/bach",
            json!("x"),
            "/nodes/node/inputs: unknown bach",
        ),
        ("/nodes/node/inputs/batch", json!(3), "/nodes/node/inputs/batch: type"),
        ("/pools/gpu/acelerator", json!("cpu"), "/pools/gpu: unknown acelerator"),
        ("/pools/gpu/accelerator", json!("gpu"), "/pools/gpu/accelerator: value"),
        (
            "/pools/gpu/host_memory_per_worker",
            json!("16 apples"),
            "/pools/gpu/host_memory_per_worker: value",
        ),
        ("/env/vars/SIZE/kind", json!("integer"), "/env/vars/SIZE/kind: enum"),
        (
            "/env/vars/SIZE/optional",
            json!("${SIZE}"),
            "/env/vars/SIZE/optional: type",
        ),
        (
            "/env/rules/0",
            json!({ "some_of": [] }),
            "/env/rules/0: unknown some_of",
        ),
        ("/run/total_steps", json!("many"), "/run/total_steps: value"),
        ("/version", json!(2), "/version: enum"),
        ("/node", json!({}), ": unknown node"),
    ] {
        let mut changed = document();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match changed.pointer_mut(parent).unwrap() {
            Value::Array(elements) => elements[key.parse::<usize>().unwrap()] = value,
            parent => parent[key] = value,
        }
        assert_eq!(faults(&changed).join("\n"), wanted, "{pointer}");
    }
}

#[test]
fn what_is_missing_is_named() {
    for (pointer, wanted) in [
        ("/nodes/node/model", "/nodes/node: missing \"model\""),
        ("/nodes/node/inputs", "/nodes/node: missing \"inputs\""),
        ("/nodes/node/inputs/batch", "/nodes/node/inputs: missing \"batch\""),
        (
            "/nodes/node/optimizer/adamw/lr",
            "/nodes/node/optimizer/adamw: missing \"lr\"",
        ),
        ("/pools/gpu/accelerator", "/pools/gpu: missing \"accelerator\""),
        ("/run", ": missing \"run\""),
    ] {
        let mut changed = document();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        changed
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .shift_remove(key);
        assert_eq!(faults(&changed).join("\n"), wanted, "{pointer}");
    }
}

#[test]
fn variables_may_stand_for_scalars() {
    for (pointer, value) in [
        ("/nodes/node/optimizer_steps", "${STEPS}"),
        ("/nodes/node/optimizer_steps", "${STEPS:-4}"),
        ("/nodes/node/cpu_offload", "${OFFLOAD}"),
        ("/nodes/node/old_logprobs", "${OLD}"),
        ("/nodes/node/loss/kl", "${KL}"),
        ("/nodes/node/optimizer/adamw/lr", "${LR}"),
        ("/nodes/node/pool", "${POOL}"),
        ("/pools/gpu/host_memory_per_worker", "${SIZE}GiB"),
        ("/name", "run-${NUMBER}"),
        ("/run/total_steps", "${STEPS}"),
    ] {
        let mut changed = document();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[key] = value.into();
        assert_eq!(faults(&changed), [] as [&str; 0], "{pointer}: {value}");
    }
}

/// What a schema can know, it knows; what takes the whole pipeline, it leaves to the compiler.
#[test]
fn the_schema_agrees_with_the_compiler() {
    let by_itself = [
        "RL0107", "RL0109", "RL0201", "RL0202", "RL0203", "RL0204", "RL0206", "RL0207", "RL0208", "RL0210", "RL0304",
        "RL0305", "RL0306", "RL0313",
    ];
    let mut seen = 0;
    for case in Case::all() {
        let Some(code) = case.code() else { continue };
        // Of RL02 only what is listed, and no text that cannot be read or is not all there.
        let is_by_itself = by_itself.contains(&code.as_str());
        if (code.as_str() < "RL03" && !is_by_itself) || case.all_of("with").chain(case.all_of("set")).next().is_some() {
            continue;
        }
        let (own, _) = tree_of(&case.text, Format::of_file(case.name.as_ref()));
        let whole = match case.all_of("base").next() {
            Some(_) => own.unwrap(),
            None => {
                let base = std::fs::read_to_string(Case::folder().join("base/base.yaml")).unwrap();
                merge(tree_of(&base, Format::Yaml).0.unwrap(), own.unwrap())
            }
        };
        let found = faults(&whole.to_json());
        assert_eq!(!found.is_empty(), is_by_itself, "{}: {found:?}", case.name);
        seen += 1;
    }
    assert!(seen > 100, "only {seen} cases");
}
