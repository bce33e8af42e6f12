//! The parts of a worker's memory and their sizes, each with where its formula comes from. docs/memory.md tells the same.
//!
//! Sizes are of tensors in `b` bytes a number of the compute type (4 or 2) and 4 where float32 is meant. Names of the
//! formulas: `h` hidden, `i` intermediate, `q` and `k` width of all query and key heads, `V` vocabulary, `L` layers, `T`
//! tokens of a pack.

use rlpipe_core::data::Activations;
use rlpipe_model::{ModelConfig as Network, parameters};

use super::super::config::Dtype;
use super::needs::{Engine, Held, Learner};
use super::table::{MemoryDevice, MemoryPart, MemoryPhase as Phase, SmallCache};

/// Resident memory of a worker on a processor that has loaded torch and run small models: libtorch's pages, its threads
/// and those of tokio. Measured.
pub const HOST_PROCESS_BYTES: u64 = 137 << 20;
/// What CUDA itself takes of a card in a worker: its context, kernels that were loaded, workspaces of cuBLAS.
pub const ACCELERATOR_CONTEXT_BYTES: u64 = 640 << 20;
/// Slots on a processor unless they are set (`CPU_SLOTS` in nodes/torch/src/generate/plain.rs).
const HOST_SLOTS: u64 = 32;
/// Most slots that are chosen on a card (`CARD_SLOTS` there).
const MOST_ACCELERATOR_SLOTS: u64 = 1024;
/// Tokens of one prefill on a card (`PREFILL_TOKENS` there); a processor runs one prompt at a time.
const PREFILL_TOKENS: u64 = 16_384;
/// Tokens of one prefill by kernels (`PREFILL_TOKENS` in graphs.rs), tokens of a page of its cache (`PAGE_TOKENS` in pages.rs),
/// and rows of its smallest graph (`SMALLEST_BUCKET`).
const PACKED_PREFILL_TOKENS: u64 = 32_768;
const PAGE_TOKENS: u64 = 64;
const SMALLEST_BUCKET: u64 = 8;
/// Head sizes that decoding has kernels for (`HEAD_DIMS` in nodes/torch/src/kernels.rs).
const HEAD_DIMS: [u64; 4] = [32, 64, 96, 128];
/// Attention is padded to the longest sequence of a pack: rollouts are taken to fill four fifths of that.
const PADDED: (u64, u64) = (5, 4);

/// What glibc's heap holds of freed pieces while a pack is in it, of the activations that are made there: measured, 0.2
/// to 0.6.
const HEAP: (u64, u64) = (3, 10);
/// Larger tensors never come from the heap (`DEFAULT_MMAP_THRESHOLD_MAX` of glibc).
const LARGEST_IN_HEAP: u64 = 32 << 20;

/// A model's sizes.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Bytes of a number in the compute type.
    pub width: u64,
    /// All parameters.
    pub parameters: u64,
    /// Parameters of the largest tensor that is one in the worker.
    pub largest: u64,
    hidden: u64,
    intermediate: u64,
    queries: u64,
    keys: u64,
    head_dim: u64,
    heads: u64,
    layers: u64,
    vocabulary: u64,
    positions: u64,
    norms_heads: bool,
    device: MemoryDevice,
}

impl Sizes {
    /// Of a network in a compute type.
    pub fn of(network: &Network, dtype: Dtype, device: MemoryDevice) -> Self {
        let of = |size: i64| u64::try_from(size).unwrap_or(0);
        let count = |shape: &[i64]| shape.iter().map(|size| of(*size)).product::<u64>();
        let on_card = device == MemoryDevice::Accelerator;
        let (hidden, intermediate, vocabulary) = (of(network.hidden), of(network.intermediate), of(network.vocabulary));
        Self {
            width: if dtype.on(on_card) == Dtype::Float32 { 4 } else { 2 },
            parameters: parameters(network).iter().map(|one| count(&one.shape)).sum(),
            largest: hidden * vocabulary.max(2 * intermediate),
            hidden,
            intermediate,
            queries: of(network.heads * network.head_dim),
            keys: of(network.kv_heads * network.head_dim),
            head_dim: of(network.head_dim),
            heads: of(network.heads),
            layers: of(network.layers),
            vocabulary,
            positions: of(network.generated_positions()),
            norms_heads: network.query_key_norm,
            device,
        }
    }

    fn on_card(&self) -> bool {
        self.device == MemoryDevice::Accelerator
    }

    /// Whether attention may leave the fused kernels: those for float32 on a card want as many key heads as query heads.
    pub fn has_unknown_attention(&self) -> bool {
        self.on_card() && self.width == 4 && self.keys < self.queries
    }

    /// Keys and values of one token in all layers.
    fn cached(&self) -> u64 {
        2 * self.layers * self.keys * self.width
    }

    /// Whether packs run by kernels: those for half types on a card.
    fn has_kernels(&self) -> bool {
        self.on_card() && self.width == 2
    }

    /// Whether kernels decode (`DecodeKernels::of` in nodes/torch/src/generate/kernels.rs).
    fn decodes_by_kernels(&self) -> bool {
        let fits = self.hidden.is_multiple_of(8) && self.intermediate.is_multiple_of(8);
        self.has_kernels() && fits && HEAD_DIMS.contains(&self.head_dim)
    }

    /// Attention pads where there is no kernel for packed sequences.
    fn padded(&self, tokens: u64) -> u64 {
        match self.has_kernels() {
            true => tokens,
            false => tokens * PADDED.0 / PADDED.1,
        }
    }

    /// What is kept of `tokens` for the backward pass through one layer (nodes/torch/src/model/layer.rs, train/trunk.rs).
    ///
    /// - All: the residual stream before attention and before the gated part (`2 h` in float32), and both normed
    ///   (`2 h`); turned queries, keys and values (`q + 2 k`), and, where heads are normed, as they came (`q + 2 k`; by
    ///   kernels queries and keys alone); attention's output (`q`); both gates (`2 i`). In float32 the scales of the
    ///   norms, and the logarithm of the sum of each row of attention.
    /// - Without the gated part and what is normed: the stream and attention.
    /// - Layers again: the stream before attention.
    fn kept(&self, tokens: u64, level: Activations) -> u64 {
        let (h, b, qkv) = (self.hidden, self.width, self.queries + 2 * self.keys);
        // In plain operators they are views of the projections' one output.
        let came = if self.has_kernels() {
            self.queries + self.keys
        } else {
            qkv
        };
        let unnormed = match self.norms_heads {
            true => came * b + 4 * (self.heads + self.keys / self.head_dim.max(1)),
            false => 0,
        };
        let attention = tokens * ((qkv + self.queries) * b + unnormed) + self.padded(tokens) * 4 * self.heads;
        match level {
            Activations::Auto | Activations::Keep => {
                tokens * (2 * h * 4 + (2 * h + 2 * self.intermediate) * b + 2 * 4) + attention
            }
            Activations::RecomputeGated => tokens * 2 * h * 4 + attention,
            Activations::RecomputeLayers => tokens * h * 4,
        }
    }

    /// What of all activations of a pack, `made` bytes, comes from the heap: the gates of a large pack do not, nor does
    /// the residual stream of a larger one.
    fn in_heap(&self, tokens: u64, made: u64) -> u64 {
        let is_large = |bytes: u64| tokens * bytes >= LARGEST_IN_HEAP;
        if self.on_card() || is_large(self.hidden * self.width) {
            return 0;
        }
        let large = |count: u64, bytes: u64| if is_large(bytes) { count * tokens * bytes } else { 0 };
        let gates = large(self.layers, 2 * self.intermediate * self.width);
        let stream = large(2 * self.layers + 1, 4 * self.hidden);
        made.saturating_sub(gates + stream)
    }

    /// Scratch of one layer's backward pass while nearly everything is still kept: what is computed again of it; then the
    /// gradients of the gated part's product and of both gates and the product again (`4 i`), or those of attention, padded
    /// and spread to all query heads, once the gates are gone. Types of 16 bits are computed in float32 on a processor.
    fn backward(&self, tokens: u64, level: Activations) -> u64 {
        let (h, i, b) = (self.hidden, self.intermediate, self.width);
        let again = self
            .kept(tokens, Activations::Keep)
            .saturating_sub(self.kept(tokens, level));
        let gated = match (b, self.on_card()) {
            (2, false) => tokens * (32 * i + 2 * h * b),
            _ => tokens * (4 * i + 2 * h) * b,
        };
        let attention = match self.has_kernels() {
            true => tokens * (3 * self.queries + 2 * self.keys) * b,
            false => self.padded(tokens) * (8 * self.queries + 4 * self.keys) * b,
        };
        again + gated.max(attention.saturating_sub(tokens * 2 * i * b))
    }

    /// Scratch of one layer without a gradient: the gated part, or attention.
    fn forward(&self, tokens: u64) -> u64 {
        let (h, i, b) = (self.hidden, self.intermediate, self.width);
        let gated = match (b, self.on_card()) {
            (2, false) => tokens * (18 * i + 2 * h * b + 4 * h),
            _ => tokens * ((3 * i + 2 * h) * b + 4 * h),
        };
        let packed = tokens * ((h + 2 * self.queries + 2 * self.keys) * b + 4 * h);
        let attention = match self.has_kernels() {
            true => packed,
            false => packed + self.padded(tokens) * (4 * self.queries + 2 * self.keys) * b,
        };
        gated.max(attention)
    }

    /// Bytes for each logit of a chunk of the head. Kernels have them in float32, and their gradients where it trains;
    /// plain operators have them, less the largest of each row, and the exponentials of that, all in float32
    /// (nodes/torch/src/ops/head.rs).
    fn head(&self, trains: bool) -> u64 {
        match (self.has_kernels(), trains) {
            (true, true) => 4 + self.width,
            (true, false) => 4,
            (false, _) => 3 * 4,
        }
    }
}

/// A list of parts of one model.
struct List<'a> {
    model: &'a str,
    parts: Vec<MemoryPart>,
}

impl List<'_> {
    fn add(&mut self, name: impl Into<String>, bytes: u64, phases: &[Phase]) {
        self.push(name.into(), bytes, false, phases);
    }

    /// What a run may need less of.
    fn add_at_most(&mut self, name: impl Into<String>, bytes: u64, phases: &[Phase]) {
        self.push(name.into(), bytes, true, phases);
    }

    fn push(&mut self, name: String, bytes: u64, at_most: bool, phases: &[Phase]) {
        if bytes > 0 {
            self.parts.push(MemoryPart {
                name,
                model: Some(self.model.to_owned()),
                bytes,
                at_most,
                phases: phases.to_vec(),
            });
        }
    }
}

/// What the process takes without a model.
pub fn of_process(device: MemoryDevice) -> MemoryPart {
    let (name, bytes) = match device {
        MemoryDevice::Host => ("the process and libtorch", HOST_PROCESS_BYTES),
        MemoryDevice::Accelerator => ("the CUDA context", ACCELERATOR_CONTEXT_BYTES),
    };
    MemoryPart {
        name: name.to_owned(),
        model: None,
        bytes,
        at_most: false,
        phases: Phase::ALL.to_vec(),
    }
}

/// The parts of one model, and whether its cache has too little. `taken`: what the device holds before it; `available`:
/// what there is, if that is known.
pub fn of_model(
    held: &Held<'_>,
    sizes: &Sizes,
    taken: u64,
    available: Option<u64>,
) -> (Vec<MemoryPart>, Option<SmallCache>) {
    let mut list = List {
        model: held.model,
        parts: Vec::new(),
    };
    lasting(held, sizes, &mut list);
    let mut small = None;
    if let Some(engine) = &held.engine {
        let before: u64 = list
            .parts
            .iter()
            .filter(|part| part.phases.contains(&Phase::Load))
            .map(|part| part.bytes)
            .sum();
        let free = available.map(|available| available.saturating_sub(taken + before));
        generation(engine, sizes, held.trained, free, &mut list);
        let share = share(engine, sizes, held.trained, free).filter(|(may_take, needs)| may_take < needs);
        small = share.map(|(may_take, needs)| SmallCache {
            model: held.model.to_owned(),
            may_take,
            needs,
        });
    }
    // Who takes most counts: packs of two nodes are never there at once.
    let of = |learner: &Learner| {
        let mut list = List {
            model: held.model,
            parts: Vec::new(),
        };
        match learner.trains {
            true => training(learner, sizes, &mut list),
            false => logprobs(learner, sizes, &mut list),
        }
        list.parts
    };
    for trains in [true, false] {
        let learners = held.learners.iter().filter(|learner| learner.trains == trains);
        list.parts
            .extend(learners.map(of).max_by_key(|parts| most(parts)).unwrap_or_default());
    }
    (list.parts, small)
}

/// The largest sum of these parts in a phase.
fn most(parts: &[MemoryPart]) -> u64 {
    let of = |phase| {
        parts
            .iter()
            .filter(move |part| part.phases.contains(phase))
            .map(|part| part.bytes)
            .sum()
    };
    Phase::ALL.iter().map(of).max().unwrap_or(0)
}

/// Weights and what has their shape (nodes/torch/src/policy.rs, train/trainer.rs, train/adamw.rs).
fn lasting(held: &Held<'_>, sizes: &Sizes, list: &mut List<'_>) {
    let (count, b) = (sizes.parameters, sizes.width);
    let narrow = b < 4;
    list.add("weights", count * b, &Phase::ALL);
    if held.trained && narrow {
        list.add("fp32 master weights", count * 4, &Phase::ALL);
    }
    // Cosine and sine for every position that the engine reads, in float32, of half a head.
    list.add("rotary tables", 4 * sizes.positions * sizes.head_dim, &Phase::ALL);
    if held.trained {
        list.add("gradients", count * 4, Phase::AFTER_LOAD);
        list.add("optimizer moments", 2 * count * 4, Phase::AFTER_LOAD);
    }
    if held.frozen {
        list.add("frozen copy", count * b, Phase::AFTER_LOAD);
    }
    if held.engine.as_ref().is_some_and(|engine| engine.own_weights) {
        list.add("engine's own weights", count * b, &Phase::ALL);
    }
    // A file is read whole (`Reader::read`); it is in the machine's memory also where the weights are not.
    if !sizes.on_card() {
        list.add("a file of weights", held.file_bytes, &[Phase::Load]);
        // Bytes of a tensor for the file, and the tensor in the file's type (`PieceView::data`).
        list.add("a tensor to be written", sizes.largest * (4 + b), &[Phase::Save]);
    }
}

/// The most rollouts in flight that a worker chooses by itself.
pub fn most_slots(device: MemoryDevice) -> u64 {
    match device {
        MemoryDevice::Host => HOST_SLOTS,
        MemoryDevice::Accelerator => MOST_ACCELERATOR_SLOTS,
    }
}

/// What the cache leaves for training: gradients and moments, in float32 (`Policy::training_bytes` in
/// nodes/torch/src/policy.rs).
fn held_back(sizes: &Sizes, trained: bool) -> u64 {
    if trained { 3 * 4 * sizes.parameters } else { 0 }
}

/// What a card's cache may take, and what it needs at least: 8 slots, or the pages of one. With less the worker refuses
/// to start. Nothing where it takes what is set. `free`: what the card has before it.
fn share(engine: &Engine, sizes: &Sizes, trained: bool, free: Option<u64>) -> Option<(u64, u64)> {
    let free = free.filter(|_| sizes.on_card())?;
    let usable = ((free as f64 * engine.memory_fraction) as u64).saturating_sub(held_back(sizes, trained));
    match (sizes.decodes_by_kernels(), engine.slots) {
        (true, _) => Some((
            usable.saturating_sub(steps(engine, sizes)),
            pages_of_a_slot(engine) * page(sizes),
        )),
        (false, None) => Some((usable, 8 * slot(engine, sizes))),
        (false, Some(_)) => None,
    }
}

/// How many rollouts are in flight, as the worker chooses (`chosen_slots` in nodes/torch/src/generate/plain.rs).
fn slots(engine: &Engine, sizes: &Sizes, trained: bool, free: Option<u64>) -> u64 {
    let most = engine.slots.unwrap_or(most_slots(sizes.device));
    let Some((usable, least)) = share(engine, sizes, trained, free) else {
        return most;
    };
    (usable.max(least) / slot(engine, sizes).max(1)).min(most) / 8 * 8
}

/// Bytes of a slot and of drawing a token for it (`Cache::bytes_per_slot`).
fn slot(engine: &Engine, sizes: &Sizes) -> u64 {
    sizes.cached() * engine.context + 40 * sizes.vocabulary
}

/// The cache, prompts and decoding: by kernels (nodes/torch/src/generate/graphs.rs), or in plain operators (plain.rs,
/// cache.rs, sampling.rs).
fn generation(engine: &Engine, sizes: &Sizes, trained: bool, free: Option<u64>, list: &mut List<'_>) {
    let of_prompts =
        |prompts: u64, together: u64| together.max(engine.longest_prompt).min(prompts * engine.longest_prompt);
    // All prompts whose samples get slots together are run before any is placed.
    let at_once = |slots: u64| slots.div_ceil(engine.fewest_samples.clamp(1, slots.max(1)));
    if sizes.decodes_by_kernels() {
        let (slots, pages) = (slots_by_kernels(engine), pages(engine, sizes, trained, free));
        let name = format!("key-value cache of {pages} pages");
        list.add(name, pages * page(sizes), &Phase::ALL);
        let table = slots * engine.context.div_ceil(PAGE_TOKENS) * 4;
        list.add("states of steps", steps(engine, sizes) + table, &Phase::ALL);
        let prompts = at_once(slots);
        // Its keys and values go into the cache layer by layer. The logits of all prompts are copied into one tensor to
        // be drawn from.
        let logits = prompts * sizes.vocabulary * 4;
        let running = sizes.forward(of_prompts(prompts, PACKED_PREFILL_TOKENS)) + logits;
        list.add_at_most("running prompts", running.max(2 * logits), &[Phase::Prompts]);
        return;
    }
    let slots = slots(engine, sizes, trained, free);
    let logits = slots * sizes.vocabulary;
    list.add(
        format!("key-value cache of {slots} slots"),
        slots * engine.context * sizes.cached(),
        &Phase::ALL,
    );
    list.add("logits of all slots", logits * 4, &Phase::ALL);
    // The next logits are made while the last ones are there; or the temporaries of drawing.
    let next = logits * (4 + if sizes.width < 4 { sizes.width } else { 0 });
    list.add(
        "drawing tokens",
        next.max(logits * engine.drawing_bytes),
        &[Phase::Decode],
    );
    // A prompt's state is kept until its samples have slots.
    let prompts = at_once(slots);
    let state = engine.longest_prompt * sizes.cached() + 4 * sizes.vocabulary;
    list.add_at_most(
        format!("states of {prompts} prompts"),
        prompts * state,
        &[Phase::Prompts],
    );
    let together = of_prompts(prompts, if sizes.on_card() { PREFILL_TOKENS } else { 1 });
    // Keys and values of each layer, before they are one tensor.
    let running = together * sizes.cached() + sizes.forward(together);
    list.add_at_most("running prompts", running, &[Phase::Prompts]);
}

/// Rows of the graph that runs all slots (`bucket` in graphs.rs).
fn bucket(rows: u64) -> u64 {
    rows.next_multiple_of((rows.next_power_of_two() / 8).max(SMALLEST_BUCKET))
}

/// Pages of the cache, as the worker chooses (`Graphs::new`).
fn pages(engine: &Engine, sizes: &Sizes, trained: bool, free: Option<u64>) -> u64 {
    let all = slots_by_kernels(engine).saturating_mul(pages_of_a_slot(engine));
    let Some((usable, least)) = share(engine, sizes, trained, free) else {
        return all;
    };
    (usable.max(least) / page(sizes).max(1)).min(all)
}

/// A page that a prompt begins is copied for the sample that goes on in it (`pages_of_a_slot` in graphs.rs).
fn pages_of_a_slot(engine: &Engine) -> u64 {
    engine.context.div_ceil(PAGE_TOKENS) + 1
}

fn page(sizes: &Sizes) -> u64 {
    PAGE_TOKENS * sizes.cached()
}

fn slots_by_kernels(engine: &Engine) -> u64 {
    engine.slots.unwrap_or(MOST_ACCELERATOR_SLOTS)
}

/// What steps of all slots take beside the cache (`scratch_bytes` in graphs.rs).
fn steps(engine: &Engine, sizes: &Sizes) -> u64 {
    let widest = 2 * sizes.intermediate + 8 * sizes.hidden;
    bucket(slots_by_kernels(engine)) * (4 * sizes.vocabulary + 2 * widest)
}

/// A pack without a gradient (`logprobs` in nodes/torch/src/train/trainer.rs).
fn logprobs(learner: &Learner, sizes: &Sizes, list: &mut List<'_>) {
    let (tokens, chunk) = (learner.tokens(), learner.chunk());
    let head = chunk * sizes.vocabulary * sizes.head(false) + tokens * sizes.hidden * sizes.width;
    let bytes = sizes.forward(tokens).max(head);
    list.add_at_most(format!("log-probs of {tokens} tokens"), bytes, &[Phase::Logprobs]);
}

/// A pack (nodes/torch/src/train/trainer.rs, trunk.rs).
fn training(learner: &Learner, sizes: &Sizes, list: &mut List<'_>) {
    let (tokens, chunk, level) = (learner.tokens(), learner.chunk(), learner.activations);
    let row = sizes.hidden * sizes.width;
    // Beside the layers: the last residual stream, hidden states and those that predict tokens, and their gradients. In plain
    // operators cosine and sine of each token, in float32.
    let turns = if sizes.has_kernels() { 0 } else { 2 * 4 * sizes.head_dim };
    let kept = |level| sizes.layers * sizes.kept(tokens, level) + tokens * (4 * sizes.hidden + 3 * row + turns);
    let phases = [Phase::Head, Phase::Backward];
    list.add_at_most(format!("activations of {tokens} tokens"), kept(level), &phases);
    list.add_at_most(
        format!("logits of {chunk} tokens"),
        chunk * (sizes.vocabulary * sizes.head(true) + row),
        &[Phase::Head],
    );
    // What a layer does not keep was there, and leaves holes between what it keeps.
    let heap = sizes.in_heap(tokens, kept(Activations::Keep)) * HEAP.0 / HEAP.1;
    list.add_at_most("freed memory in the heap", heap, &phases);
    let backward = sizes.backward(tokens, level);
    list.add_at_most("backward pass of a layer", backward, &[Phase::Backward]);
}
