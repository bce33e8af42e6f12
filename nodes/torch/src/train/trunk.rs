//! The network up to the last norm, forward with what backward needs, and backward.

use rlpipe_wire::v1::Activations as Level;
use tch::Tensor;

use crate::model::{Activations, Attention, Network, Packed, Pass};
use crate::ops::{self, Normed, Turns};

/// What a forward pass left.
#[derive(Debug)]
pub struct Trunk {
    /// Hidden states after the last norm, `[tokens, hidden]`.
    pub hidden: Tensor,
    /// The residual stream before the last norm.
    rows: Tensor,
    scale: Tensor,
    layers: Vec<Kept>,
    turns: Turns,
}

/// What is kept of a layer; what is not is computed again.
#[derive(Debug)]
enum Kept {
    All(Activations),
    /// All but the gated part and normed rows.
    Attention {
        input: Tensor,
        attention: Attention,
        middle: Tensor,
    },
    Input(Tensor),
}

impl Trunk {
    /// Runs whole sequences and keeps of each layer what `level` says.
    pub fn forward(network: &Network, weights: &[Tensor], pack: &Packed, level: Level) -> Self {
        let turns = network.turns_of(pack);
        let mut rows = network.embedded(weights, &pack.tokens);
        let mut layers = Vec::with_capacity(network.layout.blocks.len());
        for layer in 0..network.layout.blocks.len() {
            let attend = |q: &Tensor, k: &Tensor, v: &Tensor| ops::attention(q, k, v, pack);
            let (activations, next) = network.layer(weights, layer, rows, &turns, attend);
            layers.push(Kept::new(activations, level));
            rows = next;
        }
        Self {
            hidden: rows.out,
            rows: rows.sum,
            scale: rows.scale,
            layers,
            turns,
        }
    }

    /// Adds the gradients of all leaves but a head of its own to `sums`, given that at `hidden`.
    pub fn backward(
        self,
        network: &Network,
        weights: &[Tensor],
        pack: &Packed,
        d_hidden: &Tensor,
        sums: &mut [Tensor],
    ) {
        let turns = &self.turns;
        let pass = Pass { weights, pack, turns };
        let last = network.layout.last_norm;
        let mut d_rows = ops::norm_backward(d_hidden, &self.rows, &self.scale, &weights[last], None, &mut sums[last]);
        drop((self.rows, self.scale, self.hidden));
        for (layer, kept) in self.layers.into_iter().enumerate().rev() {
            let activations = kept.activations(network, &pass, layer);
            d_rows = network.layer_backward(&pass, layer, activations, &d_rows, sums);
        }
        ops::add_rows(&mut sums[0], &pack.tokens, &d_rows);
    }
}

impl Kept {
    fn new(all: Activations, level: Level) -> Self {
        match level {
            Level::Keep => Self::All(all),
            Level::RecomputeGated => Self::Attention {
                input: all.input.sum,
                attention: all.attention,
                middle: all.middle.sum,
            },
            Level::RecomputeLayers => Self::Input(all.input.sum),
        }
    }

    fn activations(self, network: &Network, pass: &Pass<'_>, layer: usize) -> Activations {
        let (block, weights) = (&network.layout.blocks[layer], pass.weights);
        let norm = |rows: &Tensor, leaf: usize| -> Normed { network.norm(rows, &weights[leaf]) };
        match self {
            Self::All(activations) => activations,
            Self::Attention {
                input,
                attention,
                middle,
            } => {
                let middle = norm(&middle, block.gated_norm);
                Activations {
                    both: crate::model::linear(weights, block.gate_up, &middle.out),
                    input: norm(&input, block.input_norm),
                    attention,
                    middle,
                }
            }
            Self::Input(input) => {
                let attend = |q: &Tensor, k: &Tensor, v: &Tensor| ops::attention(q, k, v, pass.pack);
                let input = norm(&input, block.input_norm);
                network.layer(weights, layer, input, pass.turns, attend).0
            }
        }
    }
}
