//! Runs the tests of a pipeline: the stages themselves, on groups that are given, without models and workers.
//!
//! A test runs the nodes between what it feeds and what it expects, in the order in which things flow. A buffer gives at
//! most one train step, as its port says, and nothing is asked for again in place of what was dropped.

mod compare;
mod flow;

use std::sync::{Arc, Mutex, PoisonError};

use rlpipe_core::data::Seed;
use rlpipe_core::document::{Range, Segment};
use rlpipe_core::services::{Context, Observer, Services};

use crate::compile::{Feeds, Pipeline, Test};

/// What came of a test.
pub struct Verdict {
    /// The test's name.
    pub name: String,
    /// Where that stands.
    pub range: Range,
    /// The nodes that ran, in order.
    pub nodes: Vec<String>,
    /// What is not as expected; none: the test has passed.
    pub failures: Vec<Failure>,
    /// What nodes wanted a person to see.
    pub notices: Vec<String>,
}

/// Something that is not as expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Where the expectation stands.
    pub range: Range,
    /// What is wrong, in one phrase.
    pub message: String,
    /// What was expected and what came, side by side; those that agree stand among them.
    pub rows: Vec<Row>,
    /// Further sentences.
    pub notes: Vec<String>,
}

/// A line of what was expected and what came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Of what, such as a response.
    pub of: String,
    /// What was expected.
    pub expected: String,
    /// What came.
    pub got: String,
    /// Whether they differ.
    pub differs: bool,
}

impl Failure {
    fn new(range: Range, message: impl Into<String>) -> Self {
        Self {
            range,
            message: message.into(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Runs a test of a pipeline without errors.
pub async fn run(pipeline: &Pipeline, test: &Test, feeds: Feeds, services: &dyn Services) -> Verdict {
    let notices = Arc::new(Notices::default());
    let run = pipeline.run.as_ref();
    let context = Context {
        node: Arc::from(""),
        step: 1,
        total_steps: run
            .and_then(|run| run.total_steps)
            .map_or(1, |steps| steps.get().into()),
        seed: Seed::run(run.map_or(0, |run| run.seed)),
        observer: notices.clone(),
    };
    let mut verdict = Verdict {
        name: test.name.clone(),
        range: test.key_range,
        nodes: Vec::new(),
        failures: Vec::new(),
        notices: Vec::new(),
    };
    let before = compare::rewards_by_group(&feeds);
    let mut flow = flow::Flow::new(pipeline, test, feeds, services, context);
    for index in test.route(pipeline).order {
        let node = &pipeline.nodes[index];
        verdict.nodes.push(node.name.clone());
        let ended = flow.pass(index).await;
        let expected = test.config.as_ref().and_then(|config| config.expect.get(&node.name));
        let comparing = compare::Comparing {
            pipeline,
            test,
            node: &node.name,
            before: &before,
        };
        match (ended, expected) {
            (Ok(()), None) => {}
            (Ok(()), Some(expected)) => comparing.compare(expected, flow.came(index), &mut verdict.failures),
            (Err(failed), expected) => {
                let wanted = expected.and_then(|expected| expected.error.as_deref());
                if let Some(failure) = comparing.failed(wanted, &failed) {
                    verdict.failures.push(failure);
                }
                // A run would have ended here: what comes after never was.
                let reached = |name: &String| verdict.nodes.contains(name);
                let config = test.config.iter().flat_map(|config| config.expect.keys());
                let missed: Vec<String> = config
                    .filter(|name| !reached(name))
                    .map(|name| format!("`{name}`"))
                    .collect();
                if !missed.is_empty() {
                    let range = test.place(pipeline, &[Segment::from("expect")]);
                    let message = format!("what is expected of {} never came", missed.join(", "));
                    let mut failure = Failure::new(range, message);
                    failure.notes.push(format!("`{}` failed before: {failed}", node.name));
                    verdict.failures.push(failure);
                }
                break;
            }
        }
    }
    verdict.notices = std::mem::take(&mut *notices.0.lock().unwrap_or_else(PoisonError::into_inner));
    verdict
}

/// Keeps what nodes want a person to see.
#[derive(Default)]
struct Notices(Mutex<Vec<String>>);

impl Observer for Notices {
    fn progress(&self, _: &str, _: &str, _: u64, _: u64) {}

    fn notice(&self, node: &str, text: &str) {
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notices.push(format!("`{node}`: {text}"));
    }
}
