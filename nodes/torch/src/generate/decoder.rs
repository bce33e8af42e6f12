//! What the engine asks of whatever computes tokens for its slots.

use tch::Tensor;

use super::request::Request;
use crate::Result;
use crate::model::Network;

/// A network and the weights that it speaks with.
#[derive(Debug, Clone, Copy)]
pub struct Model<'a> {
    /// Shape and constants.
    pub network: &'a Network,
    /// One tensor a leaf of its layout.
    pub weights: &'a [Tensor],
}

/// A sample of a request in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Id of the command.
    pub request: u64,
    /// Index among its samples.
    pub sample: usize,
    /// Where its state lies.
    pub slot: usize,
}

/// Samples of one request that get slots together.
#[derive(Debug)]
pub struct Group<'a> {
    /// Id of the command.
    pub id: u64,
    /// The command.
    pub request: &'a Request,
    /// Samples that start now.
    pub tickets: Vec<Ticket>,
    /// Whether others of its samples wait, which start from the same prompt later.
    pub others_wait: bool,
}

/// Tokens of some slots.
#[derive(Debug, Default)]
pub struct Block {
    /// Whose they are; a slot may have changed hands since.
    pub tickets: Vec<Ticket>,
    /// Tokens of each ticket at most.
    pub steps: usize,
    /// `[steps * tickets]`, those of one step side by side; below 0 where a sample had ended.
    pub ids: Vec<i32>,
    /// Log-probs under the distribution drawn from, like `ids`.
    pub logprobs: Vec<f32>,
    /// Policy version of the first token of each ticket.
    pub first_versions: Vec<u64>,
    /// Policy version of all later ones.
    pub version: u64,
}

/// Computes tokens. What was asked for first comes back first.
pub trait Decoder: std::fmt::Debug + Send {
    /// Slots, taken or free.
    fn slots(&self) -> usize;

    /// How many of `samples` samples of a request there is memory for now, slots aside.
    fn room(&mut self, id: u64, request: &Request, samples: usize) -> usize;

    /// Runs prompts whose state is not there yet, and starts samples in their slots.
    fn place(&mut self, model: Model<'_>, groups: &[Group<'_>], version: u64) -> Result<()>;

    /// Asks for the next tokens of running samples, in ascending order of slots.
    fn launch(&mut self, model: Model<'_>, tickets: &[Ticket], version: u64) -> Result<()>;

    /// Blocks that were asked for and not yet collected.
    fn in_flight(&self) -> usize;

    /// Blocks that may stay in flight while there is more to ask for.
    fn depth(&self) -> usize;

    /// Waits for the oldest block.
    fn collect(&mut self) -> Result<Block>;

    /// A slot's sample has ended.
    fn release(&mut self, slot: usize);

    /// The state of a prompt is no longer needed.
    fn forget_prompt(&mut self, id: u64);

    /// Forgets all prompts: another version speaks from now on.
    fn forget_prompts(&mut self);

    /// Drops everything after a fault, numbers that are not finite included.
    fn clear(&mut self);
}
