//! Log-probs of given tokens from logits, and back, without a second array of the logits' size.

use tch::{Kind, Tensor};

use super::launch;
use crate::error::unfailing;

/// Of each row of logits, `[rows]`, float32 (float64 for float64).
#[derive(Debug)]
pub struct HeadOutput {
    /// Log-prob of the row's target.
    pub logprobs: Tensor,
    /// Entropy of the row's distribution; a token of probability 0 adds nothing.
    pub entropy: Tensor,
    /// Logarithm of the sum of the exponentials of the row's scaled logits.
    pub log_sum: Tensor,
}

/// Reads `logits`, `[rows, vocabulary]`, float32 (or float64), times `inverse_temperature`, `[rows]`, as distributions
/// over the vocabulary. `targets` are ids, `[rows]`, int64; `kind` is the compute type.
pub fn head_forward(logits: &Tensor, targets: &Tensor, inverse_temperature: &Tensor, kind: Kind) -> HeadOutput {
    if launch::serves_logits(logits, kind) {
        return unfailing(launch::head_forward(logits, targets, inverse_temperature, kind));
    }
    let largest = logits.amax([-1i64], true) * inverse_temperature.unsqueeze(1);
    // 0 times minus infinity is not a number.
    let mut below = scaled(logits, inverse_temperature, &largest).clamp_min_(-1e30);
    let shares = below.exp();
    let total = shares.sum_dim_intlist(-1, false, None::<Kind>);
    let (largest, log_total) = (largest.squeeze_dim(1), total.log());
    let chosen = logits.gather(1, &targets.unsqueeze(1), false).squeeze_dim(1) * inverse_temperature;
    let weighted = below.g_mul_(&shares).sum_dim_intlist(-1, false, None::<Kind>);
    HeadOutput {
        // In this order, because a likely token's log-prob is a small difference of large numbers.
        logprobs: chosen - &largest - &log_total,
        entropy: &log_total - weighted / total,
        log_sum: largest + log_total,
    }
}

/// The gradient at `logits`, in the compute type `kind`, given `d_logprobs`, `[rows]`, and `log_sum` of
/// [`head_forward`]: `d_logprob * inverse_temperature * (onehot - softmax)`.
pub fn head_backward(
    logits: &Tensor,
    targets: &Tensor,
    inverse_temperature: &Tensor,
    log_sum: &Tensor,
    d_logprobs: &Tensor,
    kind: Kind,
) -> Tensor {
    if launch::serves_logits(logits, kind) {
        let found = launch::head_backward(logits, targets, inverse_temperature, log_sum, d_logprobs, kind);
        return unfailing(found);
    }
    let slope = (d_logprobs * inverse_temperature).unsqueeze(1);
    let mut gradient = scaled(logits, inverse_temperature, &log_sum.unsqueeze(1));
    let _ = gradient.exp_().g_mul_(&-&slope);
    let _ = gradient.scatter_add_(1, &targets.unsqueeze(1), &slope);
    gradient.to_kind(kind)
}

/// `logits * inverse_temperature - less`, `less` being `[rows, 1]`.
fn scaled(logits: &Tensor, inverse_temperature: &Tensor, less: &Tensor) -> Tensor {
    (-less).addcmul(logits, &inverse_temperature.unsqueeze(1))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{KINDS, apart, leaf, random, slopes};
    use super::*;

    #[test]
    fn is_log_softmax_and_its_gradient() {
        for (kind, bound) in KINDS {
            for (rows, vocabulary) in [(1, 2), (5, 33), (8, 500)] {
                let logits = leaf(&(random(&[rows, vocabulary], kind) * 3.0));
                let targets = (Tensor::rand([rows], (Kind::Float, tch::Device::Cpu)) * vocabulary as f64)
                    .floor()
                    .to_kind(Kind::Int64);
                let inverse = random(&[rows], kind).abs() + 0.2;
                let distribution = (&logits * inverse.unsqueeze(1)).log_softmax(-1, None::<Kind>);
                let expected = distribution.gather(1, &targets.unsqueeze(1), false).squeeze_dim(1);
                let entropy = -(distribution.exp() * &distribution).sum_dim_intlist(-1, false, None::<Kind>);
                let d = random(&[rows], kind);
                let wanted = slopes(&expected, &d, &[&logits]);
                let logits = logits.detach().copy();
                let found = head_forward(&logits, &targets, &inverse, kind);
                assert!(apart(&found.logprobs, &expected) < bound);
                assert!(apart(&found.entropy, &entropy) < bound.max(1e-12) * 10.0);
                let gradient = head_backward(&logits, &targets, &inverse, &found.log_sum, &d, kind);
                assert!(apart(&gradient, &wanted[0]) < bound);
                let narrow = head_backward(&logits, &targets, &inverse, &found.log_sum, &d, Kind::BFloat16);
                assert!(narrow.equal(&gradient.to_kind(Kind::BFloat16)));
            }
        }
    }

    #[test]
    fn i43_impossible_tokens_leave_the_entropy_finite() {
        let rows = Tensor::from_slice(&[0.0, 0.0, f64::NEG_INFINITY, 1.0, 1.0, 1.0]).view([2, 3]);
        let targets = Tensor::from_slice(&[0i64, 1]);
        let found = head_forward(&rows, &targets, &Tensor::from_slice(&[1.0, 2.0]), Kind::Double);
        for (row, choices) in [2f64, 3.0].into_iter().enumerate() {
            assert!((found.entropy.double_value(&[row as i64]) - choices.ln()).abs() < 1e-12);
        }
    }
}
