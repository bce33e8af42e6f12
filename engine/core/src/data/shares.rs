//! Whole shares of a whole.

/// Shares `total` by weight; what rounding down leaves goes to the largest fractions, the earlier one where equal
/// (largest remainder). Weights are above 0.
pub fn largest_remainder(total: usize, weights: &[f64]) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|weight| total as f64 * weight / sum).collect();
    let mut shares: Vec<usize> = exact.iter().map(|share| share.floor() as usize).collect();
    let mut by_fraction: Vec<usize> = (0..weights.len()).collect();
    by_fraction.sort_by(|&left, &right| exact[right].fract().total_cmp(&exact[left].fract()));
    let missing = total.saturating_sub(shares.iter().sum());
    for index in by_fraction.into_iter().cycle().take(missing) {
        shares[index] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_follow_the_weights() {
        assert_eq!(largest_remainder(10, &[1.0, 1.0, 1.0]), [4, 3, 3]);
        assert_eq!(largest_remainder(7, &[2.0, 1.0]), [5, 2]);
        assert_eq!(largest_remainder(1, &[0.1, 0.9]), [0, 1]);
        assert_eq!(largest_remainder(0, &[1.0]), [0]);
    }

    proptest::proptest! {
        #[test]
        fn no_share_is_off_by_one_or_more(total in 0_usize..500, weights in proptest::collection::vec(0.01_f64..10.0, 1..6)) {
            let shares = largest_remainder(total, &weights);
            assert_eq!(shares.iter().sum::<usize>(), total);
            let sum: f64 = weights.iter().sum();
            for (share, weight) in shares.iter().zip(&weights) {
                assert!((*share as f64 - total as f64 * weight / sum).abs() < 1.0 + 1e-9);
            }
        }
    }
}
