//! What the device knows of each slot.

use tch::{Device, Kind, Tensor};

use super::decoder::Ticket;
use super::pages::Page;
use super::request::Request;
use crate::Result;
use crate::native::cuda;

/// Integers and floats of a slot, in the order in which they lie in `Slots::words`; floats as their bits.
#[derive(Debug, Clone, Copy)]
pub enum Word {
    /// The token that is run next.
    Token,
    /// Its index in its sequence, which is the number of tokens in the cache.
    Position,
    /// 1 where the slot writes and reads nothing.
    Done,
    /// Float; 0 is greedy.
    Temperature,
    /// 0: off.
    TopK,
    /// Float; 1: off.
    TopP,
    /// Float; 0: off.
    MinP,
    /// First position at which a stop id may be drawn.
    StopsFrom,
    /// A token drawn for the position before this one is the last.
    End,
}

/// How many words a slot has.
const WORDS: usize = Word::End as usize + 1;

/// A slot about to be filled.
#[derive(Debug)]
pub struct NewSlot {
    slot: i64,
    words: [i32; WORDS],
    seed: i64,
    stop_ids: Vec<i32>,
    pages: Vec<Page>,
}

impl NewSlot {
    /// A sample that has run its prompt and drawn nothing yet.
    pub fn new(request: &Request, ticket: Ticket, pages: &[Page]) -> Self {
        let (settings, prompt) = (&request.settings, request.prompt.len());
        let bits = |value: f64| (value as f32).to_bits() as i32;
        let bounded = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
        let mut words = [0; WORDS];
        for (word, value) in [
            (Word::Position, prompt as i32 - 1),
            (Word::Temperature, bits(settings.temperature)),
            (Word::TopK, bounded(settings.top_k)),
            (Word::TopP, bits(settings.top_p)),
            (Word::MinP, bits(settings.min_p)),
            (Word::StopsFrom, bounded(settings.stops_from)),
            (Word::End, (prompt + request.max_new_tokens) as i32),
        ] {
            words[word as usize] = value;
        }
        Self {
            slot: ticket.slot as i64,
            words,
            seed: request.seeds[ticket.sample] as i64,
            stop_ids: settings.stop_ids.iter().map(|&id| id as i32).collect(),
            pages: pages.to_vec(),
        }
    }
}

/// Device arrays over slots.
#[derive(Debug)]
pub struct Slots {
    /// `[WORDS, slots]`, int32.
    words: Tensor,
    /// `[slots]`, int64: the bits of each seed.
    pub seeds: Tensor,
    /// `[slots, width]`, int32; below 0 where a slot has fewer.
    pub stop_ids: Tensor,
    /// `[slots, pages of a context]`, int32.
    pub pages: Tensor,
}

impl Slots {
    /// Slots of which none is in use.
    pub fn new(slots: usize, pages_of_a_slot: usize, device: Device) -> Self {
        let ints = (Kind::Int, device);
        let slots = slots as i64;
        let words = Tensor::zeros([WORDS as i64, slots], ints);
        let _ = words.get(Word::Done as i64).fill_(1);
        Self {
            words,
            seeds: Tensor::zeros([slots], (Kind::Int64, device)),
            stop_ids: Tensor::full([slots, 1], -1, ints),
            pages: Tensor::zeros([slots, pages_of_a_slot as i64], ints),
        }
    }

    /// One word of every slot, `[slots]`.
    pub fn word(&self, word: Word) -> Tensor {
        self.words.get(word as i64)
    }

    /// Writes new slots. True where the arrays have moved, because a slot has more stop ids than any before.
    pub fn place(&mut self, new: &[NewSlot]) -> Result<bool> {
        let width = new
            .iter()
            .map(|slot| slot.stop_ids.len())
            .max()
            .unwrap_or(0)
            .next_power_of_two() as i64;
        let grown = width - self.stop_ids.size()[1];
        if grown > 0 {
            self.stop_ids = self.stop_ids.constant_pad_nd([0, grown]).contiguous();
            let _ = self.stop_ids.narrow(1, width - grown, grown).fill_(-1);
        }
        let padded = |values: &[i32], width: i64, with: i32| {
            let rest = std::iter::repeat_n(with, width as usize - values.len());
            values.iter().copied().chain(rest).collect::<Vec<i32>>()
        };
        let (stop_width, page_width) = (self.stop_ids.size()[1], self.pages.size()[1]);
        let count = new.len() as i64;
        let rows = |values: Vec<i32>, width: i64| Ok::<_, crate::Error>(cuda::upload(&values)?.view([count, width]));
        let slots = cuda::upload(&new.iter().map(|slot| slot.slot).collect::<Vec<i64>>())?;
        let words = rows(new.iter().flat_map(|slot| slot.words).collect(), WORDS as i64)?;
        let seeds = cuda::upload(&new.iter().map(|slot| slot.seed).collect::<Vec<i64>>())?;
        let stops = new.iter().flat_map(|slot| padded(&slot.stop_ids, stop_width, -1));
        let stops = rows(stops.collect(), stop_width)?;
        let pages = new.iter().flat_map(|slot| padded(&slot.pages, page_width, 0));
        let pages = rows(pages.collect(), page_width)?;
        let _ = self.words.index_copy_(1, &slots, &words.tr());
        let _ = self.seeds.index_copy_(0, &slots, &seeds);
        let _ = self.stop_ids.index_copy_(0, &slots, &stops);
        let _ = self.pages.index_copy_(0, &slots, &pages);
        Ok(grown > 0)
    }
}
