//! What a phase of work cannot do without: operations, and bytes to and from the device's memory. The time that these take
//! at the device's ceilings is the least that the phase can take; `docs/performance.md` has the formulas with numbers.
//!
//! `T` tokens of a prompt, `N` new ones, `M = L (h (q + 2 k) + q h + 3 h i)` weights of the trunk's matrices, `H = h V` of
//! the head. A product of a token with a matrix is one multiplication and one addition a weight. Attention of a token over
//! `c` tokens is `4 q` operations for each of these, a layer: a product for the scores, one for the values. Norms, rotary
//! positions, gates and drawing are left out: they are below a hundredth.

use rlpipe_model::{ModelConfig, parameters};

/// Sizes of a model, named as in `docs/memory.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// `P`: all weights.
    pub parameters: u64,
    /// `h`: width of the residual stream.
    pub hidden: u64,
    /// `i`: width of the gated part.
    pub intermediate: u64,
    /// `q`: width of all query heads.
    pub queries: u64,
    /// `k`: width of all key heads.
    pub keys: u64,
    /// `V`: rows of the head.
    pub vocabulary: u64,
    /// `L`: layers.
    pub layers: u64,
}

/// Operations, and bytes that must be moved at the least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Multiplications and additions.
    pub operations: u64,
    /// Bytes to and from memory.
    pub bytes: u64,
}

impl Sizes {
    /// Of a configuration.
    pub fn of(config: &ModelConfig) -> Self {
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        let numbers = |shape: &[i64]| shape.iter().map(|size| count(*size)).product::<u64>();
        Self {
            parameters: parameters(config).iter().map(|one| numbers(&one.shape)).sum(),
            hidden: count(config.hidden),
            intermediate: count(config.intermediate),
            queries: count(config.heads * config.head_dim),
            keys: count(config.kv_heads * config.head_dim),
            vocabulary: count(config.vocabulary),
            layers: count(config.layers),
        }
    }

    /// `M`.
    fn trunk(&self) -> u64 {
        let projections = self.hidden * (self.queries + 2 * self.keys) + self.queries * self.hidden;
        self.layers * (projections + 3 * self.hidden * self.intermediate)
    }

    /// `H`.
    fn head(&self) -> u64 {
        self.hidden * self.vocabulary
    }

    /// Attention of tokens that see `seen` tokens, all added up.
    fn attention(&self, seen: u64) -> u64 {
        4 * self.queries * self.layers * seen
    }

    /// Keys and values of one token.
    fn cache_bytes(&self, number_bytes: u64) -> u64 {
        2 * self.layers * self.keys * number_bytes
    }
}

/// A request to generate, as often as it is made.
#[derive(Debug, Clone, Copy)]
pub struct Generation {
    /// Prompts that are run.
    pub prompts: u64,
    /// `T`.
    pub prompt_tokens: u64,
    /// Responses, to all prompts together.
    pub responses: u64,
    /// `N`.
    pub new_tokens: u64,
    /// Responses that are drawn side by side.
    pub slots: u64,
    /// Of the compute type.
    pub number_bytes: u64,
}

impl Generation {
    /// A prompt runs once: its trunk, attention within it, the head for its last token, its cache written. Each token but
    /// the last of a response then runs alone, over the cache of all before it. A step of all slots reads the weights once,
    /// and its logits are written and read, in float32.
    pub fn work(&self, sizes: &Sizes) -> Work {
        let Self {
            prompts,
            prompt_tokens,
            responses,
            new_tokens,
            slots,
            number_bytes,
        } = *self;
        let steps = responses.div_ceil(slots.max(1)) * new_tokens;
        let decoded = responses * (new_tokens - 1);
        // A token at place t, counted from 1, sees t tokens, itself included.
        let seen_in_prompts = prompts * sum_to(prompt_tokens);
        let seen = responses * (sum_to(prompt_tokens + new_tokens - 1) - sum_to(prompt_tokens));
        let operations = 2 * sizes.trunk() * (prompts * prompt_tokens + decoded)
            + 2 * sizes.head() * (prompts + decoded)
            + sizes.attention(seen_in_prompts + seen);
        let weights = steps * (sizes.trunk() + sizes.head()) * number_bytes;
        let written = (prompts * prompt_tokens + decoded) * sizes.cache_bytes(number_bytes);
        let read = seen * sizes.cache_bytes(number_bytes);
        let logits = 2 * responses * new_tokens * sizes.vocabulary * 4;
        Work {
            operations,
            bytes: weights + written + read + logits,
        }
    }
}

/// A train step.
#[derive(Debug, Clone, Copy)]
pub struct Training {
    /// Sequences.
    pub sequences: u64,
    /// Of each.
    pub tokens: u64,
    /// Of these, in the prompt.
    pub prompt_tokens: u64,
    /// Packs that the sequences are in.
    pub packs: u64,
    /// Of the compute type.
    pub number_bytes: u64,
}

impl Training {
    /// Backward is twice forward: a product for the gradient of the input, one for that of the weights. The head runs for
    /// response tokens.
    ///
    /// Bytes: weights are read forward and backward in each pack, and their float32 gradients read and written; each of the
    /// `4 h + 2 q + 2 k + 3 i` numbers that a layer computes of a token is written and read forward, read backward, and its
    /// gradient written and read; `2 h` of them, the residual stream, are float32, and so are logits, which are written, read
    /// forward and read backward; their gradients are written and read twice.
    pub fn packs(&self, sizes: &Sizes) -> Work {
        let tokens = self.sequences * self.tokens;
        let responses = self.sequences * (self.tokens - self.prompt_tokens);
        let seen = self.sequences * sum_to(self.tokens);
        let forward = 2 * sizes.trunk() * tokens + 2 * sizes.head() * responses + sizes.attention(seen);
        let weights = self.packs * (2 * (sizes.trunk() + sizes.head()) * self.number_bytes + 8 * sizes.parameters);
        let numbers = 4 * sizes.hidden + 2 * sizes.queries + 2 * sizes.keys + 3 * sizes.intermediate;
        let stream = 3 * 2 * sizes.hidden * 4u64.saturating_sub(self.number_bytes);
        let activations = sizes.layers * tokens * (5 * numbers * self.number_bytes + stream);
        let logits = responses * sizes.vocabulary * (3 * 4 + 3 * self.number_bytes);
        Work {
            operations: 3 * forward,
            bytes: weights + activations + logits,
        }
    }

    /// For each weight, its gradient is read for the norm and again for the update; the weight and two moments are read and
    /// written, all in float32; where it computes in another type, its weight there is written. About twelve operations.
    pub fn optimizer(&self, sizes: &Sizes) -> Work {
        let copy = if self.number_bytes < 4 { self.number_bytes } else { 0 };
        Work {
            operations: 12 * sizes.parameters,
            bytes: (4 * (2 + 6) + copy) * sizes.parameters,
        }
    }
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// 1 + 2 + ... + n.
fn sum_to(n: u64) -> u64 {
    n * (n + 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// h 2, i 3, q 4, k 2, V 5, L 1: M = 2 (4 + 4) + 4 2 + 3 2 3 = 42, H = 10.
    const SMALL: Sizes = Sizes {
        parameters: 100,
        hidden: 2,
        intermediate: 3,
        queries: 4,
        keys: 2,
        vocabulary: 5,
        layers: 1,
    };

    #[test]
    fn generation_by_hand() {
        // Two prompts of 3 tokens, one response of 2 tokens to each, one slot: 4 steps, 2 tokens decoded.
        let work = Generation {
            prompts: 2,
            prompt_tokens: 3,
            responses: 2,
            new_tokens: 2,
            slots: 1,
            number_bytes: 2,
        }
        .work(&SMALL);
        // Trunk 2 42 (6 + 2), head 2 10 (2 + 2), attention 16 (2 6 + 2 4).
        assert_eq!(work.operations, 672 + 80 + 320);
        // Weights 4 52 2, cache of a token 2 2 2 = 8 bytes: written 8 8, read 8 8; logits 2 4 5 4.
        assert_eq!(work.bytes, 416 + 64 + 64 + 160);
    }

    #[test]
    fn training_by_hand() {
        let training = Training {
            sequences: 2,
            tokens: 3,
            prompt_tokens: 1,
            packs: 2,
            number_bytes: 2,
        };
        let work = training.packs(&SMALL);
        // Forward: trunk 2 42 6 = 504, head 2 10 4 = 80, attention 16 12 = 192.
        assert_eq!(work.operations, 3 * (504 + 80 + 192));
        // Weights 2 (2 52 2 + 800) = 2016; 8 + 8 + 4 + 9 = 29 numbers: 6 (5 29 2 + 3 4 2) = 1884; logits
        // 4 5 (12 + 6) = 360.
        assert_eq!(work.bytes, 2016 + 1884 + 360);
        let step = training.optimizer(&SMALL);
        assert_eq!((step.operations, step.bytes), (1200, 3400));
        let wide = Training {
            number_bytes: 4,
            ..training
        };
        assert_eq!(wide.optimizer(&SMALL).bytes, 3200);
    }

    #[test]
    fn a_shared_prompt_saves_its_runs_and_nothing_else() {
        let separate = Generation {
            prompts: 8,
            prompt_tokens: 3,
            responses: 8,
            new_tokens: 2,
            slots: 8,
            number_bytes: 2,
        };
        let shared = Generation { prompts: 1, ..separate };
        let (shared, separate) = (shared.work(&SMALL), separate.work(&SMALL));
        assert_eq!(
            separate.operations - shared.operations,
            7 * (2 * 42 * 3 + 2 * 10 + 16 * 6)
        );
        assert_eq!(separate.bytes - shared.bytes, 7 * 3 * 8);
    }
}
