//! What each kind says of itself.

use std::collections::BTreeSet;

use rlpipe_core::kind::{AnyConfig, Arity, Field, PortType, Target};
use rlpipe_stages::KINDS;

use crate::fakes::config;

#[test]
fn every_example_decodes_and_its_inputs_are_those_of_the_contract() {
    for kind in KINDS {
        let (found, decoded) = config(kind.example);
        assert_eq!(found.name, kind.name, "the example is of its kind");
        let contract = decoded.contract();
        let tree: serde_json::Value = example_inputs(kind.example);
        let given: BTreeSet<&str> = tree
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        for input in &contract.inputs {
            assert!(
                given.contains(input.name) || input.arity == Arity::Optional,
                "the example of `{}` lacks the input `{}`",
                kind.name,
                input.name
            );
        }
        let known: BTreeSet<&str> = contract.inputs.iter().map(|input| input.name).collect();
        assert!(
            given.is_subset(&known),
            "the example of `{}` has inputs that are not its own",
            kind.name
        );
        let outputs: BTreeSet<&str> = contract.outputs.iter().map(|output| output.name).collect();
        assert_eq!(
            outputs.len(),
            contract.outputs.len(),
            "`{}` has two outputs of one name",
            kind.name
        );
        assert!(
            !contract.inputs.is_empty() || !contract.outputs.is_empty(),
            "`{}` is connected to nothing",
            kind.name
        );
    }
}

/// The inputs of an example: a flow mapping of plain names, on one line.
fn example_inputs(example: &str) -> serde_json::Value {
    let Some(line) = example.lines().find_map(|line| line.strip_prefix("inputs: ")) else {
        return serde_json::Value::Null;
    };
    let inner = line.trim_start_matches('{').trim_end_matches('}');
    let keys = inner.split(',').filter_map(|pair| pair.split_once(':'));
    keys.map(|(key, value)| (key.trim().to_owned(), serde_json::Value::from(value.trim())))
        .collect()
}

#[test]
fn a_resolved_config_loads_again_and_is_the_same() {
    for kind in KINDS {
        let resolved = config(kind.example).1.resolved();
        let again = (kind.load)(resolved.clone()).unwrap_or_else(|error| panic!("`{}`: {error}", kind.name));
        assert_eq!(again.resolved(), resolved, "`{}`", kind.name);
    }
}

fn decoded(text: &str) -> Box<dyn AnyConfig> {
    config(text).1
}

#[test]
fn a_kl_term_needs_a_reference_and_nothing_else_does() {
    let trainer = |loss: &str| {
        let text =
            format!("type: trainer\npool: gpu\nmodel: policy\noptimizer: {{ adamw: {{ lr: 1e-6 }} }}\nloss: {loss}");
        decoded(&text).contract().inputs[0].needs.clone()
    };
    assert!(!trainer("{ kl: none }").contains(&Field::ReferenceLogprobs));
    for estimator in ["k1", "k2", "k3", "{ k3: { coefficient: 0.01 } }"] {
        assert!(
            trainer(&format!("{{ kl: {estimator} }}")).contains(&Field::ReferenceLogprobs),
            "{estimator}"
        );
    }
}

#[test]
fn nodes_that_compute_name_their_pool_and_their_model() {
    for kind in KINDS {
        let contract = decoded(kind.example).contract();
        let targets: Vec<Target> = contract.uses.iter().map(|used| used.target).collect();
        let wanted: &[Target] = match kind.name {
            "rollout_engine" | "trainer" | "sft_trainer" | "reference" => &[Target::Pool, Target::Model],
            "weight_sync" => &[Target::State(PortType::Engine)],
            _ => &[],
        };
        assert_eq!(targets, wanted, "`{}`", kind.name);
    }
}
