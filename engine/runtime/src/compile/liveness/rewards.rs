//! Which rewards a group can have where it comes to a filter.

use rlpipe_core::diagnostic::{Diagnostic, codes};
use rlpipe_core::kind::Keeps;

use super::super::pipeline::Node;
use super::Way;

/// What is known of the rewards of a group at a place of its way.
pub struct Rewards<'a> {
    judger: Option<&'a Node>,
    samples: u32,
    /// All samples of a prompt are the same.
    alike: bool,
    /// Least and most; none: anything.
    range: Option<(f64, f64)>,
    /// It is one of the two ends, nothing between.
    are_ends: bool,
    /// What filters since the judger have left of it.
    spread_above: Option<(&'a Node, f64)>,
    mean: (f64, f64),
    bounded_by: Option<&'a Node>,
}

/// A filter that can keep nothing.
pub struct Vain<'a> {
    filter: &'a Node,
    why: String,
    /// Who else decides it, and how.
    others: Vec<(&'a Node, &'static [&'static str], String)>,
    mend: String,
}

impl<'a> Rewards<'a> {
    /// Of groups that no judger has seen yet.
    pub fn new(way: &Way<'a>) -> Self {
        Self {
            judger: None,
            samples: way.samples,
            alike: way.greedy,
            range: None,
            are_ends: false,
            spread_above: None,
            mean: (f64::NEG_INFINITY, f64::INFINITY),
            bounded_by: None,
        }
    }

    /// The same, as a judger leaves them, whatever was before.
    pub fn judged(way: &Way<'a>, judger: &'a Node, range: Option<(f64, f64)>, are_ends: bool) -> Self {
        Self {
            judger: Some(judger),
            range,
            are_ends,
            ..Self::new(way)
        }
    }

    /// The least and most that a reward may be.
    fn ends(&self) -> (f64, f64) {
        self.range.unwrap_or((f64::NEG_INFINITY, f64::INFINITY))
    }

    /// "`scored` gives 0 to 1".
    fn given(&self) -> String {
        match (self.judger, self.range) {
            (Some(judger), Some((low, high))) if self.are_ends => format!("`{}` gives {low} or {high}", judger.name),
            (Some(judger), Some((low, high))) => format!("`{}` gives {low} to {high}", judger.name),
            (Some(judger), None) => format!("what `{}` gives has no bounds", judger.name),
            (None, _) => "rewards have no bounds".to_owned(),
        }
    }

    /// Goes through a filter: why some group passes, or why none can.
    pub fn pass(&mut self, filter: &'a Node, keeps: Keeps) -> Result<String, Vain<'a>> {
        let (low, high) = self.ends();
        let vain = |why: String, others, mend: &str| {
            Err(Vain {
                filter,
                why,
                others,
                mend: mend.to_owned(),
            })
        };
        let given: Vec<(&'a Node, &'static [&'static str], String)> = self
            .judger
            .iter()
            .map(|judger| (*judger, &["judge"] as _, self.given()))
            .collect();
        match keeps {
            Keeps::Spread { above } => {
                if self.samples == 1 {
                    return vain("a group of one sample has no spread".to_owned(), Vec::new(), ONE_SAMPLE);
                }
                // A program of the user's may judge equal responses differently.
                if self.alike && self.range.is_some() {
                    return vain(
                        "all samples of a prompt are the same, and so are their rewards".to_owned(),
                        Vec::new(),
                        GREEDY,
                    );
                }
                if high - low <= above {
                    let why = format!("{}: rewards never differ by more than {above}", self.given());
                    return vain(why, given, "lower `above`; 0 keeps every group whose rewards differ");
                }
                self.spread_above = Some((filter, self.spread_above.map_or(above, |(_, other)| other.max(above))));
            }
            Keeps::Mean { min, max } => {
                // Bounds that contradict each other are RL0402's to report.
                if min > max {
                    return Ok(String::new());
                }
                if max < low || min > high {
                    let why = format!("{}, and it keeps means {}", self.given(), between(min, max));
                    return vain(why, given, "choose bounds within what the judge gives");
                }
                let both = (self.mean.0.max(min), self.mean.1.min(max));
                if let Some(other) = self.bounded_by.filter(|_| both.0 > both.1) {
                    let others = vec![(
                        other,
                        &["keep"] as _,
                        format!("lets on means {}", between(self.mean.0, self.mean.1)),
                    )];
                    let why = format!("it keeps means {}, and gets others only", between(min, max));
                    return vain(why, others, "choose bounds that overlap, or take one of the two out");
                }
                self.mean = both;
                self.bounded_by = Some(filter);
            }
        }
        if !self.has_mean() {
            let mut others = given;
            let spread = self.spread_above.filter(|(node, _)| node.name != filter.name);
            others.extend(spread.map(|(node, above)| (node, &["keep"] as _, format!("lets on spreads above {above}"))));
            let bounds = self.bounded_by.filter(|node| node.name != filter.name);
            others.extend(bounds.map(|node| {
                let means = between(self.mean.0, self.mean.1);
                (node, &["keep"] as _, format!("lets on means {means}"))
            }));
            let why = format!("no {} rewards, as {}, pass it", self.samples, self.given());
            return vain(why, others, "widen the bounds, or ask for more samples of a prompt");
        }
        let samples = match self.samples {
            1 => "1 sample".to_owned(),
            samples => format!("{samples} samples"),
        };
        let keeps = match keeps {
            Keeps::Spread { above } => format!("rewards that differ by more than {above}"),
            Keeps::Mean { min, max } => format!("means {}", between(min, max)),
        };
        Ok(format!(
            "`{}` keeps {keeps}: {}, and a prompt has {samples}",
            filter.name,
            self.given()
        ))
    }

    /// Whether rewards of one group can have a mean and a spread that all filters so far let on.
    fn has_mean(&self) -> bool {
        let (low, high) = self.ends();
        let (min, max) = self.mean;
        let samples = if self.alike && self.range.is_some() {
            1
        } else {
            self.samples
        };
        if self.are_ends && samples <= MOST_ENUMERATED {
            let inner = if self.spread_above.is_some() {
                1..=samples - 1
            } else {
                0..=samples
            };
            let mean = |high_ones: u32| {
                (f64::from(high_ones) * high + f64::from(samples - high_ones) * low) / f64::from(samples)
            };
            return inner
                .into_iter()
                .any(|high_ones| (min..=max).contains(&mean(high_ones)));
        }
        match self.spread_above {
            // One sample is at an end, and another further from it than `above`: the mean is further in than their part.
            Some((_, above)) => {
                let part = above / f64::from(samples);
                max > low + part && min < high - part
            }
            None => max >= low && min <= high,
        }
    }
}

/// Larger groups are taken to have every mean.
const MOST_ENUMERATED: u32 = 4096;
const ONE_SAMPLE: &str = "give prompts at least 2 samples, or take the filter out";
const GREEDY: &str = "draw with `temperature: 1.0` and `top_k: 0`, or take the filter out";

/// "of 0.2 to 0.8".
fn between(min: f64, max: f64) -> String {
    match (min.is_finite(), max.is_finite()) {
        (true, true) => format!("of {min} to {max}"),
        (true, false) => format!("of {min} and more"),
        (false, true) => format!("of {max} and less"),
        (false, false) => "of any size".to_owned(),
    }
}

impl Vain<'_> {
    /// What is said of it.
    pub fn diagnostic(self, way: &Way<'_>, buffer: &Node) -> Diagnostic {
        let make = if way.fills() {
            Diagnostic::warning
        } else {
            Diagnostic::error
        };
        let mut diagnostic = make(
            &codes::RL0801,
            self.filter.range_of(&["keep"]),
            format!("`{}` can keep nothing: {}", self.filter.name, self.why),
        )
        .label_text("no group passes");
        if way.samples == 1 {
            let place = way.sampler.range_of(&["samples_per_prompt"]);
            diagnostic = diagnostic.label(place, "1 sample of each prompt");
        } else if way.greedy && self.others.is_empty() {
            let key = if way.agent_loop.written(&["sampling", "top_k"]).is_some() {
                "top_k"
            } else {
                "temperature"
            };
            diagnostic = diagnostic.label(way.agent_loop.range_of(&["sampling", key]), "takes the likeliest token");
        }
        for (node, keys, text) in self.others {
            diagnostic = diagnostic.label(node.range_of(keys), text);
        }
        let names: Vec<&str> = way.names().chain([buffer.name.as_str()]).collect();
        let rounds = 1 + u64::from(way.max_refill());
        let then = match way.fills() {
            true => "takes what was kept back",
            false => "ends the run",
        };
        diagnostic
            .note(format!(
                "{}: `{}` asks {rounds} {} in vain in each step, then {then}",
                names.join(" -> "),
                buffer.name,
                if rounds == 1 { "time" } else { "times" },
            ))
            .note(self.mend)
    }
}
