//! Slots and admission: which samples run, and what becomes of their tokens.
//!
//! A `Decoder` computes. On a CPU, and in types that have no kernels, that is `plain`; on a card in bfloat16 or float16
//! `graphs`, which has one block of tokens in flight while the host looks at the one before.

use std::collections::{BTreeMap, VecDeque};

use rlpipe_wire::v1;
use tch::Tensor;

use super::decoder::{Block, Decoder, Group, Model, Ticket};
use super::graphs::Graphs;
use super::plain::Plain;
use super::request::Request;
use crate::model::Network;
use crate::{Result, fail};

/// A command that has ended, by its id.
pub type Finished = (u64, Result<v1::Generated>);

/// Generates for one model.
#[derive(Debug)]
pub struct Engine {
    context: i64,
    decoder: Box<dyn Decoder>,
    /// Who has each slot.
    slots: Vec<Option<Ticket>>,
    requests: BTreeMap<u64, Request>,
    /// Samples without a slot.
    waiting: VecDeque<(u64, usize)>,
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
        let decoder: Box<dyn Decoder> = match Graphs::new(network, spec, held_bytes)? {
            Some(graphs) => Box::new(graphs),
            None => Box::new(Plain::new(network, spec, held_bytes)?),
        };
        Ok(Self {
            context,
            slots: vec![None; decoder.slots()],
            decoder,
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            token_bytes,
            version,
        })
    }

    /// Rollouts that can be in flight.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Later tokens are of this version; prompts that wait are run again.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
        self.decoder.forget_prompts();
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
        self.waiting.retain(|(request, _)| *request != id);
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some_and(|ticket| ticket.request == id) {
                self.release(slot);
            }
        }
        self.decoder.forget_prompt(id);
        Some(request.into_aborted())
    }

    /// Drops everything in flight after a fault; returns the ids.
    pub fn clear(&mut self) -> Vec<u64> {
        self.slots.fill(None);
        self.waiting.clear();
        self.decoder.clear();
        std::mem::take(&mut self.requests).into_keys().collect()
    }

    /// Admits what waits, asks for a block and takes what has come back; returns the commands that ended.
    pub fn advance(&mut self, network: &Network, weights: &[Tensor]) -> Result<Vec<Finished>> {
        let _no_grad = tch::no_grad_guard();
        let model = Model { network, weights };
        self.admit(model)?;
        let tickets: Vec<Ticket> = self.slots.iter().copied().flatten().collect();
        let stays = if tickets.is_empty() {
            0
        } else {
            self.decoder.launch(model, &tickets, self.version)?;
            self.decoder.depth()
        };
        while self.decoder.in_flight() > stays {
            let block = self.decoder.collect()?;
            self.take(&block)?;
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

    /// Gives free slots to waiting samples, in the order in which they came.
    fn admit(&mut self, model: Model<'_>) -> Result<()> {
        let mut free: VecDeque<usize> = (0..self.slots.len())
            .filter(|&slot| self.slots[slot].is_none())
            .collect();
        let mut groups: Vec<Group<'_>> = Vec::new();
        while let Some(&(id, _)) = self.waiting.front() {
            let Some(request) = self.requests.get(&id) else {
                self.waiting.pop_front();
                continue;
            };
            let wanted = self.waiting.iter().take_while(|(next, _)| *next == id).count();
            let count = self.decoder.room(id, request, wanted.min(free.len()));
            if count == 0 {
                break;
            }
            let tickets = self.waiting.drain(..count).zip(free.drain(..count));
            let tickets = tickets.map(|((request, sample), slot)| Ticket { request, sample, slot });
            groups.push(Group {
                id,
                request,
                tickets: tickets.collect(),
                others_wait: count < wanted,
            });
        }
        if groups.is_empty() {
            let is_stuck = !self.waiting.is_empty() && free.len() == self.slots.len();
            if is_stuck && self.decoder.in_flight() == 0 {
                fail!(
                    "nothing runs, and there is no room for what waits: lower `max_context_tokens` or raise `memory_fraction`"
                );
            }
            return Ok(());
        }
        self.decoder.place(model, &groups, self.version)?;
        for ticket in groups.iter().flat_map(|group| &group.tickets) {
            self.slots[ticket.slot] = Some(*ticket);
        }
        Ok(())
    }

    /// Hands the tokens of a block to their samples.
    fn take(&mut self, block: &Block) -> Result<()> {
        let width = block.tickets.len();
        for (row, ticket) in block.tickets.iter().enumerate() {
            if self.slots[ticket.slot] != Some(*ticket) {
                continue;
            }
            let Some(request) = self.requests.get_mut(&ticket.request) else {
                continue;
            };
            for step in 0..block.steps {
                let (id, logprob) = (block.ids[step * width + row], block.logprobs[step * width + row]);
                let Ok(id) = u32::try_from(id) else { break };
                if !logprob.is_finite() {
                    fail!(
                        "the model's logits after {} tokens are not finite: its weights have diverged, so lower the learning \
                         rate and go on from an earlier checkpoint; or they are no numbers in its folder; or, with `dtype: \
                         float16`, a number is above 65504, so take bfloat16",
                        request.prompt.len() + request.samples[ticket.sample].ids.len()
                    );
                }
                let bytes = self.token_bytes.get(id as usize).map_or(&[][..], Vec::as_slice);
                let version = if step == 0 {
                    block.first_versions[row]
                } else {
                    block.version
                };
                if request.push(ticket.sample, id, bytes, logprob, version) {
                    self.slots[ticket.slot] = None;
                    self.decoder.release(ticket.slot);
                    break;
                }
            }
        }
        Ok(())
    }

    fn release(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.decoder.release(slot);
    }
}
