//! The forward pass of Llama, Qwen2 and Qwen3 (transformers' `modeling_llama.py` and its like), on rows of tokens from any
//! number of sequences.
//!
//! Weights come as an argument: the policy, a frozen copy and an engine's own copy share one network.

use rlpipe_model::{ModelConfig, Rotary};
use tch::{Device, Kind, Tensor};

use super::layout::{Layout, Linear};
use super::packed::Packed;
use crate::device::wide;

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
    /// Turns for every position that the engine reads.
    turns: Turns,
}

/// Cosine and sine, `[rows, 1, head_dim]` in the compute type; the sine's first half is negated.
#[derive(Debug)]
pub struct Turns {
    cosine: Tensor,
    sine: Tensor,
}

impl Turns {
    /// Of `positions`, float32 whatever the compute type, as in transformers.
    fn new(rotary: &Rotary, positions: &Tensor, kind: Kind) -> Self {
        let frequencies = Tensor::from_slice(&rotary.frequencies).to_device(positions.device());
        let angles = positions.to_kind(Kind::Float).unsqueeze(1) * frequencies;
        let (cosine, sine) = (
            angles.cos() * f64::from(rotary.scale),
            angles.sin() * f64::from(rotary.scale),
        );
        let both = |left: &Tensor, right: &Tensor| Tensor::cat(&[left, right], 1).unsqueeze(1).to_kind(kind);
        Self {
            cosine: both(&cosine, &cosine),
            sine: both(&-&sine, &sine),
        }
    }

    fn at(&self, positions: &Tensor) -> Self {
        Self {
            cosine: self.cosine.index_select(0, positions),
            sine: self.sine.index_select(0, positions),
        }
    }
}

impl Network {
    /// A network of this shape; makes the rotary tables.
    pub fn new(config: ModelConfig, kind: Kind, device: Device) -> Self {
        let positions = Tensor::arange(config.generated_positions(), (Kind::Int64, Device::Cpu));
        let table = Turns::new(&config.rotary(1), &positions, kind);
        Self {
            layout: Layout::of(&config),
            turns: Turns {
                cosine: table.cosine.to_device(device),
                sine: table.sine.to_device(device),
            },
            kind,
            device,
            config,
        }
    }

    /// Turns of tokens at `positions`, `[rows]`, of sequences that are no longer than the engine's.
    pub fn turns(&self, positions: &Tensor) -> Turns {
        self.turns.at(positions)
    }

    /// Turns of whole sequences: with `dynamic` scaling those of a long one depend on its length.
    fn turns_of(&self, pack: &Packed) -> Turns {
        let reach = self.config.generated_positions();
        if pack.longest <= reach {
            return self.turns(&pack.positions);
        }
        let parts: Vec<Turns> = pack
            .lengths
            .iter()
            .map(|&length| {
                let positions = Tensor::arange(length, (Kind::Int64, self.device));
                Turns::new(&self.config.rotary(length), &positions, self.kind)
            })
            .collect();
        let all = |of: fn(&Turns) -> &Tensor| Tensor::cat(&parts.iter().map(of).collect::<Vec<_>>(), 0);
        Turns {
            cosine: all(|turns| &turns.cosine),
            sine: all(|turns| &turns.sine),
        }
    }

    /// Hidden states after the last norm, `[rows, hidden]`, of `tokens`, `[rows]`, turned by `turns`.
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
        let config = &self.config;
        let rotated = config.heads + config.kv_heads;
        let linear =
            |rows: &Tensor, layer: Linear| rows.linear(&weights[layer.weight], layer.bias.map(|bias| &weights[bias]));
        let mut rows = Tensor::embedding(&weights[0], tokens, -1, false, false);
        for (layer, block) in self.layout.blocks.iter().enumerate() {
            let heads = linear(&self.norm(&rows, &weights[block.input_norm]), block.qkv);
            let heads = heads.view([-1, rotated + config.kv_heads, config.head_dim]);
            let mut queries_keys = heads.narrow(1, 0, rotated);
            if let Some((query, key)) = block.query_key_norms {
                let queries = self.norm(&heads.narrow(1, 0, config.heads), &weights[query]);
                let keys = self.norm(&heads.narrow(1, config.heads, config.kv_heads), &weights[key]);
                queries_keys = Tensor::cat(&[queries, keys], 1);
            }
            // Rotating by half a head with the sign in the table is transformers' `rotate_half`.
            let turned = queries_keys.roll([config.head_dim / 2], [-1]);
            let queries_keys = (queries_keys * &turns.cosine).addcmul(&turned, &turns.sine);
            let mixed = attend(
                layer,
                &queries_keys.narrow(1, 0, config.heads),
                &queries_keys.narrow(1, config.heads, config.kv_heads),
                &heads.narrow(1, rotated, config.kv_heads),
            );
            rows = &rows + linear(&mixed, block.output);
            let gates = linear(&self.norm(&rows, &weights[block.gated_norm]), block.gate_up);
            let gates = gates.chunk(2, 1);
            rows = &rows + linear(&(gates[0].silu() * &gates[1]), block.down);
        }
        self.norm(&rows, &weights[self.layout.last_norm])
    }

    /// Hidden states of whole sequences, each attending to itself alone.
    pub fn packed(&self, weights: &[Tensor], pack: &Packed) -> Tensor {
        self.hidden(weights, &pack.tokens, &self.turns_of(pack), |_, q, k, v| {
            pack.unpad(&attend_causal(&pack.pad(q), &pack.pad(k), &pack.pad(v)))
        })
    }

    /// Logits of hidden states, `[rows, vocabulary]`, in float32 (float64 for float64).
    pub fn logits(&self, weights: &[Tensor], hidden: &Tensor) -> Tensor {
        hidden
            .linear(&weights[self.layout.head()], None::<&Tensor>)
            .to_kind(wide(self.kind))
    }

    fn norm(&self, rows: &Tensor, weight: &Tensor) -> Tensor {
        rows.rms_norm(weight.size(), Some(weight), Some(self.config.norm_eps))
    }
}

/// Causal attention over `[sequences, heads, length, dim]`; fewer key heads serve several query heads each.
pub fn attend_causal(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let shared = q.size()[1] / k.size()[1];
    if shared == 1 || q.device().is_cuda() {
        return Tensor::scaled_dot_product_attention(q, k, v, None::<&Tensor>, 0.0, true, None, shared != 1);
    }
    // On a CPU only equal numbers of heads reach the fused kernel.
    let spread = |t: &Tensor| t.repeat_interleave_self_int(shared, 1, None);
    Tensor::scaled_dot_product_attention(q, &spread(k), &spread(v), None::<&Tensor>, 0.0, true, None, false)
}
