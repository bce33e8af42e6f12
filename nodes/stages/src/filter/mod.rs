//! `filter`: keeps groups back that would teach nothing; the step asks for others in their place.

use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{DropReason, Group, Verdict, mean};
use rlpipe_core::kind::{
    Choice, Contract, Field, Finite, GroupStage, Input, Keeps, NodeConfig, NonNegative, Output, PortType, Role, Stage,
    StageError,
};
use rlpipe_core::services::{Context, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps groups back.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// Which groups go on.
    keep: Choice<Keep>,
    /// Rounds of asking for other groups in one step, each for as many as are still missing.
    #[serde(default = "four")]
    max_refill: u32,
    /// When those are used up: `fail` ends the run and says why groups were kept back; `fill` completes the step with
    /// groups that were kept back, the last first, and counts them.
    #[serde(default)]
    when_exhausted: WhenExhausted,
}

/// Which groups go on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Groups whose rewards differ: where all are equal, a group-relative advantage is zero.
    SpreadReward(SpreadReward),
    /// Groups whose mean reward lies within bounds: prompts that are neither too easy nor too hard.
    MeanReward(MeanReward),
}

/// Settings of `spread_reward`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpreadReward {
    /// The largest reward less the smallest must be above this.
    above: NonNegative,
}

/// Settings of `mean_reward`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MeanReward {
    /// The mean must be at least this. Left out, there is no lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<Finite>,
    /// The mean must be at most this. Left out, there is no upper bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Finite>,
}

impl Keep {
    fn keeps(self) -> Keeps {
        match self {
            Self::SpreadReward(spread) => Keeps::Spread {
                above: spread.above.get(),
            },
            Self::MeanReward(bounds) => Keeps::Mean {
                min: bounds.min.map_or(f64::NEG_INFINITY, Finite::get),
                max: bounds.max.map_or(f64::INFINITY, Finite::get),
            },
        }
    }
}

/// What happens when no refill is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenExhausted {
    /// The run ends.
    #[default]
    Fail,
    /// Groups that were kept back complete the step.
    Fill,
}

fn four() -> u32 {
    4
}

impl NodeConfig for FilterConfig {
    const KIND: &'static str = "filter";
    const SUMMARY: &'static str = "Keeps groups back that would teach nothing.";
    const EXAMPLE: &'static str = "\
type: filter
inputs: { groups: scored }
keep: spread_reward
max_refill: 4
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![Input::one("groups", PortType::Groups).needs(&[Field::Reward])],
            outputs: vec![Output::new("groups", PortType::Groups)],
            uses: Vec::new(),
            role: Role::Filter {
                keeps: self.keep.keeps(),
                max_refill: self.max_refill,
                fill: self.when_exhausted == WhenExhausted::Fill,
            },
        }
    }

    fn build(&self, _node: &str, _services: &dyn Services) -> Result<Stage, ServiceError> {
        Ok(Stage::Groups(Arc::new(Filter {
            keeps: self.keep.keeps(),
        })))
    }
}

struct Filter {
    keeps: Keeps,
}

#[async_trait]
impl GroupStage for Filter {
    async fn process(&self, group: Group, _context: &Context) -> Result<Verdict, StageError> {
        Ok(match reason(self.keeps, &group.rewards()) {
            None => Verdict::Keep(group),
            Some(reason) => Verdict::Drop(group, DropReason::Filtered(reason)),
        })
    }
}

/// Why a group with these rewards is kept back, if it is.
fn reason(keeps: Keeps, rewards: &[f64]) -> Option<String> {
    let Some(first) = rewards.first() else {
        return Some("no rollout has a reward".to_owned());
    };
    match keeps {
        Keeps::Spread { above } => {
            let low = rewards.iter().copied().fold(f64::INFINITY, f64::min);
            let high = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match high - low {
                spread if spread > above => None,
                0.0 => Some(format!("all rewards are {first}")),
                _ => Some(format!("rewards differ by no more than {above}")),
            }
        }
        Keeps::Mean { min, max } => match mean(rewards) {
            mean if mean < min => Some(format!("the mean reward is below {min}")),
            mean if mean > max => Some(format!("the mean reward is above {max}")),
            _ => None,
        },
    }
}
