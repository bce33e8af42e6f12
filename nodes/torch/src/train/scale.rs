//! What a loss in float16 is multiplied by, so that gradients are not below its smallest number, 6e-8 (Micikevicius et
//! al. 2018, "Mixed precision training", section 3.2). It is raised and lowered by 2, as by PyTorch's `GradScaler`; but
//! a step with gradients that are too large is taken again.

use serde::{Deserialize, Serialize};
use tch::Kind;

const FIRST: f64 = 65_536.0;
const LARGEST: f64 = 16_777_216.0;
/// Optimizer steps without an overflow after which the factor is doubled.
const STEADY_STEPS: u64 = 400;

/// A power of two, and how long it has been so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// What the loss is multiplied by.
    pub factor: f64,
    /// Optimizer steps since it was changed.
    pub steady_steps: u64,
    /// The factor with which this step was first tried, where it was lowered since.
    #[serde(skip)]
    tried_first: Option<f64>,
}

impl LossScale {
    /// None for types that can hold gradients as they are.
    pub fn of(kind: Kind) -> Option<Self> {
        (kind == Kind::Half).then_some(Self {
            factor: FIRST,
            steady_steps: 0,
            tried_first: None,
        })
    }

    /// After an optimizer step that was taken.
    pub fn keep(&mut self) {
        self.tried_first = None;
        self.steady_steps += 1;
        if self.steady_steps >= STEADY_STEPS && self.factor < LARGEST {
            (self.factor, self.steady_steps) = (self.factor * 2.0, 0);
        }
    }

    /// After gradients that were not finite. False where the factor is 1, and they are so by themselves: then the next
    /// step begins with half of what this one began with.
    pub fn lower(&mut self) -> bool {
        let first = *self.tried_first.get_or_insert(self.factor);
        self.steady_steps = 0;
        if self.factor <= 1.0 {
            (self.factor, self.tried_first) = ((first / 2.0).max(1.0), None);
            return false;
        }
        self.factor /= 2.0;
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rises_after_long_and_falls_at_once() {
        assert!([Kind::BFloat16, Kind::Float, Kind::Double].map(LossScale::of) == [None; 3]);
        let mut scale = LossScale::of(Kind::Half).unwrap();
        for _ in 1..STEADY_STEPS {
            scale.keep();
        }
        assert_eq!(scale.factor, FIRST);
        scale.keep();
        assert_eq!((scale.factor, scale.steady_steps), (2.0 * FIRST, 0));
        for _ in 0..100 * STEADY_STEPS {
            scale.keep();
        }
        assert_eq!(scale.factor, LARGEST);
        for (falls, after) in [(24, LARGEST / 2.0), (23, LARGEST / 4.0)] {
            assert_eq!((0..100).take_while(|_| scale.lower()).count(), falls);
            assert_eq!(
                scale.factor, after,
                "what no scale could mend does not lower it for good"
            );
        }
        assert!(scale.lower());
        scale.keep();
        assert_eq!(scale.factor, LARGEST / 8.0);
    }
}
