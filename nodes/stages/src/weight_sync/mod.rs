//! `weight_sync`: from now on the engine generates with what the trainer has learnt.

use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::kind::{
    Contract, Input, NodeConfig, PortType, Role, Stage, StageError, Target, Use, WeightSync as WeightSyncStage,
};
use rlpipe_core::services::{Engine, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Brings a trainer's weights to an engine.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightSyncConfig {
    /// The engine that takes the weights. This names the engine's state, it is not an edge of the graph.
    to: String,
    /// Every so many train steps. Intervals of evaluators, checkpoints and exports must be multiples of it.
    #[serde(default = "one")]
    every_steps: NonZeroU32,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl NodeConfig for WeightSyncConfig {
    const KIND: &'static str = "weight_sync";
    const SUMMARY: &'static str = "Brings a trainer's weights to an engine.";
    const EXAMPLE: &'static str = "\
type: weight_sync
inputs: { weights: trainer }
to: engine
every_steps: 1
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![Input::one("weights", PortType::Weights)],
            outputs: Vec::new(),
            uses: vec![Use {
                key: "to",
                name: self.to.clone(),
                target: Target::State(PortType::Engine),
            }],
            role: Role::WeightSync {
                to: self.to.clone(),
                every_steps: self.every_steps.get(),
            },
        }
    }

    fn build(&self, _node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::WeightSync(Arc::new(WeightSync {
            engine: services.engine(&self.to)?,
        })))
    }
}

struct WeightSync {
    engine: Arc<dyn Engine>,
}

#[async_trait]
impl WeightSyncStage for WeightSync {
    async fn sync(&self, version: u64) -> Result<(), StageError> {
        Ok(self.engine.set_version(version).await?)
    }
}
