//! What of a pool's models is written to disk.

use super::super::pipeline::Pipeline;
use super::parts::Sizes;
use super::{Machine, MemoryDevice, device, needs};

/// What of a model is written to disk.
pub struct Stored<'a> {
    /// Its name.
    pub model: &'a str,
    /// Its parameters.
    pub parameters: u64,
    /// Its part of a checkpoint.
    pub checkpoint_bytes: u64,
    /// Whether it is trained, and so exported.
    pub trained: bool,
}

/// Models whose networks are known, with what of each a checkpoint has: fp32 weights and moments of what is trained, and
/// the copies of its own that a worker keeps.
pub fn stored<'a>(pipeline: &'a Pipeline, machine: &Machine) -> Vec<Stored<'a>> {
    let mut all = Vec::new();
    for (name, models) in needs::of_pools(pipeline, true, &[]) {
        let Some(pool) = pipeline.pools.get(name).and_then(|pool| pool.config.as_ref()) else {
            continue;
        };
        let device = device(pool, Some(machine)).unwrap_or(MemoryDevice::Host);
        for held in models {
            let Ok(network) = &held.network else { continue };
            let sizes = Sizes::of(network, held.dtype, device);
            let weights = if held.trained { 4 + 8 } else { sizes.width };
            let own = held.engine.as_ref().is_some_and(|engine| engine.own_weights);
            let copies = u64::from(held.frozen) + u64::from(own);
            all.push(Stored {
                model: held.model,
                parameters: sizes.parameters,
                checkpoint_bytes: sizes.parameters * (weights + copies * sizes.width),
                trained: held.trained,
            });
        }
    }
    all
}
