//! Named numbers of one step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Metrics by name, such as `reward/mean`. Sums are taken in f64 in the order of groups, so that they repeat bit for bit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Sets one metric.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// Adds to a metric that counts.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        *self.0.entry(name.into()).or_insert(0.0) += value;
    }

    /// Takes over all metrics of `other`; a name that both have takes the other's value.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The value of one metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// Whether a metric is the same in every run of one plan on a CPU: what the machine was measured to take is not.
pub fn repeats(name: &str) -> bool {
    let group = name.split('/').next().unwrap_or_default();
    !["time", "throughput", "memory"].contains(&group)
}

/// The arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// The standard deviation with `delta` degrees of freedom taken off (1: unbiased, 0: population); 0 where too few.
pub fn standard_deviation(values: &[f64], delta: usize) -> f64 {
    if values.len() <= delta {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - delta) as f64).sqrt()
}
