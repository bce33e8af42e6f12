//! Where each parameter of a Hugging Face file lies.
//!
//! Query, key and value projections are one tensor here, and so are gate and up: fewer and larger products. A piece is
//! a run of rows of such a leaf and has the Hugging Face name; files only ever see pieces.

use tch::{Device, Kind, Tensor};

use crate::config::LlamaConfig;

/// One parameter as files name it.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Hugging Face name.
    pub name: String,
    /// Which leaf holds it.
    pub leaf: usize,
    /// First row in that leaf.
    pub first_row: i64,
    /// Its own shape; one dimension for norms.
    pub shape: Vec<i64>,
}

/// All leaves and pieces of a network, in the order of the forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Shapes of the leaves.
    pub leaves: Vec<Vec<i64>>,
    /// In the order of the leaves and of the rows in them.
    pub pieces: Vec<Piece>,
    tied: bool,
}

/// Leaves of one transformer block.
pub(super) const LEAVES_PER_LAYER: usize = 6;

impl Layout {
    /// The layout of a network of this shape.
    pub fn of(config: &LlamaConfig) -> Self {
        let mut layout = Self {
            leaves: Vec::new(),
            pieces: Vec::new(),
            tied: config.tied,
        };
        let (hidden, gated) = (config.hidden, config.intermediate);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        layout.add(
            &[("model.embed_tokens.weight".to_owned(), config.vocabulary)],
            Some(hidden),
        );
        for layer in 0..config.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            layout.add(&[(name("input_layernorm"), hidden)], None);
            let projections = [("q", queries), ("k", keys), ("v", keys)];
            let projections = projections.map(|(part, rows)| (name(&format!("self_attn.{part}_proj")), rows));
            layout.add(&projections, Some(hidden));
            layout.add(&[(name("self_attn.o_proj"), hidden)], Some(queries));
            layout.add(&[(name("post_attention_layernorm"), hidden)], None);
            layout.add(
                &[(name("mlp.gate_proj"), gated), (name("mlp.up_proj"), gated)],
                Some(hidden),
            );
            layout.add(&[(name("mlp.down_proj"), hidden)], Some(gated));
        }
        layout.add(&[("model.norm.weight".to_owned(), hidden)], None);
        if !config.tied {
            layout.add(&[("lm_head.weight".to_owned(), config.vocabulary)], Some(hidden));
        }
        layout
    }

    fn add(&mut self, parts: &[(String, i64)], columns: Option<i64>) {
        let shape = |rows: i64| std::iter::once(rows).chain(columns).collect::<Vec<_>>();
        let mut first_row = 0;
        for (name, rows) in parts {
            self.pieces.push(Piece {
                name: name.clone(),
                leaf: self.leaves.len(),
                first_row,
                shape: shape(*rows),
            });
            first_row += rows;
        }
        self.leaves.push(shape(first_row));
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
        0..if self.tied {
            self.leaves.len()
        } else {
            self.leaves.len() - 1
        }
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

    #[test]
    fn pieces_tile_their_leaves() {
        for tied in ["true", "false"] {
            let config = crate::config::parse(&format!(
                r#"{{"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 11, "tie_word_embeddings": {tied}}}"#
            ));
            let layout = Layout::of(&config.unwrap());
            let mut rows = vec![0; layout.leaves.len()];
            for piece in &layout.pieces {
                assert_eq!(piece.first_row, rows[piece.leaf]);
                rows[piece.leaf] += piece.shape[0];
            }
            assert_eq!(rows, layout.leaves.iter().map(|shape| shape[0]).collect::<Vec<_>>());
            let block = 8 + 8 * 8 + 2 * 4 * 8 + 8 * 8 + 8 + 3 * 8 * 12;
            assert_eq!(
                layout.parameters(),
                2 * block + 8 + if tied == "true" { 88 } else { 176 }
            );
            assert_eq!(layout.leaves[layout.head()], [11, 8]);
        }
    }
}
