//! RL07: whether the pools can carry what is put into them.

use std::collections::BTreeMap;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::kind::{Role, Target};

use super::config::Accelerator;
use super::pipeline::{Node, Pipeline};

/// Checks what nodes claim of pools and models.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let mut pool_of_model: BTreeMap<&str, (&str, &Node)> = BTreeMap::new();
    let mut engine_of_model: BTreeMap<&str, &Node> = BTreeMap::new();
    for (_, node, contract) in pipeline.live() {
        let used = |target: Target| {
            contract.uses.iter().find(|used| used.target == target).map(|used| used.name.as_str())
        };
        let (Some(pool_name), Some(model)) = (used(Target::Pool), used(Target::Model)) else { continue };
        let pool = pipeline.pools.get(pool_name);
        if pool.and_then(|pool| pool.config.as_ref()).is_some_and(|pool| pool.accelerator == Accelerator::None) {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0703,
                    node.range_of(&["pool"]),
                    format!("`{}` needs a pool that computes, but `{pool_name}` has `accelerator: none`", node.name),
                )
                .label(pipeline.range_of(&["pools", pool_name, "accelerator"]).unwrap_or(node.key_range), "for judges only"),
            );
        }
        match pool_of_model.get(model) {
            Some((other_pool, other)) if *other_pool != pool_name => diagnostics.push(
                Diagnostic::error(
                    &codes::RL0702,
                    node.range_of(&["pool"]),
                    format!("the model `{model}` is in two pools: `{}` has it in `{other_pool}`, `{}` in `{pool_name}`", other.name, node.name),
                )
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
                .label(other.key_range, "the other engine")
                .note("one engine serves any number of agent loops"),
            );
        }
    }
}
