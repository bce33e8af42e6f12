//! A pipeline as the passes see it.

use std::collections::{BTreeMap, HashMap};

use rlpipe_core::document::{Range, Segment, Tree};
use rlpipe_core::kind::{AnyConfig, Contract, Field, Kind, PortType, Target};

use super::config::{EnvConfig, ModelConfig, PoolConfig, RunConfig};
use super::environment::Variables;
use super::hub::{HubCache, HubConfig};
use super::trials::Test;

/// One entry of a section, with where it stands.
pub struct Section<T> {
    /// The entry's key in the file.
    pub key_range: Range,
    /// None where it could not be decoded; that was reported.
    pub config: Option<T>,
}

/// A pipeline, as far as it could be understood.
pub struct Pipeline {
    /// Everything, with references filled in.
    pub tree: Tree,
    /// The value of `name`.
    pub name: Option<String>,
    /// The section `env`.
    pub env: EnvConfig,
    /// What became of each variable.
    pub variables: Variables,
    /// The section `run`; none where it could not be decoded.
    pub run: Option<RunConfig>,
    /// The section `pools`.
    pub pools: BTreeMap<String, Section<PoolConfig>>,
    /// The section `models`.
    pub models: BTreeMap<String, Section<ModelConfig>>,
    /// Where models of a hub are looked for.
    pub hub: HubCache,
    /// Nodes, in the order of the file.
    pub nodes: Vec<Node>,
    /// Where each node is in `nodes`, by its name.
    pub index: HashMap<String, usize>,
    /// The section `tests`, in the order of the file.
    pub tests: Vec<Test>,
}

/// One end of an edge.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Index of the node that gives.
    pub node: usize,
    /// Its port.
    pub port: &'static str,
    /// What crosses.
    pub port_type: PortType,
    /// Where the reference stands.
    pub range: Range,
    /// The fields that what crosses has.
    pub fields: Vec<Field>,
}

/// One node.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where its name stands.
    pub key_range: Range,
    /// Its text.
    pub tree: Tree,
    /// Its kind; none where `type` is missing or unknown.
    pub kind: Option<&'static Kind>,
    /// Its config; none where it could not be decoded.
    pub config: Option<Box<dyn AnyConfig>>,
    /// What it promises and needs; there if the config is.
    pub contract: Option<Contract>,
    /// Edges into each input port.
    pub inputs: BTreeMap<&'static str, Vec<Endpoint>>,
    /// Whether anything that runs needs it.
    pub live: bool,
}

impl Node {
    /// Where the value of a key stands, such as `["sampling", "max_new_tokens"]`; the node's name where the key is left out.
    pub fn range_of(&self, path: &[&str]) -> Range {
        let segments: Vec<Segment> = path.iter().map(|key| Segment::from(*key)).collect();
        let found = self.tree.at(&segments);
        if found.depth == segments.len() {
            found.head()
        } else {
            self.key_range
        }
    }

    /// Where the value of a key stands, if the file has it.
    pub fn written(&self, path: &[&str]) -> Option<Range> {
        let segments: Vec<Segment> = path.iter().map(|key| Segment::from(*key)).collect();
        let found = self.tree.at(&segments);
        (found.depth == segments.len()).then(|| found.head())
    }

    /// The node that an input takes, where it takes exactly one.
    pub fn input(&self, port: &str) -> Option<&Endpoint> {
        self.inputs.get(port).and_then(|endpoints| endpoints.first())
    }
}

impl Pipeline {
    /// Live nodes with their contracts.
    pub fn live(&self) -> impl Iterator<Item = (usize, &Node, &Contract)> {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.live)
            .filter_map(|(index, node)| Some((index, node, node.contract.as_ref()?)))
    }

    /// The index of a node.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// All nodes that `start` takes from, directly or not, itself first.
    pub fn upstream(&self, start: usize) -> Vec<usize> {
        let mut known = vec![false; self.nodes.len()];
        known[start] = true;
        let mut found = vec![start];
        let mut next = 0;
        while next < found.len() {
            for endpoint in self.nodes[found[next]].inputs.values().flatten() {
                if !std::mem::replace(&mut known[endpoint.node], true) {
                    found.push(endpoint.node);
                }
            }
            next += 1;
        }
        found
    }

    /// Of each node, whether it takes from `start`, directly or not; `start` does.
    pub fn downstream(&self, start: usize) -> Vec<bool> {
        let mut takers = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for endpoint in node.inputs.values().flatten() {
                takers[endpoint.node].push(index);
            }
        }
        let mut found = vec![false; self.nodes.len()];
        let mut waiting = vec![start];
        while let Some(index) = waiting.pop() {
            if !std::mem::replace(&mut found[index], true) {
                waiting.extend(&takers[index]);
            }
        }
        found
    }

    /// Whether anything that runs names this pool or model.
    pub fn uses(&self, target: Target, name: &str) -> bool {
        let mut uses = self.live().flat_map(|(_, _, contract)| &contract.uses);
        uses.any(|used| used.target == target && used.name == name)
    }

    /// The models of a hub that are used.
    pub fn hub_models(&self) -> impl Iterator<Item = (&str, &HubConfig)> {
        let used = self.models.iter().filter(|(name, _)| self.uses(Target::Model, name));
        used.filter_map(|(name, model)| Some((name.as_str(), model.config.as_ref()?.hub.as_ref()?)))
    }

    /// Puts the commit in place of each branch or tag of a hub's model that is here, so that the plan, and with it a
    /// checkpoint, names what is run.
    pub fn pin_revisions(&mut self) {
        for model in self.models.values_mut() {
            if let Some(hub) = model.config.as_mut().and_then(|config| config.hub.as_mut())
                && let Some(snapshot) = self.hub.find(hub)
            {
                hub.revision = snapshot.commit;
            }
        }
    }

    /// Where a value of the file stands, such as `["run", "total_steps"]`.
    pub fn range_of(&self, path: &[&str]) -> Option<Range> {
        let segments: Vec<Segment> = path.iter().map(|key| Segment::from(*key)).collect();
        let found = self.tree.at(&segments);
        (found.depth == segments.len()).then(|| found.head())
    }
}
