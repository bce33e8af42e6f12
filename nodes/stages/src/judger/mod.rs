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
    Choice, Contract, Field, GroupStage, Input, NodeConfig, Output, PortType, Role, Stage, StageError, Use,
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
            uses: self.pool.iter().map(|pool| Use::pool(pool)).collect(),
            role: Role::Judger {
                needs_ground_truth: true,
                sources: None,
                commands: Vec::new(),
            },
        }
    }

    fn build(&self, _node: &str, _services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Groups(Arc::new(Judger {
            judge: *self.judge,
            on_error: self.on_error,
        })))
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
        Score {
            reward: Some(f64::from(u8::from(right))),
            parsed,
            ..Score::default()
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rlpipe_core::data::{FinishReason, Rollout, Row, Seed};
    use rlpipe_core::services::Observer;

    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn progress(&self, _node: &str, _what: &str, _done: u64, _total: u64) {}

        fn notice(&self, _node: &str, _text: &str) {}
    }

    fn rollout(response: &str, status: Status) -> Rollout {
        Rollout {
            response_ids: vec![1],
            logprobs: vec![-0.5],
            mask: vec![true],
            policy_version: Vec::new(),
            temperature: 1.0,
            response: response.to_owned(),
            score: None,
            advantage: None,
            reference_logprobs: None,
            status,
            finish_reason: FinishReason::Stop,
        }
    }

    async fn judge(on_error: OnError, ground_truth: Option<&str>, statuses: &[Status]) -> Result<Verdict, StageError> {
        let row = Row {
            line: 9,
            ground_truth: ground_truth.map(str::to_owned),
            ..Row::default()
        };
        let rollouts = statuses.iter().map(|status| rollout("it is 7", *status)).collect();
        let group = Group {
            id: 3,
            sampler: "prompts".into(),
            row: Arc::new(row),
            rollouts,
        };
        let context = Context {
            node: "scored".into(),
            step: 1,
            total_steps: 2,
            seed: Seed::run(1),
            observer: Arc::new(Nobody),
        };
        Judger {
            judge: Judge::Number(number::Number {}),
            on_error,
        }
        .process(group, &context)
        .await
    }

    #[tokio::test]
    async fn what_cannot_be_judged_is_never_a_reward() {
        let cut = [Status::Completed, Status::Aborted];
        for (ground_truth, statuses, why) in [
            (None, &cut[..1], "line 9 of the data has no ground truth"),
            (Some("7"), &cut[..], "a response is Aborted"),
        ] {
            let error = judge(OnError::Fail, ground_truth, statuses)
                .await
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("`scored`: ") && error.contains(why), "{error}");

            match judge(OnError::DropGroup, ground_truth, statuses).await.unwrap() {
                Verdict::Drop(group, DropReason::Failed(reason)) => {
                    assert!(reason.contains(why), "{reason}");
                    assert_eq!(group.rollouts.len(), statuses.len());
                }
                other => panic!("{other:?}"),
            }

            match judge(OnError::Abstain, ground_truth, statuses).await.unwrap() {
                Verdict::Keep(group) => {
                    let last = group.rollouts.last().unwrap();
                    assert_eq!((last.reward(), last.score.is_some()), (None, true));
                    let wanted: Vec<f64> = if statuses.len() > 1 { vec![1.0] } else { Vec::new() };
                    assert_eq!(group.rewards(), wanted, "the others are judged");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
