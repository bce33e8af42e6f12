//! `activations: auto`: of what a forward pass can keep, the most that there is room for.

use rlpipe_core::data::Activations;

use super::super::pipeline::Pipeline;
use super::needs::Held;
use super::table::{ChosenActivations, MemoryPhase, WorkerMemory};

/// From what is kept most of, which is the fastest, to least.
const LEVELS: [Activations; 3] = [
    Activations::Keep,
    Activations::RecomputeGated,
    Activations::RecomputeLayers,
];

/// What is left free of what there is, one part in so many. On a card an allocator has holes, and what was measured was
/// up to 8 % more than was reckoned; a processor's memory is shared with the system and all that runs beside it.
const MARGIN: u64 = 10;

/// Gives every learner that trains and leaves it to rlpipe the first level that fits, with a margin, into what there is
/// beside its packs; where none does, the one that takes least; where it is not known what there is or what is taken,
/// all is kept. `hold` says what a worker holds with these models.
pub fn choose(
    pipeline: &Pipeline,
    models: &mut [Held<'_>],
    hold: impl Fn(&[Held<'_>]) -> WorkerMemory,
) -> Vec<ChosenActivations> {
    let mut all = Vec::new();
    for model in 0..models.len() {
        for learner in 0..models[model].learners.len() {
            let of = models[model].learners[learner];
            if !of.trains {
                continue;
            }
            let (level, too_large) = match of.activations {
                Activations::Auto => chosen(|level| {
                    let mut alone = models.to_vec();
                    // Packs of two nodes are never there at once.
                    let learners = &mut alone[model].learners;
                    learners[learner].activations = level;
                    learners.retain(|one| !one.trains || one.node == of.node);
                    hold(&alone)
                }),
                set => (set, Vec::new()),
            };
            models[model].learners[learner].activations = level;
            all.push(ChosenActivations {
                node: pipeline.nodes[of.node].name.clone(),
                level,
                too_large,
            });
        }
    }
    all
}

/// The level, and what those that keep more would take.
fn chosen(with: impl Fn(Activations) -> WorkerMemory) -> (Activations, Vec<(Activations, u64)>) {
    let mut too_large = Vec::new();
    for level in LEVELS {
        let memory = with(level);
        let (Some(available), Some(_)) = (memory.available_bytes, memory.peak()) else {
            return (Activations::Keep, Vec::new());
        };
        // Nothing else depends on the level.
        let bytes = memory
            .bytes_in(MemoryPhase::Head)
            .max(memory.bytes_in(MemoryPhase::Backward));
        if bytes <= available - available / MARGIN {
            return (level, too_large);
        }
        too_large.push((level, bytes));
    }
    let least = too_large.iter().enumerate().min_by_key(|(_, (_, bytes))| *bytes);
    let (at, level) = least.map_or((0, Activations::Keep), |(at, (level, _))| (at, *level));
    too_large.truncate(at);
    (level, too_large)
}
