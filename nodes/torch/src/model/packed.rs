//! Sequences of different lengths, one after the other, with what attention needs to keep them apart.

use std::cell::OnceCell;

use tch::{Device, Kind, Tensor};

use crate::device::together;

/// Token ids of several sequences, concatenated.
#[derive(Debug)]
pub struct Packed {
    /// `[tokens]`, int64.
    pub tokens: Tensor,
    /// Position of each token in its own sequence, `[tokens]`.
    pub positions: Tensor,
    /// Where each sequence starts, and the end, `[sequences + 1]`, int32.
    pub starts: Tensor,
    /// Sequences.
    pub sequences: i64,
    /// Tokens of each.
    pub lengths: Vec<i64>,
    /// Tokens of the longest one.
    pub longest: i64,
    /// Where each token lies in a right-padded `[sequences * longest]`, made when it is first wanted; none when nothing is
    /// padded.
    places: OnceCell<Option<Tensor>>,
}

impl Packed {
    /// Packs sequences of ids; none may be empty.
    pub fn new(sequences: &[&[u32]], device: Device) -> Self {
        let lengths: Vec<i64> = sequences.iter().map(|ids| ids.len() as i64).collect();
        let tokens = sequences.iter().flat_map(|ids| ids.iter().map(|&id| i64::from(id)));
        let positions = lengths.iter().flat_map(|&length| 0..length);
        let starts = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        let parts = [
            tokens.collect(),
            positions.collect(),
            std::iter::once(0).chain(starts).collect(),
        ];
        let [tokens, positions, starts] = together(parts, device);
        Self {
            tokens,
            positions,
            starts: starts.to_kind(Kind::Int),
            sequences: lengths.len() as i64,
            longest: lengths.iter().max().copied().unwrap_or(0),
            lengths,
            places: OnceCell::new(),
        }
    }

    fn places(&self) -> Option<&Tensor> {
        let make = || {
            let rows = self.lengths.iter().enumerate();
            let places = rows.flat_map(|(row, &length)| {
                let start = row as i64 * self.longest;
                start..start + length
            });
            let places: Vec<i64> = places.collect();
            let padded = (places.len() as i64) < self.longest * self.sequences;
            padded.then(|| Tensor::from_slice(&places).to_device(self.tokens.device()))
        };
        self.places.get_or_init(make).as_ref()
    }

    /// `[tokens, heads, dim]` to `[sequences, heads, longest, dim]`, zeros after each sequence.
    pub fn pad(&self, rows: &Tensor) -> Tensor {
        let (_, heads, dim) = rows.size3().unwrap_or_default();
        let padded = match self.places() {
            Some(places) => rows
                .new_zeros(
                    [self.sequences * self.longest, heads, dim],
                    (rows.kind(), rows.device()),
                )
                .index_copy_(0, places, rows),
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
        match self.places() {
            Some(places) => rows.index_select(0, places),
            None => rows,
        }
    }
}
