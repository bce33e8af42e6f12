//! RMSNorm (Zhang and Sennrich 2019, "Root mean square layer normalization", equation 4) behind a residual sum.

use tch::{Kind, Tensor};

use super::launch;
use crate::device::wide;
use crate::error::unfailing;

/// What [`add_norm`] makes of rows `[.., width]`.
#[derive(Debug)]
pub struct Normed {
    /// `x + delta`, in the type of `x`.
    pub sum: Tensor,
    /// `sum * scale * weight`, in the type of `weight`.
    pub out: Tensor,
    /// 1 / root mean square of each row of `sum`, `[.., 1]`, float32 (float64 for float64).
    pub scale: Tensor,
}

/// Norms `x + delta`, rows of `[.., width]`, with `weight`, `[width]`. The residual stream `x` may be wider than
/// `delta` and `weight`: its numbers grow with every layer, and what is added to them should not be rounded to their
/// unit.
pub fn add_norm(x: &Tensor, delta: Option<&Tensor>, weight: &Tensor, eps: f64) -> Normed {
    if launch::serves_norm(x, weight) {
        return unfailing(launch::add_norm(x, delta, weight, eps));
    }
    let sum = delta.map_or_else(|| x.shallow_clone(), |delta| x + delta);
    let kind = wide(sum.kind());
    let rows = sum.to_kind(kind);
    // The norm of a row reads it once and makes nothing of its size.
    let squares = rows.norm_scalaropt_dim(2, [-1i64], true).square();
    let scale = (squares / rows.size().last().copied().unwrap_or(1) as f64 + eps).rsqrt();
    let out = (&rows * &scale).g_mul_(&weight.to_kind(kind)).to_kind(weight.kind());
    Normed { sum, out, scale }
}

/// The gradient at `x`, the input of a norm, given `d_out` at its output and its `scale`; `d_residual`, what comes to `x`
/// past the norm, is added. It has the type of `weight`. The gradient of `weight` is added to `weight_sum`, `[width]`,
/// float32 (float64 for float64).
pub fn norm_backward(
    d_out: &Tensor,
    x: &Tensor,
    scale: &Tensor,
    weight: &Tensor,
    d_residual: Option<&Tensor>,
    weight_sum: &mut Tensor,
) -> Tensor {
    if launch::serves_norm(x, weight) {
        let found = launch::norm_backward(d_out, x, scale, weight, d_residual, weight_sum);
        return unfailing(found);
    }
    let kind = wide(x.kind());
    let narrow = weight.kind();
    let (d_out, weight) = (d_out.to_kind(kind), weight.to_kind(kind));
    let normed = x.to_kind(kind) * scale;
    let by_row = &d_out * &normed;
    let _ = weight_sum.g_add_(&by_row.flatten(0, -2).sum_dim_intlist(0, false, None::<Kind>));
    let along = by_row.matmul(&weight).unsqueeze(-1) / -(weight.numel() as f64);
    drop(by_row);
    let mut d_x = d_out * weight;
    let _ = d_x.addcmul_(&normed, &along).g_mul_(scale);
    if let Some(d_residual) = d_residual {
        let _ = d_x.g_add_(d_residual);
    }
    d_x.to_kind(narrow)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{KINDS, apart, leaf, random, slopes};
    use super::*;

    #[test]
    fn is_the_norm_of_torch_and_its_gradient() {
        for (kind, bound) in KINDS {
            for shape in [[1, 1, 7], [5, 3, 16], [33, 1, 64]] {
                let (x, delta) = (leaf(&random(&shape, kind)), random(&shape, kind));
                let weight = leaf(&random(&shape[2..], kind));
                let sum = &x + &delta;
                let expected = sum.rms_norm(&shape[2..], Some(&weight), Some(1e-5));
                let found = tch::no_grad(|| add_norm(&x, Some(&delta), &weight, 1e-5));
                assert!(apart(&found.out, &expected) < bound && apart(&found.sum, &sum) == 0.0);
                let (d_out, d_residual) = (random(&shape, kind), random(&shape, kind));
                let wanted = slopes(&expected, &d_out, &[&x, &weight]);
                let start = random(&shape[2..], kind);
                let mut weight_sum = start.copy();
                let d_x = tch::no_grad(|| {
                    norm_backward(
                        &d_out,
                        &found.sum,
                        &found.scale,
                        &weight,
                        Some(&d_residual),
                        &mut weight_sum,
                    )
                });
                assert!(apart(&d_x, &(&wanted[0] + d_residual)) < bound);
                assert!(apart(&weight_sum, &(&wanted[1] + start)) < bound);
            }
        }
    }

    #[test]
    fn half_types_are_rounded_once() {
        let x = random(&[9, 32], Kind::BFloat16);
        let weight = random(&[32], Kind::BFloat16);
        let wide = add_norm(&x.to_kind(Kind::Float), None, &weight.to_kind(Kind::Float), 1e-5);
        let found = add_norm(&x, None, &weight, 1e-5);
        assert!(found.out.equal(&wide.out.to_kind(Kind::BFloat16)) && found.scale.equal(&wide.scale));
        // A stream that is wider than what is added to it.
        let stream = random(&[9, 32], Kind::Float);
        let found = add_norm(&stream, Some(&x), &weight, 1e-5);
        assert!(found.sum.equal(&(&stream + x.to_kind(Kind::Float))));
        let wide = add_norm(&found.sum, None, &weight.to_kind(Kind::Float), 1e-5);
        assert!(found.out.equal(&wide.out.to_kind(Kind::BFloat16)));
    }
}
