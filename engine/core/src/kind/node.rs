//! The record of a kind, and the trait that its config implements.

use std::any::Any;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Contract, Stage};
use crate::document::{Fault, Tree, decode};
use crate::services::{ServiceError, Services};

/// Keys of a node that the compiler reads itself.
pub const COMMON_KEYS: &[&str] = &["type", "inputs"];

/// A kind of node, as its config.
pub trait NodeConfig: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The value of `type`.
    const KIND: &'static str;
    /// One sentence.
    const SUMMARY: &'static str;
    /// A ready node in YAML, without its name: what an editor offers.
    const EXAMPLE: &'static str;

    /// What this node promises and needs.
    fn contract(&self) -> Contract;

    /// The running stage. `node` is its name.
    fn build(&self, node: &str, services: &dyn Services) -> Result<Stage, ServiceError>;
}

/// A config whose kind is known at run time only.
pub trait AnyConfig: Any + Send + Sync {
    /// See [`NodeConfig::contract`].
    fn contract(&self) -> Contract;
    /// The config with every default written out.
    fn resolved(&self) -> Value;
    /// See [`NodeConfig::build`].
    fn build(&self, node: &str, services: &dyn Services) -> Result<Stage, ServiceError>;
}

impl<C: NodeConfig> AnyConfig for C {
    fn contract(&self) -> Contract {
        NodeConfig::contract(self)
    }

    fn resolved(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    fn build(&self, node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        NodeConfig::build(self, node, services)
    }
}

/// A config, or everything that is wrong with it.
pub type Decoded = Result<Box<dyn AnyConfig>, Vec<Fault>>;

/// What is known of a kind before any node of it exists: enough to check a file and to write the schema.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The value of `type`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// A ready node in YAML, without its name.
    pub example: &'static str,
    /// Schema of the config.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Reads the config from a node's tree.
    pub decode: fn(&Tree) -> Decoded,
    /// Reads a resolved config.
    pub load: fn(Value) -> Result<Box<dyn AnyConfig>, String>,
}

impl Kind {
    /// The record of the kind whose config is `C`.
    pub const fn of<C: NodeConfig>() -> Self {
        Self {
            name: C::KIND,
            summary: C::SUMMARY,
            example: C::EXAMPLE,
            schema: |generator| generator.subschema_for::<C>(),
            decode: |tree| decode::<C>(tree, COMMON_KEYS).map(|config| Box::new(config) as Box<dyn AnyConfig>),
            load: |value| {
                serde_path_to_error::deserialize::<_, C>(value)
                    .map(|config| Box::new(config) as Box<dyn AnyConfig>)
                    .map_err(|error| error.to_string())
            },
        }
    }
}
