//! The forward pass of Llama, Qwen2 and Qwen3 (transformers' `modeling_llama.py` and its like), on rows of tokens from any
//! number of sequences.
//!
//! Weights come as an argument: the policy, a frozen copy and an engine's own copy share one network.

use rlpipe_model::{ModelConfig, Rotary};
use tch::{Device, Kind, Tensor};

use super::layout::Layout;
use super::packed::Packed;
use crate::device::wide;
use crate::ops::{self, Normed, Turns};

/// A network without weights.
#[derive(Debug)]
pub struct Network {
    /// Shape and constants.
    pub config: ModelConfig,
    /// Where its parameters lie.
    pub layout: Layout,
    /// Compute type.
    pub kind: Kind,
    /// Where it computes.
    pub device: Device,
    /// Cosine and sine of every position that the engine reads.
    table: (Tensor, Tensor),
}

/// Float32 tables of cosine and sine, `[positions, head_dim / 2]`, whatever the compute type, as in transformers.
fn table(rotary: &Rotary, positions: i64, device: Device) -> (Tensor, Tensor) {
    let positions = Tensor::arange(positions, (Kind::Float, Device::Cpu));
    let angles = positions.unsqueeze(1) * Tensor::from_slice(&rotary.frequencies);
    let scale = f64::from(rotary.scale);
    (
        (angles.cos() * scale).to_device(device),
        (angles.sin() * scale).to_device(device),
    )
}

impl Network {
    /// A network of this shape; makes the rotary tables.
    pub fn new(config: ModelConfig, kind: Kind, device: Device) -> Self {
        Self {
            layout: Layout::of(&config),
            table: table(&config.rotary(1), config.generated_positions(), device),
            kind,
            device,
            config,
        }
    }

    /// Cosine and sine of every position that the engine reads, float32 `[positions, head_dim / 2]` each.
    pub fn rotary_tables(&self) -> (&Tensor, &Tensor) {
        (&self.table.0, &self.table.1)
    }

    /// Turns of tokens at `positions`, `[rows]`, of sequences that are no longer than the engine's.
    pub fn turns(&self, positions: &Tensor) -> Turns {
        Turns::new(&self.table.0, &self.table.1, positions)
    }

    /// Turns of whole sequences: with `dynamic` scaling those of a long one depend on its length.
    pub fn turns_of(&self, pack: &Packed) -> Turns {
        if pack.longest <= self.config.generated_positions() {
            return self.turns(&pack.positions);
        }
        let of = |&length: &i64| table(&self.config.rotary(length), length, self.device);
        let (cosines, sines): (Vec<Tensor>, Vec<Tensor>) = pack.lengths.iter().map(of).unzip();
        let rows = Tensor::arange(pack.lengths.iter().sum::<i64>(), (Kind::Int64, self.device));
        Turns::new(&Tensor::cat(&cosines, 0), &Tensor::cat(&sines, 0), &rows)
    }

    /// Embeddings of `tokens`, `[rows]`, normed for the first layer: the residual stream, which is float32 (float64 for
    /// float64) whatever the compute type.
    pub fn embedded(&self, weights: &[Tensor], tokens: &Tensor) -> Normed {
        let rows = Tensor::embedding(&weights[0], tokens, -1, false, false).to_kind(wide(self.kind));
        self.norm(&rows, &weights[self.norm_before(0)])
    }

    /// Hidden states after the last norm, `[rows, hidden]`, of `tokens`, `[rows]`, turned by `turns`; keeps nothing.
    ///
    /// `attend(layer, q, k, v)` gets `[rows, heads, dim]` (keys and values with their own number of heads) and returns
    /// `[rows, heads * dim]`.
    pub fn hidden(
        &self,
        weights: &[Tensor],
        tokens: &Tensor,
        turns: &Turns,
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let mut rows = self.embedded(weights, tokens);
        for layer in 0..self.layout.blocks.len() {
            let attend = |q: &Tensor, k: &Tensor, v: &Tensor| (attend(layer, q, k, v), Tensor::new());
            rows = self.layer(weights, layer, rows, turns, attend).1;
        }
        rows.out
    }

    /// Hidden states of whole sequences, each attending to itself alone; `see(layer, k, v)` is shown the turned keys and the
    /// values of each layer, `[rows, kv_heads, dim]`.
    pub fn packed(&self, weights: &[Tensor], pack: &Packed, mut see: impl FnMut(usize, &Tensor, &Tensor)) -> Tensor {
        self.hidden(weights, &pack.tokens, &self.turns_of(pack), |layer, q, k, v| {
            see(layer, k, v);
            ops::attention(q, k, v, pack).0
        })
    }

    /// Logits of hidden states, as [`ops::logits`].
    pub fn logits(&self, weights: &[Tensor], hidden: &Tensor) -> Tensor {
        ops::logits(hidden, &weights[self.layout.head()])
    }
}
