//! Judges made of judges.

use std::borrow::Cow;
use std::collections::BTreeMap;

use async_trait::async_trait;
use rlpipe_core::data::Score;
use rlpipe_core::kind::{Choice, Finite};
use rlpipe_core::services::ServiceError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::forms::{PartJudge, SourceJudge};
use super::judging::{Asked, Judging};

/// Several judges by name; their order is that of the names.
pub type WeightedSum = Named<Part>;
/// Judges by `data_source`.
pub type Route = Named<Choice<SourceJudge>>;

/// One judge of a sum.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Who judges.
    pub judge: Choice<PartJudge>,
    /// What its reward is multiplied by; below 0 it is a penalty.
    pub weight: Finite,
}

/// One or more things by name.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Named<T>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = BTreeMap::<String, T>::deserialize(deserializer)?;
        if named.is_empty() {
            return Err(de::Error::invalid_length(0, &"at least one judge by its name"));
        }
        Ok(Self(named))
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Named{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "type": "object", "additionalProperties": value, "minProperties": 1 })
    }
}

impl WeightedSum {
    /// Its parts by name.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &Part)> {
        self.0.iter().map(|(name, part)| (name.as_str(), part))
    }
}

impl Route {
    /// Judges by source.
    pub fn judges(&self) -> impl Iterator<Item = (&str, &SourceJudge)> {
        self.0.iter().map(|(source, judge)| (source.as_str(), &judge.0))
    }
}

/// Adds up what judges say.
pub struct Sum(pub Vec<SummedJudge>);

/// One of them.
pub struct SummedJudge {
    pub name: String,
    pub weight: f64,
    pub judge: Box<dyn Judging>,
}

#[async_trait]
impl Judging for Sum {
    async fn score(&self, asked: &Asked<'_>) -> Result<Vec<Result<Score, String>>, ServiceError> {
        let zero = Score {
            reward: Some(0.0),
            ..Score::default()
        };
        let mut sums: Vec<Result<Score, String>> = vec![Ok(zero); asked.rollouts.len()];
        // The form of an answer is that of the judge that counts most; of equals, the first.
        let mut heaviest: Vec<f64> = vec![f64::NEG_INFINITY; sums.len()];
        for part in &self.0 {
            let scores = part.judge.score(asked).await?;
            for ((sum, heaviest), score) in sums.iter_mut().zip(&mut heaviest).zip(scores) {
                let Ok(so_far) = sum else { continue };
                let score = match score {
                    Ok(score) => score,
                    Err(error) => {
                        *sum = Err(format!("the judge `{}`: {error}", part.name));
                        continue;
                    }
                };
                if part.weight.abs() > *heaviest {
                    *heaviest = part.weight.abs();
                    so_far.parsed = score.parsed;
                }
                so_far
                    .parts
                    .extend(score.reward.map(|reward| (part.name.clone(), reward)));
                let inner = score.parts.into_iter();
                so_far
                    .parts
                    .extend(inner.map(|(name, value)| (format!("{}/{name}", part.name), value)));
                // One that abstains leaves the sum unknown.
                so_far.reward = so_far
                    .reward
                    .zip(score.reward)
                    .map(|(sum, reward)| sum + part.weight * reward);
            }
        }
        for sum in &mut sums {
            if sum
                .as_ref()
                .is_ok_and(|score| score.reward.is_some_and(|reward| !reward.is_finite()))
            {
                *sum = Err("the weighted sum is too large to be a number".to_owned());
            }
        }
        Ok(sums)
    }
}

/// Asks the judge of the row's source.
pub struct BySource(pub BTreeMap<String, Box<dyn Judging>>);

#[async_trait]
impl Judging for BySource {
    async fn score(&self, asked: &Asked<'_>) -> Result<Vec<Result<Score, String>>, ServiceError> {
        let source = &asked.group.row.data_source;
        match self.0.get(source) {
            Some(judge) => judge.score(asked).await,
            None => {
                let known: Vec<String> = self.0.keys().map(|source| format!("`{source}`")).collect();
                let error = format!(
                    "line {} of the data is from `{source}`, and `route` has judges for {} only",
                    asked.group.row.line,
                    known.join(", ")
                );
                Ok(vec![Err(error); asked.rollouts.len()])
            }
        }
    }
}
