//! What came against what was expected.

use std::collections::BTreeMap;

use rlpipe_core::data::{DropReason, Group, Rollout};
use rlpipe_core::diagnostic::nearest;
use rlpipe_core::document::Segment;

use super::flow::Came;
use super::{Failure, Row};
use crate::compile::{Expectation, ExpectedGroup, Feeds, Maybe, Pipeline, Test};

/// Texts are shown up to so many characters.
const SHOWN_CHARACTERS: usize = 60;
/// Groups with other rewards than before that are shown one by one.
const SHOWN_GROUPS: usize = 5;

/// Rewards of groups as they were fed, by sampler and id.
pub type Before = BTreeMap<(String, u64), Vec<Option<f64>>>;

/// Notes rewards, to be compared with those that come out.
pub fn rewards_by_group(feeds: &Feeds) -> Before {
    feeds
        .values()
        .flatten()
        .map(|group| {
            let rewards = group.rollouts.iter().map(Rollout::reward).collect();
            ((group.sampler.to_string(), group.id), rewards)
        })
        .collect()
}

/// What came out of one node against what was expected of it.
pub struct Comparing<'a> {
    pub pipeline: &'a Pipeline,
    pub test: &'a Test,
    pub node: &'a str,
    pub before: &'a Before,
}

impl Comparing<'_> {
    /// A node failed; whether it was to.
    pub fn failed(&self, wanted: Option<&str>, error: &str) -> Option<Failure> {
        let node = self.node;
        let Some(wanted) = wanted else {
            let named = ["expect", "feed"]
                .into_iter()
                .find(|section| match (&self.test.config, *section) {
                    (Some(config), "expect") => config.expect.contains_key(node),
                    (Some(config), _) => config.feed.contains_key(node),
                    (None, _) => false,
                });
            let place = |section: &str| self.test.place(self.pipeline, &[section.into(), node.into()]);
            let range = named.map_or(self.test.key_range, place);
            return Some(Failure::new(range, format!("`{node}` failed: {error}")));
        };
        if error.contains(wanted) {
            return None;
        }
        let mut failure = self.failure(&["error".into()], format!("`{node}` failed with another error"));
        failure.rows.push(row("error", &text(wanted), &text(error), true));
        Some(failure)
    }

    /// A node ran; adds all that is not as expected.
    pub fn compare(&self, expected: &Expectation, came: &Came, failures: &mut Vec<Failure>) {
        let node = self.node;
        if let Some(nothing) = &came.nothing {
            let mut failure = self.failure(&[], format!("nothing came out of `{node}`"));
            failure.notes.push(nothing.clone());
            failures.push(failure);
            return;
        }
        if let Some(wanted) = &expected.error {
            let mut failure = self.failure(&["error".into()], format!("`{node}` was expected to fail, and did not"));
            failure.rows.push(row("error", &text(wanted), "none", true));
            failures.push(failure);
        }
        let kept: Vec<(&Group, Option<&DropReason>)> = came.groups.iter().map(|group| (group, None)).collect();
        let dropped: Vec<(&Group, Option<&DropReason>)> = came
            .dropped
            .iter()
            .map(|(group, reason)| (group, Some(reason)))
            .collect();
        for (key, wanted, found) in [
            ("groups", &expected.groups, &kept),
            ("batch", &expected.batch, &kept),
            ("dropped", &expected.dropped, &dropped),
        ] {
            if let Some(wanted) = wanted {
                self.groups(key, wanted, found, came, failures);
            }
        }
        for (name, wanted) in expected.metrics.iter().flatten() {
            failures.extend(self.metric(name, wanted, came));
        }
        if let Some(same) = expected.same_rewards {
            failures.extend(self.same_rewards(same, came));
        }
    }

    fn failure(&self, path: &[Segment], message: String) -> Failure {
        let path = [&["expect".into(), self.node.into()], path].concat();
        Failure::new(self.test.value_place(self.pipeline, &path), message)
    }

    fn tolerance(&self) -> f64 {
        self.test.config.as_ref().map_or(0.0, |config| config.tolerance.get())
    }

    /// Whether two numbers are as near as the test wants them.
    fn near(&self, wanted: f64, got: f64) -> bool {
        wanted == got || (wanted - got).abs() <= self.tolerance() * wanted.abs().max(1.0)
    }

    fn near_or_none(&self, wanted: Option<f64>, got: Option<f64>) -> bool {
        match (wanted, got) {
            (Some(wanted), Some(got)) => self.near(wanted, got),
            (None, None) => true,
            _ => false,
        }
    }

    fn groups(
        &self,
        key: &str,
        wanted: &[ExpectedGroup],
        found: &[(&Group, Option<&DropReason>)],
        came: &Came,
        failures: &mut Vec<Failure>,
    ) {
        let node = self.node;
        if wanted.len() != found.len() {
            let message = match key {
                "dropped" => format!(
                    "{} expected to be dropped by `{node}`, and {} were",
                    count(wanted.len()),
                    found.len()
                ),
                _ => format!("{} expected of `{node}`, and {} came", count(wanted.len()), found.len()),
            };
            let mut failure = self.failure(&[key.into()], message);
            for index in 0..wanted.len().max(found.len()) {
                let expected = wanted.get(index).map_or("none".to_owned(), asked);
                let got = found.get(index).map_or("none".to_owned(), |(group, _)| summary(group));
                let differs = index >= wanted.len() || index >= found.len();
                failure
                    .rows
                    .push(row(&format!("group {index}"), &expected, &got, differs));
            }
            if key != "dropped" {
                failure.notes.extend(
                    came.dropped
                        .iter()
                        .map(|(group, reason)| format!("`{node}` dropped {}: {}", summary(group), words(reason))),
                );
            }
            failures.push(failure);
            return;
        }
        for (index, (wanted, (group, reason))) in wanted.iter().zip(found).enumerate() {
            let of = OfGroup {
                comparing: self,
                path: vec![key.into(), index.into()],
                place: format!("group {index} of `{node}`"),
                group,
            };
            of.compare(wanted, *reason, failures);
        }
    }

    fn metric(&self, name: &str, wanted: &Maybe<f64>, came: &Came) -> Option<Failure> {
        let path = ["metrics".into(), Segment::Key(name.to_owned())];
        let Some(got) = came.metrics.get(name) else {
            let mut failure = self.failure(&path, format!("`{}` gives no metric `{name}`", self.node));
            let known: Vec<&str> = came.metrics.0.keys().map(String::as_str).collect();
            failure.notes.push(match nearest(name, known.iter().copied()).first() {
                Some(best) => format!("did you mean `{best}`?"),
                None => format!("it gives {}", known.join(", ")),
            });
            return Some(failure);
        };
        let got = Some(got).filter(|got| got.is_finite());
        if self.near_or_none(wanted.0, got) {
            return None;
        }
        let mut failure = self.failure(&path, format!("`{name}` of `{}` is another", self.node));
        failure.rows.push(row(name, &number(wanted.0), &number(got), true));
        Some(failure)
    }

    fn same_rewards(&self, same: bool, came: &Came) -> Option<Failure> {
        let mut changed = Vec::new();
        let mut all = 0;
        for group in came.groups.iter().chain(came.dropped.iter().map(|(group, _)| group)) {
            let Some(before) = self.before.get(&(group.sampler.to_string(), group.id)) else {
                continue;
            };
            for (rollout, before) in group.rollouts.iter().zip(before) {
                all += 1;
                if !self.near_or_none(*before, rollout.reward()) {
                    changed.push((group, rollout, *before));
                }
            }
        }
        let has_reward = |rewards: &Vec<Option<f64>>| rewards.iter().any(Option::is_some);
        if !self.before.values().any(has_reward) {
            let message = "no response was fed with a reward: there is nothing to compare with".to_owned();
            return Some(self.failure(&["same_rewards".into()], message));
        }
        if changed.is_empty() == same {
            return None;
        }
        let message = match same {
            true => format!(
                "{} of {all} responses have another reward than they were fed with",
                changed.len()
            ),
            false => format!("all {all} responses have the reward that they were fed with"),
        };
        let mut failure = self.failure(&["same_rewards".into()], message);
        for (group, rollout, before) in changed.iter().take(SHOWN_GROUPS) {
            let of = format!("{} {}", prompt(group), text(&rollout.response));
            failure
                .rows
                .push(row(&of, &number(*before), &number(rollout.reward()), true));
        }
        if changed.len() > SHOWN_GROUPS {
            failure.notes.push(format!("and {} more", changed.len() - SHOWN_GROUPS));
        }
        Some(failure)
    }
}

/// One group against what was expected of it.
struct OfGroup<'a> {
    comparing: &'a Comparing<'a>,
    path: Vec<Segment>,
    place: String,
    group: &'a Group,
}

impl OfGroup<'_> {
    fn compare(&self, wanted: &ExpectedGroup, reason: Option<&DropReason>, failures: &mut Vec<Failure>) {
        let score = |rollout: &Rollout| rollout.score.clone().unwrap_or_default();
        if let Some(wanted) = wanted.prompt.as_ref() {
            let got = self.group.row.prompt.last().map(|message| message.text().into_owned());
            if got.as_ref() != Some(wanted) {
                let mut failure = self.failure("prompt", format!("{} is of another prompt", self.place));
                failure
                    .rows
                    .push(row("prompt", &text(wanted), &prompt(self.group), true));
                failures.push(failure);
            }
        }
        if let Some(wanted) = &wanted.reason {
            let got = reason.map(words).unwrap_or_default();
            if !got.contains(wanted.as_str()) {
                let mut failure = self.failure("reason", format!("{} was dropped for another reason", self.place));
                failure.rows.push(row("reason", &text(wanted), &text(got), true));
                failures.push(failure);
            }
        }
        let comparing = self.comparing;
        failures.extend(self.numbers("rewards", &wanted.rewards, &|rollout| rollout.reward()));
        failures.extend(self.numbers("advantages", &wanted.advantages, &|rollout| rollout.advantage));
        failures.extend(self.list(
            "parsed",
            wanted.parsed.as_deref(),
            &|wanted, rollout| wanted.0 == score(rollout).parsed,
            &|wanted| maybe_text(wanted.0.as_deref()),
            &|rollout| maybe_text(score(rollout).parsed.as_deref()),
        ));
        failures.extend(self.list(
            "errors",
            wanted.errors.as_deref(),
            &|wanted, rollout| match (&wanted.0, score(rollout).error) {
                (Some(wanted), Some(got)) => got.contains(wanted.as_str()),
                (None, None) => true,
                _ => false,
            },
            &|wanted| maybe_text(wanted.0.as_deref()),
            &|rollout| maybe_text(score(rollout).error.as_deref()),
        ));
        failures.extend(self.list(
            "parts",
            wanted.parts.as_deref(),
            &|wanted, rollout| {
                let got = score(rollout).parts;
                wanted.len() == got.len()
                    && wanted
                        .iter()
                        .all(|(name, wanted)| got.get(name).is_some_and(|got| comparing.near(*wanted, *got)))
            },
            &parts,
            &|rollout| parts(&score(rollout).parts),
        ));
        failures.extend(self.list(
            "statuses",
            wanted.statuses.as_deref(),
            &|wanted, rollout| *wanted == rollout.status,
            &|wanted| word(wanted),
            &|rollout| word(&rollout.status),
        ));
    }

    fn failure(&self, key: &str, message: String) -> Failure {
        let path = [&self.path[..], &[key.into()]].concat();
        self.comparing.failure(&path, message)
    }

    fn numbers(
        &self,
        key: &str,
        wanted: &Option<Vec<Maybe<f64>>>,
        of: &dyn Fn(&Rollout) -> Option<f64>,
    ) -> Option<Failure> {
        self.list(
            key,
            wanted.as_deref(),
            &|wanted, rollout| self.comparing.near_or_none(wanted.0, of(rollout)),
            &|wanted| number(wanted.0),
            &|rollout| number(of(rollout)),
        )
    }

    /// A list with a value for each response.
    fn list<T>(
        &self,
        key: &str,
        wanted: Option<&[T]>,
        same: &dyn Fn(&T, &Rollout) -> bool,
        expected: &dyn Fn(&T) -> String,
        got: &dyn Fn(&Rollout) -> String,
    ) -> Option<Failure> {
        let wanted = wanted?;
        let rollouts = &self.group.rollouts;
        let rows: Vec<Row> = (0..wanted.len().max(rollouts.len()))
            .map(|index| {
                let (wanted, rollout) = (wanted.get(index), rollouts.get(index));
                row(
                    &rollout.map_or("none".to_owned(), |rollout| text(&rollout.response)),
                    &wanted.map_or("nothing said".to_owned(), expected),
                    &rollout.map_or("no response".to_owned(), got),
                    !matches!((wanted, rollout), (Some(wanted), Some(rollout)) if same(wanted, rollout)),
                )
            })
            .collect();
        if rows.iter().all(|row| !row.differs) {
            return None;
        }
        let of = prompt(self.group);
        let mut failure = self.failure(key, format!("`{key}` of {} are others, for {of}", self.place));
        if wanted.len() != rollouts.len() {
            failure.message = format!(
                "{} `{key}` are expected of {}, and it has {} responses",
                wanted.len(),
                self.place,
                rollouts.len()
            );
        }
        failure.rows = rows;
        Some(failure)
    }
}

fn row(of: &str, expected: &str, got: &str, differs: bool) -> Row {
    Row {
        of: of.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
        differs,
    }
}

fn count(groups: usize) -> String {
    if groups == 1 {
        "1 group is".to_owned()
    } else {
        format!("{groups} groups are")
    }
}

fn words(reason: &DropReason) -> &str {
    let (DropReason::Failed(text) | DropReason::Filtered(text)) = reason;
    text
}

fn number(value: Option<f64>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}

fn maybe_text(value: Option<&str>) -> String {
    value.map_or("none".to_owned(), text)
}

/// In quotes, on one line, and not too long.
fn text(value: &str) -> String {
    let mut shown: String = value.chars().take(SHOWN_CHARACTERS).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    serde_json::Value::String(shown).to_string()
}

fn word(status: &rlpipe_core::data::Status) -> String {
    let word = serde_json::to_value(status).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

fn parts(parts: &BTreeMap<String, f64>) -> String {
    let parts: Vec<String> = parts.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn prompt(group: &Group) -> String {
    match group.row.prompt.last() {
        Some(message) => text(&message.text()),
        None => "a group without a prompt".to_owned(),
    }
}

fn summary(group: &Group) -> String {
    let rewards: Vec<String> = group.rollouts.iter().map(|rollout| number(rollout.reward())).collect();
    format!("{} with rewards {}", prompt(group), rewards.join(", "))
}

/// What was expected of a group, in a few words.
fn asked(group: &ExpectedGroup) -> String {
    match (&group.prompt, &group.rewards) {
        (Some(prompt), _) => text(prompt),
        (None, Some(rewards)) => {
            let rewards: Vec<String> = rewards.iter().map(|reward| number(reward.0)).collect();
            format!("rewards {}", rewards.join(", "))
        }
        (None, None) => "any".to_owned(),
    }
}
