//! `sampler`: draws rows of a data set, epoch after epoch, shuffled anew in each.

use std::num::NonZeroU32;
use std::sync::Arc;

use rlpipe_core::data::{Permutation, Row, Seed};
use rlpipe_core::document::PathText;
use rlpipe_core::kind::{
    Contract, DatasetSource, Fraction, NodeConfig, Output, OverLong, PortType, Role, Source, Stage, StageError,
};
use rlpipe_core::services::{Rows, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Draws prompts from a data set.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplerConfig {
    /// Where the rows are.
    dataset: DatasetConfig,
    /// Whether each epoch goes through the rows in a new order, drawn from the run's seed.
    #[serde(default = "yes")]
    shuffle: bool,
    /// Responses that each prompt gets: the size of a group. Estimators that compare within a group need at least 2.
    #[serde(default = "one")]
    samples_per_prompt: NonZeroU32,
    /// Longest prompt, in tokens. Left out, the engine's context is the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_prompt_tokens: Option<NonZeroU32>,
    /// What happens to a longer prompt: `skip` leaves the row out and counts it, `error` refuses to run.
    #[serde(default)]
    over_long: OverLong,
}

/// A file of rows.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetConfig {
    /// A JSONL file, a row a line: `prompt` (a text or a list of messages), and as needed `data_source`,
    /// `reward_model.ground_truth` and `answer`.
    path: PathText,
    /// Leading share of the rows that is used.
    #[serde(default = "all")]
    sample_ratio: Fraction,
}

fn yes() -> bool {
    true
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

fn all() -> Fraction {
    Fraction::new(1.0).unwrap_or_else(|| unreachable!("1 is a fraction"))
}

impl NodeConfig for SamplerConfig {
    const KIND: &'static str = "sampler";
    const SUMMARY: &'static str = "Draws prompts from a data set.";
    const EXAMPLE: &'static str = "\
type: sampler
dataset: { path: train.jsonl }
shuffle: true
samples_per_prompt: 8
max_prompt_tokens: 512
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: Vec::new(),
            outputs: vec![
                Output::new("prompts", PortType::Prompts),
                Output::new("examples", PortType::Examples),
            ],
            uses: Vec::new(),
            role: Role::Sampler {
                dataset: DatasetSource {
                    path: self.dataset.path.as_path().to_owned(),
                    sample_ratio: self.dataset.sample_ratio.get(),
                },
                samples_per_prompt: self.samples_per_prompt.get(),
                max_prompt_tokens: self.max_prompt_tokens.map(NonZeroU32::get),
                over_long: self.over_long,
            },
        }
    }

    fn build(&self, node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        let rows = services.rows(node)?;
        Ok(Stage::Source(Arc::new(Sampler {
            seed: self.shuffle.then(|| services.seed().named(node)),
            samples_per_prompt: self.samples_per_prompt.get(),
            rows,
        })))
    }
}

struct Sampler {
    rows: Arc<dyn Rows>,
    samples_per_prompt: u32,
    /// None: as they are in the file.
    seed: Option<Seed>,
}

impl Source for Sampler {
    fn rows(&self) -> u64 {
        self.rows.count()
    }

    fn row(&self, position: u64) -> Result<Arc<Row>, StageError> {
        let (epoch, place) = (position / self.rows(), position % self.rows());
        let index = match self.seed {
            Some(seed) => Permutation::new(self.rows(), seed.with(epoch)).at(place),
            None => place,
        };
        Ok(self.rows.row(index)?)
    }

    fn data_sources(&self) -> &[String] {
        self.rows.data_sources()
    }

    fn samples_per_prompt(&self) -> u32 {
        self.samples_per_prompt
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sampler(rows: u64, seed: Option<Seed>) -> Sampler {
        let rows: Vec<_> = (0..rows).map(|line| Arc::new(Row { line, ..Row::default() })).collect();
        Sampler {
            rows: Arc::new(rows),
            samples_per_prompt: 1,
            seed,
        }
    }

    fn lines(sampler: &Sampler, positions: std::ops::Range<u64>) -> Vec<u64> {
        positions.map(|position| sampler.row(position).unwrap().line).collect()
    }

    #[test]
    fn every_epoch_has_every_row_once_in_another_order() {
        let sampler = sampler(50, Some(Seed::run(1)));
        let (first, second) = (lines(&sampler, 0..50), lines(&sampler, 50..100));
        assert_ne!(first, second);
        for mut epoch in [first, second] {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_row_depends_on_its_position_alone() {
        let straight = lines(&sampler(7, Some(Seed::run(5))), 0..30);
        let resumed = sampler(7, Some(Seed::run(5)));
        assert_eq!(lines(&resumed, 17..30), straight[17..]);
        assert_eq!(lines(&resumed, 3..9), straight[3..9]);
    }

    #[test]
    fn unshuffled_rows_come_as_they_are() {
        assert_eq!(lines(&sampler(3, None), 0..7), [0, 1, 2, 0, 1, 2, 0]);
    }
}
