//! The forward pass of Llama (transformers' `modeling_llama.py`), on rows of tokens from any number of sequences.
//!
//! Weights come as an argument: the policy, a frozen copy and an engine's own copy share one network.

use tch::{Device, Kind, Tensor};

use super::layout::{LEAVES_PER_LAYER, Layout};
use super::packed::Packed;
use crate::config::LlamaConfig;
use crate::device::wide;

/// A network without weights.
#[derive(Debug)]
pub struct Network {
    /// Shape and constants.
    pub config: LlamaConfig,
    /// Where its parameters lie.
    pub layout: Layout,
    /// Compute type.
    pub kind: Kind,
    /// Where it computes.
    pub device: Device,
    /// Rotary tables `[positions, 1, head_dim]` in the compute type; the sine's first half is negated.
    cosine: Tensor,
    sine: Tensor,
}

impl Network {
    /// A network of this shape; makes the rotary tables.
    pub fn new(config: LlamaConfig, kind: Kind, device: Device) -> Self {
        let half = config.head_dim / 2;
        let table = (Kind::Double, Device::Cpu);
        let exponents = Tensor::arange(half, table) * 2.0 / config.head_dim as f64;
        let frequencies = (exponents * -config.rope_theta.ln()).exp();
        let angles = Tensor::arange(config.max_positions, table).unsqueeze(1) * frequencies;
        let signed = Tensor::cat(&[-angles.sin(), angles.sin()], 1);
        let onto = |table: Tensor| table.unsqueeze(1).to_kind(kind).to_device(device);
        Self {
            layout: Layout::of(&config),
            cosine: onto(Tensor::cat(&[angles.cos(), angles.cos()], 1)),
            sine: onto(signed),
            kind,
            device,
            config,
        }
    }

    /// Hidden states after the last norm, `[rows, hidden]`, of `tokens` at `positions` (both `[rows]`).
    ///
    /// `attend(layer, q, k, v)` gets `[rows, heads, dim]` (keys and values with their own number of heads) and returns
    /// `[rows, heads * dim]`.
    pub fn hidden(
        &self,
        weights: &[Tensor],
        tokens: &Tensor,
        positions: &Tensor,
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let config = &self.config;
        let rotated = config.heads + config.kv_heads;
        let (cosine, sine) = (
            self.cosine.index_select(0, positions),
            self.sine.index_select(0, positions),
        );
        let mut rows = Tensor::embedding(&weights[0], tokens, -1, false, false);
        for (layer, leaves) in weights[1..]
            .chunks_exact(LEAVES_PER_LAYER)
            .take(config.layers as usize)
            .enumerate()
        {
            let [input_norm, qkv, output, gated_norm, gate_up, down] = leaves else {
                unreachable!()
            };
            let heads = self.norm(&rows, input_norm).linear(qkv, None::<&Tensor>);
            let heads = heads.view([-1, rotated + config.kv_heads, config.head_dim]);
            let queries_keys = heads.narrow(1, 0, rotated);
            // Rotating by half a head with the sign in the table is transformers' `rotate_half`.
            let turned = queries_keys.roll([config.head_dim / 2], [-1]);
            let queries_keys = (queries_keys * &cosine).addcmul(&turned, &sine);
            let mixed = attend(
                layer,
                &queries_keys.narrow(1, 0, config.heads),
                &queries_keys.narrow(1, config.heads, config.kv_heads),
                &heads.narrow(1, rotated, config.kv_heads),
            );
            rows = &rows + mixed.linear(output, None::<&Tensor>);
            let gates = self.norm(&rows, gated_norm).linear(gate_up, None::<&Tensor>);
            let gates = gates.chunk(2, 1);
            rows = &rows + (gates[0].silu() * &gates[1]).linear(down, None::<&Tensor>);
        }
        self.norm(&rows, &weights[LEAVES_PER_LAYER * config.layers as usize + 1])
    }

    /// Hidden states of whole sequences, each attending to itself alone.
    pub fn packed(&self, weights: &[Tensor], pack: &Packed) -> Tensor {
        self.hidden(weights, &pack.tokens, &pack.positions, |_, q, k, v| {
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
        rows.rms_norm([self.config.hidden], Some(weight), Some(self.config.norm_eps))
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
