//! `judger`: gives each response a reward.
//!
//! Each judge is a file with one function of response and ground truth. All of them only match text, in linear time,
//! and so run in the driver.

mod exact;
mod gsm8k;
mod number;

use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{DropReason, Group, Score, Status, Verdict};
use rlpipe_core::kind::{
    Choice, Contract, Field, GroupStage, Input, NodeConfig, Output, PortType, Role, Stage, StageError, Target, Use,
};
use rlpipe_core::services::{Context, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Gives each response a reward.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgerConfig {
    /// How responses are judged.
    judge: Choice<Judge>,
    /// The pool it runs in. Judges that only match text run in the driver and need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// What happens where a response cannot be judged: `fail` ends the run, `drop_group` counts the group as failed and
    /// asks for another, `abstain` leaves the response out of training. An error is never a reward of 0.
    #[serde(default)]
    on_error: OnError,
}

/// How responses are judged.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
    /// 1 where the last whole number in the response is the ground truth, else 0.
    Number(number::Number),
    /// 1 where the response, without white space around it, is the ground truth, else 0.
    Exact(exact::Exact),
    /// 1 where the number after the last `####` is the ground truth, else 0, as GSM8K is scored.
    Gsm8k(gsm8k::Gsm8k),
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
        Contract {
            inputs: vec![Input::one("groups", PortType::Groups).needs(&[Field::Tokens])],
            outputs: vec![Output::new("groups", PortType::Groups).adds(&[Field::Reward, Field::Parsed])],
            uses: self
                .pool
                .iter()
                .map(|pool| Use { key: "pool", name: pool.clone(), target: Target::Pool })
                .collect(),
            role: Role::Judger { needs_ground_truth: true },
        }
    }

    fn build(&self, _node: &str, _services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Groups(Arc::new(Judger { judge: *self.judge, on_error: self.on_error })))
    }
}

struct Judger {
    judge: Judge,
    on_error: OnError,
}

impl Judge {
    /// Reward 1 or 0, and the answer as it was found.
    fn score(&self, response: &str, ground_truth: &str) -> Score {
        let parsed = match self {
            Self::Number(_) => number::parse(response),
            Self::Exact(_) => Some(exact::parse(response)),
            Self::Gsm8k(judge) => gsm8k::parse(response, judge.extract),
        };
        let right = parsed.as_deref() == Some(ground_truth.trim());
        Score { reward: Some(f64::from(u8::from(right))), parsed }
    }
}

#[async_trait]
impl GroupStage for Judger {
    async fn process(&self, mut group: Group, context: &Context) -> Result<Verdict, StageError> {
        let row = group.row.clone();
        for rollout in &mut group.rollouts {
            let error = match (&row.ground_truth, rollout.status) {
                (Some(ground_truth), Status::Completed) => {
                    rollout.score = Some(self.judge.score(&rollout.response, ground_truth));
                    continue;
                }
                (None, _) => format!("`{}`: line {} of the data has no ground truth", context.node, row.line),
                (_, status) => format!("`{}`: a response is {status:?}, not completed", context.node),
            };
            match self.on_error {
                OnError::Fail => return Err(StageError(error)),
                OnError::DropGroup => return Ok(Verdict::Drop(group, DropReason::Failed(error))),
                OnError::Abstain => rollout.score = Some(Score::default()),
            }
        }
        Ok(Verdict::Keep(group))
    }

    fn judges(&self) -> bool {
        true
    }
}
