//! `filter`: keeps groups back that would teach nothing; the step asks for others in their place.

use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{DropReason, Group, Verdict};
use rlpipe_core::kind::{
    Choice, Contract, Field, GroupStage, Input, NodeConfig, NonNegative, Output, PortType, Role, Stage, StageError,
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
}

/// Settings of `spread_reward`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpreadReward {
    /// The largest reward less the smallest must be above this.
    above: NonNegative,
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
                max_refill: self.max_refill,
                fill: self.when_exhausted == WhenExhausted::Fill,
            },
        }
    }

    fn build(&self, _node: &str, _services: &dyn Services) -> Result<Stage, ServiceError> {
        let Keep::SpreadReward(keep) = *self.keep;
        Ok(Stage::Groups(Arc::new(Filter {
            above: keep.above.get(),
        })))
    }
}

struct Filter {
    above: f64,
}

#[async_trait]
impl GroupStage for Filter {
    async fn process(&self, group: Group, _context: &Context) -> Result<Verdict, StageError> {
        let rewards = group.rewards();
        let (low, high) = rewards
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), reward| {
                (low.min(*reward), high.max(*reward))
            });
        if high - low > self.above {
            return Ok(Verdict::Keep(group));
        }
        let reason = match rewards.first() {
            Some(_) if high > low => format!("rewards differ by no more than {}", self.above),
            Some(reward) => format!("all rewards are {reward}"),
            None => "no rollout has a reward".to_owned(),
        };
        Ok(Verdict::Drop(group, DropReason::Filtered(reason)))
    }
}
