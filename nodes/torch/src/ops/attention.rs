//! Causal attention of packed sequences, each to itself alone: by kernels for packed sequences where there are such, padded
//! elsewhere.

use tch::{Kind, Tensor};

use crate::error::unfailing;
use crate::model::Packed;
use crate::native::operators;

/// Attention of queries `[tokens, heads, dim]` over keys and values `[tokens, kv_heads, dim]` of the same sequence up to
/// their own position, each key head serving `heads / kv_heads` query heads: `[tokens, heads * dim]`, and what the backward
/// pass wants to know of the softmax.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, pack: &Packed) -> (Tensor, Tensor) {
    if is_flash(q) {
        let found = operators::flash_attention(q, k, v, &pack.starts, pack.longest, scale(q));
        let (out, log_sum) = unfailing(found);
        return (out.flatten(1, 2), log_sum);
    }
    let (q, k, v) = (pack.pad(q), pack.pad(k), pack.pad(v));
    let shared = q.size()[1] / k.size()[1];
    if q.device().is_cuda() {
        return (pack.unpad(&attend(&q, &k, &v)), Tensor::new());
    }
    let (k, v) = (spread(&k, shared), spread(&v, shared));
    let none = None::<Tensor>;
    let (out, log_sum) =
        Tensor::internal_scaled_dot_product_flash_attention_for_cpu(&q, &k, &v, 0.0, true, none, None::<f64>);
    (pack.unpad(&out), log_sum)
}

/// Gradients at queries, keys and values, shaped like them, given `d_out` at the output `out` of [`attention`] and
/// what it kept.
pub fn attention_backward(
    d_out: &Tensor,
    [q, k, v]: [&Tensor; 3],
    out: &Tensor,
    log_sum: &Tensor,
    pack: &Packed,
) -> (Tensor, Tensor, Tensor) {
    if is_flash(q) {
        let (out, d_out) = (out.view_as(q), d_out.view_as(q));
        let kept = (&out, log_sum);
        let found = operators::flash_attention_backward(&d_out, [q, k, v], kept, &pack.starts, pack.longest, scale(q));
        return unfailing(found).into();
    }
    let (heads, kv_heads) = (q.size()[1], k.size()[1]);
    let by_head = |rows: &Tensor| pack.pad(&rows.view([-1, heads, rows.size()[1] / heads]));
    let (d_out, out) = (by_head(d_out), by_head(out));
    let (q, k, v) = (pack.pad(q), pack.pad(k), pack.pad(v));
    let shared = heads / kv_heads;
    let (d_q, d_k, d_v) = if q.device().is_cuda() {
        attend_backward(&d_out, &q, &k, &v)
    } else {
        let (k, v) = (spread(&k, shared), spread(&v, shared));
        let (d_q, d_k, d_v) = Tensor::internal_scaled_dot_product_flash_attention_for_cpu_backward(
            &d_out,
            &q,
            &k,
            &v,
            &out,
            log_sum,
            0.0,
            true,
            None::<Tensor>,
            None::<f64>,
        );
        (d_q, gather(&d_k, shared), gather(&d_v, shared))
    };
    let rows = |padded: &Tensor, heads: i64| {
        let rows = pack.unpad(padded);
        rows.view([rows.size()[0], heads, -1])
    };
    (rows(&d_q, heads), rows(&d_k, kv_heads), rows(&d_v, kv_heads))
}

/// Whether the kernels for packed sequences take these queries.
fn is_flash(q: &Tensor) -> bool {
    let dim = q.size()[2];
    q.device().is_cuda() && matches!(q.kind(), Kind::BFloat16 | Kind::Half) && dim % 8 == 0 && dim <= 256
}

fn scale(q: &Tensor) -> f64 {
    (q.size()[2] as f64).powf(-0.5)
}

/// On a CPU only equal numbers of heads reach the fused kernel.
fn spread(heads: &Tensor, shared: i64) -> Tensor {
    match shared {
        1 => heads.shallow_clone(),
        shared => heads.repeat_interleave_self_int(shared, 1, None),
    }
}

/// The gradient of [`spread`].
fn gather(d_heads: &Tensor, shared: i64) -> Tensor {
    match shared {
        1 => d_heads.shallow_clone(),
        shared => d_heads
            .unflatten(1, [-1, shared])
            .sum_dim_intlist(2, false, None::<Kind>),
    }
}

fn attend(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let is_shared = q.size()[1] != k.size()[1];
    Tensor::scaled_dot_product_attention(q, k, v, None::<&Tensor>, 0.0, true, None, is_shared)
}

/// The kernels differ with the card and the type, and torch knows the backward of each.
fn attend_backward(d_out: &Tensor, q: &Tensor, k: &Tensor, v: &Tensor) -> (Tensor, Tensor, Tensor) {
    tch::with_grad(|| {
        let leaf = |tensor: &Tensor| tensor.detach().set_requires_grad(true);
        let (q, k, v) = (leaf(q), leaf(k), leaf(v));
        let root = (attend(&q, &k, &v) * d_out).sum(None);
        let mut found = Tensor::run_backward(&[root], &[&q, &k, &v], false, false).into_iter();
        let mut next = || found.next().unwrap_or_default();
        (next(), next(), next())
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{KINDS, apart, leaf, random, slopes};
    use super::*;
    use tch::Device;

    /// The formula, sequence by sequence and without any kernel for attention.
    fn by_hand(q: &Tensor, k: &Tensor, v: &Tensor, lengths: &[i64]) -> Tensor {
        let (heads, kv_heads, dim) = (q.size()[1], k.size()[1], q.size()[2]);
        let parts = |rows: &Tensor| {
            let spread = rows.repeat_interleave_self_int(heads / rows.size()[1], 1, None);
            spread.transpose(0, 1).split_with_sizes(lengths, 1)
        };
        assert_eq!(heads % kv_heads, 0);
        let outputs: Vec<Tensor> = parts(q)
            .iter()
            .zip(parts(k).iter().zip(parts(v)))
            .map(|(q, (k, v))| {
                let scores = q.matmul(&k.transpose(1, 2)) / (dim as f64).sqrt();
                let later = Tensor::ones_like(&scores).triu(1).to_kind(Kind::Bool);
                let shares = scores.masked_fill(&later, f64::NEG_INFINITY).softmax(-1, None::<Kind>);
                shares.matmul(&v).transpose(0, 1).reshape([-1, heads * dim])
            })
            .collect();
        Tensor::cat(&outputs, 0)
    }

    #[test]
    fn is_the_formula_and_its_gradient() {
        let shapes: [(&[i64], i64, i64, i64); 4] = [
            (&[1], 1, 1, 4),
            (&[3, 1, 7], 4, 2, 6),
            (&[5, 5], 9, 3, 8),
            (&[1, 1, 2, 33], 6, 6, 16),
        ];
        for (kind, bound) in KINDS {
            for (lengths, heads, kv_heads, dim) in shapes {
                let ids: Vec<Vec<u32>> = lengths.iter().map(|length| vec![0; *length as usize]).collect();
                let pack = Packed::new(&ids.iter().map(Vec::as_slice).collect::<Vec<_>>(), Device::Cpu);
                let tokens = lengths.iter().sum::<i64>();
                let of = |heads: i64| leaf(&random(&[tokens, heads, dim], kind));
                let (q, k, v) = (of(heads), of(kv_heads), of(kv_heads));
                let expected = by_hand(&q, &k, &v, lengths);
                let d_out = random(&[tokens, heads * dim], kind);
                let wanted = slopes(&expected, &d_out, &[&q, &k, &v]);
                let (q, k, v) = (q.detach(), k.detach(), v.detach());
                let (out, log_sum) = attention(&q, &k, &v, &pack);
                assert!(apart(&out, &expected) < bound);
                let (d_q, d_k, d_v) = attention_backward(&d_out, [&q, &k, &v], &out, &log_sum, &pack);
                for (found, wanted) in [d_q, d_k, d_v].iter().zip(&wanted) {
                    // Of one token alone queries and keys have no slope.
                    assert!((found - wanted).abs().max().double_value(&[]) < bound * 10.0);
                }
                // What serves a card serves a CPU too.
                let padded = [&q, &k, &v].map(|rows| pack.pad(rows));
                let by_head = pack.pad(&d_out.view([-1, heads, dim]));
                let (d_q, d_k, d_v) = attend_backward(&by_head, &padded[0], &padded[1], &padded[2]);
                for (found, wanted) in [d_q, d_k, d_v].iter().zip(&wanted) {
                    let found = pack.unpad(found).view(wanted.size().as_slice());
                    assert!((found - wanted).abs().max().double_value(&[]) < bound * 10.0);
                }
            }
        }
    }
}
