//! What may stand where, from the schema of pipelines and the contracts of kinds.

use std::collections::BTreeMap;

use rlpipe_core::document::{Segment, Tree};
use rlpipe_core::kind::{Contract, Kind, PortType, Target};
use rlpipe_runtime::compile::{Setting, contract_of_example, is_choice_schema, pipeline_schema, setting_of_schema};
use serde_json::Value;

/// Schema and contracts of all kinds.
pub struct Shapes {
    schema: Value,
    /// All kinds.
    pub kinds: &'static [Kind],
    contracts: BTreeMap<&'static str, Contract>,
    top_level: Vec<String>,
}

/// A value with a name that may be chosen.
pub struct Alternative {
    /// As it is written.
    pub name: String,
    /// What it means.
    pub description: String,
    /// Whether it is text, which TOML has in quotes.
    pub is_text: bool,
    /// Whether it has settings that must be given, so that the name alone is not enough.
    pub needs_settings: bool,
}

/// What a name in a pipeline stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// A node: one that gives this, or any.
    Nodes(Option<PortType>),
    /// A pool.
    Pools,
    /// A model.
    Models,
    /// A variable, in a rule.
    Variables,
}

impl Shapes {
    /// Of these kinds.
    pub fn new(kinds: &'static [Kind]) -> Shapes {
        let contracts = kinds
            .iter()
            .filter_map(|kind| Some((kind.name, contract_of_example(kind)?)));
        let schema = pipeline_schema(kinds);
        let top_level = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone());
        Shapes {
            top_level: top_level.collect(),
            schema,
            kinds,
            contracts: contracts.collect(),
        }
    }

    /// Keys at the top of a pipeline.
    pub fn top_level(&self) -> &[String] {
        &self.top_level
    }

    /// A kind by its name.
    pub fn kind(&self, name: &str) -> Option<&'static Kind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    /// The kind of a node.
    pub fn kind_of(&self, tree: &Tree, node: &str) -> Option<&'static Kind> {
        self.kind(tree.get("nodes")?.get(node)?.get("type")?.as_text()?)
    }

    /// Ports of a kind, and what it uses.
    pub fn contract(&self, kind: &str) -> Option<&Contract> {
        self.contracts.get(kind)
    }

    /// The settings that the mapping at a path may have.
    pub fn settings(&self, path: &[Segment], tree: &Tree) -> Vec<Setting> {
        self.settings_of(self.at(path, kind_at(self, path, tree)))
    }

    /// The settings of a node of this kind.
    pub fn settings_of_kind(&self, kind: &str) -> Vec<Setting> {
        self.settings_of(self.at(&["nodes".into(), "any".into()], Some(kind)))
    }

    fn settings_of(&self, schemas: Vec<&Value>) -> Vec<Setting> {
        let mut found: Vec<Setting> = Vec::new();
        for schema in schemas {
            let required: Vec<&str> = strings(&schema["required"]);
            let properties = schema.get("properties").and_then(Value::as_object);
            // Old names of settings work, and are not offered.
            let current = properties
                .into_iter()
                .flatten()
                .filter(|(_, value)| value.get("deprecated").is_none());
            for (key, value) in current {
                if !found.iter().any(|setting| setting.key == *key) {
                    let required = required.contains(&key.as_str());
                    found.push(setting_of_schema(key, value, required, self.definitions()));
                }
            }
        }
        found
    }

    /// Whether the mapping at a path has exactly one key, which is a choice.
    pub fn is_choice(&self, path: &[Segment], tree: &Tree) -> bool {
        self.at(path, kind_at(self, path, tree))
            .iter()
            .any(|schema| is_choice_schema(schema))
    }

    /// The setting at a path.
    pub fn setting(&self, path: &[Segment], tree: &Tree) -> Option<Setting> {
        let (last, parent) = path.split_last()?;
        let Segment::Key(key) = last else { return None };
        self.settings(parent, tree)
            .into_iter()
            .find(|setting| setting.key == *key)
    }

    /// The values that may be chosen at a path.
    pub fn alternatives(&self, path: &[Segment], tree: &Tree) -> Vec<Alternative> {
        let mut found: Vec<Alternative> = Vec::new();
        let mut add = |name: String, description: &str, is_text: bool, needs_settings: bool| {
            if !found.iter().any(|known| known.name == name) {
                found.push(Alternative {
                    name,
                    description: description.to_owned(),
                    is_text,
                    needs_settings,
                });
            }
        };
        for schema in self.at(path, kind_at(self, path, tree)) {
            for (index, value) in schema["enum"].as_array().into_iter().flatten().enumerate() {
                let description = schema["enumDescriptions"][index].as_str().unwrap_or_default();
                match value.as_str() {
                    Some(name) => add(name.to_owned(), description, true, false),
                    None => add(value.to_string(), description, false, false),
                }
            }
            if schema["type"] == "boolean" {
                add("true".to_owned(), "", false, false);
                add("false".to_owned(), "", false, false);
            }
            let variants = schema.get("properties").filter(|_| is_choice_schema(schema));
            for (name, variant) in variants.and_then(Value::as_object).into_iter().flatten() {
                add(
                    name.clone(),
                    variant["description"].as_str().unwrap_or_default(),
                    true,
                    true,
                );
            }
        }
        found
    }

    /// What a name at a path stands for, if it is one of something declared elsewhere.
    pub fn names(&self, path: &[Segment], tree: &Tree) -> Option<Names> {
        self.names_in(path, kind_at(self, path, tree))
    }

    /// The same, where a node at the path is of this kind.
    pub fn names_in(&self, path: &[Segment], kind: Option<&str>) -> Option<Names> {
        let keys: Vec<Option<&str>> = path.iter().map(key_of).collect();
        match keys.as_slice() {
            [Some("env"), Some("rules"), None, Some(_), None] => Some(Names::Variables),
            [Some("nodes"), Some(_), Some("inputs"), Some(port)]
            | [Some("nodes"), Some(_), Some("inputs"), Some(port), None] => {
                let contract = self.contract(kind?)?;
                let input = contract.inputs.iter().find(|input| input.name == *port)?;
                Some(Names::Nodes(Some(input.port_type)))
            }
            [Some("nodes"), Some(_), Some(key)] => {
                let contract = self.contract(kind?)?;
                let used = contract.uses.iter().find(|used| used.key == *key);
                match (used.map(|used| used.target), *key) {
                    (Some(Target::State(port_type)), _) => Some(Names::Nodes(Some(port_type))),
                    // A use that the kind's example does not have is named as everywhere.
                    (Some(Target::Pool), _) | (None, "pool") => Some(Names::Pools),
                    (Some(Target::Model), _) | (None, "model") => Some(Names::Models),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// What the keys of the mapping at a path stand for, if they are names of things declared elsewhere.
    pub fn names_as_keys(path: &[Segment]) -> Option<Names> {
        let keys: Vec<Option<&str>> = path.iter().map(key_of).collect();
        match keys.as_slice() {
            [Some("nodes"), Some(_), Some("mix")] | [Some("tests"), Some(_), Some("feed" | "expect" | "settings")] => {
                Some(Names::Nodes(None))
            }
            _ => None,
        }
    }

    fn definitions(&self) -> &Value {
        &self.schema["definitions"]
    }

    /// Everything that the schema says of the value at a path.
    fn at(&self, path: &[Segment], kind: Option<&str>) -> Vec<&Value> {
        let mut here = Vec::new();
        self.expand(&self.schema, kind, &mut here);
        for segment in path {
            let mut next = Vec::new();
            for schema in here {
                let below = match segment {
                    // A list of a fixed length has a schema for each element.
                    Segment::Index(index) => schema["items"].get(*index).or_else(|| schema.get("items")),
                    Segment::Key(key) => schema["properties"]
                        .get(key)
                        .or_else(|| schema.get("additionalProperties").filter(|more| more.is_object())),
                };
                if let Some(below) = below {
                    self.expand(below, kind, &mut next);
                }
            }
            here = next;
        }
        here
    }

    /// A schema and all that it refers to and chooses from.
    fn expand<'a>(&'a self, schema: &'a Value, kind: Option<&str>, found: &mut Vec<&'a Value>) {
        if !schema.is_object() || found.iter().any(|known| std::ptr::eq(*known, schema)) {
            return;
        }
        found.push(schema);
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|reference| reference.rsplit('/').next())
        {
            self.expand(&self.definitions()[name], kind, found);
        }
        let mut by_kind = false;
        for part in schema["allOf"].as_array().into_iter().flatten() {
            match part.get("if") {
                // Which settings a node has depends on its kind.
                Some(condition) => {
                    by_kind = true;
                    if kind.is_some() && condition["properties"]["type"]["const"].as_str() == kind {
                        self.expand(&part["then"], kind, found);
                    }
                }
                None => self.expand(part, kind, found),
            }
        }
        for part in schema["anyOf"].as_array().into_iter().flatten().filter(|_| !by_kind) {
            self.expand(part, kind, found);
        }
    }
}

/// The kind of the node that a path leads into.
fn kind_at(shapes: &Shapes, path: &[Segment], tree: &Tree) -> Option<&'static str> {
    match path {
        [Segment::Key(nodes), Segment::Key(node), ..] if nodes == "nodes" => {
            shapes.kind_of(tree, node).map(|kind| kind.name)
        }
        _ => None,
    }
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The key of a segment; none for an element of a list.
pub fn key_of(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Key(key) => Some(key),
        Segment::Index(_) => None,
    }
}
