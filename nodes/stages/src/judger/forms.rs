//! How a pipeline may say to judge.
//!
//! A route leads to judges that are no routes, a weighted sum is of judges that are no sums: what is nested has an end,
//! so that schema and reference have one too.

use rlpipe_core::kind::{Truth, TruthForm};
use rlpipe_core::services::JudgeCommand;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::combined::{Route, WeightedSum};
use super::command::Command;
use super::{exact, gsm8k, number};

/// Any of the forms.
pub enum Form<'a> {
    /// Matches text.
    Text(Text),
    /// A program.
    Command(&'a Command),
    /// The sum of several.
    WeightedSum(&'a WeightedSum),
    /// Another for each source of data.
    Route(&'a Route),
}

/// Judges that match text.
#[derive(Debug, Clone, Copy)]
pub enum Text {
    Number,
    Exact,
    Gsm8k(gsm8k::Gsm8k),
}

macro_rules! judges {
    ($(#[$doc:meta])* $name:ident { $($(#[$more_doc:meta])* $more:ident($settings:ty),)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            /// 1 where the last whole number in the response is the ground truth, else 0.
            Number(number::Number),
            /// 1 where the response, without white space around it, is the ground truth, else 0.
            Exact(exact::Exact),
            /// 1 where the number after the last `####` is the ground truth, else 0, as GSM8K is scored.
            Gsm8k(gsm8k::Gsm8k),
            /// A program of your own, in any language: a process that reads and writes lines of JSON.
            Command(Command),
            $($(#[$more_doc])* $more($settings),)*
        }

        impl $name {
            /// What it is.
            pub fn form(&self) -> Form<'_> {
                match self {
                    Self::Number(_) => Form::Text(Text::Number),
                    Self::Exact(_) => Form::Text(Text::Exact),
                    Self::Gsm8k(gsm8k) => Form::Text(Text::Gsm8k(*gsm8k)),
                    Self::Command(command) => Form::Command(command),
                    $(Self::$more(settings) => Form::$more(settings),)*
                }
            }
        }
    };
}

judges! {
    /// How responses are judged.
    Judge {
        /// The sum of what several judges say, each times its weight, such as
        /// `{ right: { judge: gsm8k, weight: 0.9 }, form: { judge: { command: { ... } }, weight: 0.1 } }`. Where one of
        /// them abstains there is no reward. What each says is kept as a part of the reward.
        #[schemars(example = serde_json::json!({ "weighted_sum": { "right": { "judge": "gsm8k", "weight": 0.9 }, "same": { "judge": "exact", "weight": 0.1 } } }))]
        WeightedSum(WeightedSum),
        /// Another judge for each `data_source` of the rows, such as `{ gsm8k: gsm8k, math: { command: { ... } } }`.
        #[schemars(example = serde_json::json!({ "route": { "gsm8k": "gsm8k", "sums": "number" } }))]
        Route(Route),
    }
}
judges! {
    /// How the responses to rows of one source are judged.
    SourceJudge {
        /// The sum of what several judges say, each times its weight, such as
        /// `{ right: { judge: gsm8k, weight: 0.9 }, form: { judge: { command: { ... } }, weight: 0.1 } }`. Where one of
        /// them abstains there is no reward. What each says is kept as a part of the reward.
        #[schemars(example = serde_json::json!({ "weighted_sum": { "right": { "judge": "gsm8k", "weight": 0.9 }, "same": { "judge": "exact", "weight": 0.1 } } }))]
        WeightedSum(WeightedSum),
    }
}
judges! {
    /// One judge of a sum.
    PartJudge {}
}

impl Form<'_> {
    /// Rows that it cannot judge without a ground truth.
    pub fn truths(&self) -> Vec<Truth> {
        let all = |form| vec![Truth { source: None, form }];
        match self {
            Self::Text(Text::Number) => all(TruthForm::WholeNumber),
            Self::Text(Text::Gsm8k(_)) => all(TruthForm::Number),
            Self::Text(Text::Exact) => all(TruthForm::Text),
            Self::Command(_) => Vec::new(),
            Self::WeightedSum(sum) => sum.parts().flat_map(|(_, part)| part.judge.form().truths()).collect(),
            Self::Route(route) => route
                .judges()
                .flat_map(|(source, judge)| {
                    judge.form().truths().into_iter().map(|truth| Truth {
                        source: Some(source.to_owned()),
                        ..truth
                    })
                })
                .collect(),
        }
    }

    /// The least and the most reward that it gives; none where a program says.
    pub fn reward_range(&self) -> Option<(f64, f64)> {
        match self {
            Self::Text(_) => Some((0.0, 1.0)),
            Self::Command(_) => None,
            Self::WeightedSum(sum) => sum.parts().try_fold((0.0, 0.0), |(low, high), (_, part)| {
                let weight = part.weight.get();
                if weight == 0.0 {
                    return Some((low, high));
                }
                let (least, most) = part.judge.form().reward_range()?;
                let ends = [weight * least, weight * most];
                Some((low + ends[0].min(ends[1]), high + ends[0].max(ends[1])))
            }),
            Self::Route(route) => {
                let mut ranges = route.judges().map(|(_, judge)| judge.form().reward_range());
                ranges.try_fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), range| {
                    let (least, most) = range?;
                    Some((low.min(least), high.max(most)))
                })
            }
        }
    }

    /// Whether a reward is one of the ends of the range, and nothing between.
    pub fn rewards_are_ends(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Command(_) => false,
            Self::WeightedSum(sum) => {
                let mut counted = sum.parts().filter(|(_, part)| part.weight.get() != 0.0);
                let first = counted.next();
                counted.next().is_none() && first.is_none_or(|(_, part)| part.judge.form().rewards_are_ends())
            }
            Self::Route(route) => {
                // A route over sums with other ends gives more than two rewards.
                let range = self.reward_range();
                let mut judges = route.judges().map(|(_, judge)| judge.form());
                judges.all(|form| form.rewards_are_ends() && form.reward_range() == range)
            }
        }
    }

    /// The weights of its sums; `keys` is where it stands in the node.
    pub fn weights(&self, keys: &[&str]) -> Vec<(Vec<String>, f64)> {
        match self {
            Self::Text(_) | Self::Command(_) => Vec::new(),
            Self::WeightedSum(sum) => sum
                .parts()
                .map(|(name, part)| {
                    let keys = [keys, &["weighted_sum", name, "weight"]].concat();
                    (keys.into_iter().map(str::to_owned).collect(), part.weight.get())
                })
                .collect(),
            Self::Route(route) => route
                .judges()
                .flat_map(|(source, judge)| judge.form().weights(&[keys, &["route", source]].concat()))
                .collect(),
        }
    }

    /// The sources that it has judges for; none: all.
    pub fn sources(&self) -> Option<Vec<String>> {
        match self {
            Self::Route(route) => Some(route.judges().map(|(source, _)| source.to_owned()).collect()),
            _ => None,
        }
    }

    /// Its programs; `keys` is where it stands in the node.
    pub fn commands(&self, keys: &[&str]) -> Vec<JudgeCommand> {
        match self {
            Self::Text(_) => Vec::new(),
            Self::Command(command) => vec![command.described(keys)],
            Self::WeightedSum(sum) => sum
                .parts()
                .flat_map(|(name, part)| {
                    let keys = [keys, &["weighted_sum", name, "judge"]].concat();
                    part.judge.form().commands(&keys)
                })
                .collect(),
            Self::Route(route) => route
                .judges()
                .flat_map(|(source, judge)| judge.form().commands(&[keys, &["route", source]].concat()))
                .collect(),
        }
    }
}
