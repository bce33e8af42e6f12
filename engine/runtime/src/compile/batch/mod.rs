//! RL05: whether prompts, samples, steps, packs, contexts and workers fit together.
//!
//! Each rule is said in terms of nodes, and as a constraint over numbers. Broken rules that share a setting are one
//! fault: a change that mends one of them must mend all. `solve` finds such changes.

mod rules;
mod solve;

use std::collections::HashMap;

use rlpipe_core::diagnostic::{Alternative, Diagnostics};
use rlpipe_core::document::{Range, Segment};

use super::pipeline::Pipeline;
use rules::{Rule, rules};
use solve::{Change, Constraint, Setting, changes};

/// More changes than these are not shown.
const SHOWN_CHANGES: usize = 4;

/// Checks the batch arithmetic.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let mut settings = Settings::default();
    let rules: Vec<(Rule<'_>, Constraint)> = rules(pipeline)
        .into_iter()
        .map(|rule| {
            let constraint = rule.constraint(&mut settings);
            (rule, constraint)
        })
        .collect();
    let values: Vec<u64> = settings.list.iter().map(|setting| setting.value).collect();
    let (sound, broken): (Vec<_>, Vec<_>) = rules.iter().partition(|(_, constraint)| constraint.holds(&values));
    for fault in joined(broken) {
        let Some(((first, _), others)) = fault.split_first() else {
            continue;
        };
        let mut diagnostic = first.diagnostic();
        for (rule, _) in others {
            let also = rule.diagnostic();
            diagnostic = diagnostic
                .label(also.primary.range, also.primary.text)
                .note(format!("and {}", also.message));
        }
        let mut of: Vec<usize> = fault.iter().flat_map(|(_, constraint)| constraint.settings()).collect();
        of.sort_unstable();
        of.dedup();
        let wanted: Vec<&Constraint> = sound.iter().chain(&fault).map(|(_, constraint)| constraint).collect();
        let changes = changes(&settings.list, &of, &wanted);
        let shown = &changes[..changes.len().min(SHOWN_CHANGES)];
        if !shown.is_empty() {
            let words: Vec<String> = shown.iter().map(|change| words(&settings.list, change)).collect();
            diagnostic = diagnostic.note(format!("what would fit, nearest first: {}", words.join("; ")));
        }
        for change in shown {
            let written = match change.values.as_slice() {
                [(setting, value)] => written(pipeline, &settings.list[*setting], *value),
                _ => None,
            };
            if let (Some((title, range)), None, [(_, value)]) = (written, &diagnostic.fix, change.values.as_slice()) {
                diagnostic = diagnostic.fix(title, range, value.to_string());
            }
            let settings = change.values.iter().map(|(setting, value)| {
                let path = settings.list[*setting].path.clone();
                (path, value.to_string())
            });
            diagnostic.alternatives.push(Alternative {
                settings: settings.collect(),
            });
        }
        diagnostics.push(diagnostic);
    }
}

/// Broken rules by fault: those that share a setting, directly or through others.
fn joined<'a, 'b>(broken: Vec<&'b (Rule<'a>, Constraint)>) -> Vec<Vec<&'b (Rule<'a>, Constraint)>> {
    let mut faults: Vec<Vec<&(Rule<'_>, Constraint)>> = Vec::new();
    for rule in broken {
        let settings = rule.1.settings();
        let shares = |fault: &Vec<&(Rule<'_>, Constraint)>| {
            let mut theirs = fault.iter().flat_map(|(_, constraint)| constraint.settings());
            theirs.any(|setting| settings.contains(&setting))
        };
        let (same, other): (Vec<_>, Vec<_>) = faults.into_iter().partition(shares);
        faults = other;
        faults.push(same.into_iter().flatten().chain([rule]).collect());
    }
    faults
}

/// "`prompts_per_step: 63` in `buffer`".
fn words(settings: &[Setting], change: &Change) -> String {
    let word = |(setting, value): &(usize, u64)| {
        let mut keys = settings[*setting].path.splitn(3, '.').skip(1);
        let (of, key) = (keys.next().unwrap_or_default(), keys.next().unwrap_or_default());
        format!("`{key}: {value}` in `{of}`")
    };
    change.values.iter().map(word).collect::<Vec<_>>().join(" with ")
}

/// What a fix of a setting is called and where it goes, if the file has the setting.
fn written(pipeline: &Pipeline, setting: &Setting, value: u64) -> Option<(String, Range)> {
    let segments: Vec<Segment> = setting.path.split('.').map(Segment::from).collect();
    let found = pipeline.tree.at(&segments);
    let key = setting.path.rsplit('.').next().unwrap_or_default();
    (found.depth == segments.len()).then(|| (format!("write `{key}: {value}`"), found.head()))
}

/// The numbers that rules are about, each once.
#[derive(Default)]
pub struct Settings {
    list: Vec<Setting>,
    places: HashMap<String, usize>,
}

impl Settings {
    /// The place of a setting in the list.
    pub fn add(&mut self, path: String, value: u64, least: u64) -> usize {
        if let Some(place) = self.places.get(&path) {
            return *place;
        }
        let place = self.list.len();
        self.places.insert(path.clone(), place);
        self.list.push(Setting { path, value, least });
        place
    }
}
