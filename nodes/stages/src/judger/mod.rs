//! `judger`: gives each response a reward.
//!
//! `forms` is what a pipeline may say; `judging` makes of it something that runs. Judges that only match text do so in
//! linear time, in the driver; others are programs of their own.

mod combined;
mod command;
mod exact;
mod forms;
mod gsm8k;
mod judging;
mod number;

use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{DropReason, Group, Score, Status, Verdict};
use rlpipe_core::kind::{
    Choice, Contract, Field, GroupStage, Input, NodeConfig, Output, PortType, Role, Stage, StageError, Use,
};
use rlpipe_core::services::{Context, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use forms::Judge;
use judging::{Asked, Judging, build};

/// Gives each response a reward.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgerConfig {
    /// How responses are judged.
    judge: Choice<Judge>,
    /// The pool that programs run in: as many processes of each as the pool has workers; left out, one. Judges that only
    /// match text run in the driver and need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// What happens where a response cannot be judged: `fail` ends the run, `drop_group` counts the group as failed and
    /// asks for another, `abstain` leaves the response out of training. An error is never a reward of 0.
    #[serde(default)]
    on_error: OnError,
}

/// What happens where a response cannot be judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The run ends.
    #[default]
    Fail,
    /// The group is counted as failed, and another asked for.
    DropGroup,
    /// The response is not trained.
    Abstain,
}

impl NodeConfig for JudgerConfig {
    const KIND: &'static str = "judger";
    const SUMMARY: &'static str = "Gives each response a reward.";
    const EXAMPLE: &'static str = "\
type: judger
inputs: { groups: answers }
judge: gsm8k
";

    fn contract(&self) -> Contract {
        let form = self.judge.form();
        Contract {
            inputs: vec![Input::one("groups", PortType::Groups).needs(&[Field::Tokens])],
            outputs: vec![Output::new("groups", PortType::Groups).adds(&[Field::Reward, Field::Parsed])],
            uses: self.pool.iter().map(|pool| Use::pool(pool)).collect(),
            role: Role::Judger {
                truths: form.truths(),
                sources: form.sources(),
                commands: form.commands(&["judge"]),
                errors_are_fatal: self.on_error == OnError::Fail,
                reward_range: form.reward_range(),
                rewards_are_ends: form.rewards_are_ends(),
                weights: form.weights(&["judge"]),
            },
        }
    }

    fn build(&self, node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Groups(Arc::new(Judger {
            judge: build(self.judge.form(), &["judge"], node, services)?,
            on_error: self.on_error,
        })))
    }
}

struct Judger {
    judge: Box<dyn Judging>,
    on_error: OnError,
}

#[async_trait]
impl GroupStage for Judger {
    async fn process(&self, mut group: Group, context: &Context) -> Result<Verdict, StageError> {
        let scores = {
            let is_whole = |index: &usize| group.rollouts[*index].status == Status::Completed;
            let asked = Asked {
                group: &group,
                rollouts: (0..group.rollouts.len()).filter(is_whole).collect(),
                context,
            };
            let scores = self.judge.score(&asked).await?;
            asked.rollouts.into_iter().zip(scores).collect::<Vec<_>>()
        };
        let mut scores = scores.into_iter().peekable();
        for (index, rollout) in group.rollouts.iter_mut().enumerate() {
            let error = match scores.next_if(|(of, _)| *of == index) {
                Some((_, Ok(score))) => {
                    rollout.score = Some(score);
                    continue;
                }
                Some((_, Err(error))) => error,
                None => format!("a response is {:?}, not completed", rollout.status),
            };
            let error = format!("`{}`: {error}", context.node);
            match self.on_error {
                OnError::Fail => return Err(StageError(error)),
                OnError::DropGroup => return Ok(Verdict::Drop(group, DropReason::Failed(error))),
                OnError::Abstain => {
                    rollout.score = Some(Score {
                        error: Some(error),
                        ..Score::default()
                    });
                }
            }
        }
        Ok(Verdict::Keep(group))
    }

    fn judges(&self) -> bool {
        true
    }
}
