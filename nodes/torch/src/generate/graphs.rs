//! Generation on a card in bfloat16 or float16: a decode step is a captured graph of kernels over a paged cache.
//!
//! A block is a few replays of the graph of the smallest bucket that holds its rows, then one copy of ids and log-probs to
//! pinned memory. The host looks at a block while the next one runs; a sample that ends stops itself on the device, writes
//! nothing more, and leaves the batch a block later. Everything is in the order of one stream, so what is given back by
//! the host can be written anew at once.

use std::collections::{BTreeMap, VecDeque};

use rlpipe_wire::v1;
use tch::{Kind, Tensor};

use super::decoder::{Block, Decoder, Group, Model, Ticket};
use super::kernels::{DecodeKernels, Sampled};
use super::pages::{PAGE_TOKENS, Page, Pages, pages_of};
use super::plain::{CARD_SLOTS, usable_bytes};
use super::request::Request;
use super::slots::{NewSlot, Slots};
use crate::device::memory_bytes;
use crate::model::Network;
use crate::native::cuda::{self, Event, Graph, Pool, Stream};
use crate::{Result, fail};

/// Tokens of each sample in a block: few, because a sample that has ended stays in the batch for up to two blocks.
const BLOCK_STEPS: usize = 4;
/// Rows that a graph is captured for: the next multiple of an eighth of the power of two above, at least 8.
const SMALLEST_BUCKET: usize = 8;
/// Tokens of one prefill.
const PREFILL_TOKENS: usize = 32_768;

/// The state of a prompt, which the samples of a request start from.
#[derive(Debug)]
struct Prompt {
    /// Pages that it fills; shared by its samples.
    full: Vec<Page>,
    /// The page that it begins and a sample goes on in; copied for each.
    tail: Option<Page>,
    /// Of the token after it, `[1, vocabulary]`, once it was run.
    logits: Option<Tensor>,
    version: u64,
}

/// A block on its way to the host.
#[derive(Debug)]
struct Pending {
    tickets: Vec<Ticket>,
    steps: usize,
    /// Rows of each step, those of no ticket included.
    width: usize,
    /// Pinned; holds the block once `arrived`.
    sampled: Sampled,
    arrived: Event,
    version: u64,
}

/// The decoder of a card.
#[derive(Debug)]
pub struct Graphs {
    kernels: DecodeKernels,
    /// `[layers, pages, kv_heads, PAGE_TOKENS, head_dim]` each.
    keys: Tensor,
    values: Tensor,
    pages: Pages,
    /// Pages of each slot's sample.
    held: Vec<Vec<Page>>,
    slots: Slots,
    prompts: BTreeMap<u64, Prompt>,
    /// Pages that were set aside for samples about to be placed, by request.
    set_aside: BTreeMap<u64, Vec<Vec<Page>>>,
    pending: VecDeque<Pending>,
    /// Which slot each row of a graph serves.
    rows: Tensor,
    sampled: Sampled,
    graphs: BTreeMap<usize, Graph>,
    pool: Pool,
    /// Addresses of the weights that the graphs read.
    captured: Vec<usize>,
}

impl Graphs {
    /// Reserves cache and slots; none where there are no kernels for the network.
    pub fn new(network: &Network, spec: &v1::EngineSpec, held_bytes: u64) -> Result<Option<Self>> {
        let Some(kernels) = DecodeKernels::of(network, BLOCK_STEPS)? else {
            return Ok(None);
        };
        let Some((free, _)) = memory_bytes(network.device) else {
            fail!("CUDA does not say how much memory is free");
        };
        let context = spec.max_context_tokens as usize;
        let slots = match spec.slots as usize {
            0 => CARD_SLOTS as usize,
            slots => slots,
        };
        let config = &network.config;
        let bytes_per_page = 4 * (config.layers * config.kv_heads * config.head_dim) as u64 * PAGE_TOKENS as u64;
        let usable =
            usable_bytes(free, spec.memory_fraction, held_bytes)?.saturating_sub(scratch_bytes(network, slots));
        let most = pages_of_a_slot(context);
        let pages = (usable / bytes_per_page).min((slots * most) as u64) as usize;
        if pages < most {
            fail!(
                "{} MiB of memory are left for the cache, but one rollout of {context} tokens needs {} MiB; \
                 raise `memory_fraction` or lower `max_context_tokens`",
                usable >> 20,
                (most as u64 * bytes_per_page) >> 20
            );
        }
        let shape = [
            config.layers,
            pages as i64,
            config.kv_heads,
            PAGE_TOKENS as i64,
            config.head_dim,
        ];
        let cache = || Tensor::zeros(shape, (network.kind, network.device));
        let widest = bucket(slots);
        Ok(Some(Self {
            kernels,
            keys: cache(),
            values: cache(),
            pages: Pages::new(pages),
            held: vec![Vec::new(); slots],
            slots: Slots::new(slots, pages_of(context), network.device),
            prompts: BTreeMap::new(),
            set_aside: BTreeMap::new(),
            pending: VecDeque::new(),
            rows: Tensor::full([widest as i64], -1, (Kind::Int, network.device)),
            sampled: Sampled::on_device(BLOCK_STEPS * widest, network.device),
            graphs: BTreeMap::new(),
            pool: Pool::new()?,
            captured: Vec::new(),
        }))
    }

    /// Runs prompts that have no state yet, as packs.
    fn prefill(&mut self, model: Model<'_>, groups: &[Group<'_>], version: u64) -> Result<()> {
        let missing = |group: &&Group<'_>| {
            self.prompts
                .get(&group.id)
                .is_some_and(|prompt| prompt.logits.is_none())
        };
        let mut rest: Vec<&Group<'_>> = groups.iter().filter(missing).collect();
        while !rest.is_empty() {
            let mut tokens = 0;
            let fits = |group: &&&Group<'_>| {
                let first = tokens == 0;
                tokens += group.request.prompt.len();
                first || tokens <= PREFILL_TOKENS
            };
            let later = rest.split_off(rest.iter().take_while(fits).count());
            let prompts: Vec<&[u32]> = rest.iter().map(|group| group.request.prompt.as_slice()).collect();
            let places: Vec<i64> = rest.iter().flat_map(|group| self.places(group)).collect();
            let logits = self
                .kernels
                .prefill(model, &prompts, &cuda::upload(&places)?, [&self.keys, &self.values])?;
            for (index, group) in rest.iter().enumerate() {
                if let Some(prompt) = self.prompts.get_mut(&group.id) {
                    prompt.logits = Some(logits.narrow(0, index as i64, 1));
                    prompt.version = version;
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Where each token of a prompt lies in the cache.
    fn places(&self, group: &Group<'_>) -> Vec<i64> {
        let pages = self.prompts.get(&group.id).into_iter();
        let pages = pages.flat_map(|prompt| prompt.full.iter().chain(&prompt.tail));
        let places = pages.flat_map(|&page| {
            let first = i64::from(page) * PAGE_TOKENS as i64;
            first..first + PAGE_TOKENS as i64
        });
        places.take(group.request.prompt.len()).collect()
    }

    /// Draws the first token of new samples from the logits of their prompts.
    fn draw_first(&mut self, groups: &[Group<'_>]) -> Result<()> {
        let (mut tickets, mut logits, mut logit_rows, mut versions) = (vec![], vec![], vec![], vec![]);
        for group in groups {
            let Some(prompt) = self.prompts.get(&group.id) else {
                continue;
            };
            let Some(own) = &prompt.logits else { continue };
            logit_rows.extend(group.tickets.iter().map(|_| logits.len() as i32));
            versions.extend(group.tickets.iter().map(|_| prompt.version));
            logits.push(own);
            tickets.extend_from_slice(&group.tickets);
        }
        let version = versions.first().copied().unwrap_or_default();
        let rows: Vec<i32> = tickets.iter().map(|ticket| ticket.slot as i32).collect();
        let (rows, logit_rows) = (cuda::upload(&rows)?, cuda::upload(&logit_rows)?);
        let into = Sampled::on_device(tickets.len(), self.keys.device());
        self.kernels.sample(
            &Tensor::cat(&logits, 0),
            Some(&logit_rows),
            &rows,
            &self.slots,
            &into,
            false,
        )?;
        self.send(&into, tickets, 1, version)
    }

    /// Sends `steps` steps of `width` rows to the host.
    fn send(&mut self, from: &Sampled, tickets: Vec<Ticket>, steps: usize, version: u64) -> Result<()> {
        let width = from.len() / steps;
        let sampled = Sampled::pinned(steps * width)?;
        sampled.copy_later(from)?;
        let arrived = Event::new(false)?;
        arrived.record(Stream::current()?)?;
        self.pending.push_back(Pending {
            tickets,
            steps,
            width,
            sampled,
            arrived,
            version,
        });
        Ok(())
    }

    /// The graph of one step for `rows` rows at these weights.
    fn capture(&mut self, model: Model<'_>, rows: usize) -> Result<()> {
        let addresses: Vec<usize> = model.weights.iter().map(|leaf| leaf.data_ptr() as usize).collect();
        if self.captured != addresses {
            self.graphs.clear();
            self.captured = addresses;
        }
        if self.graphs.contains_key(&rows) {
            return Ok(());
        }
        // The runs before a capture are real: no row may have a slot.
        let _ = self.rows.fill_(-1);
        let into = self.sampled.first(BLOCK_STEPS * rows);
        let served = self.rows.narrow(0, 0, rows as i64);
        let (kernels, slots, cache) = (&self.kernels, &self.slots, [&self.keys, &self.values]);
        let (graph, ()) = Graph::capture(&self.pool, || {
            let logits = kernels.step(model, &served, slots, cache)?;
            kernels.sample(&logits, None, &served, slots, &into, true)
        })?;
        self.graphs.insert(rows, graph);
        Ok(())
    }

    fn drop_prompt(&mut self, id: u64) {
        for pages in self.set_aside.remove(&id).into_iter().flatten() {
            self.pages.give_back(&pages);
        }
        if let Some(prompt) = self.prompts.remove(&id) {
            self.pages.give_back(&prompt.full);
            self.pages.give_back(prompt.tail.as_slice());
        }
    }
}

impl Decoder for Graphs {
    fn slots(&self) -> usize {
        self.held.len()
    }

    /// Sets pages aside for as many samples as possible, each up to its longest end: what runs is never put off again.
    fn room(&mut self, id: u64, request: &Request, samples: usize) -> usize {
        let prompt = request.prompt.len();
        let (shared, own) = pages_of_a_sample(prompt, request.max_new_tokens);
        if samples > 0 && !self.prompts.contains_key(&id) {
            if self.pages.free() < pages_of(prompt) + own {
                return 0;
            }
            let mut full = self.pages.take(pages_of(prompt)).unwrap_or_default();
            let tail = (full.len() > shared).then(|| full.pop()).flatten();
            self.prompts.insert(
                id,
                Prompt {
                    full,
                    tail,
                    logits: None,
                    version: 0,
                },
            );
        }
        let set_aside = self.set_aside.entry(id).or_default();
        let before = set_aside.len();
        while set_aside.len() - before < samples
            && let Some(pages) = self.pages.take(own)
        {
            set_aside.push(pages);
        }
        set_aside.len() - before
    }

    fn place(&mut self, model: Model<'_>, groups: &[Group<'_>], version: u64) -> Result<()> {
        self.prefill(model, groups, version)?;
        let (mut placed, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for group in groups {
            let (Some(prompt), Some(own)) = (self.prompts.get(&group.id), self.set_aside.remove(&group.id)) else {
                fail!("a request is placed that no pages were set aside for");
            };
            for (ticket, own) in group.tickets.iter().zip(own) {
                if let (Some(tail), Some(&first)) = (prompt.tail, own.first()) {
                    from.push(tail);
                    to.push(first);
                }
                self.pages.share(&prompt.full);
                let pages = [prompt.full.as_slice(), &own].concat();
                placed.push(NewSlot::new(group.request, *ticket, &pages));
                self.held[ticket.slot] = pages;
            }
        }
        self.kernels.copy_pages([&self.keys, &self.values], &from, &to)?;
        if self.slots.place(&placed)? {
            // Their addresses are in the graphs.
            self.graphs.clear();
        }
        self.draw_first(groups)?;
        for group in groups.iter().filter(|group| !group.others_wait) {
            self.drop_prompt(group.id);
        }
        Ok(())
    }

    fn launch(&mut self, model: Model<'_>, tickets: &[Ticket], version: u64) -> Result<()> {
        let width = bucket(tickets.len());
        self.capture(model, width)?;
        let slots = tickets.iter().map(|ticket| ticket.slot as i32);
        let rows: Vec<i32> = slots.chain(std::iter::repeat(-1)).take(width).collect();
        self.rows.narrow(0, 0, width as i64).copy_(&cuda::upload(&rows)?);
        self.kernels.rewind();
        let Some(graph) = self.graphs.get(&width) else {
            fail!("the graph of {width} rows is gone");
        };
        for _ in 0..BLOCK_STEPS {
            graph.replay()?;
        }
        let from = self.sampled.first(BLOCK_STEPS * width);
        self.send(&from, tickets.to_vec(), BLOCK_STEPS, version)
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn depth(&self) -> usize {
        1
    }

    fn collect(&mut self) -> Result<Block> {
        let Some(pending) = self.pending.pop_front() else {
            fail!("no block is in flight");
        };
        pending.arrived.synchronize()?;
        let (ids, logprobs) = pending
            .sampled
            .to_host(pending.steps, pending.width, pending.tickets.len())?;
        Ok(Block {
            first_versions: vec![pending.version; pending.tickets.len()],
            tickets: pending.tickets,
            steps: pending.steps,
            ids,
            logprobs,
            version: pending.version,
        })
    }

    fn release(&mut self, slot: usize) {
        let pages = std::mem::take(&mut self.held[slot]);
        self.pages.give_back(&pages);
    }

    fn forget_prompt(&mut self, id: u64) {
        self.drop_prompt(id);
    }

    fn forget_prompts(&mut self) {
        let ids: Vec<u64> = self.prompts.keys().copied().collect();
        for id in ids {
            self.drop_prompt(id);
        }
    }

    fn clear(&mut self) {
        self.pending.clear();
        self.prompts.clear();
        self.set_aside.clear();
        self.held.fill(Vec::new());
        self.pages = Pages::new(self.keys.size()[1] as usize);
        // After a fault of the card itself this fails too, and so does what comes next.
        let _ = (self.keys.f_zero_(), self.values.f_zero_());
    }
}

/// Pages that a sample shares with others of its prompt, and those that are its own: the last token is drawn and never
/// run.
fn pages_of_a_sample(prompt: usize, max_new_tokens: usize) -> (usize, usize) {
    let shared = prompt / PAGE_TOKENS;
    (shared, pages_of((prompt + max_new_tokens - 1).max(prompt)) - shared)
}

/// Most pages that a prompt and a sample of it take together: one is begun by the prompt, and copied for the sample.
/// The table of memory says the same (`pages` in engine/runtime/src/compile/memory/parts.rs).
fn pages_of_a_slot(context: usize) -> usize {
    pages_of(context) + 1
}

/// Rows of the graph that runs `rows` rows: at most an eighth of them are idle.
fn bucket(rows: usize) -> usize {
    let step = (rows.next_power_of_two() / 8).max(SMALLEST_BUCKET);
    rows.next_multiple_of(step)
}

/// Memory that steps of all slots take beside the cache: logits and the widest activations.
fn scratch_bytes(network: &Network, slots: usize) -> u64 {
    let config = &network.config;
    let widest = 2 * config.intermediate + 8 * config.hidden;
    bucket(slots) as u64 * (4 * config.vocabulary + 2 * widest) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However long prompt and response are: what is set aside for a slot is never too little, and not too much for
    /// some.
    #[test]
    fn a_prompt_and_a_sample_of_it_fit_into_the_pages_of_a_slot() {
        for context in [2, 63, 64, 65, 127, 128, 200, 320] {
            let mut most = 0;
            for prompt in 1..context {
                for new in 1..=context - prompt {
                    let (shared, own) = pages_of_a_sample(prompt, new);
                    assert!((shared + own) * PAGE_TOKENS >= prompt + new - 1);
                    most = most.max(pages_of(prompt) + own);
                }
            }
            // What is drawn last is never run: a page that it alone would begin is not needed.
            let begun = usize::from(context % PAGE_TOKENS == 1);
            assert_eq!(most + begun, pages_of_a_slot(context), "{context}");
        }
    }

    #[test]
    fn buckets_hold_their_rows_and_are_few() {
        let mut distinct = std::collections::BTreeSet::new();
        for rows in 1..=2048 {
            let bucket = bucket(rows);
            assert!(
                bucket >= rows && (bucket - rows) * 8 < rows.max(64) * 2,
                "{rows} {bucket}"
            );
            distinct.insert(bucket);
        }
        assert!(distinct.len() <= 40, "{}", distinct.len());
    }
}
