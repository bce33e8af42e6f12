//! Groups on their way through the nodes of a test.

use std::sync::Arc;

use futures::future::try_join_all;
use rlpipe_core::data::{Batch, DropReason, Group, Metrics, Verdict};
use rlpipe_core::kind::{AnyConfig, Stage};
use rlpipe_core::services::{Context, Services};

use crate::compile::{Feeds, Pipeline, Test, carried};
use crate::schedule::{mark_dropped, metrics_of};

/// What came out of a node.
#[derive(Default)]
pub struct Came {
    /// What goes on; of a buffer and what is behind it, the groups of the step.
    pub groups: Vec<Group>,
    /// What does not, with why.
    pub dropped: Vec<(Group, DropReason)>,
    /// Numbers of what goes on.
    pub metrics: Metrics,
    /// Why nothing came at all, where nothing did.
    pub nothing: Option<String>,
    /// Groups that were dropped here and before.
    lost: usize,
}

/// The nodes of a test, as far as they have run.
pub struct Flow<'a> {
    pipeline: &'a Pipeline,
    test: &'a Test,
    feeds: Feeds,
    services: &'a dyn Services,
    context: Context,
    /// By the index of the node.
    came: Vec<Came>,
}

impl<'a> Flow<'a> {
    pub fn new(
        pipeline: &'a Pipeline,
        test: &'a Test,
        feeds: Feeds,
        services: &'a dyn Services,
        context: Context,
    ) -> Self {
        Self {
            pipeline,
            test,
            feeds,
            services,
            context,
            came: pipeline.nodes.iter().map(|_| Came::default()).collect(),
        }
    }

    /// What came out of a node that has run.
    pub fn came(&self, index: usize) -> &Came {
        &self.came[index]
    }

    /// Runs a node on what has come to it. The error is that of the node: a run would end with it.
    pub async fn pass(&mut self, index: usize) -> Result<(), String> {
        let node = &self.pipeline.nodes[index];
        let mut inputs: Vec<Vec<Group>> = Vec::new();
        let (mut lost, mut nothing) = (0, None);
        match self.feeds.remove(&node.name) {
            Some(groups) => inputs.push(groups),
            None => {
                for endpoint in carried(node) {
                    let before = &self.came[endpoint.node];
                    inputs.push(before.groups.clone());
                    lost += before.lost;
                    nothing = nothing.or_else(|| before.nothing.clone());
                }
            }
        }
        if nothing.is_some() {
            self.came[index].nothing = nothing;
            return Ok(());
        }
        // Responses that are given as texts have none.
        let mut rollouts = inputs.iter().flatten().flat_map(|group| &group.rollouts);
        let has_tokens = rollouts.any(|rollout| !rollout.response_ids.is_empty());
        let context = Context {
            node: Arc::from(node.name.as_str()),
            ..self.context.clone()
        };
        if let Some(why) = self.test.passes_over(node) {
            let groups = inputs.into_iter().flatten().collect();
            self.came[index] = of_batch(Batch { groups }, Metrics::default());
            self.came[index].lost = lost;
            context.observer.notice(
                &node.name,
                &format!("passed over: it {why}, and adds nothing that is needed here"),
            );
            return Ok(());
        }
        let mut came = match self.stage(index)? {
            Stage::Groups(stage) => {
                let groups = inputs.into_iter().flatten();
                let verdicts = try_join_all(groups.map(|group| stage.process(group, &context))).await;
                of_verdicts(verdicts.map_err(|error| error.to_string())?)
            }
            Stage::Buffer(mut buffer) => {
                let mut held = 0;
                for (input, groups) in inputs.into_iter().enumerate() {
                    held += groups.len();
                    groups.into_iter().for_each(|group| buffer.put(input, group));
                }
                match buffer.take() {
                    Some(batch) => of_batch(batch, Metrics::default()),
                    None => Came {
                        nothing: Some(short(&node.name, held, buffer.prompts_per_step())),
                        ..Came::default()
                    },
                }
            }
            Stage::Batch(stage) => {
                let batch = Batch {
                    groups: inputs.into_iter().flatten().collect(),
                };
                let (batch, metrics) = stage
                    .process(batch, &context)
                    .await
                    .map_err(|error| error.to_string())?;
                of_batch(batch, metrics)
            }
            Stage::Evaluator(stage) => {
                let groups: Vec<Group> = inputs.into_iter().flatten().collect();
                Came {
                    metrics: stage.evaluate(&groups, lost),
                    ..Came::default()
                }
            }
            // The compiler has told of it.
            _ => return Err("it cannot be run in a test".to_owned()),
        };
        came.lost = lost + came.dropped.len();
        if !has_tokens {
            // A length of 0 would look like one that was measured.
            came.metrics.0.retain(|name, _| !name.starts_with("response_len/"));
        }
        self.came[index] = came;
        Ok(())
    }

    fn stage(&self, index: usize) -> Result<Stage, String> {
        let node = &self.pipeline.nodes[index];
        let own = match self.test.own_config(self.pipeline, node) {
            Some(config) => Some(config.map_err(|_| "its settings in this test have faults".to_owned())?),
            None => None,
        };
        let config: &dyn AnyConfig = own
            .as_deref()
            .or(node.config.as_deref())
            .ok_or("its settings have faults")?;
        config
            .build(&node.name, self.services)
            .map_err(|error| error.to_string())
    }
}

fn short(buffer: &str, held: usize, wanted: usize) -> String {
    let groups = if held == 1 {
        "1 group".to_owned()
    } else {
        format!("{held} groups")
    };
    let settings = if held > 0 {
        format!("; `settings: {{ {buffer}: {{ prompts_per_step: {held} }} }}` makes them a step of this test")
    } else {
        String::new()
    };
    format!("`{buffer}` got {groups}, and gives a step of {wanted}{settings}")
}

fn of_verdicts(verdicts: Vec<Verdict>) -> Came {
    let mut came = Came::default();
    for verdict in verdicts {
        match verdict {
            Verdict::Keep(group) => came.groups.push(group),
            Verdict::Drop(mut group, reason) => {
                mark_dropped(&mut group, &reason);
                came.dropped.push((group, reason));
            }
        }
    }
    came.metrics = metrics_of(&came.groups, &came.dropped);
    came
}

fn of_batch(batch: Batch, metrics: Metrics) -> Came {
    let mut all = metrics_of(&batch.groups, &[]);
    all.extend(metrics);
    Came {
        groups: batch.groups,
        metrics: all,
        ..Came::default()
    }
}
