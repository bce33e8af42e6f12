//! RL03 of `tests`: whether each test names what is there, and looks at what its feed can reach.

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, Severity, codes};
use rlpipe_core::document::{Range, Segment};
use rlpipe_core::kind::{Contract, Field, PortType};

use super::config::{Expectation, ExpectedGroup, FedGroup, Feed, TestConfig};
use super::{Route, Test, carried, carrier, why_not};
use crate::compile::faults::{first_causes, report};
use crate::compile::graph::unknown;
use crate::compile::pipeline::{Node, Pipeline};
use crate::compile::read::quoted;

/// Checks every test.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    // Where a node or an edge was not understood, what reaches what is not known.
    let is_fault = |found: &Diagnostic| {
        found.severity == Severity::Error && (found.code.id.starts_with("RL02") || found.code.id.starts_with("RL03"))
    };
    let understood = pipeline.nodes.iter().all(|node| node.contract.is_some()) && !diagnostics.iter().any(is_fault);
    for test in &pipeline.tests {
        if let Some(config) = &test.config {
            let route = test.route(pipeline);
            let mut checking = Checking {
                pipeline,
                test,
                config,
                route: &route,
                diagnostics,
            };
            checking.names();
            if understood {
                checking.ways();
            }
        }
    }
}

struct Checking<'a> {
    pipeline: &'a Pipeline,
    test: &'a Test,
    config: &'a TestConfig,
    route: &'a Route,
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Checking<'a> {
    /// Whether it names what is there.
    fn names(&mut self) {
        for (section, is_empty) in [
            ("feed", self.config.feed.is_empty()),
            ("expect", self.config.expect.is_empty()),
        ] {
            if is_empty {
                let message = format!("the test `{}` has nothing in `{section}`", self.test.name);
                self.push(
                    Diagnostic::error(&codes::RL0209, self.key(&[section]), message)
                        .note("a test feeds at least one node, and expects something of at least one"),
                );
            }
        }
        let config = self.config;
        for (name, feed) in &config.feed {
            if let Some(contract) = self.node("feed", name) {
                self.feed(name, feed, contract);
            }
        }
        for (name, expectation) in &config.expect {
            if let Some(contract) = self.node("expect", name) {
                self.expectation(name, expectation, contract);
            }
        }
        for name in config.settings.keys() {
            self.settings(name);
        }
    }

    /// Whether what it feeds comes to what it expects.
    fn ways(&mut self) {
        // A name that is misspelt was told, and may be the one that is missed.
        let sections = [
            self.config.feed.keys().collect::<Vec<_>>(),
            self.config.expect.keys().collect(),
        ];
        if sections.concat().iter().any(|name| self.found(name).is_none()) {
            return;
        }
        self.runnable();
        self.rewards();
        for name in self.config.settings.keys() {
            let found = self.found(name);
            if found.is_some_and(|(index, _)| !self.route.order.contains(&index)) {
                let message = format!(
                    "the test `{}` does not run `{name}`, whose settings it gives",
                    self.test.name
                );
                let range = self.key(&["settings", name]);
                self.push(Diagnostic::error(&codes::RL0322, range, message).label_text("changes nothing"));
            }
        }
    }

    fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    fn key(&self, path: &[&str]) -> Range {
        let path: Vec<Segment> = path.iter().map(|key| Segment::from(*key)).collect();
        self.test.place(self.pipeline, &path)
    }

    fn found(&self, name: &str) -> Option<(usize, &'a Node)> {
        let index = self.pipeline.find(name)?;
        Some((index, &self.pipeline.nodes[index]))
    }

    /// The contract of a node that is named in a section; none where there is none, or it was not understood.
    fn node(&mut self, section: &str, name: &str) -> Option<&'a Contract> {
        match self.found(name) {
            Some((_, node)) => node.contract.as_ref(),
            // That there are no nodes at all has been said.
            None if self.pipeline.nodes.is_empty() => None,
            None => {
                let known: Vec<&String> = self.pipeline.nodes.iter().map(|node| &node.name).collect();
                let diagnostic = unknown("node", name, self.key(&[section, name]), known.into_iter());
                self.push(diagnostic.note(
                    "a test of the pipeline names it; where an overlay took the node out, `tests: null` takes out the \
                     tests",
                ));
                None
            }
        }
    }

    fn feed(&mut self, name: &str, feed: &Feed, contract: &Contract) {
        let given = [
            ("groups", feed.groups.is_some()),
            ("batch", feed.batch.is_some()),
            ("rollouts", feed.rollouts.is_some()),
        ];
        let given: Vec<&str> = given
            .into_iter()
            .filter(|(_, given)| *given)
            .map(|(key, _)| key)
            .collect();
        if given.len() != 1 {
            let message = match given.as_slice() {
                [] => format!("`{name}` is fed nothing"),
                [first, second, ..] => format!("`{name}` is fed both `{first}` and `{second}`"),
                [_] => String::new(),
            };
            let diagnostic = Diagnostic::error(&codes::RL0209, self.key(&["feed", name]), message);
            self.push(diagnostic.note("give one of `groups`, `batch` and `rollouts`"));
        }
        if feed.limit.is_some() && feed.rollouts.is_none() {
            let message = "`limit` is of `rollouts`, and there are none";
            let range = self.key(&["feed", name, "limit"]);
            self.push(Diagnostic::error(&codes::RL0209, range, message).label_text("limits nothing"));
        }
        // A node without such an input is reported as one that cannot be run.
        if let Some(input) = carrier(contract) {
            let wrong = match input.port_type {
                PortType::Batch => feed.groups.is_some().then_some("groups"),
                _ => feed.batch.is_some().then_some("batch"),
            };
            if let Some(wrong) = wrong {
                let range = self.key(&["feed", name, wrong]);
                let wanted = input.port_type.to_string();
                let message = format!("`{name}` takes `{wanted}`, and is fed a `{wrong}`");
                let message = if wrong == "groups" {
                    message.replace("fed a ", "fed ")
                } else {
                    message
                };
                let diagnostic = Diagnostic::error(&codes::RL0303, range, message)
                    .label_text(format!("`{wrong}`, not `{wanted}`"))
                    .fix(format!("it takes `{wanted}`"), range, wanted);
                self.push(diagnostic);
            }
        }
        for (key, groups) in [("groups", &feed.groups), ("batch", &feed.batch)] {
            for (index, group) in groups.iter().flatten().enumerate() {
                self.lengths(&["feed".into(), name.into(), key.into(), index.into()], group);
            }
        }
    }

    /// Lists of a group that is fed have a value for each response.
    fn lengths(&mut self, path: &[Segment], group: &FedGroup) {
        let lists = [
            ("rewards", group.rewards.as_ref().map(Vec::len)),
            ("parsed", group.parsed.as_ref().map(Vec::len)),
            ("finish_reasons", group.finish_reasons.as_ref().map(Vec::len)),
            ("statuses", group.statuses.as_ref().map(Vec::len)),
        ];
        let responses = group.responses.len();
        for (key, length) in lists {
            let Some(length) = length.filter(|length| *length != responses) else {
                continue;
            };
            let place = |key: &str| [path, &[key.into()]].concat();
            let range = self.test.place(self.pipeline, &place(key));
            let of = self.test.place(self.pipeline, &place("responses"));
            let values = if length == 1 { "value" } else { "values" };
            let message = format!("`{key}` has {length} {values}, and the group has {responses} responses");
            self.push(
                Diagnostic::error(&codes::RL0205, range, message)
                    .label_text("a value for each response")
                    .label(of, "of these"),
            );
        }
    }

    fn expectation(&mut self, name: &str, expectation: &Expectation, contract: &Contract) {
        let gives = |port_type| contract.outputs.iter().any(|output| output.port_type == port_type);
        let (groups, batch) = (gives(PortType::Groups), gives(PortType::Batch));
        let drops = groups && carrier(contract).is_some_and(|input| input.port_type == PortType::Groups);
        let named = [
            ("groups", expectation.groups.is_some(), groups),
            ("batch", expectation.batch.is_some(), batch),
            ("dropped", expectation.dropped.is_some(), drops),
            ("same_rewards", expectation.same_rewards.is_some(), groups || batch),
        ];
        for (key, _, _) in named.iter().filter(|(_, named, there)| *named && !there) {
            let range = self.key(&["expect", name, key]);
            let message = match *key {
                "dropped" => format!("`{name}` drops no groups"),
                "same_rewards" => format!("no rewards come out of `{name}`"),
                _ => format!("`{name}` has no output `{key}`"),
            };
            let outputs: Vec<String> = contract.outputs.iter().map(|output| output.name.to_owned()).collect();
            let mut diagnostic = Diagnostic::error(&codes::RL0302, range, message).label_text("never comes");
            diagnostic = match (*key, groups, batch) {
                ("groups", _, true) => diagnostic.fix("it gives a `batch`", range, "batch"),
                ("batch", true, _) => diagnostic.fix("it gives `groups`", range, "groups"),
                _ if outputs.is_empty() => diagnostic,
                _ => diagnostic.note(format!(
                    "it gives {}; `metrics` can be expected of any node",
                    quoted(&outputs)
                )),
            };
            self.push(diagnostic);
        }
        let others = named.iter().any(|(_, named, _)| *named) || expectation.metrics.is_some();
        match (&expectation.error, others) {
            (Some(_), true) => {
                let range = self.key(&["expect", name, "error"]);
                let message = format!("`{name}` is expected to fail and to give something");
                self.push(
                    Diagnostic::error(&codes::RL0209, range, message)
                        .label_text("a node that fails gives nothing")
                        .note("leave out `error`, or all that is beside it"),
                );
            }
            (None, false) => {
                let range = self.key(&["expect", name]);
                let message = format!("nothing is expected of `{name}`");
                self.push(
                    Diagnostic::error(&codes::RL0209, range, message)
                        .label_text("holds whatever comes out")
                        .note("say what must come out: `groups`, `batch`, `dropped`, `metrics`, `same_rewards` or `error`"),
                );
            }
            _ => {}
        }
        for (key, groups) in [("groups", &expectation.groups), ("batch", &expectation.batch)] {
            for (index, _) in with_reasons(groups) {
                let path = ["expect".into(), name.into(), key.into(), index.into(), "reason".into()];
                let range = self.test.place(self.pipeline, &path);
                self.push(
                    Diagnostic::error(&codes::RL0205, range, "only groups that are dropped have a `reason`")
                        .label_text("this one goes on"),
                );
            }
        }
    }

    /// Whether what is expected is reached, by nodes that run without a model.
    fn runnable(&mut self) {
        let config = self.config;
        for name in config.expect.keys() {
            let Some((index, node)) = self.found(name) else {
                continue;
            };
            if !self.route.reached[index] && !config.feed.is_empty() {
                let fed: Vec<&str> = config.feed.keys().map(String::as_str).collect();
                let message = format!("nothing that the test `{}` feeds comes to `{name}`", self.test.name);
                let mut diagnostic = Diagnostic::error(&codes::RL0322, self.key(&["expect", name]), message)
                    .label_text("nothing comes out here")
                    .label(self.key(&["feed"]), format!("only {} is fed", quoted(&fed)));
                let before: Vec<&str> = carried(node)
                    .map(|from| self.pipeline.nodes[from.node].name.as_str())
                    .collect();
                if !before.is_empty() {
                    diagnostic = diagnostic.note(format!("`{name}` takes from {}", quoted(&before)));
                }
                self.push(diagnostic);
            }
        }
        for name in config.feed.keys() {
            let Some((index, _)) = self.found(name) else { continue };
            if !self.route.reached[index] && !config.expect.is_empty() {
                let message = format!("nothing is expected where what `{name}` is fed could come");
                self.push(
                    Diagnostic::error(&codes::RL0322, self.key(&["feed", name]), message)
                        .label_text("fed for nothing")
                        .label(self.key(&["expect"]), "what is expected lies elsewhere"),
                );
            }
        }
        for index in &self.route.order {
            let node = &self.pipeline.nodes[*index];
            let Some(why) = node.contract.as_ref().and_then(why_not) else {
                continue;
            };
            if self.test.passes_over(node).is_some() && !self.needs_what_is_added_by(node) {
                continue;
            }
            let place = ["feed", "expect"].into_iter().find(|section| match *section {
                "feed" => config.feed.contains_key(&node.name),
                _ => config.expect.contains_key(&node.name),
            });
            // Between the two, the fault is of what lies behind it.
            let range = place.map_or(self.test.key_range, |section| self.key(&[section, &node.name]));
            let message = format!("a test cannot run `{}`: it {why}", node.name);
            let kind = node.kind.map_or("node", |kind| kind.name);
            self.push(
                Diagnostic::error(&codes::RL0321, range, message)
                    .label_text("tests run without models and workers")
                    .label(node.key_range, format!("this `{kind}` {why}"))
                    .note("feed the node after it, and expect things of nodes before it"),
            );
        }
    }

    /// Whether a node that the test runs needs a field that this node adds.
    fn needs_what_is_added_by(&self, node: &Node) -> bool {
        let adds = node
            .contract
            .iter()
            .flat_map(|contract| &contract.outputs)
            .flat_map(|output| &output.adds);
        let adds: Vec<Field> = adds.copied().collect();
        let runs = self
            .route
            .order
            .iter()
            .filter_map(|index| self.pipeline.nodes[*index].contract.as_ref());
        let mut needs = runs
            .flat_map(|contract| &contract.inputs)
            .flat_map(|input| &input.needs);
        needs.any(|field| adds.contains(field))
    }

    /// Whether each node that needs rewards gets groups that have some.
    fn rewards(&mut self) {
        let mut lacking: Vec<Option<(Range, &str)>> = vec![None; self.pipeline.nodes.len()];
        for index in &self.route.order {
            let node = &self.pipeline.nodes[*index];
            let Some(contract) = &node.contract else { continue };
            let found = match self.config.feed.get(&node.name) {
                Some(feed) => self.without_rewards(&node.name, feed),
                None => carried(node).find_map(|endpoint| lacking[endpoint.node]),
            };
            let needs = contract.inputs.iter().any(|input| input.needs.contains(&Field::Reward));
            if let Some((range, fed)) = found.filter(|_| needs) {
                let message = format!(
                    "`{}` needs `reward`, and `{fed}` is fed a group without `rewards`",
                    node.name
                );
                self.push(
                    Diagnostic::error(&codes::RL0307, range, message)
                        .label_text("has no `rewards`")
                        .label(node.key_range, "needs them")
                        .note("give the group `rewards`, or feed the judger before it"),
                );
            }
            let adds = contract
                .outputs
                .iter()
                .any(|output| output.adds.contains(&Field::Reward));
            // What is missing is told once.
            lacking[*index] = found.filter(|_| !adds && !needs);
        }
    }

    fn without_rewards(&self, name: &'a str, feed: &Feed) -> Option<(Range, &'a str)> {
        let given = [("groups", &feed.groups), ("batch", &feed.batch)];
        given.into_iter().find_map(|(key, groups)| {
            let index = groups.iter().flatten().position(|group| group.rewards.is_none())?;
            let path = ["feed".into(), name.into(), key.into(), index.into()];
            let responses = [&path[..], &["responses".into()]].concat();
            Some((self.test.place(self.pipeline, &responses), name))
        })
    }

    fn settings(&mut self, name: &str) {
        if self.node("settings", name).is_none() {
            return;
        }
        let Some((_, node)) = self.found(name) else { return };
        let Some(settings) = self.test.settings(self.pipeline, name) else {
            return;
        };
        let common = settings
            .entries()
            .iter()
            .find(|entry| ["type", "inputs"].contains(&entry.key.as_str()));
        if let Some(entry) = common {
            let message = format!("a test does not change the `{}` of a node", entry.key);
            self.push(
                Diagnostic::error(&codes::RL0205, entry.key_range, message)
                    .label_text("not a setting")
                    .note("it runs the pipeline's own graph; settings of a kind may be others in a test"),
            );
            return;
        }
        let Some(Err(faults)) = self.test.own_config(self.pipeline, node) else {
            return;
        };
        let merged = rlpipe_core::document::merge(node.tree.clone(), settings.clone());
        for fault in first_causes(&faults) {
            let again = |tree: &rlpipe_core::document::Tree| node.kind.and_then(|kind| (kind.decode)(tree).err());
            let diagnostic = report(fault, &["nodes", name], &merged, &again);
            self.push(diagnostic.note(format!("as the test `{}` has it", self.test.name)));
        }
    }
}

fn with_reasons(groups: &Option<Vec<ExpectedGroup>>) -> impl Iterator<Item = (usize, &ExpectedGroup)> {
    groups
        .iter()
        .flatten()
        .enumerate()
        .filter(|(_, group)| group.reason.is_some())
}
