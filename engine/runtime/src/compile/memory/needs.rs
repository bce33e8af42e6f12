//! What nodes ask of each pool's worker, and the networks of its models.

use std::collections::BTreeMap;

use rlpipe_core::kind::{Role, Target};
use rlpipe_model::ModelConfig as Network;

use super::super::config::ModelConfig;
use super::super::data::{init_spec, model_folder};
use super::super::pipeline::Pipeline;

/// A model in a worker.
pub struct Held<'a> {
    /// Its name.
    pub model: &'a str,
    /// Its network, or why it is not known.
    pub network: Result<Network, String>,
    /// Whether it has fp32 master weights, moments and gradients.
    pub trained: bool,
    /// Whether a copy stays as it is.
    pub frozen: bool,
    /// How it generates.
    pub engine: Option<Engine>,
}

/// How a model generates.
pub struct Engine {
    /// Whether it keeps weights of its own.
    pub own_weights: bool,
}

/// What each pool's worker holds, by pool. `outside`: folders of models may be read.
pub fn of_pools(pipeline: &Pipeline, outside: bool) -> BTreeMap<&str, Vec<Held<'_>>> {
    let mut pools: BTreeMap<&str, Vec<Held<'_>>> = BTreeMap::new();
    for (_, node, contract) in pipeline.live() {
        let (Some(pool), Some(model)) = (contract.used(Target::Pool), contract.used(Target::Model)) else {
            continue;
        };
        let Some(config) = pipeline.models.get(model).and_then(|model| model.config.as_ref()) else {
            continue;
        };
        let models = pools.entry(pool).or_default();
        let at = models.iter().position(|held| held.model == model).unwrap_or_else(|| {
            models.push(Held {
                model,
                network: network(pipeline, config, outside),
                trained: false,
                frozen: false,
                engine: None,
            });
            models.len() - 1
        });
        let held = &mut models[at];
        match contract.role {
            Role::Trainer { .. } | Role::SftTrainer { .. } => held.trained = true,
            Role::Reference { .. } => held.frozen = true,
            Role::Engine { .. } => {
                held.engine = Some(Engine {
                    own_weights: synced_every(pipeline, &node.name) > 1,
                });
            }
            _ => {}
        }
    }
    pools
}

/// Train steps between two syncs of an engine.
pub fn synced_every(pipeline: &Pipeline, engine: &str) -> u32 {
    pipeline
        .live()
        .find_map(|(_, _, contract)| match &contract.role {
            Role::WeightSync { to, every_steps } if to == engine => Some(*every_steps),
            _ => None,
        })
        .unwrap_or(1)
}

fn network(pipeline: &Pipeline, config: &ModelConfig, outside: bool) -> Result<Network, String> {
    if let Some(init) = &config.init {
        return init_spec(init).model_config().map_err(|error| error.to_string());
    }
    if !outside {
        return Err("its `config.json` is read by `rlpipe plan`, `rlpipe run` and `--environment` alone".to_owned());
    }
    let folder = model_folder(config, std::path::PathBuf::new(), &pipeline.hub)?;
    rlpipe_model::read_config(&folder).map_err(|faults| rlpipe_model::joined(&faults))
}
