//! Values that would fit: a small solver over the batch arithmetic.
//!
//! A rule is broken by a few settings. The solver looks for the nearest values of each of them alone, below and above,
//! for which all rules hold; where no single setting will do, of two together, and so on. How far a change is, is the
//! difference over the larger of the two values, summed over the settings that change.

use std::collections::BTreeSet;

use rlpipe_core::data::largest_remainder;

/// So many multiples below and above a value are tried.
const MULTIPLES: u64 = 512;

/// So many settings are changed together at most.
const MOST_TOGETHER: usize = 4;
/// Of more settings than these only one is changed.
const MOST_COMBINED: usize = 10;

/// A whole number of the pipeline that may be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// As `--set` has it, such as `nodes.buffer.prompts_per_step`.
    pub path: String,
    /// What it is now.
    pub value: u64,
    /// The least that it may be.
    pub least: u64,
}

/// What must hold among settings, which are given by their place in a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// `parts` divides `whole`.
    Divides { parts: usize, whole: usize },
    /// A setting has a lower bound.
    AtLeast { setting: usize, bound: u64 },
    /// The terms and a constant together are at most `room`.
    Fits {
        terms: Vec<usize>,
        constant: u64,
        room: usize,
    },
    /// The smallest of `parts` shares of `whole` groups, with the fewest samples, has a rollout for each worker.
    Fed {
        whole: usize,
        parts: usize,
        samples: Vec<usize>,
        workers_per_node: usize,
        nodes: u64,
    },
    /// Each weight gets at least one of `whole`.
    Shared { whole: usize, weights: Vec<f64> },
}

impl Constraint {
    /// Whether it holds for these values.
    pub fn holds(&self, values: &[u64]) -> bool {
        match self {
            Self::Divides { parts, whole } => values[*whole].is_multiple_of(values[*parts]),
            Self::AtLeast { setting, bound } => values[*setting] >= *bound,
            Self::Fits { terms, constant, room } => total(terms, values) + constant <= values[*room],
            Self::Fed {
                whole,
                parts,
                samples,
                workers_per_node,
                nodes,
            } => {
                let groups = values[*whole] / values[*parts];
                let wanted = values[*workers_per_node].saturating_mul(*nodes);
                groups.saturating_mul(fewest(samples, values)) >= wanted
            }
            Self::Shared { whole, weights } => {
                let shares = largest_remainder(values[*whole] as usize, weights);
                shares.iter().all(|share| *share > 0)
            }
        }
    }

    /// The settings that it is about.
    pub fn settings(&self) -> Vec<usize> {
        match self {
            Self::Divides { parts, whole } => vec![*whole, *parts],
            Self::AtLeast { setting, .. } => vec![*setting],
            Self::Fits { terms, room, .. } => terms.iter().copied().chain([*room]).collect(),
            Self::Fed {
                whole,
                parts,
                samples,
                workers_per_node,
                ..
            } => [*whole, *parts, *workers_per_node]
                .into_iter()
                .chain(samples.iter().copied())
                .collect(),
            Self::Shared { whole, .. } => vec![*whole],
        }
    }

    /// Values of one setting at which it may begin to hold, the others being as they are.
    fn turning_points(&self, setting: usize, values: &[u64], points: &mut BTreeSet<u64>) {
        match self {
            Self::Divides { parts, whole } if setting == *whole => {
                let (part, near) = (values[*parts], values[*whole] / values[*parts]);
                let multiples = near.saturating_sub(MULTIPLES)..=near.saturating_add(MULTIPLES);
                points.extend(multiples.map(|times| times.saturating_mul(part)));
            }
            Self::Divides { parts, whole } if setting == *parts => {
                let whole = values[*whole];
                let small = (1..=whole.isqrt()).filter(|part| whole.is_multiple_of(*part));
                points.extend(small.flat_map(|part| [part, whole / part]));
            }
            Self::AtLeast { bound, .. } => {
                points.insert(*bound);
            }
            Self::Fits { terms, constant, room } if setting == *room => {
                points.insert(total(terms, values) + constant);
            }
            Self::Fits { terms, constant, room } => {
                let others = total(terms, values) - values[setting] + constant;
                points.extend(values[*room].checked_sub(others));
            }
            Self::Fed {
                whole,
                parts,
                samples,
                workers_per_node,
                nodes,
            } => {
                let wanted = values[*workers_per_node].saturating_mul(*nodes);
                let groups = values[*whole] / values[*parts];
                let needed = wanted.div_ceil(fewest(samples, values));
                if setting == *whole {
                    points.insert(needed.saturating_mul(values[*parts]));
                } else if setting == *parts {
                    points.insert(values[*whole] / needed);
                } else if setting == *workers_per_node {
                    points.insert(groups.saturating_mul(fewest(samples, values)) / nodes);
                } else if groups > 0 {
                    points.insert(wanted.div_ceil(groups));
                }
            }
            Self::Shared { whole, weights } => {
                let least = weights.iter().copied().fold(f64::INFINITY, f64::min);
                // Below this no weight is sure of its share; it may have one all the same, down to one for each.
                let sure = (weights.iter().sum::<f64>() / least).ceil() as u64;
                let first = (weights.len() as u64).max(sure.saturating_sub(2 * MULTIPLES));
                let found = (first..=sure).find(|total| {
                    let mut at = values.to_vec();
                    at[*whole] = *total;
                    self.holds(&at)
                });
                points.extend(found.into_iter().chain([sure]));
            }
            Self::Divides { .. } => {}
        }
    }
}

fn total(terms: &[usize], values: &[u64]) -> u64 {
    terms.iter().map(|term| values[*term]).sum()
}

fn fewest(samples: &[usize], values: &[u64]) -> u64 {
    samples.iter().map(|sampler| values[*sampler]).min().unwrap_or(1).max(1)
}

/// Settings with new values, which change together.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Places in the list of settings, and values.
    pub values: Vec<(usize, u64)>,
    distance: f64,
}

/// Changes after which `wanted` hold, the nearest first: of as few settings of `of` together as will do.
pub fn changes(settings: &[Setting], of: &[usize], wanted: &[&Constraint]) -> Vec<Change> {
    let touched: Vec<&Constraint> = wanted
        .iter()
        .copied()
        .filter(|rule| rule.settings().iter().any(|setting| of.contains(setting)))
        .collect();
    let values: Vec<u64> = settings.iter().map(|setting| setting.value).collect();
    let most = if of.len() <= MOST_COMBINED { MOST_TOGETHER } else { 1 };
    for together in 1..=most.min(of.len()) {
        let mut found = Vec::new();
        for order in orders(of, together) {
            walk(settings, &order, &values, &touched, &mut Vec::new(), &mut found);
        }
        for values in &mut found {
            values.sort_unstable();
        }
        if !found.is_empty() {
            return sorted(found, &values);
        }
    }
    Vec::new()
}

/// All ways to choose so many of a list, one after the other.
fn orders(of: &[usize], together: usize) -> Vec<Vec<usize>> {
    if together == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(of, together - 1);
    let longer = shorter.iter().flat_map(|order| {
        let rest = of.iter().filter(|setting| !order.contains(setting));
        rest.map(|setting| order.iter().copied().chain([*setting]).collect())
    });
    longer.collect()
}

/// Gives the settings of `order` new values one after the other: each the nearest for which all holds that the later ones
/// have no part in.
fn walk(
    settings: &[Setting],
    order: &[usize],
    values: &[u64],
    wanted: &[&Constraint],
    so_far: &mut Vec<(usize, u64)>,
    found: &mut Vec<Vec<(usize, u64)>>,
) {
    let Some((setting, later)) = order.split_first() else {
        found.push(so_far.clone());
        return;
    };
    let decided: Vec<&Constraint> = wanted
        .iter()
        .copied()
        .filter(|rule| !rule.settings().iter().any(|setting| later.contains(setting)))
        .collect();
    for value in nearest(settings, *setting, values, &decided) {
        let mut at = values.to_vec();
        at[*setting] = value;
        so_far.push((*setting, value));
        walk(settings, later, &at, wanted, so_far, found);
        so_far.pop();
    }
}

fn sorted(found: Vec<Vec<(usize, u64)>>, values: &[u64]) -> Vec<Change> {
    let change = |new: Vec<(usize, u64)>| Change {
        distance: new
            .iter()
            .map(|(setting, value)| distance(values[*setting], *value))
            .sum(),
        values: new,
    };
    let mut changes: Vec<Change> = found.into_iter().map(change).collect();
    changes.sort_by(|left, right| {
        let by_distance = left.distance.total_cmp(&right.distance);
        by_distance.then_with(|| left.values.cmp(&right.values))
    });
    changes.dedup_by(|left, right| left.values == right.values);
    changes
}

/// The nearest values of a setting below and above what it is, for which all `wanted` hold.
fn nearest(settings: &[Setting], setting: usize, values: &[u64], wanted: &[&Constraint]) -> Vec<u64> {
    let mut points = BTreeSet::new();
    for rule in wanted.iter().filter(|rule| rule.settings().contains(&setting)) {
        rule.turning_points(setting, values, &mut points);
    }
    let now = values[setting];
    let mut at = values.to_vec();
    let mut fits = |value: &u64| {
        at[setting] = *value;
        (settings[setting].least..=u64::from(u32::MAX)).contains(value) && wanted.iter().all(|rule| rule.holds(&at))
    };
    let below = points.range(..now).rev().copied().find(|value| fits(value));
    let above = points.range(now + 1..).copied().find(|value| fits(value));
    below.into_iter().chain(above).collect()
}

fn distance(old: u64, new: u64) -> f64 {
    old.abs_diff(new) as f64 / old.max(new).max(1) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn settings(values: &[u64]) -> Vec<Setting> {
        let setting = |value: &u64| Setting {
            path: String::new(),
            value: *value,
            least: 1,
        };
        values.iter().map(setting).collect()
    }

    fn found(values: &[u64], of: &[usize], wanted: &[Constraint]) -> Vec<Vec<(usize, u64)>> {
        let wanted: Vec<&Constraint> = wanted.iter().collect();
        changes(&settings(values), of, &wanted)
            .into_iter()
            .map(|change| change.values)
            .collect()
    }

    #[test]
    fn the_nearest_comes_first() {
        let divides = Constraint::Divides { whole: 0, parts: 1 };
        let found = found(&[64, 3], &[0, 1], &[divides]);
        assert_eq!(found, [vec![(0, 63)], vec![(0, 66)], vec![(1, 4)], vec![(1, 2)]]);
    }

    #[test]
    fn room_can_be_made_on_either_side() {
        let fits = |room| Constraint::Fits {
            terms: vec![0, 1],
            constant: 0,
            room,
        };
        assert_eq!(
            found(&[512, 1024, 1024], &[0, 1, 2], &[fits(2)]),
            [vec![(2, 1536)], vec![(1, 512)]]
        );
        // Neither room alone is enough, and the terms cannot be less than 1.
        let both = found(&[1, 1, 1, 1], &[0, 1, 2, 3], &[fits(2), fits(3)]);
        assert_eq!(both, [vec![(2, 2), (3, 2)]]);
    }

    #[test]
    fn every_worker_has_a_rollout() {
        let fed = Constraint::Fed {
            whole: 0,
            parts: 1,
            samples: vec![2],
            workers_per_node: 3,
            nodes: 2,
        };
        let found = found(&[4, 2, 2, 4], &[0, 1, 2, 3], &[fed]);
        assert_eq!(found, [vec![(0, 8)], vec![(1, 1)], vec![(2, 4)], vec![(3, 2)]]);
    }

    #[test]
    fn a_small_weight_gets_its_share() {
        let shared = Constraint::Shared {
            whole: 0,
            weights: vec![9.0, 1.0],
        };
        assert_eq!(found(&[4], &[0], std::slice::from_ref(&shared)), [vec![(0, 6)]]);
        let even = Constraint::Divides { whole: 0, parts: 1 };
        assert_eq!(found(&[4, 4], &[0, 1], &[shared, even]), [vec![(0, 8)]]);
    }
}
