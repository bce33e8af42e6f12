//! `sampler`: draws rows of data sets, epoch after epoch, shuffled anew in each.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use rlpipe_core::data::{Permutation, Row, Seed};
use rlpipe_core::document::PathText;
use rlpipe_core::kind::{
    Contract, DatasetFormat, DatasetSource, NodeConfig, Output, OverLong, PortType, Positive, Role, RowMap, Source,
    Stage, StageError,
};
use rlpipe_core::services::{Rows, ServiceError, Services};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Draws prompts from data sets.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplerConfig {
    /// Where the rows are. Of `dataset` and `datasets`, one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dataset: Option<DatasetConfig>,
    /// Several data sets by name, drawn from as if they were one. The name is the `data_source` of rows that have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(example = serde_json::json!({ "gsm8k": { "path": "gsm8k.jsonl" }, "sums": { "path": "sums.jsonl", "sample_ratio": 0.5 } }))]
    datasets: BTreeMap<String, DatasetConfig>,
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

/// Rows of one form.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetConfig {
    /// A file of JSON lines or a Parquet file, or a folder of `*.jsonl` and `*.parquet` files, taken in the order of
    /// their names. A row has `prompt` (a text or a list of messages), and as needed `data_source`,
    /// `reward_model.ground_truth` and `answer`; `map` makes these out of other columns.
    #[schemars(example = &"data/train.jsonl")]
    path: PathText,
    /// How the rows are written.
    #[serde(default)]
    format: DatasetFormat,
    /// How much of the rows that pass is used. Below 1 it is a part of them, drawn from the run's seed (with `shuffle: false`
    /// the leading ones); above 1 they are repeated.
    #[serde(default = "all")]
    sample_ratio: Positive,
    /// Jinja templates over the columns of a row, such as `prompt: "{{ question }}"`.
    #[serde(default, skip_serializing_if = "RowMap::is_empty")]
    map: RowMap,
    /// A Jinja expression over the columns of a row, such as `level > 3`: where it does not hold, the row is left out, and
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"level > 3")]
    r#where: Option<String>,
    /// A JSON schema that every row must fit as it is in the file, before `map`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"rows.schema.json")]
    schema: Option<PathText>,
}

impl DatasetConfig {
    fn source(&self, name: Option<&str>) -> DatasetSource {
        DatasetSource {
            name: name.map(str::to_owned),
            path: self.path.as_path().to_owned(),
            format: self.format,
            sample_ratio: self.sample_ratio.get(),
            map: self.map.clone(),
            filter: self.r#where.clone(),
            schema: self.schema.as_ref().map(|path| path.as_path().to_owned()),
        }
    }
}

fn yes() -> bool {
    true
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

fn all() -> Positive {
    Positive::new(1.0).unwrap_or_else(|| unreachable!("1 is above 0"))
}

impl NodeConfig for SamplerConfig {
    const KIND: &'static str = "sampler";
    const SUMMARY: &'static str = "Draws prompts from data sets.";
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
                datasets: self
                    .dataset
                    .iter()
                    .map(|dataset| dataset.source(None))
                    .chain(self.datasets.iter().map(|(name, dataset)| dataset.source(Some(name))))
                    .collect(),
                shuffle: self.shuffle,
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
    use rlpipe_core::services::HeldRows;

    use super::*;

    fn sampler(rows: u64, seed: Option<Seed>) -> Sampler {
        let rows: HeldRows = (0..rows).map(|line| Row { line, ..Row::default() }).collect();
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
