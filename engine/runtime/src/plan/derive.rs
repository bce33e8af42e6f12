//! The parts of a plan that follow from nodes: their order and edges, clocks, and workers with their models.

use std::collections::BTreeMap;

use rlpipe_core::kind::{PortType, Role, Target};

use super::{Clock, Edge, PlannedEngine, PlannedModel, PlannedNode, PlannedWorker};
use crate::compile::{Node, Pipeline, PoolConfig, RunConfig, synced_every};

/// Live nodes, each after those it takes from; the order of the file where that leaves a choice.
pub fn in_order(pipeline: &Pipeline) -> Vec<usize> {
    let mut placed = vec![false; pipeline.nodes.len()];
    let mut order = Vec::new();
    for start in (0..pipeline.nodes.len()).filter(|index| pipeline.nodes[*index].live) {
        let mut stack = vec![start];
        while let Some(&index) = stack.last() {
            let mut before = pipeline.nodes[index]
                .inputs
                .values()
                .flatten()
                .map(|endpoint| endpoint.node);
            if let Some(next) = before.find(|node| !placed[*node]) {
                stack.push(next);
                continue;
            }
            stack.pop();
            if !std::mem::replace(&mut placed[index], true) {
                order.push(index);
            }
        }
    }
    order
}

/// A node with its edges.
pub fn planned_node(pipeline: &Pipeline, node: &Node) -> Option<PlannedNode> {
    let edge = |endpoint: &crate::compile::Endpoint| Edge {
        node: pipeline.nodes[endpoint.node].name.clone(),
        port: endpoint.port.to_owned(),
        port_type: endpoint.port_type,
        fields: match endpoint.port_type {
            PortType::Groups | PortType::Batch => endpoint.fields.clone(),
            _ => Vec::new(),
        },
    };
    Some(PlannedNode {
        name: node.name.clone(),
        kind: node.kind?.name.to_owned(),
        config: node.config.as_ref()?.resolved(),
        inputs: node
            .inputs
            .iter()
            .map(|(port, endpoints)| ((*port).to_owned(), endpoints.iter().map(edge).collect()))
            .collect(),
    })
}

/// When nodes and the run's own files are due.
pub fn clocks(pipeline: &Pipeline, run: &RunConfig) -> Vec<Clock> {
    let mut clocks = Vec::new();
    for (_, node, contract) in pipeline.live() {
        match contract.role {
            Role::WeightSync { every_steps, .. } => clocks.push(Clock {
                name: node.name.clone(),
                at_start: true,
                every_steps: Some(every_steps.into()),
                at_end: true,
            }),
            Role::Evaluator {
                at_start,
                every_steps,
                at_end,
                ..
            } => clocks.push(Clock {
                name: node.name.clone(),
                at_start,
                every_steps: every_steps.map(u64::from),
                at_end,
            }),
            _ => {}
        }
    }
    if let Some(checkpoint) = &run.checkpoint {
        clocks.push(of_run("run.checkpoint", checkpoint.every_steps.get()));
    }
    if let Some(export) = &run.hf_export {
        clocks.push(Clock {
            at_end: true,
            ..of_run("run.hf_export", export.every_steps.get())
        });
    }
    clocks
}

fn of_run(name: &str, every_steps: u32) -> Clock {
    Clock {
        name: name.to_owned(),
        at_start: false,
        every_steps: Some(every_steps.into()),
        at_end: false,
    }
}

/// One worker for each place in each pool that computes, with the models that its nodes name.
pub fn workers(pipeline: &Pipeline) -> Vec<PlannedWorker> {
    let mut models_of_pool: BTreeMap<&str, BTreeMap<&str, PlannedModel>> = BTreeMap::new();
    for (_, node, contract) in pipeline.live() {
        let (Some(pool), Some(model)) = (contract.used(Target::Pool), contract.used(Target::Model)) else {
            continue;
        };
        let planned = models_of_pool
            .entry(pool)
            .or_default()
            .entry(model)
            .or_insert_with(|| PlannedModel {
                model: model.to_owned(),
                trainable: false,
                engine: None,
            });
        match contract.role {
            Role::Trainer { .. } | Role::SftTrainer { .. } => planned.trainable = true,
            Role::Engine {
                max_context_tokens,
                max_concurrent_rollouts,
                memory_fraction,
                ..
            } => {
                planned.engine = Some(PlannedEngine {
                    node: node.name.clone(),
                    max_context_tokens,
                    slots: max_concurrent_rollouts.unwrap_or(0),
                    memory_fraction,
                    own_weights: synced_every(pipeline, &node.name) > 1,
                });
            }
            _ => {}
        }
    }
    let mut workers = Vec::new();
    for (pool, models) in models_of_pool {
        let count = pipeline
            .pools
            .get(pool)
            .and_then(|pool| pool.config.as_ref())
            .map_or(0, PoolConfig::workers);
        for _ in 0..count {
            workers.push(PlannedWorker {
                pool: pool.to_owned(),
                rank: workers.len() as u32,
                models: models.values().cloned().collect(),
            });
        }
    }
    workers
}
