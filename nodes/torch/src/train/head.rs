//! The head in chunks: logits of a few tokens at a time, so that tokens x vocabulary never exists at once.

use tch::Tensor;

use super::pack::Selected;
use crate::model::Network;

/// Tokens of a chunk when the driver does not say.
const CHUNK_TOKENS: i64 = 512;

/// Starts and lengths of the chunks of `count` tokens.
pub fn chunks(count: usize, chunk_tokens: u32) -> impl Iterator<Item = (i64, i64)> {
    let size = if chunk_tokens == 0 {
        CHUNK_TOKENS
    } else {
        i64::from(chunk_tokens)
    };
    let count = count as i64;
    (0..count)
        .step_by(size as usize)
        .map(move |start| (start, size.min(count - start)))
}

/// Log-probs of a chunk's targets, `[length]`, and the whole log-distribution, `[length, vocabulary]`, from its hidden
/// states `[length, hidden]`.
pub fn logprobs(
    network: &Network,
    weights: &[Tensor],
    hidden: &Tensor,
    selected: &Selected,
    (start, length): (i64, i64),
) -> (Tensor, Tensor) {
    let scaled = network.logits(weights, hidden) / selected.temperatures.narrow(0, start, length);
    let distribution = scaled.log_softmax(-1, None);
    let targets = selected.targets.narrow(0, start, length).unsqueeze(1);
    (distribution.gather(1, &targets, false).squeeze_dim(1), distribution)
}

/// Entropy of each row of a log-distribution, without a graph. A token of probability 0 adds nothing.
pub fn entropy(distribution: &Tensor) -> Tensor {
    let distribution = distribution.detach();
    // 0 times minus infinity is not a number.
    -(distribution.exp() * distribution.clamp_min(-1e4)).sum_dim_intlist(-1, false, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i43_impossible_tokens_leave_the_entropy_finite() {
        let rows = Tensor::from_slice(&[0.0, 0.0, f64::NEG_INFINITY, 1.0, 1.0, 1.0]).view([2, 3]);
        let found = entropy(&rows.log_softmax(-1, None));
        for (row, choices) in [2f64, 3.0].into_iter().enumerate() {
            assert!((found.double_value(&[row as i64]) - choices.ln()).abs() < 1e-12);
        }
    }
}
