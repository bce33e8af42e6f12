//! Where each parameter of a Hugging Face file lies.
//!
//! Query, key and value projections are one tensor here, and so are gate and up, and their biases: fewer and larger
//! products. A piece is a run of rows of such a leaf and has the Hugging Face name; files only ever see pieces.

use std::collections::HashMap;

use rlpipe_model::{ModelConfig, Parameter, parameters};
use tch::{Device, Kind, Tensor};

/// One parameter as files name it.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Hugging Face name.
    pub name: String,
    /// Which leaf holds it.
    pub leaf: usize,
    /// First row in that leaf.
    pub first_row: i64,
    /// Its own shape; one dimension for norms and biases.
    pub shape: Vec<i64>,
}

/// All leaves and pieces of a network, in the order of the forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Shapes of the leaves.
    pub leaves: Vec<Vec<i64>>,
    /// In the order of the leaves and of the rows in them.
    pub pieces: Vec<Piece>,
    /// The leaves of each transformer block.
    pub blocks: Vec<Block>,
    /// The norm after the last block.
    pub last_norm: usize,
    tied: bool,
}

/// A linear layer's leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: usize,
    /// `[outputs]`.
    pub bias: Option<usize>,
}

/// The leaves of one transformer block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    /// Norm before attention.
    pub input_norm: usize,
    /// Query, key and value projections.
    pub qkv: Linear,
    /// Norms of each head's query and key.
    pub query_key_norms: Option<(usize, usize)>,
    /// Projection after attention.
    pub output: Linear,
    /// Norm before the gated part.
    pub gated_norm: usize,
    /// Gate and up projections.
    pub gate_up: Linear,
    /// Projection after the gate.
    pub down: Linear,
}

impl Layout {
    /// The layout of a network of this shape.
    pub fn of(config: &ModelConfig) -> Self {
        let (mut leaves, mut pieces) = (Vec::<Vec<i64>>::new(), Vec::<Piece>::new());
        for Parameter { name, shape } in parameters(config) {
            let continues = ["k_proj", "v_proj", "up_proj"].iter().any(|part| name.contains(part));
            match leaves.last_mut().filter(|_| continues) {
                Some(leaf) => leaf[0] += shape[0],
                None => leaves.push(shape.clone()),
            }
            let leaf = leaves.len() - 1;
            pieces.push(Piece {
                name,
                leaf,
                first_row: leaves[leaf][0] - shape[0],
                shape,
            });
        }
        let found: HashMap<&str, usize> = pieces.iter().map(|piece| (piece.name.as_str(), piece.leaf)).collect();
        let find = |name: &str| found.get(name).copied();
        // Those without a question are in every network.
        let leaf = |name: &str| find(name).unwrap_or_default();
        let block = |layer: i64| {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            let linear = |part: &str| Linear {
                weight: leaf(&name(&format!("{part}.weight"))),
                bias: find(&name(&format!("{part}.bias"))),
            };
            Block {
                input_norm: leaf(&name("input_layernorm.weight")),
                qkv: linear("self_attn.q_proj"),
                query_key_norms: find(&name("self_attn.q_norm.weight")).zip(find(&name("self_attn.k_norm.weight"))),
                output: linear("self_attn.o_proj"),
                gated_norm: leaf(&name("post_attention_layernorm.weight")),
                gate_up: linear("mlp.gate_proj"),
                down: linear("mlp.down_proj"),
            }
        };
        Self {
            blocks: (0..config.layers).map(block).collect(),
            last_norm: leaf("model.norm.weight"),
            leaves,
            pieces,
            tied: config.tied,
        }
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u64 {
        self.leaves
            .iter()
            .map(|shape| shape.iter().product::<i64>() as u64)
            .sum()
    }

    /// Which leaf is the output projection `[vocabulary, hidden]`.
    pub fn head(&self) -> usize {
        if self.tied { 0 } else { self.leaves.len() - 1 }
    }

    /// The leaves that the pass up to the last norm reads; the head, when it is a leaf of its own, comes after them.
    pub fn trunk(&self) -> std::ops::Range<usize> {
        0..self.last_norm + 1
    }

    /// Zeros in the shape of every leaf.
    pub fn zeros(&self, kind: Kind, device: Device) -> Vec<Tensor> {
        self.leaves
            .iter()
            .map(|shape| Tensor::zeros(shape.as_slice(), (kind, device)))
            .collect()
    }

    /// A view of one piece, detached from any graph.
    pub fn view(&self, leaves: &[Tensor], piece: &Piece) -> Tensor {
        leaves[piece.leaf].detach().narrow(0, piece.first_row, piece.shape[0])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn layout(model_type: &str, tied: bool) -> Layout {
        let config = format!(
            r#"{{"model_type": "{model_type}", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2, "vocab_size": 11,
            "tie_word_embeddings": {tied}, "attention_bias": true, "mlp_bias": true}}"#
        );
        Layout::of(&rlpipe_model::parse_config(&config).unwrap())
    }

    #[test]
    fn pieces_tile_their_leaves() {
        let matrices = 8 + 8 * 8 + 2 * 4 * 8 + 8 * 8 + 8 + 3 * 8 * 12;
        let biases = [
            ("llama", (8 + 2 * 4) + 8 + 2 * 12 + 8),
            ("qwen2", 8 + 2 * 4),
            ("qwen3", (8 + 2 * 4) + 8 + 2 * 2),
        ];
        for (model_type, more) in biases {
            for tied in [true, false] {
                let layout = layout(model_type, tied);
                let mut rows = vec![0; layout.leaves.len()];
                for piece in &layout.pieces {
                    assert_eq!(piece.first_row, rows[piece.leaf]);
                    assert_eq!(piece.shape[1..], layout.leaves[piece.leaf][1..]);
                    rows[piece.leaf] += piece.shape[0];
                }
                assert_eq!(rows, layout.leaves.iter().map(|shape| shape[0]).collect::<Vec<_>>());
                let outside = 8 + if tied { 88 } else { 176 };
                assert_eq!(layout.parameters(), 2 * (matrices + more) + outside, "{model_type}");
                assert_eq!(layout.leaves[layout.head()], [11, 8]);
                assert_eq!(layout.leaves[layout.last_norm], [8]);
            }
        }
    }

    #[test]
    fn fused_leaves_are_found_by_their_first_part() {
        let layout = layout("llama", false);
        for block in layout.blocks {
            assert_eq!(layout.leaves[block.qkv.weight], [16, 8]);
            assert_eq!(layout.leaves[block.qkv.bias.unwrap()], [16]);
            assert_eq!(layout.leaves[block.gate_up.weight], [24, 8]);
            assert_eq!(layout.leaves[block.gate_up.bias.unwrap()], [24]);
            assert_eq!(layout.leaves[block.down.weight], [8, 12]);
            assert_eq!(layout.leaves[block.output.bias.unwrap()], [8]);
            assert!(block.query_key_norms.is_none());
        }
    }
}
