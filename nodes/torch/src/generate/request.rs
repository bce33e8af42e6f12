//! One Generate command: checked when it arrives, and gathered until all its samples have ended.

use std::collections::BTreeSet;

use rlpipe_wire::v1;

use super::sampling::SlotSettings;
use super::stop::StopStrings;
use crate::{Result, fail};

/// The samples of one prompt.
#[derive(Debug)]
pub struct Request {
    /// Ids of the prompt.
    pub prompt: Vec<u32>,
    /// One a sample.
    pub seeds: Vec<u64>,
    /// A sample ends with one of these.
    pub stop_ids: BTreeSet<u32>,
    /// Or with the token that completes one of these.
    pub stop_strings: StopStrings,
    /// Stop strings are looked for once a sample has more tokens.
    pub min_new_tokens: usize,
    /// Longest response, cut to what the context has room for.
    pub max_new_tokens: usize,
    /// What every slot of this request wants.
    pub settings: SlotSettings,
    /// Ended or running samples, in the order of the seeds.
    pub samples: Vec<v1::Sample>,
}

impl Request {
    /// Checks a command against the model's `vocabulary` and the engine's `context`.
    pub fn new(command: v1::Generate, vocabulary: i64, context: i64) -> Result<Self> {
        let v1::Generate {
            prompt_ids,
            seeds,
            stop_ids,
            stop_strings,
            sampling,
            ..
        } = command;
        let sampling = sampling.unwrap_or_default();
        let (vocabulary, context) = (vocabulary as u32, context as usize);
        if prompt_ids.is_empty() {
            fail!("the prompt is empty; give at least one token");
        }
        if let Some(id) = prompt_ids.iter().chain(&stop_ids).find(|id| **id >= vocabulary) {
            fail!("token id {id} is outside the vocabulary of {vocabulary}; is the tokenizer that of this model?");
        }
        if prompt_ids.len() >= context {
            fail!(
                "a prompt of {} tokens leaves no room in a context of {context}; \
                 raise `max_context_tokens` or lower `max_prompt_tokens`",
                prompt_ids.len()
            );
        }
        if sampling.max_new_tokens == 0 {
            fail!("`max_new_tokens` is 0; ask for at least one token");
        }
        if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
            fail!(
                "`temperature` is {}, but a number of at least 0 is needed",
                sampling.temperature
            );
        }
        if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
            fail!(
                "`top_p` is {}, but a number above 0 and at most 1 is needed",
                sampling.top_p
            );
        }
        if !(0.0..1.0).contains(&sampling.min_p) {
            fail!(
                "`min_p` is {}, but a number of at least 0 and below 1 is needed",
                sampling.min_p
            );
        }
        let stops: BTreeSet<u32> = stop_ids.into_iter().collect();
        if sampling.min_new_tokens > 0 && stops.len() >= vocabulary as usize {
            fail!(
                "every token stops, so `min_new_tokens` of {} cannot be reached",
                sampling.min_new_tokens
            );
        }
        let settings = SlotSettings {
            temperature: sampling.temperature,
            top_k: i64::from(sampling.top_k),
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            stop_ids: stops.iter().map(|&id| i64::from(id)).collect(),
            stops_from: match sampling.min_new_tokens {
                0 => 0,
                tokens => (prompt_ids.len() + tokens as usize) as i64,
            },
        };
        Ok(Self {
            max_new_tokens: (sampling.max_new_tokens as usize).min(context - prompt_ids.len()),
            min_new_tokens: sampling.min_new_tokens as usize,
            stop_strings: StopStrings::new(stop_strings, seeds.len())?,
            samples: vec![v1::Sample::default(); seeds.len()],
            prompt: prompt_ids,
            seeds,
            stop_ids: stops,
            settings,
        })
    }

    /// Adds a token, which stands for `bytes`, to a sample; true when that ends it.
    pub fn push(&mut self, index: usize, id: u32, bytes: &[u8], logprob: f32, version: u64) -> bool {
        let sample = &mut self.samples[index];
        sample.ids.push(id);
        sample.logprobs.push(logprob);
        match sample.policy_version.as_mut_slice() {
            [.., last, tokens] if *last == version => *tokens += 1,
            _ => sample.policy_version.extend([version, 1]),
        }
        let counts = sample.ids.len() > self.min_new_tokens;
        let stop_bytes = self.stop_strings.push(index, bytes, counts);
        let reason = if self.stop_ids.contains(&id) {
            v1::FinishReason::Stop
        } else if let Some(stop_bytes) = stop_bytes {
            sample.stop_bytes = stop_bytes;
            v1::FinishReason::Stop
        } else if sample.ids.len() >= self.max_new_tokens {
            v1::FinishReason::Length
        } else {
            return false;
        };
        sample.set_finish_reason(reason);
        true
    }

    /// Whether every sample has ended.
    pub fn is_finished(&self) -> bool {
        self.samples
            .iter()
            .all(|sample| sample.finish_reason() != v1::FinishReason::Unspecified)
    }

    /// The answer, with what has not ended marked as aborted.
    pub fn into_aborted(mut self) -> v1::Generated {
        for sample in &mut self.samples {
            if sample.finish_reason() == v1::FinishReason::Unspecified {
                sample.set_finish_reason(v1::FinishReason::Aborted);
            }
        }
        v1::Generated { samples: self.samples }
    }
}
