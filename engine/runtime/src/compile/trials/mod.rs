//! Tests that a pipeline brings along: what each feeds, expects, and therefore runs.

mod check;
mod config;
mod feeds;

use rlpipe_core::diagnostic::Diagnostics;
use rlpipe_core::document::{Fault, Range, Segment, Tree, merge};
use rlpipe_core::kind::{AnyConfig, Contract, Input, PortType, Target};

pub use check::check;
pub use config::{Expectation, ExpectedGroup, FedGroup, Feed, Maybe, TestConfig};
pub use feeds::{Feeds, load as load_feeds};

use super::pipeline::{Node, Pipeline};

/// One test.
pub struct Test {
    /// Its key in `tests`.
    pub name: String,
    /// Where that stands.
    pub key_range: Range,
    /// None where it could not be decoded; that was reported.
    pub config: Option<TestConfig>,
}

/// Decodes the section `tests`, in the order of the file.
pub fn decode_all(tree: &Tree, diagnostics: &mut Diagnostics) -> Vec<Test> {
    super::configs::mapping(tree, "tests", diagnostics)
        .iter()
        .map(|entry| Test {
            name: entry.key.clone(),
            key_range: entry.key_range,
            config: super::configs::decode_section(&entry.value, &["tests", &entry.key], diagnostics),
        })
        .collect()
}

impl Test {
    /// Where something of it stands, such as `["expect", "scored"]`: its key, or its own value where it has none.
    pub fn place(&self, pipeline: &Pipeline, path: &[Segment]) -> Range {
        let whole: Vec<Segment> = ["tests".into(), self.name.as_str().into()]
            .into_iter()
            .chain(path.iter().cloned())
            .collect();
        let found = pipeline.tree.at(&whole);
        found.key_range.unwrap_or_else(|| found.head())
    }

    /// Where a value of it stands; its key where that is long.
    pub fn value_place(&self, pipeline: &Pipeline, path: &[Segment]) -> Range {
        let whole: Vec<Segment> = ["tests".into(), self.name.as_str().into()]
            .into_iter()
            .chain(path.iter().cloned())
            .collect();
        pipeline.tree.at(&whole).head()
    }

    /// The settings that it gives a node, as they are written.
    fn settings<'a>(&self, pipeline: &'a Pipeline, node: &str) -> Option<&'a Tree> {
        let tests = pipeline.tree.get("tests")?;
        tests.get(&self.name)?.get("settings")?.get(node)
    }

    /// A node's config in this test, where that is not its own.
    pub fn own_config(&self, pipeline: &Pipeline, node: &Node) -> Option<Result<Box<dyn AnyConfig>, Vec<Fault>>> {
        let settings = self.settings(pipeline, &node.name)?;
        let kind = node.kind?;
        Some((kind.decode)(&merge(node.tree.clone(), settings.clone())))
    }

    /// Why a node on the way is passed over, where it is: it needs a model, only adds fields to a train step, and nothing is
    /// said of it.
    pub fn passes_over(&self, node: &Node) -> Option<String> {
        let contract = node.contract.as_ref()?;
        let config = self.config.as_ref()?;
        let is_named = config.feed.contains_key(&node.name) || config.expect.contains_key(&node.name);
        let of_steps = carrier(contract).is_some_and(|input| input.port_type == PortType::Batch)
            && contract
                .outputs
                .iter()
                .all(|output| output.port_type == PortType::Batch)
            && !contract.outputs.is_empty();
        why_not(contract).filter(|_| of_steps && !is_named)
    }

    /// The nodes that it runs, each after those it takes from: those that lie between what is fed and what is expected,
    /// both included. What a node is fed takes the place of all that its inputs would give.
    pub fn route(&self, pipeline: &Pipeline) -> Route {
        let mut route = Route {
            order: Vec::new(),
            reached: vec![false; pipeline.nodes.len()],
        };
        let Some(config) = &self.config else { return route };
        let mut seen = vec![false; pipeline.nodes.len()];
        for start in config.expect.keys().filter_map(|name| pipeline.find(name)) {
            let mut stack = vec![start];
            while let Some(&index) = stack.last() {
                let node = &pipeline.nodes[index];
                let is_fed = config.feed.contains_key(&node.name);
                let first_visit = !std::mem::replace(&mut seen[index], true);
                if first_visit && !is_fed {
                    let before = carried(node).map(|endpoint| endpoint.node);
                    stack.extend(before.filter(|before| !seen[*before]));
                    continue;
                }
                stack.pop();
                let gets = is_fed || carried(node).any(|endpoint| route.reached[endpoint.node]);
                if gets && !std::mem::replace(&mut route.reached[index], true) {
                    route.order.push(index);
                }
            }
        }
        route
    }
}

/// The edges into a node over which groups come.
pub fn carried(node: &Node) -> impl Iterator<Item = &super::pipeline::Endpoint> {
    let is_carried = |endpoint: &&super::pipeline::Endpoint| carries(endpoint.port_type);
    node.inputs.values().flatten().filter(is_carried)
}

fn carries(port_type: PortType) -> bool {
    matches!(port_type, PortType::Groups | PortType::Batch)
}

/// The nodes that a test runs.
pub struct Route {
    /// Their indices, each after those it takes from.
    pub order: Vec<usize>,
    /// Of every node, whether anything that is fed comes to it.
    reached: Vec<bool>,
}

/// The input that groups come in by.
pub fn carrier(contract: &Contract) -> Option<&Input> {
    contract.inputs.iter().find(|input| carries(input.port_type))
}

/// Why a node cannot be run by itself; none where it can.
fn why_not(contract: &Contract) -> Option<String> {
    if carrier(contract).is_none() {
        return Some("takes no groups".to_owned());
    }
    if let Some(used) = contract.uses.iter().find(|used| used.target != Target::Pool) {
        return Some(match used.target {
            Target::Model => format!("needs the model `{}`", used.name),
            _ => format!("needs `{}`", used.name),
        });
    }
    let other = contract.inputs.iter().find(|input| !carries(input.port_type));
    other.map(|input| format!("takes `{}` too", input.port_type))
}
