//! Judges as they run.

use async_trait::async_trait;
use rlpipe_core::data::{Group, Score};
use rlpipe_core::services::{Context, ServiceError, Services};

use super::combined::{BySource, Sum, SummedJudge};
use super::command::Program;
use super::forms::{Form, Text};
use super::{exact, gsm8k, number};

/// Responses to be judged.
pub struct Asked<'a> {
    /// The group that they are in.
    pub group: &'a Group,
    /// Which of its rollouts, in order.
    pub rollouts: Vec<usize>,
    /// When and for which node.
    pub context: &'a Context,
}

/// A judge, ready to be asked.
#[async_trait]
pub trait Judging: Send + Sync {
    /// Of each rollout that is asked for, a score or why there is none. An error of the whole ends the run.
    async fn score(&self, asked: &Asked<'_>) -> Result<Vec<Result<Score, String>>, ServiceError>;
}

/// Makes a judge; `keys` is where it stands in the node.
pub fn build(
    form: Form<'_>,
    keys: &[&str],
    node: &str,
    services: &dyn Services,
) -> Result<Box<dyn Judging>, ServiceError> {
    Ok(match form {
        Form::Text(text) => Box::new(text),
        Form::Command(command) => Box::new(Program(services.command_judge(node, &command.described(keys))?)),
        Form::WeightedSum(sum) => {
            let parts = sum.parts().map(|(name, part)| {
                let keys = [keys, &["weighted_sum", name, "judge"]].concat();
                Ok(SummedJudge {
                    name: name.to_owned(),
                    weight: part.weight.get(),
                    judge: build(part.judge.form(), &keys, node, services)?,
                })
            });
            Box::new(Sum(parts.collect::<Result<_, ServiceError>>()?))
        }
        Form::Route(route) => {
            let judges = route.judges().map(|(source, judge)| {
                let keys = [keys, &["route", source]].concat();
                Ok((source.to_owned(), build(judge.form(), &keys, node, services)?))
            });
            Box::new(BySource(judges.collect::<Result<_, ServiceError>>()?))
        }
    })
}

impl Text {
    /// Reward 1 or 0, and the answer as it was found.
    fn judge(self, response: &str, ground_truth: &str) -> Score {
        let parsed = match self {
            Self::Number => number::parse(response),
            Self::Exact => Some(exact::parse(response)),
            Self::Gsm8k(judge) => gsm8k::parse(response, judge.extract),
        };
        let ground_truth = match self {
            // Rows of GSM8K as they are published have `1,234`.
            Self::Gsm8k(_) => ground_truth.trim().replace(',', ""),
            _ => ground_truth.trim().to_owned(),
        };
        let right = parsed.as_ref() == Some(&ground_truth);
        Score {
            reward: Some(f64::from(u8::from(right))),
            parsed,
            ..Score::default()
        }
    }
}

#[async_trait]
impl Judging for Text {
    async fn score(&self, asked: &Asked<'_>) -> Result<Vec<Result<Score, String>>, ServiceError> {
        let row = &asked.group.row;
        let score = |index: &usize| match &row.ground_truth {
            Some(ground_truth) => Ok(self.judge(&asked.group.rollouts[*index].response, ground_truth)),
            None => Err(format!("line {} of the data has no ground truth", row.line)),
        };
        Ok(asked.rollouts.iter().map(score).collect())
    }
}
