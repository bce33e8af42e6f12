//! One transformer layer, forward and backward.
//!
//! The backward pass is written by hand over `ops`: gradients go straight from the products into sums that are wider than
//! the compute type, and nothing is kept but what is named here.

use tch::Tensor;

use super::layout::{Block, Linear};
use super::network::Network;
use super::packed::Packed;
use crate::ops::{self, Normed, Turns};

/// What the backward pass of a layer reads.
#[derive(Debug)]
pub struct Activations {
    /// The residual stream before attention, normed.
    pub input: Normed,
    /// Of attention.
    pub attention: Attention,
    /// The residual stream after attention, normed.
    pub middle: Normed,
    /// Gates and what they let through, `[rows, 2 * intermediate]`.
    pub both: Tensor,
}

/// What the backward pass of attention reads.
#[derive(Debug)]
pub struct Attention {
    /// Turned queries `[rows, heads, dim]` and keys, and values.
    q: Tensor,
    k: Tensor,
    v: Tensor,
    /// Queries and keys as they came, with the scales of their norms, where they are normed.
    unnormed: Option<[(Tensor, Tensor); 2]>,
    /// What attention gave, `[rows, heads * dim]`.
    mixed: Tensor,
    /// Of its softmax.
    log_sum: Tensor,
}

/// What a layer's backward pass goes by, the same for all layers.
#[derive(Debug)]
pub struct Pass<'a> {
    /// In the compute type.
    pub weights: &'a [Tensor],
    /// The sequences.
    pub pack: &'a Packed,
    /// Of their tokens.
    pub turns: &'a Turns,
}

impl Network {
    /// Runs a layer on its normed input. `attend(q, k, v)` gets `[rows, heads, dim]` (keys and values with their own
    /// number of heads) and returns `[rows, heads * dim]`, and what [`ops::attention`] does. Also returns the residual
    /// stream after the layer, normed for what comes next.
    pub fn layer(
        &self,
        weights: &[Tensor],
        layer: usize,
        input: Normed,
        turns: &Turns,
        attend: impl FnOnce(&Tensor, &Tensor, &Tensor) -> (Tensor, Tensor),
    ) -> (Activations, Normed) {
        let block = &self.layout.blocks[layer];
        let (heads, kv_heads) = (self.config.heads, self.config.kv_heads);
        let mut qkv = linear(weights, block.qkv, &input.out);
        let mut unnormed = None;
        if let Some((q_norm, k_norm)) = block.query_key_norms {
            let parts = self.parts(&qkv);
            let [q, k] = [(&parts[0], q_norm), (&parts[1], k_norm)].map(|(part, norm)| self.norm(part, &weights[norm]));
            let normed = Tensor::cat(&[&q.out, &k.out, &parts[2]], 1);
            qkv = normed.view([normed.size()[0], -1]);
            unnormed = Some([(q.sum, q.scale), (k.sum, k.scale)]);
        }
        let (q, k, v) = ops::rotate(&qkv, turns, heads, kv_heads);
        let (mixed, log_sum) = attend(&q, &k, &v);
        let added = linear(weights, block.output, &mixed);
        let middle = ops::add_norm(
            &input.sum,
            Some(&added),
            &weights[block.gated_norm],
            self.config.norm_eps,
        );
        let both = linear(weights, block.gate_up, &middle.out);
        let added = linear(weights, block.down, &ops::gate(&both));
        let next = &weights[self.norm_before(layer + 1)];
        let next = ops::add_norm(&middle.sum, Some(&added), next, self.config.norm_eps);
        let attention = Attention {
            q,
            k,
            v,
            unnormed,
            mixed,
            log_sum,
        };
        let activations = Activations {
            input,
            attention,
            middle,
            both,
        };
        (activations, next)
    }

    /// The gradient at the residual stream before a layer, given that after it, `d_rows`. Gradients of the layer's weights
    /// are added to `sums`, one a leaf.
    pub fn layer_backward(
        &self,
        pass: &Pass<'_>,
        layer: usize,
        activations: Activations,
        d_rows: &Tensor,
        sums: &mut [Tensor],
    ) -> Tensor {
        let block = self.layout.blocks[layer];
        let Activations {
            input,
            attention,
            middle,
            both,
        } = activations;
        let d_rows = self.gated_backward(pass.weights, &block, &middle, both, d_rows, sums);
        let d_mixed = linear_backward(pass.weights, block.output, &d_rows, &attention.mixed, sums);
        let d_qkv = self.attention_backward(pass, &block, attention, &d_mixed, sums);
        let d_normed = linear_backward(pass.weights, block.qkv, &d_qkv, &input.out, sums);
        let (norm, weight) = (block.input_norm, &pass.weights[block.input_norm]);
        ops::norm_backward(
            &d_normed,
            &input.sum,
            &input.scale,
            weight,
            Some(&d_rows),
            &mut sums[norm],
        )
    }

    fn gated_backward(
        &self,
        weights: &[Tensor],
        block: &Block,
        middle: &Normed,
        both: Tensor,
        d_rows: &Tensor,
        sums: &mut [Tensor],
    ) -> Tensor {
        let d_product = d_rows.matmul(&weights[block.down.weight]);
        let (d_both, product) = ops::gate_backward(&d_product, &both);
        drop(both);
        add_gradients(block.down, d_rows, &product, sums);
        let d_normed = linear_backward(weights, block.gate_up, &d_both, &middle.out, sums);
        let (norm, weight) = (block.gated_norm, &weights[block.gated_norm]);
        ops::norm_backward(
            &d_normed,
            &middle.sum,
            &middle.scale,
            weight,
            Some(d_rows),
            &mut sums[norm],
        )
    }

    /// The gradient at the projections.
    fn attention_backward(
        &self,
        pass: &Pass<'_>,
        block: &Block,
        attention: Attention,
        d_mixed: &Tensor,
        sums: &mut [Tensor],
    ) -> Tensor {
        let Attention {
            q,
            k,
            v,
            unnormed,
            mixed,
            log_sum,
        } = attention;
        let (d_q, d_k, d_v) = ops::attention_backward(d_mixed, [&q, &k, &v], &mixed, &log_sum, pass.pack);
        let d_qkv = ops::rotate_backward(&d_q, &d_k, &d_v, pass.turns);
        let (Some(unnormed), Some((q_norm, k_norm))) = (unnormed, block.query_key_norms) else {
            return d_qkv;
        };
        let mut parts = self.parts(&d_qkv);
        for (part, ((rows, scale), norm)) in parts.iter_mut().zip(unnormed.iter().zip([q_norm, k_norm])) {
            *part = ops::norm_backward(part, rows, scale, &pass.weights[norm], None, &mut sums[norm]);
        }
        let d_qkv = Tensor::cat(&parts, 1);
        d_qkv.view([d_qkv.size()[0], -1])
    }

    /// Queries, keys and values, `[rows, heads, dim]` each, of `[rows, (heads + 2 * kv_heads) * dim]`.
    fn parts(&self, qkv: &Tensor) -> Vec<Tensor> {
        let (heads, kv_heads) = (self.config.heads, self.config.kv_heads);
        qkv.view([qkv.size()[0], -1, self.config.head_dim])
            .split_with_sizes([heads, kv_heads, kv_heads], 1)
    }

    /// Normed rows, added to nothing.
    pub fn norm(&self, rows: &Tensor, weight: &Tensor) -> Normed {
        ops::add_norm(rows, None, weight, self.config.norm_eps)
    }

    /// The leaf of the norm before a layer, or of that after all layers.
    pub fn norm_before(&self, layer: usize) -> usize {
        let block = self.layout.blocks.get(layer);
        block.map_or(self.layout.last_norm, |block| block.input_norm)
    }
}

/// A linear layer's output.
pub fn linear(weights: &[Tensor], layer: Linear, rows: &Tensor) -> Tensor {
    rows.linear(&weights[layer.weight], layer.bias.map(|bias| &weights[bias]))
}

/// The gradient at the input `rows` of a linear layer given `d_out`; those of its weights are added to `sums`.
fn linear_backward(weights: &[Tensor], layer: Linear, d_out: &Tensor, rows: &Tensor, sums: &mut [Tensor]) -> Tensor {
    add_gradients(layer, d_out, rows, sums);
    d_out.matmul(&weights[layer.weight])
}

fn add_gradients(layer: Linear, d_out: &Tensor, rows: &Tensor, sums: &mut [Tensor]) {
    ops::add_product(&mut sums[layer.weight], d_out, rows);
    if let Some(bias) = layer.bias {
        ops::add_bias(&mut sums[bias], d_out);
    }
}
