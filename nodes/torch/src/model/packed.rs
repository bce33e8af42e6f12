//! Sequences of different lengths, one after the other, with what attention needs to keep them apart.

use tch::{Device, Tensor};

/// Token ids of several sequences, concatenated.
#[derive(Debug)]
pub struct Packed {
    /// `[tokens]`, int64.
    pub tokens: Tensor,
    /// Position of each token in its own sequence, `[tokens]`.
    pub positions: Tensor,
    /// Sequences.
    pub sequences: i64,
    /// Tokens of each.
    pub lengths: Vec<i64>,
    /// Tokens of the longest one.
    pub longest: i64,
    /// Where each token lies in a right-padded `[sequences * longest]`; none when nothing is padded.
    places: Option<Tensor>,
}

impl Packed {
    /// Packs sequences of ids; none may be empty.
    pub fn new(sequences: &[&[u32]], device: Device) -> Self {
        let longest = sequences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let tokens: Vec<i64> = sequences
            .iter()
            .flat_map(|ids| ids.iter().map(|&id| i64::from(id)))
            .collect();
        let positions: Vec<i64> = sequences.iter().flat_map(|ids| 0..ids.len() as i64).collect();
        let padded = tokens.len() < longest * sequences.len();
        let places = padded.then(|| {
            let places = sequences.iter().enumerate();
            let places = places.flat_map(|(row, ids)| (0..ids.len()).map(move |at| (row * longest + at) as i64));
            Tensor::from_slice(&places.collect::<Vec<_>>()).to_device(device)
        });
        Self {
            tokens: Tensor::from_slice(&tokens).to_device(device),
            positions: Tensor::from_slice(&positions).to_device(device),
            sequences: sequences.len() as i64,
            lengths: sequences.iter().map(|ids| ids.len() as i64).collect(),
            longest: longest as i64,
            places,
        }
    }

    /// `[tokens, heads, dim]` to `[sequences, heads, longest, dim]`, zeros after each sequence.
    pub fn pad(&self, rows: &Tensor) -> Tensor {
        let (_, heads, dim) = rows.size3().unwrap_or_default();
        let padded = match &self.places {
            // Unlike `index_copy`, this keeps nothing but the places for the backward pass.
            Some(places) => rows
                .new_zeros(
                    [self.sequences * self.longest, heads, dim],
                    (rows.kind(), rows.device()),
                )
                .index_put(&[Some(places)], rows, false),
            None => rows.shallow_clone(),
        };
        padded.view([self.sequences, self.longest, heads, dim]).transpose(1, 2)
    }

    /// `[sequences, heads, longest, dim]` back to `[tokens, heads * dim]`.
    pub fn unpad(&self, padded: &Tensor) -> Tensor {
        let (_, heads, _, dim) = padded.size4().unwrap_or_default();
        let rows = padded
            .transpose(1, 2)
            .reshape([self.sequences * self.longest, heads * dim]);
        match &self.places {
            Some(places) => rows.index_select(0, places),
            None => rows,
        }
    }
}
