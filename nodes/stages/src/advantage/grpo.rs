//! GRPO's advantage (Shao et al. 2024, section 4.1.2): `(r - mean) / (std + eps)` within a group.

use rlpipe_core::data::{mean, standard_deviation};
use rlpipe_core::kind::NonNegative;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of `grpo`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Grpo {
    /// The standard deviation that advantages are divided by.
    std: Std,
    /// Added to it.
    eps: NonNegative,
}

impl Default for Grpo {
    fn default() -> Self {
        Self {
            std: Std::Unbiased,
            eps: NonNegative::new(1e-8).unwrap_or_else(|| unreachable!("not negative")),
        }
    }
}

/// Which standard deviation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Std {
    /// Over one less than the number of samples, as XTuner, verl and TRL have it.
    #[default]
    Unbiased,
    /// Over the number of samples.
    Population,
    /// Advantages are not divided (Liu et al. 2025, "Understanding R1-Zero-Like Training").
    None,
}

impl Grpo {
    /// One advantage a reward; exactly 0 where all rewards are equal.
    pub fn advantages(&self, rewards: &[f64]) -> Vec<f64> {
        if rewards.windows(2).all(|pair| pair[0] == pair[1]) {
            return vec![0.0; rewards.len()];
        }
        let centre = mean(rewards);
        let scale = match self.std {
            Std::Unbiased => standard_deviation(rewards, 1) + self.eps.get(),
            Std::Population => standard_deviation(rewards, 0) + self.eps.get(),
            Std::None => 1.0,
        };
        rewards.iter().map(|reward| (reward - centre) / scale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(std: Std, rewards: &[f64], expected: &[f64]) {
        let found = Grpo { std, ..Grpo::default() }.advantages(rewards);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    /// Figures of XTuner's GRPOAdvantageConfig.
    #[test]
    fn unbiased_is_as_in_xtuner() {
        let a = 0.866_025;
        check(Std::Unbiased, &[1.0, 0.0, 0.0, 1.0], &[a, -a, -a, a]);
        let b = -0.353_553;
        check(
            Std::Unbiased,
            &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            &[2.474_874, b, b, b, b, b, b, b],
        );
        check(Std::Unbiased, &[0.0; 4], &[0.0; 4]);
        let half = std::f64::consts::FRAC_1_SQRT_2;
        check(Std::Unbiased, &[1.0, 0.0], &[half, -half]);
    }

    #[test]
    fn other_deviations() {
        check(Std::Population, &[1.0, 0.0, 0.0, 1.0], &[1.0, -1.0, -1.0, 1.0]);
        check(Std::None, &[1.0, 0.0, 0.0, 1.0], &[0.5, -0.5, -0.5, 0.5]);
    }

    #[test]
    fn equal_rewards_give_exactly_nothing() {
        assert_eq!(Grpo::default().advantages(&[0.1; 3]), [0.0; 3]);
        assert_eq!(Grpo::default().advantages(&[0.7]), [0.0]);
        assert!(Grpo::default().advantages(&[]).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn advantages_sum_to_nothing_and_keep_the_order(rewards in proptest::collection::vec(-5.0_f64..5.0, 2..16)) {
            let advantages = Grpo::default().advantages(&rewards);
            assert!(advantages.iter().sum::<f64>().abs() < 1e-6);
            for (left, right) in rewards.windows(2).zip(advantages.windows(2)).map(|(r, a)| (r[1] - r[0], a[1] - a[0])) {
                assert!(left * right >= 0.0);
            }
        }
    }
}
