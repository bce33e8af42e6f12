//! Generation in torch's own operators, on any device and in any type.
//!
//! A block draws and runs its tokens for every slot without asking the device anything. On a CPU every shape is fixed and
//! prompts are run one at a time, so what a rollout computes does not depend on what else is there.

use std::collections::{BTreeMap, VecDeque};

use rlpipe_wire::v1;
use tch::{Kind, Tensor};

use super::cache::{self, Cache, Prefilled};
use super::decoder::{Block, Decoder, Group, Model, Ticket};
use super::request::Request;
use super::sampling::{SlotSampling, SlotSettings};
use crate::device::{memory_bytes, wide};
use crate::model::Network;
use crate::{Error, Result, fail, rng};

/// Slots on a CPU unless asked otherwise.
const CPU_SLOTS: i64 = 32;
/// Most slots that are chosen on a card.
pub const CARD_SLOTS: i64 = 1024;
/// Tokens of one prefill on a card, padding included.
const PREFILL_TOKENS: usize = 16_384;
/// Attention on a card reads a multiple of this many places.
const LIVE_STEP: i64 = 64;

/// What a slot is doing.
#[derive(Debug, Clone)]
struct Row {
    seed: u64,
    /// Of the next token to draw.
    position: i64,
    /// Policy version that computed the logits of that token.
    version: u64,
    settings: SlotSettings,
}

/// A cache of slots, and the logits of the next token of each.
#[derive(Debug)]
pub struct Plain {
    context: i64,
    /// Tokens of a block.
    block: usize,
    cache: Cache,
    logits: Tensor,
    rows: Vec<Option<Row>>,
    /// Prompts by request, while samples of theirs wait.
    prompts: BTreeMap<u64, Prefilled>,
    /// Made anew when a slot is filled.
    sampling: Option<SlotSampling>,
    /// Ids and positions of drawn tokens that the model has not seen yet.
    unseen: Option<(Tensor, Tensor)>,
    done: VecDeque<Block>,
}

impl Plain {
    /// Reserves the cache. `held_bytes` is what training on the same card will still ask for.
    pub fn new(network: &Network, spec: &v1::EngineSpec, held_bytes: u64) -> Result<Self> {
        let context = i64::from(spec.max_context_tokens);
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
            prompts: BTreeMap::new(),
            sampling: None,
            unseen: None,
            done: VecDeque::new(),
        })
    }

    /// Runs the model on the tokens that were drawn last.
    fn catch_up(&mut self, model: Model<'_>, version: u64) {
        if let Some((ids, at)) = self.unseen.take()
            && self.rows.iter().any(Option::is_some)
        {
            self.logits = self.decode(model, &ids, &at);
            for row in self.rows.iter_mut().flatten() {
                row.version = version;
            }
        }
    }

    fn decode(&self, model: Model<'_>, ids: &Tensor, at: &Tensor) -> Tensor {
        let farthest = self.rows.iter().flatten().map(|row| row.position).max().unwrap_or(0) + self.block as i64;
        let live = if cache::neighbours_matter(model.network.device) {
            ((farthest + LIVE_STEP) / LIVE_STEP * LIVE_STEP).min(self.context)
        } else {
            self.context
        };
        self.cache.decode(model.network, model.weights, ids, at, live)
    }

    fn prefill(&mut self, model: Model<'_>, groups: &[Group<'_>], version: u64) {
        let missing: Vec<&Group<'_>> = groups
            .iter()
            .filter(|group| !self.prompts.contains_key(&group.id))
            .collect();
        let together = if cache::neighbours_matter(model.network.device) {
            PREFILL_TOKENS
        } else {
            1
        };
        let mut rest = missing.as_slice();
        while !rest.is_empty() {
            let (mut count, mut longest) = (0, 0);
            for group in rest {
                longest = longest.max(group.request.prompt.len());
                if count > 0 && longest * (count + 1) > together {
                    break;
                }
                count += 1;
            }
            let (batch, later) = rest.split_at(count);
            let prompts: Vec<&[u32]> = batch.iter().map(|group| group.request.prompt.as_slice()).collect();
            let states = cache::prefill(model.network, model.weights, &prompts, version);
            self.prompts
                .extend(batch.iter().zip(states).map(|(group, state)| (group.id, state)));
            rest = later;
        }
    }

    fn uniforms(&self, row: Option<&Row>) -> impl Iterator<Item = f64> {
        let drawn = row.map(|row| (row.seed, row.position as u64));
        (0..self.block as u64).map(move |step| drawn.map_or(0.5, |(seed, at)| rng::uniform(seed, at + step)))
    }

    fn slot_sampling(&self, network: &Network) -> SlotSampling {
        let settings = |row: &Option<Row>| {
            row.as_ref()
                .map_or_else(SlotSettings::default, |row| row.settings.clone())
        };
        let slots: Vec<SlotSettings> = self.rows.iter().map(settings).collect();
        SlotSampling::new(&slots, network.config.vocabulary, wide(network.kind), network.device)
    }
}

impl Decoder for Plain {
    fn slots(&self) -> usize {
        self.rows.len()
    }

    fn room(&mut self, _: u64, _: &Request, samples: usize) -> usize {
        samples
    }

    fn place(&mut self, model: Model<'_>, groups: &[Group<'_>], version: u64) -> Result<()> {
        self.catch_up(model, version);
        self.sampling = None;
        self.prefill(model, groups, version);
        for group in groups {
            let Some(prompt) = self.prompts.remove(&group.id) else {
                continue;
            };
            let slots: Vec<i64> = group.tickets.iter().map(|ticket| ticket.slot as i64).collect();
            self.cache.place(&prompt, &slots);
            let index = Tensor::from_slice(&slots).to_device(model.network.device);
            let logits = prompt.logits.unsqueeze(0).expand([slots.len() as i64, -1], false);
            let _ = self.logits.index_copy_(0, &index, &logits);
            for ticket in &group.tickets {
                self.rows[ticket.slot] = Some(Row {
                    seed: group.request.seeds[ticket.sample],
                    position: group.request.prompt.len() as i64,
                    version: prompt.version,
                    settings: group.request.settings.clone(),
                });
            }
            if group.others_wait {
                self.prompts.insert(group.id, prompt);
            }
        }
        Ok(())
    }

    fn launch(&mut self, model: Model<'_>, tickets: &[Ticket], version: u64) -> Result<()> {
        self.catch_up(model, version);
        let network = model.network;
        let positions: Vec<i64> = self
            .rows
            .iter()
            .map(|row| row.as_ref().map_or(0, |row| row.position))
            .collect();
        let uniforms: Vec<f64> = self.rows.iter().flat_map(|row| self.uniforms(row.as_ref())).collect();
        let shape = [self.rows.len() as i64, self.block as i64];
        let uniforms = Tensor::from_slice(&uniforms).view(shape).to_device(network.device);
        let mut at = Tensor::from_slice(&positions).to_device(network.device);
        let settings = self.sampling.take().unwrap_or_else(|| self.slot_sampling(network));
        let (mut ids, mut logprobs) = (Vec::with_capacity(self.block), Vec::with_capacity(self.block));
        for step in 0..self.block {
            let (id, logprob) = settings.draw(&self.logits, &at, &uniforms.select(1, step as i64));
            if step + 1 < self.block {
                self.logits = self.decode(model, &id, &at);
                // A row that ended inside the block goes on, in its own slot, until the block ends.
                at = (at + 1).clamp_max(self.context - 1);
            }
            ids.push(id);
            logprobs.push(logprob);
        }
        self.sampling = Some(settings);
        let slots: Vec<i64> = tickets.iter().map(|ticket| ticket.slot as i64).collect();
        let slots = Tensor::from_slice(&slots).to_device(network.device);
        let columns = |of: &[Tensor]| Tensor::stack(of, 0).index_select(1, &slots).to_kind(Kind::Double);
        let drawn = Tensor::stack(&[columns(&ids), columns(&logprobs)], 0).view([-1]);
        let drawn: Vec<f64> = Vec::try_from(drawn)?;
        let (drawn_ids, drawn_logprobs) = drawn.split_at(drawn.len() / 2);
        let rows = tickets.iter().map(|ticket| self.rows[ticket.slot].as_ref());
        self.done.push_back(Block {
            tickets: tickets.to_vec(),
            steps: self.block,
            ids: drawn_ids.iter().map(|id| *id as i32).collect(),
            logprobs: drawn_logprobs.iter().map(|logprob| *logprob as f32).collect(),
            first_versions: rows.map(|row| row.map_or(version, |row| row.version)).collect(),
            version,
        });
        self.unseen = ids.pop().map(|last| (last, at));
        for ticket in tickets {
            if let Some(row) = &mut self.rows[ticket.slot] {
                row.position += self.block as i64;
            }
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn depth(&self) -> usize {
        0
    }

    fn collect(&mut self) -> Result<Block> {
        match self.done.pop_front() {
            Some(block) => Ok(block),
            None => fail!("no block is in flight"),
        }
    }

    fn release(&mut self, slot: usize) {
        self.rows[slot] = None;
    }

    fn forget_prompt(&mut self, id: u64) {
        self.prompts.remove(&id);
    }

    fn forget_prompts(&mut self) {
        self.prompts.clear();
    }

    fn clear(&mut self) {
        self.rows.fill(None);
        self.prompts.clear();
        self.sampling = None;
        self.unseen = None;
        self.done.clear();
        self.cache.clear();
    }
}

fn chosen_slots(network: &Network, memory_fraction: f64, held_bytes: u64, context: i64) -> Result<i64> {
    let Some((free, _)) = memory_bytes(network.device) else {
        return Ok(CPU_SLOTS);
    };
    let usable = usable_bytes(free, memory_fraction, held_bytes)?;
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

/// What a cache may take of the `free` bytes of a card.
pub fn usable_bytes(free: u64, memory_fraction: f64, held_bytes: u64) -> Result<u64> {
    if !(memory_fraction > 0.0 && memory_fraction <= 1.0) {
        fail!("`memory_fraction` is {memory_fraction}, but a number above 0 and at most 1 is needed");
    }
    Ok(((free as f64 * memory_fraction) as u64).saturating_sub(held_bytes))
}
