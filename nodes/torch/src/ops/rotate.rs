//! Rotary position embedding (Su et al. 2021, "RoFormer", section 3.4.2), on halves of a head as in transformers'
//! `rotate_half`.

use std::cell::OnceCell;

use tch::{Kind, Tensor};

use super::launch;
use crate::device::wide;
use crate::error::unfailing;

/// The turns of rows of tokens.
#[derive(Debug)]
pub struct Turns {
    /// Float32, `[positions, dim / 2]`.
    pub cosine: Tensor,
    /// Float32, `[positions, dim / 2]`.
    pub sine: Tensor,
    /// The position in the tables of each row, `[rows]`, int64.
    pub positions: Tensor,
    /// Cosine and sine of each row, for the twin.
    by_row: OnceCell<[Tensor; 2]>,
}

impl Turns {
    /// Rows at `positions` of tables.
    pub fn new(cosine: &Tensor, sine: &Tensor, positions: &Tensor) -> Self {
        Self {
            cosine: cosine.shallow_clone(),
            sine: sine.shallow_clone(),
            positions: positions.shallow_clone(),
            by_row: OnceCell::new(),
        }
    }

    fn all(&self) -> [&Tensor; 3] {
        [&self.cosine, &self.sine, &self.positions]
    }

    /// `[rows, 1, dim]` each; the sine's first half is negated.
    fn by_row(&self, kind: Kind) -> &[Tensor; 2] {
        self.by_row.get_or_init(|| {
            let of = |table: &Tensor| table.index_select(0, &self.positions);
            let (cosine, sine) = (of(&self.cosine), of(&self.sine));
            let both = |left: &Tensor, right: &Tensor| Tensor::cat(&[left, right], 1).unsqueeze(1).to_kind(kind);
            [both(&cosine, &cosine), both(&-&sine, &sine)]
        })
    }
}

/// Turns the queries and keys of `qkv`, `[rows, (heads + 2 * kv_heads) * dim]`, and returns queries `[rows, heads, dim]`,
/// keys and values `[rows, kv_heads, dim]`. They may be views of `qkv`, which may be overwritten.
pub fn rotate(qkv: &Tensor, turns: &Turns, heads: i64, kv_heads: i64) -> (Tensor, Tensor, Tensor) {
    let qkv = qkv.view([qkv.size()[0], heads + 2 * kv_heads, -1]);
    if launch::serves_heads(&qkv, qkv.size()[2]) && qkv.is_contiguous() {
        unfailing(launch::rotate(&qkv, turns.all(), heads + kv_heads, heads / kv_heads));
    } else {
        turn_(&mut qkv.narrow(1, 0, heads + kv_heads), turns, false);
    }
    (
        qkv.narrow(1, 0, heads),
        qkv.narrow(1, heads, kv_heads),
        qkv.narrow(1, heads + kv_heads, kv_heads),
    )
}

/// The gradient at `qkv`, `[rows, (heads + 2 * kv_heads) * dim]`, given those of what [`rotate`] returned.
pub fn rotate_backward(d_q: &Tensor, d_k: &Tensor, d_v: &Tensor, turns: &Turns) -> Tensor {
    if launch::serves_heads(d_q, d_q.size()[2]) {
        return unfailing(launch::rotate_backward([d_q, d_k, d_v], turns.all()));
    }
    let d_qkv = Tensor::cat(&[d_q, d_k, d_v], 1);
    turn_(&mut d_qkv.narrow(1, 0, d_q.size()[1] + d_k.size()[1]), turns, true);
    d_qkv.view([d_qkv.size()[0], -1])
}

/// Turns `[rows, heads, dim]` in place, or turns them back.
fn turn_(heads: &mut Tensor, turns: &Turns, back: bool) {
    let kind = wide(heads.kind());
    let [cosine, sine] = turns.by_row(kind);
    let sine = if back { -sine } else { sine.shallow_clone() };
    // The other half stands half a head further, in either direction.
    let other = heads.to_kind(kind).roll([heads.size()[2] / 2], [-1]);
    if heads.kind() == kind {
        let _ = heads.g_mul_(cosine).addcmul_(&other, &sine);
    } else {
        let turned = (heads.to_kind(kind) * cosine).addcmul_(&other, &sine);
        heads.copy_(&turned);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{KINDS, apart, leaf, random, slopes};
    use super::*;
    use tch::Device;

    /// The formula: pairs as complex numbers.
    fn by_hand(x: &Tensor, angles: &Tensor) -> Tensor {
        let halves = x.chunk(2, -1);
        let (cosine, sine) = (angles.cos().unsqueeze(1), angles.sin().unsqueeze(1));
        let first = &halves[0] * &cosine - &halves[1] * &sine;
        Tensor::cat(&[first, &halves[0] * &sine + &halves[1] * &cosine], -1)
    }

    #[test]
    fn turns_pairs_and_turns_gradients_back() {
        for (kind, bound) in KINDS {
            for (heads, kv_heads, dim) in [(1, 1, 2), (6, 2, 8), (3, 3, 16)] {
                let table = random(&[11, dim / 2], Kind::Float);
                let positions = Tensor::from_slice(&[0i64, 10, 3, 3, 7]);
                // Tables are float32 whatever the type.
                let turns = Turns::new(&table.cos(), &table.sin(), &positions);
                let qkv = leaf(&random(&[5, (heads + 2 * kv_heads) * dim], kind));
                let parts = qkv.view([5, -1, dim]).split_with_sizes([heads, kv_heads, kv_heads], 1);
                let angles = table.index_select(0, &positions).to_kind(kind);
                let expected = [
                    by_hand(&parts[0], &angles),
                    by_hand(&parts[1], &angles),
                    parts[2].shallow_clone(),
                ];
                let (q, k, v) = tch::no_grad(|| rotate(&qkv.detach().copy(), &turns, heads, kv_heads));
                for (found, expected) in [q, k, v].iter().zip(&expected) {
                    assert!(apart(found, expected) < bound.max(1e-6));
                }
                let output = Tensor::cat(&expected, 1);
                let d = random(&[5, heads + 2 * kv_heads, dim], kind);
                let wanted = slopes(&output, &d, &[&qkv]);
                let d = d.split_with_sizes([heads, kv_heads, kv_heads], 1);
                let found = rotate_backward(&d[0], &d[1], &d[2], &turns);
                assert!(apart(&found, &wanted[0]) < bound.max(1e-6));
            }
        }
    }

    #[test]
    fn half_types_are_rounded_once() {
        let angles = random(&[4, 8], Kind::Float);
        let positions = Tensor::arange(4, (Kind::Int64, Device::Cpu));
        let turns = || Turns::new(&angles.cos(), &angles.sin(), &positions);
        let qkv = random(&[4, 3 * 16], Kind::BFloat16);
        let (q, k, _) = rotate(&qkv.to_kind(Kind::Float), &turns(), 1, 1);
        let (q_half, k_half, _) = rotate(&qkv, &turns(), 1, 1);
        assert!(q_half.equal(&q.to_kind(Kind::BFloat16)) && k_half.equal(&k.to_kind(Kind::BFloat16)));
    }
}
