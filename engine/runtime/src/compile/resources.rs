//! RL07: whether the pools can carry what is put into them.

use std::collections::BTreeMap;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::kind::{Role, Target};

use super::config::Accelerator;
use super::pipeline::{Node, Pipeline};
use super::read::quoted;

/// Checks what nodes claim of pools and models.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let mut pool_of_model: BTreeMap<&str, (&str, &Node)> = BTreeMap::new();
    let mut engine_of_model: BTreeMap<&str, &Node> = BTreeMap::new();
    let mut idle: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for (_, node, contract) in pipeline.live() {
        let (Some(pool_name), Some(model)) = (contract.used(Target::Pool), contract.used(Target::Model)) else {
            continue;
        };
        // Names that are not declared were reported.
        let (Some(pool), true) = (pipeline.pools.get(pool_name), pipeline.models.contains_key(model)) else {
            continue;
        };
        if pool
            .config
            .as_ref()
            .is_some_and(|pool| pool.accelerator == Accelerator::None)
        {
            idle.entry(pool_name).or_default().push(node);
        }
        match pool_of_model.get(model) {
            Some((other_pool, other)) if *other_pool != pool_name => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0702,
                    node.range_of(&["pool"]),
                    format!(
                        "the model `{model}` is in two pools: `{}` has it in `{other_pool}`, `{}` in `{pool_name}`",
                        other.name, node.name
                    ),
                )
                .label_text("this pool")
                .label(other.range_of(&["pool"]), "the other pool")
                .note("this version trains and generates in the same pool, where both share the weights"),
            ),
            Some(_) => {}
            None => {
                pool_of_model.insert(model, (pool_name, node));
            }
        }
        if matches!(contract.role, Role::Engine { .. })
            && let Some(other) = engine_of_model.insert(model, node)
        {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0704,
                    node.key_range,
                    format!("`{}` and `{}` both serve the model `{model}`", other.name, node.name),
                )
                .label_text("the second engine")
                .label(other.key_range, "the first one")
                .note("one engine serves any number of agent loops"),
            );
        }
    }
    for (pool, nodes) in idle {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let need = if names.len() == 1 { "needs" } else { "need" };
        let place = pipeline
            .range_of(&["pools", pool, "accelerator"])
            .unwrap_or(nodes[0].key_range);
        let message = format!(
            "{} {need} a pool that computes, but `{pool}` has `accelerator: none`",
            quoted(&names)
        );
        let mut diagnostic = Diagnostic::error(&codes::RL0703, place, message)
            .label_text("for judging only")
            .note("`auto`, `cpu` and `cuda` compute");
        for node in nodes {
            diagnostic = diagnostic.label(node.range_of(&["pool"]), "computes");
        }
        diagnostics.push(diagnostic);
    }
}
