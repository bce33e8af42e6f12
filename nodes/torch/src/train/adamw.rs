//! AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization"), with bias correction.
//!
//! Matrices decay; norms and biases, which have one dimension, do not.

use rlpipe_wire::v1;
use tch::Tensor;

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

    /// One update of `parameters` by `gradients`, in place.
    pub fn step(&mut self, parameters: &[Tensor], gradients: &[Tensor], learning_rate: f64) {
        let v1::AdamW {
            beta1,
            beta2,
            eps,
            weight_decay,
            ..
        } = self.settings;
        self.steps += 1;
        let step = self.steps.min(i32::MAX as u64) as i32;
        let (mean_correction, square_correction) = (1.0 - beta1.powi(step), 1.0 - beta2.powi(step));
        let moments = self.means.iter_mut().zip(&mut self.squares);
        for ((parameter, gradient), (mean, square)) in parameters.iter().zip(gradients).zip(moments) {
            let mut parameter = parameter.detach();
            let _ = mean.lerp_(gradient, 1.0 - beta1);
            let _ = square
                .g_mul_scalar_(beta2)
                .addcmul_(gradient, &(gradient * (1.0 - beta2)));
            let scale = (&*square / square_correction).sqrt() + eps;
            if parameter.dim() > 1 {
                let _ = parameter.g_mul_scalar_(1.0 - learning_rate * weight_decay);
            }
            let _ = parameter.g_sub_(&(&*mean / scale * (learning_rate / mean_correction)));
        }
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
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            max_grad_norm: 0.0,
        };
        let parameters = [Tensor::from_slice2(&[[0.5f64, -2.0]]), Tensor::from_slice(&[1.5f64])];
        let mut optimizer = AdamW::new(settings, &parameters).unwrap();
        let steps = [[0.3, 0.1, 2.0], [-1.0, 0.0, 1e-3], [0.2, -0.4, -5.0]];
        for [first, second, third] in steps {
            let gradients = [Tensor::from_slice2(&[[first, second]]), Tensor::from_slice(&[third])];
            optimizer.step(&parameters, &gradients, 0.01);
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

    #[test]
    fn settings_without_a_meaning_are_refused() {
        let good = v1::AdamW {
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
        };
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
