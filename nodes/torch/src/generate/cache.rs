//! Keys and values of every slot, and the two passes that fill them: a prompt at once, then a token at a time.

use tch::{Device, Kind, Tensor};

use crate::device::wide;
use crate::error::unfailing;
use crate::model::{Network, Packed};
use crate::native::operators;

/// `[layers, slots, kv_heads, context, head_dim]` each, in the compute type.
#[derive(Debug)]
pub struct Cache {
    keys: Tensor,
    values: Tensor,
    /// `[slots]`: 0, 1, 2, ...
    slots: Tensor,
    /// `[1, context]`: 0, 1, 2, ...
    places: Tensor,
}

/// What a prompt leaves behind; the samples of a group start from the same one.
#[derive(Debug)]
pub struct Prefilled {
    keys: Tensor,
    values: Tensor,
    /// Of the token after the prompt, `[vocabulary]`.
    pub logits: Tensor,
    /// Policy version that computed it.
    pub version: u64,
}

impl Cache {
    /// An empty cache of `slots` rollouts of at most `context` tokens.
    pub fn new(network: &Network, slots: i64, context: i64) -> Self {
        let config = &network.config;
        let shape = [config.layers, slots, config.kv_heads, context, config.head_dim];
        let zeros = || Tensor::zeros(shape, (network.kind, network.device));
        let index = (Kind::Int64, network.device);
        Self {
            keys: zeros(),
            values: zeros(),
            slots: Tensor::arange(slots, index),
            places: Tensor::arange(context, index).unsqueeze(0),
        }
    }

    /// Bytes that one slot takes, with the scratch of drawing a token (about five float64 a vocabulary entry).
    pub fn bytes_per_slot(network: &Network, context: i64) -> u64 {
        let config = &network.config;
        let values = 2 * config.layers * config.kv_heads * context * config.head_dim;
        values as u64 * network.kind.elt_size_in_bytes() as u64 + 40 * config.vocabulary as u64
    }

    /// Copies a prompt's state into slots.
    pub fn place(&self, prompt: &Prefilled, slots: &[i64]) {
        let index = Tensor::from_slice(slots).to_device(self.keys.device());
        for (cache, prompt) in [(&self.keys, &prompt.keys), (&self.values, &prompt.values)] {
            let (layers, heads, length, dim) = prompt.size4().unwrap_or_default();
            let copies = prompt
                .unsqueeze(1)
                .expand([layers, slots.len() as i64, heads, length, dim], false);
            let _ = cache.narrow(3, 0, length).index_copy_(1, &index, &copies);
        }
    }

    /// Forgets everything, numbers that are not finite included.
    pub fn clear(&mut self) {
        // After a fault of the card itself this fails too, and so does what comes next.
        let _ = (self.keys.f_zero_(), self.values.f_zero_());
    }

    /// One token in every slot: appends it at `positions` (`[slots]`) and returns the logits after it,
    /// `[slots, vocabulary]`. On a card attention reads the first `live` places of every slot, all of which up to the
    /// position are filled; on a CPU it reads of each slot what is filled.
    pub fn decode(
        &self,
        network: &Network,
        weights: &[Tensor],
        tokens: &Tensor,
        positions: &Tensor,
        live: i64,
    ) -> Tensor {
        let config = &network.config;
        let (slots, shared) = (self.slots.size()[0], config.heads / config.kv_heads);
        let at = [Some(&self.slots), None, Some(positions)];
        let append = |layer: usize, k: &Tensor, v: &Tensor| {
            let (mut keys, mut values) = (self.keys.select(0, layer as i64), self.values.select(0, layer as i64));
            let _ = keys.index_put_(&at, k, false);
            let _ = values.index_put_(&at, v, false);
            (keys, values)
        };
        let turns = network.turns(positions);
        if network.device == Device::Cpu {
            let scale = (config.head_dim as f64).powf(-0.5);
            let hidden = network.hidden(weights, tokens, &turns, |layer, q, k, v| {
                let (keys, values) = append(layer, k, v);
                let mixed = operators::attend_rows(&q.contiguous(), &keys, &values, positions, scale);
                unfailing(mixed).view([slots, config.heads * config.head_dim])
            });
            return network.logits(weights, &hidden);
        }
        let hidden_places = self.places.narrow(1, 0, live).gt_tensor(&positions.unsqueeze(1));
        let mask = Tensor::zeros([slots, live], (network.kind, network.device))
            .masked_fill(&hidden_places, f64::NEG_INFINITY)
            .view([slots, 1, 1, live])
            .expand([slots, 1, shared, live], false);
        let hidden = network.hidden(weights, tokens, &turns, |layer, q, k, v| {
            let (keys, values) = append(layer, k, v);
            // The query heads that share a key head take the place of query positions.
            let queries = q.reshape([slots, config.kv_heads, shared, config.head_dim]);
            let (keys, values) = (keys.narrow(2, 0, live), values.narrow(2, 0, live));
            Tensor::scaled_dot_product_attention(&queries, &keys, &values, Some(&mask), 0.0, false, None, false)
                .reshape([slots, config.heads * config.head_dim])
        });
        network.logits(weights, &hidden)
    }
}

/// Runs prompts, and keeps their keys and values; together they are one right-padded batch.
pub fn prefill(network: &Network, weights: &[Tensor], prompts: &[&[u32]], version: u64) -> Vec<Prefilled> {
    let pack = Packed::new(prompts, network.device);
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let hidden = network.packed(weights, &pack, |_, k, v| {
        keys.push(pack.pad(k));
        values.push(pack.pad(v));
    });
    let mut ends = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        ends.push(ends.last().map_or(-1, |end| *end) + prompt.len() as i64);
    }
    let ends = Tensor::from_slice(&ends).to_device(network.device);
    let logits = network.logits(weights, &hidden.index_select(0, &ends));
    let (keys, values) = (Tensor::stack(&keys, 0), Tensor::stack(&values, 0));
    let one = |(index, prompt): (usize, &&[u32])| {
        let of = |all: &Tensor| all.select(1, index as i64).narrow(2, 0, prompt.len() as i64);
        Prefilled {
            keys: of(&keys),
            values: of(&values),
            logits: logits.get(index as i64),
            version,
        }
    };
    prompts.iter().enumerate().map(one).collect()
}

/// A buffer for the logits of every slot.
pub fn empty_logits(network: &Network, slots: i64) -> Tensor {
    Tensor::zeros([slots, network.config.vocabulary], (wide(network.kind), network.device))
}

/// Whether prompts may share a prefill and attention may stop at the live length: both let a rollout's last bits depend
/// on its neighbours, which a CPU run promises not to do.
pub fn neighbours_matter(device: Device) -> bool {
    device.is_cuda()
}
