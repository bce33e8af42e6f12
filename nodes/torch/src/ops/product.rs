//! Products with weights, and their gradients, summed without rounding to the compute type.

use tch::Tensor;

use crate::device::wide;

/// Logits of hidden states `[rows, hidden]`, `[rows, vocabulary]`, float32 (float64 for float64); `weight` is
/// `[vocabulary, hidden]`. On a card they are never rounded to bfloat16, whose unit at a logit of 20 is an eighth:
/// rounding them is the largest part of what sets a trainer's log-probs apart from an engine's (MiniMax 2025,
/// arXiv:2506.13585).
pub fn logits(hidden: &Tensor, weight: &Tensor) -> Tensor {
    let kind = wide(hidden.kind());
    match hidden.kind() != kind && hidden.device().is_cuda() {
        true => hidden.mm_dtype(&weight.transpose(0, 1), kind),
        false => hidden.linear(weight, None::<&Tensor>).to_kind(kind),
    }
}

/// Adds `d_out^T * rows`, the gradient of a weight, to `sum`, `[outputs, inputs]`: `d_out` is `[rows, outputs]`, `rows`
/// `[rows, inputs]`. The sum may be wider than the two.
pub fn add_product(sum: &mut Tensor, d_out: &Tensor, rows: &Tensor) {
    let (d_out, kind) = (d_out.transpose(0, 1), sum.kind());
    if kind != rows.kind() && rows.device().is_cuda() {
        let _ = sum.addmm_dtype_out(sum, &d_out, rows, kind);
    } else {
        let _ = sum.addmm_(&d_out.to_kind(kind), &rows.to_kind(kind));
    }
}

/// Adds the columns' sums of `d_out`, `[rows, outputs]`, the gradient of a bias, to `sum`, `[outputs]`.
pub fn add_bias(sum: &mut Tensor, d_out: &Tensor) {
    let _ = sum.g_add_(&d_out.sum_dim_intlist(0, false, sum.kind()));
}

/// Adds each of `d_rows`, `[rows, width]`, to the row of `sum` at its index, `[rows]`, int64: the gradient of an embedding.
pub fn add_rows(sum: &mut Tensor, indices: &Tensor, d_rows: &Tensor) {
    let _ = sum.index_add_(0, indices, &d_rows.to_kind(sum.kind()));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{KINDS, apart, leaf, random, slopes};
    use super::*;
    use tch::Kind;

    #[test]
    fn sums_are_gradients_of_linear_layers_and_embeddings() {
        for (kind, bound) in KINDS {
            let (rows, weight, bias) = (
                random(&[9, 5], kind),
                leaf(&random(&[4, 5], kind)),
                leaf(&random(&[4], kind)),
            );
            let d_out = random(&[9, 4], kind);
            let wanted = slopes(&rows.linear(&weight, Some(&bias)), &d_out, &[&weight, &bias]);
            let (mut of_weight, mut of_bias) = (weight.detach().copy(), bias.detach().copy());
            add_product(&mut of_weight, &d_out, &rows);
            add_bias(&mut of_bias, &d_out);
            assert!(apart(&of_weight, &(&wanted[0] + &weight)) < bound);
            assert!(apart(&of_bias, &(&wanted[1] + &bias)) < bound);

            let (table, indices) = (
                leaf(&random(&[6, 4], kind)),
                Tensor::from_slice(&[5i64, 0, 5, 2, 2, 5, 1, 0, 5]),
            );
            let found = Tensor::embedding(&table, &indices, -1, false, false);
            let wanted = slopes(&found, &d_out, &[&table]);
            let mut sum = table.detach().copy();
            add_rows(&mut sum, &indices, &d_out);
            assert!(apart(&sum, &(&wanted[0] + &table)) < bound);
        }
    }

    #[test]
    fn sums_are_wider_than_what_they_sum() {
        // In bfloat16 256 + 1 is 256.
        let (ones, mut sum) = (
            Tensor::ones([1, 1], (Kind::BFloat16, tch::Device::Cpu)),
            random(&[1, 1], Kind::Float),
        );
        let _ = sum.fill_(256.0);
        add_product(&mut sum, &ones, &ones);
        add_bias(&mut sum.view([1]), &ones);
        add_rows(&mut sum, &Tensor::from_slice(&[0i64]), &ones);
        assert_eq!(sum.double_value(&[0, 0]), 259.0);
    }
}
