//! A decode step on a card: torch's products, and between them the kernels of `nodes/torch/kernels`.

use rlpipe_model::ModelConfig;
use tch::{Device, Kind, Tensor};

use super::decoder::Model;
use super::pages::PAGE_TOKENS;
use super::slots::{Slots, Word};
use crate::model::{Linear, Network, Packed, linear};
use crate::native::kernel::{Argument, Function};
use crate::native::{cuda, operators};
use crate::ops::{add_norm, gate};
use crate::{Result, fail, kernels};

/// Blocks that keep a card busy: where there are fewer rows, several share a row's attention.
const BUSY_BLOCKS: usize = 128;
/// Blocks that share a row's attention at most.
const MOST_SPLITS: usize = 8;
/// Threads of a block of `attend` and of `sample`.
const ATTEND_THREADS: u32 = 64;
const SAMPLE_THREADS: u32 = 256;

/// Ids and log-probs of drawn tokens, step after step: int32 and float32.
#[derive(Debug)]
pub struct Sampled {
    ids: Tensor,
    logprobs: Tensor,
}

impl Sampled {
    /// Room for so many tokens on the device.
    pub fn on_device(tokens: usize, device: Device) -> Self {
        Self {
            ids: Tensor::zeros([tokens as i64], (Kind::Int, device)),
            logprobs: Tensor::zeros([tokens as i64], (Kind::Float, device)),
        }
    }

    /// Room for so many tokens in memory of the host that the card writes to.
    pub fn pinned(tokens: usize) -> Result<Self> {
        Ok(Self {
            ids: cuda::pinned(&[tokens as i64], Kind::Int)?,
            logprobs: cuda::pinned(&[tokens as i64], Kind::Float)?,
        })
    }

    /// Tokens that there is room for.
    pub fn len(&self) -> usize {
        self.ids.numel()
    }

    /// A view of the first tokens.
    pub fn first(&self, tokens: usize) -> Self {
        Self {
            ids: self.ids.narrow(0, 0, tokens as i64),
            logprobs: self.logprobs.narrow(0, 0, tokens as i64),
        }
    }

    /// Copies when the stream comes to it.
    pub fn copy_later(&self, from: &Self) -> Result<()> {
        operators::copy_later(&self.ids, &from.ids)?;
        operators::copy_later(&self.logprobs, &from.logprobs)
    }

    /// The first `rows` of the `width` tokens of each step.
    pub fn to_host(&self, steps: usize, width: usize, rows: usize) -> Result<(Vec<i32>, Vec<f32>)> {
        let of = |tensor: &Tensor| {
            tensor
                .view([steps as i64, width as i64])
                .narrow(1, 0, rows as i64)
                .reshape([-1])
        };
        Ok((Vec::try_from(of(&self.ids))?, Vec::try_from(of(&self.logprobs))?))
    }
}

/// The kernels of a network's decode step, and what they keep between launches.
#[derive(Debug)]
pub struct DecodeKernels {
    embed: Function,
    attend: Function,
    sample: Function,
    write_cache: Function,
    copy_pages: Function,
    /// Float32 `[positions, head_dim / 2]` each.
    cosine: Tensor,
    sine: Tensor,
    /// Steps since `rewind`, less one: `[1]`, int32.
    step: Tensor,
    /// Where blocks that share a row put their parts, and how many of them are there: float32, int32.
    parts: Tensor,
    arrived: Tensor,
    /// Steps that a ring of results holds.
    ring: i32,
}

impl DecodeKernels {
    /// None where the network, its type or its device has no kernels; `ring` is how many steps results are kept for.
    pub fn of(network: &Network, ring: usize) -> Result<Option<Self>> {
        let config = &network.config;
        let share = config.heads / config.kv_heads;
        let fits = network.device.is_cuda()
            && kernels::suit_the_card()
            && kernels::KINDS.contains(&network.kind)
            && kernels::HEAD_DIMS.contains(&config.head_dim)
            && config.hidden % 8 == 0
            && config.intermediate % 8 == 0;
        if !fits {
            return Ok(None);
        }
        let module = kernels::of_heads(network.kind, config.head_dim, share)?;
        let queries = share.min(8);
        let groups = config.kv_heads * ((share + 7) / 8);
        let most_blocks = (BUSY_BLOCKS * 2).max(groups as usize) as i64;
        let (cosine, sine) = network.rotary_tables();
        Ok(Some(Self {
            embed: module.function("embed")?,
            attend: module.function("attend")?,
            sample: module.function("sample")?,
            write_cache: module.function("write_cache")?,
            copy_pages: module.function("copy_pages")?,
            cosine: cosine.shallow_clone(),
            sine: sine.shallow_clone(),
            step: Tensor::zeros([1], (Kind::Int, network.device)),
            parts: Tensor::empty(
                [most_blocks * queries * (config.head_dim + 2)],
                (Kind::Float, network.device),
            ),
            arrived: Tensor::zeros([most_blocks], (Kind::Int, network.device)),
            ring: ring as i32,
        }))
    }

    /// The next step is the first of a ring.
    pub fn rewind(&self) {
        let _ = self.step.shallow_clone().fill_(-1);
    }

    /// Runs the token of each row's slot, and returns the logits after it, `[rows, vocabulary]`; rows without a live slot
    /// have logits of no meaning. `rows` is int32, the slot of each row or -1; `cache` are keys and values.
    pub fn step(&self, model: Model<'_>, rows: &Tensor, slots: &Slots, cache: [&Tensor; 2]) -> Result<Tensor> {
        let Model { network, weights } = model;
        let (config, count) = (&network.config, rows.size()[0]);
        let norm =
            |rows: &Tensor, delta: Option<&Tensor>, leaf: usize| add_norm(rows, delta, &weights[leaf], config.norm_eps);
        let product = |rows: &Tensor, layer: Linear| linear(weights, layer, rows);
        let mut residual = self.embed(model, rows, slots)?;
        let mut delta: Option<Tensor> = None;
        for (layer, block) in network.layout.blocks.iter().enumerate() {
            let normed = norm(&residual, delta.as_ref(), block.input_norm);
            let qkv = product(&normed.out, block.qkv);
            let norms = block
                .query_key_norms
                .map(|(query, key)| [&weights[query], &weights[key]]);
            let cache = cache.map(|side| side.get(layer as i64));
            let mixed = self.attend(config, &qkv, norms, rows, slots, [&cache[0], &cache[1]])?;
            let mixed = product(&mixed, block.output);
            let normed = norm(&normed.sum, Some(&mixed), block.gated_norm);
            let gated = gate(&product(&normed.out, block.gate_up));
            delta = Some(product(&gated, block.down));
            residual = normed.sum;
        }
        let normed = norm(&residual, delta.as_ref(), network.layout.last_norm);
        debug_assert_eq!(normed.out.size()[0], count);
        Ok(network.logits(weights, &normed.out))
    }

    fn embed(&self, model: Model<'_>, rows: &Tensor, slots: &Slots) -> Result<Tensor> {
        let width = model.network.config.hidden;
        let out = Tensor::empty([rows.size()[0], width], (Kind::Float, rows.device()));
        let arguments = [
            (&model.weights[0]).into(),
            (&slots.word(Word::Token)).into(),
            rows.into(),
            (&slots.word(Word::Done)).into(),
            (&out).into(),
            (&self.step).into(),
            (width as i32).into(),
        ];
        // SAFETY: `embed` of cache.cu; tokens are ids of the vocabulary, rows are slots.
        unsafe { self.embed.launch([count_of(rows), 1, 1], [128, 1, 1], 0, &arguments)? };
        Ok(out)
    }

    fn attend(
        &self,
        config: &ModelConfig,
        qkv: &Tensor,
        norms: Option<[&Tensor; 2]>,
        rows: &Tensor,
        slots: &Slots,
        [keys, values]: [&Tensor; 2],
    ) -> Result<Tensor> {
        let share = config.heads / config.kv_heads;
        let blocks = count_of(rows) as usize * (config.kv_heads * ((share + 7) / 8)) as usize;
        let splits = (BUSY_BLOCKS / blocks).clamp(1, MOST_SPLITS);
        let out = Tensor::empty(
            [rows.size()[0], config.heads * config.head_dim],
            (qkv.kind(), rows.device()),
        );
        let arguments = [
            qkv.into(),
            norms.map(|[query, _]| query).into(),
            norms.map(|[_, key]| key).into(),
            (config.norm_eps as f32).into(),
            (&self.cosine).into(),
            (&self.sine).into(),
            rows.into(),
            (&slots.word(Word::Position)).into(),
            (&slots.word(Word::Done)).into(),
            (&slots.pages).into(),
            keys.into(),
            values.into(),
            (&out).into(),
            (&self.parts).into(),
            (&self.arrived).into(),
            (config.kv_heads as i32).into(),
            (slots.pages.size()[1] as i32).into(),
            ((config.head_dim as f32).powf(-0.5)).into(),
        ];
        let grid = [blocks as u32, splits as u32, 1];
        // SAFETY: `attend` of attend.cu; every slot has pages up to its end. Blocks and splits together are no more than
        // `parts` and `arrived` have room for where there are several splits.
        unsafe { self.attend.launch(grid, [ATTEND_THREADS, 1, 1], 0, &arguments)? };
        Ok(out)
    }

    /// Draws the next token of each row's slot from row `logit_rows[row]` of float32 `logits`, or from its own, and
    /// moves the slot on. `in_ring`: results go where the step counter says, else to the first step.
    pub fn sample(
        &self,
        logits: &Tensor,
        logit_rows: Option<&Tensor>,
        rows: &Tensor,
        slots: &Slots,
        into: &Sampled,
        in_ring: bool,
    ) -> Result<()> {
        let word = |word| slots.word(word);
        let step = in_ring.then_some(&self.step);
        let arguments: [Argument; 20] = [
            logits.into(),
            logit_rows.into(),
            rows.into(),
            (&word(Word::Temperature)).into(),
            (&word(Word::TopK)).into(),
            (&word(Word::TopP)).into(),
            (&word(Word::MinP)).into(),
            (&slots.seeds).into(),
            (&slots.stop_ids).into(),
            (slots.stop_ids.size()[1] as i32).into(),
            (&word(Word::StopsFrom)).into(),
            (&word(Word::End)).into(),
            (&word(Word::Position)).into(),
            (&word(Word::Done)).into(),
            (&word(Word::Token)).into(),
            step.into(),
            self.ring.into(),
            (&into.ids).into(),
            (&into.logprobs).into(),
            (logits.size()[1] as i32).into(),
        ];
        // SAFETY: `sample` of sample.cu; `into` has room for the rows of all steps of the ring, or of one.
        unsafe {
            self.sample
                .launch([count_of(rows), 1, 1], [SAMPLE_THREADS, 1, 1], 0, &arguments)
        }
    }

    /// Runs prompts, writes their keys and values to `places` (int64, a place a token: its page times the tokens of a page,
    /// and where in it), and returns the logits after each, `[prompts, vocabulary]`.
    pub fn prefill(
        &self,
        model: Model<'_>,
        prompts: &[&[u32]],
        places: &Tensor,
        [keys, values]: [&Tensor; 2],
    ) -> Result<Tensor> {
        let Model { network, weights } = model;
        let pack = Packed::new(prompts, network.device);
        let mut written = Ok(());
        let hidden = network.packed(weights, &pack, |layer, k, v| {
            let cache = [keys.get(layer as i64), values.get(layer as i64)];
            if written.is_ok() {
                written = self.write_cache(k, v, places, [&cache[0], &cache[1]]);
            }
        });
        written?;
        let ends = pack.lengths.iter().scan(-1, |end, length| {
            *end += length;
            Some(*end)
        });
        let ends = cuda::upload(&ends.collect::<Vec<i64>>())?;
        Ok(network.logits(weights, &hidden.index_select(0, &ends)))
    }

    /// `k` and `v` are `[tokens, kv_heads, head_dim]`, perhaps views into wider rows.
    fn write_cache(&self, k: &Tensor, v: &Tensor, places: &Tensor, [keys, values]: [&Tensor; 2]) -> Result<()> {
        let (tokens, kv_heads, head_dim) = k.size3()?;
        let threads = tokens * kv_heads * head_dim / 8;
        let arguments = [
            k.into(),
            v.into(),
            k.stride()[0].into(),
            v.stride()[0].into(),
            places.into(),
            keys.into(),
            values.into(),
            tokens.into(),
            (kv_heads as i32).into(),
        ];
        // SAFETY: `write_cache` of cache.cu; places lie in the cache.
        unsafe {
            self.write_cache
                .launch([threads.div_euclid(256) as u32 + 1, 1, 1], [256, 1, 1], 0, &arguments)
        }
    }

    /// Copies whole pages in every layer.
    pub fn copy_pages(&self, [keys, values]: [&Tensor; 2], from: &[i32], to: &[i32]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        if from.len() != to.len() {
            fail!("{} pages are to be copied to {}", from.len(), to.len());
        }
        let size = keys.size();
        debug_assert_eq!(size[3], PAGE_TOKENS as i64);
        let (from, to) = (cuda::upload(from)?, cuda::upload(to)?);
        let arguments = [
            keys.into(),
            values.into(),
            (&from).into(),
            (&to).into(),
            (size[1] as i32).into(),
            (size[2] as i32).into(),
        ];
        // SAFETY: `copy_pages` of cache.cu; both are pages of the cache.
        unsafe {
            self.copy_pages
                .launch([count_of(&from), size[0] as u32, 1], [256, 1, 1], 0, &arguments)
        }
    }
}

fn count_of(rows: &Tensor) -> u32 {
    rows.size().first().copied().unwrap_or(0) as u32
}
