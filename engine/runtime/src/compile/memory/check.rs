//! Whether a pool's worker has room for what is put into it, and a setting with which it has.

use rlpipe_core::data::Activations;
use rlpipe_core::diagnostic::{Code, Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;

use super::super::config::PoolConfig;
use super::super::pipeline::Pipeline;
use super::needs::{self, Held, Learner};
use super::parts::most_slots;
use super::{Machine, MemoryDevice, MemoryPart, MemoryPhase, SmallCache, WorkerMemory, device, of_pool};

/// Parts that are named in a message.
const NAMED: usize = 4;

/// Holds pools against what they say that there is.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    check_pools(pipeline, None, diagnostics);
}

/// Holds pools against what a machine has.
pub fn check_on(pipeline: &Pipeline, machine: &Machine, diagnostics: &mut Diagnostics) {
    check_pools(pipeline, Some(machine), diagnostics);
}

fn check_pools(pipeline: &Pipeline, outside: Option<&Machine>, diagnostics: &mut Diagnostics) {
    let says = |pool: &PoolConfig| pool.memory_per_accelerator.is_some() || pool.host_memory_per_worker.is_some();
    let pools = || pipeline.pools.values().filter_map(|pool| pool.config.as_ref());
    // Without a number to hold it against there is nothing to reckon.
    if outside.is_none() && !pools().any(says) {
        return;
    }
    for (name, models) in needs::of_pools(pipeline, outside.is_some(), &[]) {
        let Some(pool) = pipeline.pools.get(name).and_then(|pool| pool.config.as_ref()) else {
            continue;
        };
        let case = Case {
            pipeline,
            name,
            pool,
            models,
            outside,
        };
        diagnostics.extend(case.verdict());
    }
}

/// One pool.
struct Case<'a> {
    pipeline: &'a Pipeline,
    name: &'a str,
    pool: &'a PoolConfig,
    models: Vec<Held<'a>>,
    outside: Option<&'a Machine>,
}

/// A setting that bounds memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    Pack,
    Chunk,
    Slots,
}

impl Case<'_> {
    fn memory(&self, models: &[Held<'_>]) -> WorkerMemory {
        of_pool(self.pipeline, self.name, self.pool, models, self.outside)
    }

    fn verdict(&self) -> Option<Diagnostic> {
        let memory = self.memory(&self.models);
        let available = memory.available_bytes?;
        let on_card = memory.device == MemoryDevice::Accelerator;
        let key = if on_card {
            "memory_per_accelerator"
        } else {
            "host_memory_per_worker"
        };
        let place = self.pipeline.range_of(&["pools", self.name, key]);
        let (code, there): (&Code, String) = match (&place, on_card) {
            (Some(_), _) => (&codes::RL0705, format!("`{key}` is {}", gib(available))),
            (None, true) => (&codes::RL1133, format!("the card has {}", gib(available))),
            (None, false) => (&codes::RL1133, format!("this machine has {} for it", gib(available))),
        };
        // What the pool says was held against it without the machine.
        if place.is_some() && self.outside.is_some() && self.was_checked() {
            return None;
        }
        let range = place.or_else(|| self.pipeline.range_of(&["pools", self.name]));
        let range = range.unwrap_or_else(|| self.pipeline.pools[self.name].key_range);
        let certain = MemoryPhase::ALL.map(|phase| memory.certain_bytes_in(phase));
        let never_fits = certain.into_iter().any(|bytes| bytes > available);
        if let (Some(small), false) = (&memory.small_cache, never_fits) {
            return Some(too_small(small, &there, code, range));
        }
        let (phase, bytes) = memory.peak().filter(|(_, bytes)| *bytes > available)?;
        let message = format!(
            "a worker of `{}` {} {} in `{}`, and {there}",
            self.name,
            if never_fits { "takes" } else { "may take" },
            gib(bytes),
            phase.name()
        );
        let mut diagnostic = match never_fits {
            true => Diagnostic::error(code, range, message),
            false => Diagnostic::warning(code, range, message),
        };
        diagnostic = diagnostic.label_text(format!("{} too little", gib(bytes - available)));
        diagnostic = diagnostic.note(largest(&memory, phase));
        for chosen in &memory.activations {
            if !chosen.too_large.is_empty() && chosen.level == Activations::RecomputeLayers {
                let (node, level) = (&chosen.node, chosen.level.name());
                diagnostic = diagnostic.note(format!(
                    "that is with `activations: {level}` of `{node}`, which keeps least"
                ));
            }
        }
        Some(self.mend(diagnostic, phase, available))
    }

    /// Whether the text alone was enough.
    fn was_checked(&self) -> bool {
        let of = |held: &Held<'_>| {
            self.pipeline
                .models
                .get(held.model)
                .and_then(|model| model.config.as_ref())
        };
        let from_nothing = |held| of(held).is_some_and(|config| config.init.is_some());
        device(self.pool, None).is_some() && self.models.iter().all(from_nothing)
    }

    /// Offers the settings that make it fit, each alone, by their largest round values.
    fn mend(&self, mut diagnostic: Diagnostic, phase: MemoryPhase, available: u64) -> Diagnostic {
        let order = match phase {
            MemoryPhase::Prompts | MemoryPhase::Decode => [Setting::Slots, Setting::Pack, Setting::Chunk],
            MemoryPhase::Head => [Setting::Chunk, Setting::Pack, Setting::Slots],
            _ => [Setting::Pack, Setting::Slots, Setting::Chunk],
        };
        let left = self
            .leave(available)
            .map(|node| (node, &["activations"][..], "auto".to_owned()));
        let solved = order.into_iter().filter_map(|setting| {
            let (node, value) = self.solve(setting, available)?;
            let is_trainer = self.pipeline.nodes[node]
                .kind
                .is_some_and(|kind| kind.name == "trainer");
            let keys: &[&str] = match setting {
                Setting::Pack => &["max_tokens_per_pack"],
                Setting::Chunk if is_trainer => &["loss", "logprob_chunk_tokens"],
                Setting::Chunk => &["logprob_chunk_tokens"],
                Setting::Slots => &["max_concurrent_rollouts"],
            };
            Some((node, keys, value.to_string()))
        });
        let mut found = false;
        for (node, keys, value) in left.into_iter().chain(solved) {
            let node = &self.pipeline.nodes[node];
            let path = format!("nodes.{}.{}", node.name, keys.join("."));
            match node.written(keys) {
                Some(range) if !found => {
                    diagnostic = diagnostic.fix(format!("make `{path}` {value}"), range, value);
                }
                _ => diagnostic = diagnostic.note(format!("it fits with `--set {path}={value}`")),
            }
            found = true;
        }
        if found {
            return diagnostic;
        }
        diagnostic.note(match self.models.iter().any(|held| held.trained) {
            true => "no size of packs or number of rollouts makes it fit: take a smaller model, or more memory",
            false => "no number of rollouts makes it fit: take a smaller model, or more memory",
        })
    }

    fn fits(&self, models: &[Held<'_>], available: u64) -> bool {
        let memory = self.memory(models);
        memory.small_cache.is_none() && memory.peak().is_some_and(|(_, bytes)| bytes <= available)
    }

    fn learners(&self) -> impl Iterator<Item = &Learner> {
        let learners = self.models.iter().flat_map(|held| &held.learners);
        learners.filter(|learner| learner.trains)
    }

    /// The node with which everything fits if what it keeps of packs is left to rlpipe, and is not now.
    fn leave(&self, available: u64) -> Option<usize> {
        let set = self
            .learners()
            .filter(|learner| learner.activations != Activations::Auto);
        set.map(|learner| learner.node).find(|node| {
            let mut models = self.models.clone();
            let learners = models.iter_mut().flat_map(|held| &mut held.learners);
            for learner in learners.filter(|learner| learner.node == *node) {
                learner.activations = Activations::Auto;
            }
            self.fits(&models, available)
        })
    }

    /// The largest round value of a setting with which everything fits, and the node that has it.
    fn solve(&self, setting: Setting, available: u64) -> Option<(usize, u64)> {
        let mut governing = self.governing(setting).into_iter();
        governing.find_map(|(node, now, least)| Some((node, self.solve_at(setting, node, (least, now), available)?)))
    }

    /// The same for a node, between the least that may be and what is set.
    fn solve_at(&self, setting: Setting, node: usize, (least, now): (u64, u64), available: u64) -> Option<u64> {
        let fits = |value: u64| self.fits(&self.with(setting, node, value), available);
        if least >= now || !fits(least) {
            return None;
        }
        let (mut low, mut high) = (least, now);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        // Not everything grows with a setting: the heap holds no very large tensors.
        let round = Some(round_down(low, least)).filter(|value| fits(*value));
        Some(round.unwrap_or(low))
    }

    /// The nodes that have a setting, each with its value and the least that may be.
    fn governing(&self, setting: Setting) -> Vec<(usize, u64, u64)> {
        let pack = |learner: &Learner| (learner.node, learner.tokens(), learner.longest);
        let chunk = |learner: &Learner| (learner.node, learner.chunk(), 1);
        match setting {
            Setting::Pack => self.learners().map(pack).collect(),
            Setting::Chunk => self.learners().map(chunk).collect(),
            Setting::Slots => {
                let engines = self.models.iter().filter_map(|held| held.engine.as_ref());
                let most = device(self.pool, self.outside).map_or(0, most_slots);
                engines
                    .map(|engine| (engine.node, engine.slots.unwrap_or(most), 1))
                    .collect()
            }
        }
    }

    /// The models with another value of a node's setting.
    fn with(&self, setting: Setting, node: usize, value: u64) -> Vec<Held<'_>> {
        let mut models = self.models.clone();
        for held in &mut models {
            for learner in held.learners.iter_mut().filter(|learner| learner.node == node) {
                match setting {
                    Setting::Pack => learner.pack_tokens = value,
                    Setting::Chunk => learner.chunk_tokens = value,
                    Setting::Slots => {}
                }
            }
            if let Some(engine) = held
                .engine
                .as_mut()
                .filter(|engine| engine.node == node && setting == Setting::Slots)
            {
                engine.slots = Some(value);
            }
        }
        models
    }
}

/// What is held for certain fits, but the share of the cache is too little for it.
fn too_small(small: &SmallCache, there: &str, code: &'static Code, range: Range) -> Diagnostic {
    let (may_take, needs) = (gib(small.may_take), gib(small.needs));
    let message = format!(
        "the cache of `{}` may take {may_take} and needs {needs} at least, and {there}",
        small.model
    );
    Diagnostic::error(code, range, message)
        .label_text(format!("{} too little", gib(small.needs - small.may_take)))
        .note("what it may take is `memory_fraction` of what weights leave, less gradients and moments")
        .note("raise the engine's `memory_fraction`, or lower its `max_context_tokens`")
}

/// The first parts by size in a phase.
fn largest(memory: &WorkerMemory, phase: MemoryPhase) -> String {
    let mut there: Vec<&MemoryPart> = memory
        .parts
        .iter()
        .filter(|part| part.phases.contains(&phase))
        .collect();
    there.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let rest: u64 = there.iter().skip(NAMED).map(|part| part.bytes).sum();
    let mut named: Vec<String> = there
        .iter()
        .take(NAMED)
        .map(|part| format!("{} {}", part.name, gib(part.bytes)))
        .collect();
    if rest > 0 {
        named.push(format!("the rest {}", gib(rest)));
    }
    format!("of that: {}; `rlpipe plan` shows all parts", named.join(", "))
}

/// Two digits that count, down; what is small stays as it is.
fn round_down(value: u64, least: u64) -> u64 {
    let step = [256, 64, 16, 8].into_iter().find(|step| value >= 8 * step).unwrap_or(1);
    (value / step * step).max(least)
}

fn gib(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{:.0}MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1}GiB", bytes as f64 / f64::from(1 << 30)),
    }
}
