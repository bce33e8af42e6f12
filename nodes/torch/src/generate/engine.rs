//! Slots, admission and decode blocks.
//!
//! A block draws and runs `block` tokens for every slot without asking the device anything; then one transfer brings
//! ids and log-probs to the host, which ends samples and fills their slots anew. On a CPU every shape is fixed and
//! prompts are run one at a time, so what a rollout computes does not depend on what else is there.

use std::collections::{BTreeMap, VecDeque};

use rlpipe_wire::v1;
use tch::{Kind, Tensor};

use super::cache::{self, Cache};
use super::request::Request;
use super::sampling::{SlotSampling, SlotSettings};
use crate::device::{memory_bytes, wide};
use crate::model::Network;
use crate::{Error, Result, fail, rng};

/// Slots on a CPU unless asked otherwise.
const CPU_SLOTS: i64 = 32;
/// Most slots that are chosen on a card.
const CARD_SLOTS: i64 = 1024;
/// Tokens of one prefill on a card, padding included.
const PREFILL_TOKENS: usize = 16_384;
/// Attention on a card reads a multiple of this many places.
const LIVE_STEP: i64 = 64;

/// A command that has ended, by its id.
pub type Finished = (u64, Result<v1::Generated>);

/// What a slot is doing.
#[derive(Debug, Clone, Copy)]
struct Row {
    request: u64,
    sample: usize,
    /// Of the next token to draw.
    position: i64,
    /// That computed the logits of that token.
    version: u64,
}

/// Generates for one model.
#[derive(Debug)]
pub struct Engine {
    context: i64,
    /// Tokens between two looks at the results.
    block: usize,
    cache: Cache,
    logits: Tensor,
    rows: Vec<Option<Row>>,
    requests: BTreeMap<u64, Request>,
    /// Samples without a slot.
    waiting: VecDeque<(u64, usize)>,
    /// Made anew when a slot is filled.
    sampling: Option<SlotSampling>,
    /// What each token stands for, by id; empty where that was not told.
    token_bytes: Vec<Vec<u8>>,
    /// Policy version of the weights.
    version: u64,
}

impl Engine {
    /// Reserves the cache. `held_bytes` is what training on the same card will still ask for; stop strings are looked
    /// for in `token_bytes`.
    pub fn new(
        network: &Network,
        spec: &v1::EngineSpec,
        held_bytes: u64,
        token_bytes: Vec<Vec<u8>>,
        version: u64,
    ) -> Result<Self> {
        let context = i64::from(spec.max_context_tokens);
        let config = &network.config;
        let reach = config.generated_positions();
        if context < 2 || context > reach {
            let why = if reach < config.positions() {
                "; with `dynamic` rotary scaling a longer context would turn keys that are in the cache already"
            } else {
                ""
            };
            fail!("`max_context_tokens` is {context}, but the model reads 2 to {reach} positions{why}");
        }
        let slots = match i64::from(spec.slots) {
            0 => chosen_slots(network, spec.memory_fraction, held_bytes, context)?,
            slots => slots,
        };
        Ok(Self {
            context,
            block: if network.device.is_cuda() { 16 } else { 1 },
            cache: Cache::new(network, slots, context),
            logits: cache::empty_logits(network, slots),
            rows: vec![None; slots as usize],
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            sampling: None,
            token_bytes,
            version,
        })
    }

    /// Rollouts that can be in flight.
    pub fn slots(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Later tokens are of this version; prompts that wait are run again.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
        for request in self.requests.values_mut() {
            request.prefilled = None;
        }
    }

    /// Accepts a command; a group without samples ends at once.
    pub fn accept(&mut self, network: &Network, id: u64, command: v1::Generate) -> Result<()> {
        if self.token_bytes.is_empty() && !command.stop_strings.is_empty() {
            fail!("stop strings are asked for, but the model was loaded without the bytes of its tokens");
        }
        let request = Request::new(command, network.config.vocabulary, self.context)?;
        if self.requests.contains_key(&id) {
            fail!("command id {id} is in flight already");
        }
        self.waiting.extend((0..request.seeds.len()).map(|sample| (id, sample)));
        self.requests.insert(id, request);
        Ok(())
    }

    /// Ends a command with what it has; none when it is not in flight.
    pub fn abort(&mut self, id: u64) -> Option<v1::Generated> {
        let request = self.requests.remove(&id)?;
        self.forget(id);
        Some(request.into_aborted())
    }

    /// Drops everything in flight after a fault; returns the ids.
    pub fn clear(&mut self) -> Vec<u64> {
        self.rows.fill(None);
        self.waiting.clear();
        self.sampling = None;
        self.cache.clear();
        std::mem::take(&mut self.requests).into_keys().collect()
    }

    fn forget(&mut self, id: u64) {
        self.waiting.retain(|(request, _)| *request != id);
        for row in &mut self.rows {
            if row.is_some_and(|row| row.request == id) {
                *row = None;
            }
        }
    }

    /// Admits what waits and runs one block; returns the commands that ended.
    pub fn advance(&mut self, network: &Network, weights: &[Tensor]) -> Result<Vec<Finished>> {
        let _no_grad = tch::no_grad_guard();
        self.admit(network, weights);
        if self.rows.iter().any(Option::is_some) {
            self.run_block(network, weights)?;
        }
        let ended = self.requests.iter().filter(|(_, request)| request.is_finished());
        let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
        let take = |id: u64| {
            self.requests
                .remove(&id)
                .map(|request| (id, Ok(request.into_aborted())))
        };
        Ok(ended.into_iter().filter_map(take).collect())
    }

    fn admit(&mut self, network: &Network, weights: &[Tensor]) {
        let free: Vec<usize> = (0..self.rows.len()).filter(|&slot| self.rows[slot].is_none()).collect();
        let admitted: Vec<(u64, usize)> = self.waiting.drain(..free.len().min(self.waiting.len())).collect();
        if admitted.is_empty() {
            return;
        }
        self.sampling = None;
        let mut groups: Vec<(u64, Vec<(usize, usize)>)> = Vec::new();
        for ((id, sample), slot) in admitted.into_iter().zip(free) {
            match groups.last_mut() {
                Some((last, placed)) if *last == id => placed.push((sample, slot)),
                _ => groups.push((id, vec![(sample, slot)])),
            }
        }
        self.prefill(network, weights, groups.iter().map(|(id, _)| *id));
        for (id, placed) in groups {
            let waits = self.waiting.iter().any(|(request, _)| *request == id);
            let Some(request) = self.requests.get_mut(&id) else {
                continue;
            };
            let Some(prompt) = request.prefilled.take() else {
                continue;
            };
            let slots: Vec<i64> = placed.iter().map(|(_, slot)| *slot as i64).collect();
            self.cache.place(&prompt, &slots);
            let index = Tensor::from_slice(&slots).to_device(network.device);
            let logits = prompt.logits.unsqueeze(0).expand([slots.len() as i64, -1], false);
            let _ = self.logits.index_copy_(0, &index, &logits);
            for (sample, slot) in placed {
                let position = request.prompt.len() as i64;
                self.rows[slot] = Some(Row {
                    request: id,
                    sample,
                    position,
                    version: prompt.version,
                });
            }
            request.prefilled = waits.then_some(prompt);
        }
    }

    fn prefill(&mut self, network: &Network, weights: &[Tensor], ids: impl Iterator<Item = u64>) {
        let missing: Vec<u64> = ids
            .filter(|id| self.requests.get(id).is_some_and(|r| r.prefilled.is_none()))
            .collect();
        let together = if cache::neighbours_matter(network.device) {
            PREFILL_TOKENS
        } else {
            1
        };
        let mut rest = missing.as_slice();
        while !rest.is_empty() {
            let (mut count, mut longest) = (0, 0);
            for id in rest {
                longest = longest.max(self.requests[id].prompt.len());
                if count > 0 && longest * (count + 1) > together {
                    break;
                }
                count += 1;
            }
            let (batch, later) = rest.split_at(count);
            let prompts: Vec<&[u32]> = batch.iter().map(|id| self.requests[id].prompt.as_slice()).collect();
            let states = cache::prefill(network, weights, &prompts, self.version);
            for (id, state) in batch.iter().zip(states) {
                if let Some(request) = self.requests.get_mut(id) {
                    request.prefilled = Some(state);
                }
            }
            rest = later;
        }
    }

    fn run_block(&mut self, network: &Network, weights: &[Tensor]) -> Result<()> {
        let device = network.device;
        let positions: Vec<i64> = self.rows.iter().map(|row| row.map_or(0, |row| row.position)).collect();
        let uniforms: Vec<f64> = self.rows.iter().flat_map(|row| self.uniforms(*row)).collect();
        let shape = [self.rows.len() as i64, self.block as i64];
        let uniforms = Tensor::from_slice(&uniforms).view(shape).to_device(device);
        let mut at = Tensor::from_slice(&positions).to_device(device);
        let farthest = positions.iter().max().copied().unwrap_or(0) + self.block as i64;
        let live = if cache::neighbours_matter(device) {
            ((farthest + LIVE_STEP) / LIVE_STEP * LIVE_STEP).min(self.context)
        } else {
            self.context
        };
        let settings = self.sampling.take().unwrap_or_else(|| self.slot_sampling(network));
        let (mut ids, mut logprobs) = (Vec::with_capacity(self.block), Vec::with_capacity(self.block));
        for step in 0..self.block {
            let (id, logprob) = settings.draw(&self.logits, &at, &uniforms.select(1, step as i64));
            if step + 1 < self.block {
                self.logits = self.cache.decode(network, weights, &id, &at, live);
                // A row that ended inside the block goes on, in its own slot, until the block ends.
                at = (at + 1).clamp_max(self.context - 1);
            }
            ids.push(id);
            logprobs.push(logprob);
        }
        let columns: Vec<Tensor> = ids
            .iter()
            .map(|id| id.to_kind(Kind::Double))
            .chain(logprobs.iter().map(|logprob| logprob.to_kind(Kind::Double)))
            .collect();
        let drawn: Vec<f64> = Vec::try_from(Tensor::stack(&columns, 1).view([-1]))?;
        let alive = self.take_block(&drawn)?;
        if alive && let Some(last) = ids.last() {
            self.logits = self.cache.decode(network, weights, last, &at, live);
        }
        self.sampling = Some(settings);
        Ok(())
    }

    /// Hands the drawn tokens to their samples; true when any row goes on.
    fn take_block(&mut self, drawn: &[f64]) -> Result<bool> {
        let block = self.block;
        for (row, drawn) in self.rows.iter_mut().zip(drawn.chunks_exact(2 * block)) {
            let Some(going) = row else { continue };
            let Some(request) = self.requests.get_mut(&going.request) else {
                continue;
            };
            let mut ended = false;
            for step in 0..block {
                let (id, logprob) = (drawn[step] as u32, drawn[block + step] as f32);
                if !logprob.is_finite() {
                    fail!(
                        "the model's logits after {} tokens are not finite; the weights have diverged: \
                         lower the learning rate or resume from an earlier checkpoint",
                        going.position
                    );
                }
                let bytes = self.token_bytes.get(id as usize).map_or(&[][..], Vec::as_slice);
                ended = request.push(going.sample, id, bytes, logprob, going.version);
                going.position += 1;
                going.version = self.version;
                if ended {
                    break;
                }
            }
            if ended {
                *row = None;
            }
        }
        Ok(self.rows.iter().any(Option::is_some))
    }

    fn uniforms(&self, row: Option<Row>) -> Vec<f64> {
        let drawn = |row: Row, step: usize| {
            self.requests.get(&row.request).map_or(0.5, |r| {
                rng::uniform(r.seeds[row.sample], row.position as u64 + step as u64)
            })
        };
        (0..self.block)
            .map(|step| row.map_or(0.5, |row| drawn(row, step)))
            .collect()
    }

    fn slot_sampling(&self, network: &Network) -> SlotSampling {
        let settings = |row: &Option<Row>| {
            let request = row.and_then(|row| self.requests.get(&row.request));
            request.map_or_else(SlotSettings::default, |request| request.settings.clone())
        };
        let slots: Vec<SlotSettings> = self.rows.iter().map(settings).collect();
        SlotSampling::new(&slots, network.config.vocabulary, wide(network.kind), network.device)
    }
}

fn chosen_slots(network: &Network, memory_fraction: f64, held_bytes: u64, context: i64) -> Result<i64> {
    let Some((free, _)) = memory_bytes(network.device) else {
        return Ok(CPU_SLOTS);
    };
    if !(memory_fraction > 0.0 && memory_fraction <= 1.0) {
        fail!("`memory_fraction` is {memory_fraction}, but a number above 0 and at most 1 is needed");
    }
    let usable = ((free as f64 * memory_fraction) as u64).saturating_sub(held_bytes);
    let per_slot = Cache::bytes_per_slot(network, context);
    let slots = (usable / per_slot).min(CARD_SLOTS as u64) as i64 / 8 * 8;
    if slots == 0 {
        return Err(Error(format!(
            "{} MiB of memory are left for the cache, but 8 slots of {context} tokens need {} MiB; \
             raise `memory_fraction` or lower `max_context_tokens`",
            usable >> 20,
            (8 * per_slot) >> 20
        )));
    }
    Ok(slots)
}
