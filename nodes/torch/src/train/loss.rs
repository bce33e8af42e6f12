//! Losses per token (XTuner's `pg` with dual clip, and its KL estimators k1, k2, k3).

use rlpipe_wire::v1;
use tch::Tensor;

/// Per token, `[count]` each.
#[derive(Debug)]
pub struct PolicyTerms {
    /// The clipped policy loss.
    pub loss: Tensor,
    /// The KL estimate, without its coefficient; none without KL.
    pub kl: Option<Tensor>,
    /// pi / pi_old after the clamp of its logarithm.
    pub ratio: Tensor,
}

/// The policy loss of tokens with log-probs `logprobs` (with a graph), `old`, `advantages` and `reference`.
pub fn policy_terms(
    settings: &v1::PolicyLoss,
    logprobs: &Tensor,
    old: &Tensor,
    advantages: &Tensor,
    reference: &Tensor,
) -> PolicyTerms {
    let ratio = (logprobs - old)
        .clamp(settings.log_ratio_min, settings.log_ratio_max)
        .exp();
    let clipped = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high);
    let mut loss = (-&ratio * advantages).maximum(&(-clipped * advantages));
    if let Some(dual) = settings.dual_clip {
        let bounded = loss.minimum(&(advantages * -dual));
        loss = bounded.where_self(&advantages.lt(0.0), &loss);
    }
    let difference = || logprobs - reference;
    let kl = match settings.kl() {
        v1::Kl::None => None,
        v1::Kl::K1 => Some(difference()),
        v1::Kl::K2 => Some(difference().square() * 0.5),
        v1::Kl::K3 => {
            let x = (-difference()).clamp(-20.0, 20.0);
            Some((x.exp() - &x - 1.0).clamp(-10.0, 10.0))
        }
    };
    PolicyTerms { loss, kl, ratio }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rlpipe_wire::v1::Kl;

    fn settings(dual_clip: Option<f64>, kl: Kl) -> v1::PolicyLoss {
        v1::PolicyLoss {
            clip_low: 0.2,
            clip_high: 0.28,
            dual_clip,
            log_ratio_min: -20.0,
            log_ratio_max: 20.0,
            kl: kl.into(),
            kl_coefficient: 1.0,
        }
    }

    fn one(settings: &v1::PolicyLoss, logprob: f64, old: f64, advantage: f64, reference: f64) -> PolicyTerms {
        let of = |value: f64| Tensor::from_slice(&[value]);
        policy_terms(settings, &of(logprob), &of(old), &of(advantage), &of(reference))
    }

    #[test]
    fn policy_loss_golden_values() {
        let golden = [
            (-1.0, -1.0, 1.0, None, -1.0),
            (-0.5, -1.0, 1.0, None, -1.28),
            (-1.5, -1.0, 1.0, None, -0.606531),
            (-0.5, -1.0, -1.0, None, 1.648721),
            (-1.5, -1.0, -1.0, None, 0.8),
            (0.5, -1.0, -1.0, Some(3.0), 3.0),
            (0.5, -1.0, -1.0, Some(10.0), 4.481689),
            (1.0, -1.0, -2.0, Some(3.0), 6.0),
            (1.0, -1.0, -2.0, Some(10.0), 14.778112),
        ];
        for (logprob, old, advantage, dual, loss) in golden {
            let terms = one(&settings(dual, Kl::None), logprob, old, advantage, 0.0);
            assert!(
                (terms.loss.double_value(&[0]) - loss).abs() < 1e-6,
                "{logprob} {old} {advantage} {dual:?}"
            );
        }
    }

    #[test]
    fn kl_golden_values() {
        let golden = [
            (-1.0, -1.5, 0.5, 0.125, 0.106531),
            (-1.5, -1.0, -0.5, 0.125, 0.148721),
            (-1.0, -1.0, 0.0, 0.0, 0.0),
            (-10.0, -1.0, -9.0, 40.5, 10.0),
        ];
        for (logprob, reference, k1, k2, k3) in golden {
            for (kl, expected) in [(Kl::K1, k1), (Kl::K2, k2), (Kl::K3, k3)] {
                let terms = one(&settings(None, kl), logprob, logprob, 0.0, reference);
                let found = terms.kl.unwrap().double_value(&[0]);
                assert!(
                    (found - expected).abs() < 1e-6,
                    "{kl:?} of {logprob} and {reference}: {found}"
                );
            }
        }
    }

    /// Without a graph through the estimate a KL term is a number that teaches nothing; k1's slope is 1 wherever the
    /// reference lies, which is why a pipeline that trains on it is warned.
    #[test]
    fn i40_the_kl_term_pulls_towards_the_reference() {
        for (logprob, reference) in [(-1.0, -1.5), (-1.5, -1.0), (-3.0, -1.0)] {
            let apart: f64 = logprob - reference;
            for (kl, slope) in [(Kl::K1, 1.0), (Kl::K2, apart), (Kl::K3, 1.0 - (-apart).exp())] {
                let logprob = Tensor::from_slice(&[logprob]).set_requires_grad(true);
                let old = logprob.detach();
                let reference = Tensor::from_slice(&[reference]);
                let terms = policy_terms(&settings(None, kl), &logprob, &old, &old.zeros_like(), &reference);
                terms.kl.unwrap().sum(None).backward();
                let found = logprob.grad().double_value(&[0]);
                assert!(
                    (found - slope).abs() < 1e-12,
                    "{kl:?} at {apart}: {found} is not {slope}"
                );
            }
        }
    }

    /// Over a vocabulary of five tokens expectations are sums. Tokens are drawn from the policy itself: k1 and k3 then
    /// estimate `KL(policy, reference)`, the gradient of k2 is that of this KL, the gradient of k1 is nothing, and
    /// that of k3 is the one of `KL(reference, policy)` (Schulman 2020, "Approximating KL Divergence"; Tang and Munos
    /// 2025, "On a few pitfalls in KL divergence gradient estimation for RL").
    #[test]
    fn i41_estimates_and_their_gradients_are_those_of_the_exact_kl() {
        let reference = Tensor::from_slice(&[0.5, -0.3, 0.1, 1.2, -0.9]).log_softmax(-1, None);
        let logits = || Tensor::from_slice(&[0.2, 0.7, -1.0, 0.4, 0.0]).set_requires_grad(true);
        let gradient = |value: &dyn Fn(&Tensor) -> Tensor| {
            let logits = logits();
            let value = value(&logits.log_softmax(-1, None));
            value.backward();
            (value.double_value(&[]), logits.grad())
        };
        let near = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]) < 1e-12;

        let (exact, slope) = gradient(&|policy| (policy.exp() * (policy - &reference)).sum(None));
        let (_, other_way) = gradient(&|policy| (reference.exp() * (&reference - policy)).sum(None));
        assert!(exact > 0.1 && !near(&slope, &other_way));
        for kl in [Kl::K1, Kl::K2, Kl::K3] {
            let (estimate, found) = gradient(&|policy| {
                let drawn = policy.detach();
                let terms = policy_terms(&settings(None, kl), policy, &drawn, &drawn.zeros_like(), &reference);
                (drawn.exp() * terms.kl.unwrap()).sum(None)
            });
            let wanted = match kl {
                Kl::K2 => &slope,
                Kl::K3 => &other_way,
                _ => &slope.zeros_like(),
            };
            assert!(near(&found, wanted), "{kl:?}");
            assert_eq!(
                kl != Kl::K2,
                (estimate - exact).abs() < 1e-12,
                "{kl:?}: {estimate} {exact}"
            );
        }
    }
}
