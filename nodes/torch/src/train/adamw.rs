//! AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization"), with bias correction.
//!
//! Matrices decay; norms and biases, which have one dimension, do not.

use rlpipe_wire::v1;
use tch::{Kind, Tensor};

use crate::native::operators::{self, AdamWStep};
use crate::{Result, fail};

/// Settings, moments and the step counter.
#[derive(Debug)]
pub struct AdamW {
    /// Fixed at the start of training.
    pub settings: v1::AdamW,
    /// Running means of the gradients, one a leaf.
    pub means: Vec<Tensor>,
    /// Running means of their squares.
    pub squares: Vec<Tensor>,
    /// Steps taken.
    pub steps: u64,
}

impl AdamW {
    /// Fresh moments for these parameters; refuses settings without a meaning.
    pub fn new(settings: v1::AdamW, parameters: &[Tensor]) -> Result<Self> {
        for (name, beta) in [("beta1", settings.beta1), ("beta2", settings.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                fail!("`{name}` is {beta}, but at least 0 and below 1 is needed");
            }
        }
        let others = [("eps", settings.eps), ("weight_decay", settings.weight_decay)];
        for (name, value) in others.into_iter().chain([("max_grad_norm", settings.max_grad_norm)]) {
            if !(value >= 0.0 && value.is_finite()) {
                fail!("`{name}` is {value}, but at least 0 is needed");
            }
        }
        let zeros = || {
            parameters
                .iter()
                .map(|parameter| parameter.detach().zeros_like())
                .collect()
        };
        Ok(Self {
            settings,
            means: zeros(),
            squares: zeros(),
            steps: 0,
        })
    }

    /// Divides `gradients` by `scale`, clips them to the largest norm and updates `parameters`, in place; returns the
    /// norm that they had after the division. Where it is not finite, nothing but the gradients changes. The device is
    /// waited for once, at the end.
    pub fn step(&mut self, parameters: &[Tensor], gradients: &[Tensor], learning_rate: f64, scale: f64) -> Result<f64> {
        let v1::AdamW {
            beta1,
            beta2,
            eps,
            weight_decay,
            max_grad_norm,
        } = self.settings;
        let norm = operators::total_norm(gradients)? / scale;
        if max_grad_norm > 0.0 || scale != 1.0 {
            let largest = if max_grad_norm > 0.0 {
                max_grad_norm
            } else {
                f64::INFINITY
            };
            let factor = (norm.reciprocal() * largest).clamp_max(1.0) / scale;
            operators::foreach_mul(gradients, &factor.to_kind(gradients[0].kind()))?;
        }
        let skip = norm.isfinite().logical_not().to_kind(Kind::Float);
        for decays in [true, false] {
            let chosen = |of: &Tensor| (of.dim() > 1) == decays;
            let settings = AdamWStep {
                step: self.steps + 1,
                learning_rate,
                beta1,
                beta2,
                weight_decay: if decays { weight_decay } else { 0.0 },
                eps,
            };
            let [parameters, gradients, means, squares] = [parameters, gradients, &self.means, &self.squares]
                .map(|list| list.iter().filter(|of| chosen(of)).collect::<Vec<_>>());
            operators::fused_adamw(&parameters, &gradients, &means, &squares, &settings, None, Some(&skip))?;
        }
        let norm = norm.f_double_value(&[])?;
        self.steps += u64::from(norm.is_finite());
        Ok(norm)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The formula, on scalars.
    fn by_hand(mut x: f64, gradients: &[f64], settings: &v1::AdamW, rate: f64, decays: bool) -> f64 {
        let (mut m, mut v) = (0.0, 0.0);
        for (index, g) in gradients.iter().enumerate() {
            m = settings.beta1 * m + (1.0 - settings.beta1) * g;
            v = settings.beta2 * v + (1.0 - settings.beta2) * g * g;
            let t = index as i32 + 1;
            let (mean, square) = (m / (1.0 - settings.beta1.powi(t)), v / (1.0 - settings.beta2.powi(t)));
            x -= rate * if decays { settings.weight_decay * x } else { 0.0 };
            x -= rate * mean / (square.sqrt() + settings.eps);
        }
        x
    }

    #[test]
    fn matches_the_formula() {
        let settings = v1::AdamW {
            max_grad_norm: 0.0,
            ..SETTINGS
        };
        let parameters = [Tensor::from_slice2(&[[0.5f64, -2.0]]), Tensor::from_slice(&[1.5f64])];
        let mut optimizer = AdamW::new(settings, &parameters).unwrap();
        let steps = [[0.3, 0.1, 2.0], [-1.0, 0.0, 1e-3], [0.2, -0.4, -5.0]];
        for [first, second, third] in steps {
            let gradients = [Tensor::from_slice2(&[[first, second]]), Tensor::from_slice(&[third])];
            optimizer.step(&parameters, &gradients, 0.01, 1.0).unwrap();
        }
        let found = [
            parameters[0].double_value(&[0, 0]),
            parameters[0].double_value(&[0, 1]),
            parameters[1].double_value(&[0]),
        ];
        for (index, (start, decays)) in [(0.5, true), (-2.0, true), (1.5, false)].into_iter().enumerate() {
            let expected = by_hand(start, &steps.map(|step| step[index]), &settings, 0.01, decays);
            assert!(
                (found[index] - expected).abs() < 1e-14,
                "{index}: {} {expected}",
                found[index]
            );
        }
    }

    const SETTINGS: v1::AdamW = v1::AdamW {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        max_grad_norm: 1.0,
    };

    #[test]
    fn gradients_above_the_largest_norm_are_scaled_to_it() {
        // Twice: once above (norm 13), once below.
        let parameters = [Tensor::from_slice2(&[[0.5f64]]), Tensor::from_slice(&[1.5f64])];
        let mut optimizer = AdamW::new(SETTINGS, &parameters).unwrap();
        for ([first, second], norm) in [([5.0, -12.0], 13.0), ([0.3, 0.4], 0.5)] {
            let gradients = [Tensor::from_slice2(&[[first]]), Tensor::from_slice(&[second])];
            assert!((optimizer.step(&parameters, &gradients, 0.01, 1.0).unwrap() - norm).abs() < 1e-14);
        }
        let expected = [
            by_hand(0.5, &[5.0 / 13.0, 0.3], &SETTINGS, 0.01, true),
            by_hand(1.5, &[-12.0 / 13.0, 0.4], &SETTINGS, 0.01, false),
        ];
        for (parameter, expected) in parameters.iter().zip(expected) {
            assert!((parameter.view([-1]).double_value(&[0]) - expected).abs() < 1e-14);
        }
    }

    #[test]
    fn scaled_gradients_take_the_same_step() {
        for max_grad_norm in [0.0, 1.0] {
            let settings = v1::AdamW {
                max_grad_norm,
                ..SETTINGS
            };
            let after = [1.0, 65_536.0].map(|scale| {
                let parameters = [Tensor::from_slice2(&[[0.5f64]]), Tensor::from_slice(&[1.5f64])];
                let mut optimizer = AdamW::new(settings, &parameters).unwrap();
                for [first, second] in [[5.0, -12.0], [0.3, 0.4]] {
                    let gradients = [
                        Tensor::from_slice2(&[[first * scale]]),
                        Tensor::from_slice(&[second * scale]),
                    ];
                    let norm = optimizer.step(&parameters, &gradients, 0.01, scale).unwrap();
                    assert!((norm - first.hypot(second)).abs() < 1e-14);
                }
                parameters.map(|parameter| parameter.view([-1]).double_value(&[0]))
            });
            assert!(
                (0..2).all(|at| (after[0][at] - after[1][at]).abs() < 1e-14),
                "{after:?}"
            );
        }
    }

    #[test]
    fn a_norm_that_is_not_finite_changes_nothing() {
        for kind in [Kind::Float, Kind::Double] {
            for poison in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                for max_grad_norm in [0.0, 1.0] {
                    let list = |scale: f64| {
                        [Tensor::from_slice2(&[[0.5f64, -2.0]]), Tensor::from_slice(&[1.5f64])]
                            .map(|tensor| (tensor * scale).to_kind(kind))
                    };
                    let [mut clean, mut mixed] = [(); 2].map(|()| {
                        let parameters = list(1.0);
                        let settings = v1::AdamW {
                            max_grad_norm,
                            ..SETTINGS
                        };
                        (AdamW::new(settings, &parameters).unwrap(), parameters)
                    });
                    for step in 1..=3 {
                        let bad = list(1.0);
                        let _ = bad[1].shallow_clone().fill_(poison);
                        assert!(!mixed.0.step(&mixed.1, &bad, 0.01, 1.0).unwrap().is_finite());
                        for (optimizer, parameters) in [&mut clean, &mut mixed] {
                            optimizer.step(parameters, &list(f64::from(step)), 0.01, 1.0).unwrap();
                            assert_eq!(optimizer.steps, step as u64);
                        }
                    }
                    let all = |(optimizer, parameters): &(AdamW, [Tensor; 2])| {
                        let lists = [parameters.as_slice(), &optimizer.means, &optimizer.squares];
                        let flat: Vec<Tensor> = lists.into_iter().flatten().map(|tensor| tensor.view([-1])).collect();
                        Tensor::cat(&flat, 0)
                    };
                    assert!(all(&clean).equal(&all(&mixed)));
                }
            }
        }
    }

    #[test]
    fn settings_without_a_meaning_are_refused() {
        let good = SETTINGS;
        let refused = |settings| AdamW::new(settings, &[]).unwrap_err().0;
        assert!(refused(v1::AdamW { beta2: 1.0, ..good }).contains("`beta2` is 1"));
        assert!(refused(v1::AdamW { eps: f64::NAN, ..good }).contains("`eps` is NaN"));
        assert!(
            refused(v1::AdamW {
                max_grad_norm: -1.0,
                ..good
            })
            .contains("`max_grad_norm` is -1")
        );
    }
}
