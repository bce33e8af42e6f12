//! The parts of a worker's memory and their sizes, each with where its formula comes from. docs/memory.md tells the same.
//!
//! Sizes are of tensors in `b` bytes a number of the compute type (4 or 2) and 4 where float32 is meant. Names of the
//! formulas: `h` hidden, `i` intermediate, `q` and `k` width of all query and key heads, `V` vocabulary, `L` layers, `T`
//! tokens of a pack.

use rlpipe_model::{ModelConfig as Network, parameters};

use super::super::config::Dtype;
use super::needs::{Engine, Held, Learner};
use super::table::{MemoryDevice, MemoryPart, MemoryPhase as Phase};

/// Resident memory of a worker on a processor that has loaded torch and run small models: libtorch's pages, its threads
/// and those of tokio. Measured.
pub const HOST_PROCESS_BYTES: u64 = 137 << 20;
/// What CUDA itself takes of a card in a worker: its context, kernels that were loaded, workspaces of cuBLAS.
pub const ACCELERATOR_CONTEXT_BYTES: u64 = 640 << 20;
/// Slots on a processor unless they are set (`CPU_SLOTS` in nodes/torch/src/generate/engine.rs).
const HOST_SLOTS: u64 = 32;
/// Most slots that are chosen on a card (`CARD_SLOTS` there).
const MOST_ACCELERATOR_SLOTS: u64 = 1024;
/// Tokens of one prefill on a card (`PREFILL_TOKENS` there); a processor runs one prompt at a time.
const PREFILL_TOKENS: u64 = 16_384;
/// Attention is padded to the longest sequence of a pack: rollouts are taken to fill four fifths of that.
const PADDED: (u64, u64) = (5, 4);

/// What glibc's heap holds of freed pieces while a pack is in it, of the activations there: measured, 0.2 to 0.6.
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
            width: match dtype {
                Dtype::Bfloat16 => 2,
                Dtype::Auto if on_card => 2,
                _ => 4,
            },
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

    /// What autograd keeps of `tokens` for the backward pass through one layer (nodes/torch/src/model/network.rs).
    ///
    /// - The residual stream after attention and after the gated part: `2 h`.
    /// - Each of the two norms: on a processor, in float32, what it is made of and its result, which the projection
    ///   keeps; for a compute type of 16 bits its input in float32 too. On a card the fused norm keeps one number a token.
    /// - Attention: padded queries, keys, values and output, on a processor with keys and values spread to all query heads,
    ///   and the logarithm of each row's sum; the output without padding.
    /// - The gated part: both gates, the activated one, and their product.
    fn layer(&self, tokens: u64) -> u64 {
        let (b, padded) = (self.width, tokens * PADDED.0 / PADDED.1);
        let norms = match (self.on_card(), b) {
            (true, _) => 2 * self.hidden * b,
            (false, 4) => 4 * self.hidden * 4,
            (false, _) => 2 * self.hidden * (4 + 4 + b),
        };
        // In float32 the stream itself is what a norm keeps of its input; in 16 bits on a processor it keeps a copy instead.
        let stream = if self.on_card() || b == 4 {
            2 * self.hidden * b
        } else {
            0
        };
        let head_norms = match (self.norms_heads, self.on_card(), b) {
            (false, ..) => 0,
            (true, true, _) => (self.queries + 2 * self.keys) * b,
            (true, false, 4) => (self.queries + 2 * self.keys + self.queries + self.keys) * 4,
            (true, false, _) => 2 * (self.queries + self.keys) * 4,
        };
        let key_heads = if self.on_card() {
            2 * self.keys
        } else {
            2 * self.queries
        };
        let attention = padded * ((2 * self.queries + key_heads) * b + 4 * self.heads);
        tokens * (stream + norms + head_norms + (self.queries + 4 * self.intermediate) * b) + attention
    }

    /// What of the activations of a pack, `kept` bytes, lies in the heap.
    fn in_heap(&self, tokens: u64, kept: u64) -> u64 {
        let is_large = |numbers: u64| tokens * numbers * self.width >= LARGEST_IN_HEAP;
        if self.on_card() || is_large(self.hidden) {
            return 0;
        }
        // Both gates are one tensor; the activated one and the product are one each.
        let gates = [2 * self.intermediate, self.intermediate]
            .map(|numbers| if is_large(numbers) { 2 * self.intermediate } else { 0 });
        kept.saturating_sub(self.layers * tokens * self.width * (gates[0] + gates[1]))
    }

    /// Scratch of one layer's backward pass while nearly everything is still kept: gradients of both gates, or of the
    /// norm's intermediate results.
    fn backward(&self, tokens: u64) -> u64 {
        let gates = (2 * self.intermediate + self.hidden) * self.width;
        let norm = if self.on_card() || self.width == 4 {
            5 * self.hidden * self.width
        } else {
            19 * self.hidden
        };
        tokens * gates.max(norm)
    }

    /// Scratch of one layer without a gradient: the gated part, or attention.
    fn forward(&self, tokens: u64) -> u64 {
        let padded = tokens * PADDED.0 / PADDED.1;
        let gated = tokens * (2 * self.hidden + 4 * self.intermediate) * self.width;
        let key_heads = if self.on_card() {
            2 * self.keys
        } else {
            2 * self.queries
        };
        let heads = self.queries + 2 * self.keys + 2 * (self.queries + self.keys);
        let attention = (tokens * (2 * self.hidden + heads) + padded * (2 * self.queries + key_heads)) * self.width;
        gated.max(attention)
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

/// The parts of one model. `taken`: what the device holds before it; `available`: what there is, if that is known.
pub fn of_model(held: &Held<'_>, sizes: &Sizes, taken: u64, available: Option<u64>) -> Vec<MemoryPart> {
    let mut list = List {
        model: held.model,
        parts: Vec::new(),
    };
    lasting(held, sizes, &mut list);
    if let Some(engine) = &held.engine {
        let before: u64 = list
            .parts
            .iter()
            .filter(|part| part.phases.contains(&Phase::Load))
            .map(|part| part.bytes)
            .sum();
        let free = available.map(|available| available.saturating_sub(taken + before));
        generation(engine, sizes, slots(engine, sizes, held.trained, free), &mut list);
    }
    // Who needs most decides: packs of two nodes are never there at once.
    let of = |trains: bool| held.learners.iter().filter(move |learner| learner.trains == trains);
    if let Some(learner) = of(true).max_by_key(|learner| learner.tokens()) {
        let chunk = of(true).map(Learner::chunk).max().unwrap_or(0);
        training(learner, chunk, sizes, &mut list);
    }
    if let Some(tokens) = of(false).map(Learner::tokens).max() {
        let chunk = of(false).map(Learner::chunk).max().unwrap_or(0);
        let head = chunk * sizes.vocabulary * (4 + 4 + if sizes.width < 4 { sizes.width } else { 0 });
        list.add_at_most(
            format!("log-probs of {tokens} tokens"),
            sizes.forward(tokens).max(head + tokens * sizes.hidden * sizes.width),
            &[Phase::Logprobs],
        );
    }
    list.parts
}

/// Weights and what has their shape (nodes/torch/src/policy.rs, train/trainer.rs, train/adamw.rs).
fn lasting(held: &Held<'_>, sizes: &Sizes, list: &mut List<'_>) {
    let (count, b) = (sizes.parameters, sizes.width);
    let narrow = b < 4;
    list.add("weights", count * b, &Phase::ALL);
    if held.trained && narrow {
        list.add("fp32 master weights", count * 4, &Phase::ALL);
    }
    // Cosine and sine for every position that the engine reads.
    list.add("rotary tables", 2 * sizes.positions * sizes.head_dim * b, &Phase::ALL);
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

/// How many rollouts are in flight, as the worker chooses (`chosen_slots` in nodes/torch/src/generate/engine.rs).
fn slots(engine: &Engine, sizes: &Sizes, trained: bool, free: Option<u64>) -> u64 {
    if let Some(slots) = engine.slots {
        return slots;
    }
    let most = most_slots(sizes.device);
    let Some(free) = free.filter(|_| sizes.on_card()) else {
        return most;
    };
    let held = if trained { 16 * sizes.parameters } else { 0 };
    let usable = ((free as f64 * engine.memory_fraction) as u64).saturating_sub(held);
    let of_slot = sizes.cached() * engine.context + 40 * sizes.vocabulary;
    // With fewer than 8 the worker refuses to start.
    ((usable / of_slot.max(1)).min(most) / 8 * 8).max(8)
}

/// The cache, prompts and decoding (nodes/torch/src/generate/cache.rs, sampling.rs).
fn generation(engine: &Engine, sizes: &Sizes, slots: u64, list: &mut List<'_>) {
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
    // A prompt's state is kept until its samples have slots: all that are admitted together are run before any is placed.
    let prompts = slots.div_ceil(engine.fewest_samples.clamp(1, slots.max(1)));
    let state = engine.longest_prompt * sizes.cached() + 4 * sizes.vocabulary;
    list.add_at_most(
        format!("states of {prompts} prompts"),
        prompts * state,
        &[Phase::Prompts],
    );
    let together = if sizes.on_card() { PREFILL_TOKENS } else { 1 }.max(engine.longest_prompt);
    let together = together.min(prompts * engine.longest_prompt);
    // Keys and values of each layer, before they are one tensor.
    let running = together * sizes.cached() + sizes.forward(together);
    list.add_at_most("running prompts", running, &[Phase::Prompts]);
}

/// A pack (nodes/torch/src/train/trainer.rs, head.rs).
fn training(learner: &Learner, chunk: u64, sizes: &Sizes, list: &mut List<'_>) {
    let (tokens, b, h) = (learner.tokens(), sizes.width, sizes.hidden);
    // Embedding, last norm and the hidden states that predict tokens, beside the layers.
    let kept = sizes.layers * sizes.layer(tokens) + 3 * tokens * h * b;
    let phases = [Phase::Head, Phase::Backward];
    list.add_at_most(format!("activations of {tokens} tokens"), kept, &phases);
    // While entropy is computed: the distribution, its exponential, the clamped one and their product, in float32. In the
    // backward pass three of them, and the head's gradient.
    let head = sizes.vocabulary * h * (b + if b < 4 { 4 } else { 0 });
    let rows = chunk * sizes.vocabulary;
    list.add_at_most(
        format!("logits of {chunk} tokens"),
        (16 * rows).max(12 * rows + head) + tokens * h * b,
        &[Phase::Head],
    );
    let heap = sizes.in_heap(tokens, kept) * HEAP.0 / HEAP.1;
    list.add_at_most("freed memory in the heap", heap, &phases);
    list.add_at_most("backward pass of a layer", sizes.backward(tokens), &[Phase::Backward]);
    // All gradients of a pack are there before they are added to the sums, one after the other in float32.
    let sum = if b < 4 { 4 * sizes.largest } else { 0 };
    list.add("gradients of a pack", sizes.parameters * b + sum, &[Phase::Gradients]);
}
