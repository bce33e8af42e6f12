//! Packs as they come over the wire: checked, and the tokens that count picked out.
//!
//! Only picked tokens reach the device, so whatever stands at a masked position, NaN included, cannot matter.

use rlpipe_model::ModelConfig;
use rlpipe_wire::v1;
use tch::{Device, Kind, Tensor};

use crate::device::together;
use crate::model::Packed;
use crate::{Result, fail};

/// Tokens of a chunk of the head when the driver does not say.
const CHUNK_TOKENS: i64 = 512;

/// Checks shapes, ids and temperatures; `train` also wants the mask.
pub fn check(pack: &v1::Pack, config: &ModelConfig, train: bool) -> Result<()> {
    if pack.sequences.is_empty() {
        fail!("the pack has no sequence");
    }
    for (index, sequence) in pack.sequences.iter().enumerate() {
        let (tokens, prompt) = (sequence.ids.len(), sequence.prompt_tokens as usize);
        if prompt == 0 || prompt > tokens {
            fail!("sequence {index} has {tokens} tokens and a prompt of {prompt}; the prompt needs 1 to all of them");
        }
        if tokens as i64 > config.positions() {
            fail!(
                "sequence {index} has {tokens} tokens, but the model reads {}",
                config.positions()
            );
        }
        if let Some(id) = sequence.ids.iter().find(|id| i64::from(**id) >= config.vocabulary) {
            fail!(
                "sequence {index}: token id {id} is outside the vocabulary of {}",
                config.vocabulary
            );
        }
        if !(sequence.temperature >= 0.0 && sequence.temperature.is_finite()) {
            fail!(
                "sequence {index}: `temperature` is {}, but at least 0 is needed",
                sequence.temperature
            );
        }
        let response = tokens - prompt;
        let lengths = [
            ("mask", sequence.mask.len(), train),
            ("advantages", sequence.advantages.len(), false),
            ("old_logprobs", sequence.old_logprobs.len(), false),
            ("rollout_logprobs", sequence.rollout_logprobs.len(), false),
            ("reference_logprobs", sequence.reference_logprobs.len(), false),
        ];
        for (name, length, required) in lengths {
            if length != response && (required || length != 0) {
                fail!("sequence {index}: `{name}` has {length} values for a response of {response} tokens");
            }
        }
    }
    Ok(())
}

/// All tokens of a pack.
pub fn packed(pack: &v1::Pack, device: Device) -> Packed {
    Packed::new(
        &pack
            .sequences
            .iter()
            .map(|sequence| sequence.ids.as_slice())
            .collect::<Vec<_>>(),
        device,
    )
}

/// Starts and lengths of chunks of `chunk_tokens` (0: [`CHUNK_TOKENS`]) that make up `count` tokens.
pub fn chunks(count: usize, chunk_tokens: u32) -> impl Iterator<Item = (i64, i64)> {
    let size = if chunk_tokens == 0 {
        CHUNK_TOKENS
    } else {
        i64::from(chunk_tokens)
    };
    let count = count as i64;
    (0..count)
        .step_by(size as usize)
        .map(move |start| (start, size.min(count - start)))
}

/// The tokens that count, in order.
#[derive(Debug)]
pub struct Selected {
    /// Row of the hidden state that predicts each token, int64 `[count]`.
    pub rows: Tensor,
    /// Its id, `[count]`.
    pub targets: Tensor,
    /// What its logits are multiplied by, `[count]`.
    pub inverse_temperatures: Tensor,
    /// Per sequence, which response tokens were picked.
    pub places: Vec<Vec<usize>>,
}

impl Selected {
    /// The masked response tokens, or all of them; temperatures are in `kind`.
    pub fn new(pack: &v1::Pack, masked_only: bool, kind: Kind, device: Device) -> Self {
        let (mut rows, mut targets, mut inverse, mut places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for sequence in &pack.sequences {
            let prompt = sequence.prompt_tokens as usize;
            let response = sequence.ids.len() - prompt;
            let picked: Vec<usize> = (0..response).filter(|&at| !masked_only || sequence.mask[at]).collect();
            rows.extend(picked.iter().map(|at| (start + prompt + at - 1) as i64));
            targets.extend(picked.iter().map(|at| i64::from(sequence.ids[prompt + at])));
            let temperature = if sequence.temperature == 0.0 {
                1.0
            } else {
                sequence.temperature
            };
            inverse.extend(picked.iter().map(|_| 1.0 / temperature));
            places.push(picked);
            start += sequence.ids.len();
        }
        let [rows, targets] = together([rows, targets], device);
        Self {
            rows,
            targets,
            inverse_temperatures: Tensor::from_slice(&inverse).to_kind(kind).to_device(device),
            places,
        }
    }

    /// Number of tokens.
    pub fn count(&self) -> usize {
        self.places.iter().map(Vec::len).sum()
    }

    /// A response-aligned vector at the picked tokens, `[count]`; NaN where a sequence has none.
    pub fn pick(&self, pack: &v1::Pack, of: impl Fn(&v1::Sequence) -> &[f32]) -> Vec<f32> {
        let sequences = pack.sequences.iter().zip(&self.places);
        let picked = sequences.flat_map(|(sequence, places)| {
            let values = of(sequence);
            places
                .iter()
                .map(move |&at| values.get(at).copied().unwrap_or(f32::NAN))
        });
        picked.collect()
    }
}
