//! What several runs of the same say together.

use serde::Serialize;

/// The spread of some values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// How many.
    pub runs: usize,
    /// Half of them are below.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// A quarter of them is below.
    pub lower_quartile: f64,
    /// Three quarters of them are below.
    pub upper_quartile: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value; values that are no numbers come last.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            runs: sorted.len(),
            median: quantile(&sorted, 0.5)?,
            min: *sorted.first()?,
            lower_quartile: quantile(&sorted, 0.25)?,
            upper_quartile: quantile(&sorted, 0.75)?,
            max: *sorted.last()?,
        })
    }
}

/// By linear interpolation between the values on both sides: type 7 of Hyndman and Fan, "Sample Quantiles in Statistical
/// Packages" (1996), which is numpy's.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quartiles_are_those_of_numpy() {
        // numpy.quantile([7, 1, 3, 10], [0.25, 0.5, 0.75])
        let spread = Spread::of(&[7.0, 1.0, 3.0, 10.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                runs: 4,
                median: 5.0,
                min: 1.0,
                lower_quartile: 2.5,
                upper_quartile: 7.75,
                max: 10.0
            }
        );
        let one = Spread::of(&[2.0]).unwrap();
        assert_eq!((one.runs, one.median, one.min, one.max), (1, 2.0, 2.0, 2.0));
        assert_eq!(Spread::of(&[]), None);
        assert!((Spread::of(&[3.0, 1.0, 2.0]).unwrap().median - 2.0).abs() < 1e-15);
    }
}
