//! `rlpipe graph`: the graph of what runs, as a drawing in the terminal, as Mermaid or as DOT.

mod dot;
mod mermaid;
mod text;

use std::process::ExitCode;

use anyhow::Result;
use rlpipe_core::kind::{PortType, Target};
use rlpipe_runtime::plan::Plan;
use rlpipe_stages::KINDS;
use serde::Serialize;

use crate::arguments::{Format, GraphArguments, GraphFormat};
use crate::validate::{compiled, show};
use crate::{FAULTY, output};

/// Nodes and what connects them.
pub struct Graph {
    /// Each after those it takes from.
    pub nodes: Vec<Node>,
    /// What flows.
    pub edges: Vec<Edge>,
    /// References to state, which are no edges.
    pub states: Vec<State>,
}

/// A node.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The pool that it runs in; none: the driver.
    pub pool: Option<String>,
}

/// Something flows from an output to an input.
pub struct Edge {
    /// Index of the node that gives.
    pub from: usize,
    /// Index of the node that takes.
    pub to: usize,
    /// What flows.
    pub port_type: PortType,
}

/// A node uses another's state: weights are brought to an engine.
#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// The node that uses it.
    pub node: String,
    /// The setting that says so.
    pub key: String,
    /// Whose state it is.
    pub of: String,
}

impl Graph {
    /// The graph of a plan.
    pub fn of(plan: &Plan) -> Result<Self> {
        let index = |name: &str| plan.nodes.iter().position(|node| node.name == name);
        let mut graph = Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            states: Vec::new(),
        };
        for (to, node) in plan.nodes.iter().enumerate() {
            let contract = node.load(KINDS)?.contract();
            let states = contract
                .uses
                .iter()
                .filter(|used| matches!(used.target, Target::State(_)));
            graph.states.extend(states.map(|used| State {
                node: node.name.clone(),
                key: used.key.to_owned(),
                of: used.name.clone(),
            }));
            graph.nodes.push(Node {
                name: node.name.clone(),
                kind: node.kind.clone(),
                pool: contract.used(Target::Pool).map(str::to_owned),
            });
            let edges = node.inputs.values().flatten();
            graph.edges.extend(edges.filter_map(|edge| {
                Some(Edge {
                    from: index(&edge.node)?,
                    to,
                    port_type: edge.port_type,
                })
            }));
        }
        Ok(graph)
    }

    /// Pools that nodes name, in the order in which they do.
    fn pools(&self) -> Vec<&str> {
        let mut pools: Vec<&str> = Vec::new();
        for pool in self.nodes.iter().filter_map(|node| node.pool.as_deref()) {
            if !pools.contains(&pool) {
                pools.push(pool);
            }
        }
        pools
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }
}

/// Prints the graph.
pub fn graph(arguments: &GraphArguments) -> Result<ExitCode> {
    let outcome = compiled(&arguments.pipeline)?;
    show(&outcome, Format::Full)?;
    let pipeline = outcome.pipeline.as_ref();
    let plan = pipeline
        .filter(|_| !outcome.diagnostics.has_errors())
        .and_then(Plan::of);
    let Some(plan) = plan else {
        return Ok(ExitCode::from(FAULTY));
    };
    let graph = Graph::of(&plan)?;
    output::print(&match arguments.format {
        GraphFormat::Text => text::text(&graph, output::width()),
        GraphFormat::Mermaid => mermaid::mermaid(&graph),
        GraphFormat::Dot => dot::dot(&plan.name, &graph),
    })?;
    Ok(ExitCode::SUCCESS)
}
