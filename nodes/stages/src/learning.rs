//! What the kinds that learn have in common: optimizer, schedule, packing.

use std::num::NonZeroU32;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use rlpipe_core::data::{AdamW, Loss, PackMemory, Sequence, SequenceSums};
use rlpipe_core::kind::{Choice, Fraction, LearningRate, NonNegative, OpenFraction, Positive};
use rlpipe_core::services::{Learner, OptimizerReport, ServiceError, Weights};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

/// A size that this version supports as 1 only.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct OnlyOne(#[schemars(range(min = 1, max = 1))] u32);

impl Default for OnlyOne {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for OnlyOne {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            1 => Ok(Self(1)),
            other => Err(de::Error::invalid_value(
                de::Unexpected::Unsigned(other.into()),
                &"1, which is all that this version has",
            )),
        }
    }
}

/// What turns gradients into steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// Adam with decoupled weight decay.
    Adamw(AdamWConfig),
}

/// Settings of `adamw`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// Learning rate at its height.
    lr: Fraction,
    /// Decay of the first and second moments.
    #[serde(default = "default_betas")]
    betas: [OpenFraction; 2],
    /// Added to the root of the second moment.
    #[serde(default = "default_eps")]
    eps: Positive,
    /// Decay of weight matrices, times the learning rate; norms are left out.
    #[serde(default = "default_weight_decay")]
    weight_decay: NonNegative,
}

fn default_betas() -> [OpenFraction; 2] {
    [0.9, 0.95].map(|beta| OpenFraction::new(beta).unwrap_or_else(|| unreachable!("below 1")))
}

fn default_eps() -> Positive {
    Positive::new(1e-8).unwrap_or_else(|| unreachable!("above 0"))
}

fn default_weight_decay() -> NonNegative {
    NonNegative::new(0.01).unwrap_or_else(|| unreachable!("not negative"))
}

/// Gradient norm above which gradients are scaled down, where nothing is said.
pub fn default_max_grad_norm() -> NonNegative {
    NonNegative::new(1.0).unwrap_or_else(|| unreachable!("not negative"))
}

/// Tokens in a pack, where nothing is said.
pub fn default_pack() -> NonZeroU32 {
    NonZeroU32::new(32_768).unwrap_or(NonZeroU32::MIN)
}

/// Tokens whose logits exist at the same time, where nothing is said.
pub fn default_chunk() -> NonZeroU32 {
    NonZeroU32::new(2048).unwrap_or(NonZeroU32::MIN)
}

impl Optimizer {
    /// Learning rate at its height.
    pub fn lr(&self) -> f64 {
        let Self::Adamw(adamw) = self;
        adamw.lr.get()
    }

    /// What the learner is told.
    pub fn adamw(&self, max_grad_norm: NonNegative) -> AdamW {
        let Self::Adamw(adamw) = self;
        AdamW {
            betas: adamw.betas.map(OpenFraction::get),
            eps: adamw.eps.get(),
            weight_decay: adamw.weight_decay.get(),
            max_grad_norm: max_grad_norm.get(),
        }
    }
}

/// How the learning rate goes over the steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LrSchedule {
    /// The same throughout, after the warm-up.
    Constant(ConstantSchedule),
    /// Down to `min_lr` in a straight line.
    Linear(DecaySchedule),
    /// Down to `min_lr` along half a cosine.
    Cosine(DecaySchedule),
}

/// Settings of `constant`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConstantSchedule {
    /// Steps in which the rate rises to its height in a straight line.
    warmup_steps: u32,
}

/// Settings of `linear` and `cosine`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DecaySchedule {
    /// Steps in which the rate rises to its height in a straight line.
    warmup_steps: u32,
    /// The rate of the last step.
    min_lr: NonNegative,
}

impl Default for LrSchedule {
    fn default() -> Self {
        Self::Constant(ConstantSchedule::default())
    }
}

impl LrSchedule {
    /// Steps of warm-up.
    pub fn warmup_steps(&self) -> u32 {
        match self {
            Self::Constant(schedule) => schedule.warmup_steps,
            Self::Linear(schedule) | Self::Cosine(schedule) => schedule.warmup_steps,
        }
    }

    /// What passes need to know of it.
    pub fn described(&self, peak: f64) -> LearningRate {
        LearningRate {
            peak,
            warmup_steps: self.warmup_steps(),
            min: match self {
                Self::Constant(_) => None,
                Self::Linear(schedule) | Self::Cosine(schedule) => Some(schedule.min_lr.get()),
            },
        }
    }

    /// The rate of `step` of `total`, counted from 1: `peak * step / warmup` up to the height, then the decay with
    /// progress `(step - warmup) / (total - warmup)`, so that the last step has `min_lr`.
    pub fn rate(&self, peak: f64, step: u64, total: u64) -> f64 {
        let warmup = u64::from(self.warmup_steps());
        if step < warmup {
            return peak * step as f64 / warmup as f64;
        }
        let progress = (step - warmup) as f64 / total.saturating_sub(warmup).max(1) as f64;
        let progress = progress.min(1.0);
        match self {
            Self::Constant(_) => peak,
            Self::Linear(schedule) => peak + (schedule.min_lr.get() - peak) * progress,
            Self::Cosine(schedule) => {
                let low = schedule.min_lr.get();
                low + (peak - low) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
            }
        }
    }
}

/// The name of the schedule and its settings, as it stands in a config.
pub type Schedule = Choice<LrSchedule>;

/// Sequences that go through the model together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pack {
    /// What goes through.
    pub sequences: Vec<Sequence>,
    /// Where each of them was among all.
    pub places: Vec<usize>,
}

/// As few packs of at most `max_tokens` as first-fit decreasing finds, or fewer, of about equal cost. A longer sequence is
/// alone. What is computed depends on this by rounding only.
pub fn packs(sequences: Vec<Sequence>, max_tokens: usize) -> Vec<Pack> {
    let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.ids.len()).collect();
    let mut sequences: Vec<Option<Sequence>> = sequences.into_iter().map(Some).collect();
    let take = |places: Vec<usize>| Pack {
        sequences: places.iter().filter_map(|&place| sequences[place].take()).collect(),
        places,
    };
    balanced(&lengths, max_tokens).into_iter().map(take).collect()
}

/// What came back of each pack, in the order that the sequences had before.
pub fn unpacked<T>(packs: &[Pack], answers: Vec<Vec<T>>) -> Vec<T> {
    let places = packs.iter().flat_map(|pack| pack.places.iter().copied());
    let mut answers: Vec<(usize, T)> = places.zip(answers.into_iter().flatten()).collect();
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Packs that are with the learner at a time: one is computed, and the next is on its way meanwhile.
const ON_THE_WAY: usize = 2;

/// Log-probs of each sequence of each pack.
pub async fn logprobs(
    learner: &dyn Learner,
    weights: Weights,
    packs: &[Pack],
    chunk_tokens: u32,
) -> Result<Vec<Vec<Vec<f32>>>, ServiceError> {
    // A list, since the compiler cannot see that a lazy one may cross threads.
    let asked: Vec<_> = packs
        .iter()
        .map(|pack| learner.logprobs(weights, &pack.sequences, chunk_tokens))
        .collect();
    stream::iter(asked).buffered(ON_THE_WAY).try_collect().await
}

/// Adds the gradients of all packs, in order, and returns the sums of each sequence of each.
pub async fn train(
    learner: &dyn Learner,
    packs: &[Pack],
    loss: &Loss,
    denominator: f64,
    memory: PackMemory,
) -> Result<Vec<Vec<SequenceSums>>, ServiceError> {
    // A list, since the compiler cannot see that a lazy one may cross threads.
    let asked: Vec<_> = packs
        .iter()
        .map(|pack| learner.train_pack(&pack.sequences, loss, denominator, memory))
        .collect();
    stream::iter(asked).buffered(ON_THE_WAY).try_collect().await
}

/// [`train`] and the optimizer step after it; again with a smaller loss scale while gradients do not fit into float16.
pub async fn train_step(
    learner: &dyn Learner,
    packs: &[Pack],
    loss: &Loss,
    denominator: f64,
    memory: PackMemory,
    learning_rate: f64,
) -> Result<(Vec<Vec<SequenceSums>>, OptimizerReport), ServiceError> {
    loop {
        let sums = train(learner, packs, loss, denominator, memory).await?;
        let report = learner.optimizer_step(learning_rate).await?;
        if !report.again {
            return Ok((sums, report));
        }
    }
}

/// A token's products cost as much as its attention to so many others: 12 times the hidden size of a usual layer, here that of
/// a model with 1024.
const WIDTH: u64 = 12 * 1024;

/// Of a pass over a sequence: products with every token, and attention of every token to those before it.
fn cost(length: usize) -> u64 {
    let length = length as u64;
    length.saturating_mul(WIDTH + length / 2)
}

#[derive(Default)]
struct Bin {
    places: Vec<usize>,
    tokens: usize,
    cost: u64,
}

impl Bin {
    fn has_room(&self, length: usize, max_tokens: usize) -> bool {
        self.places.is_empty() || self.tokens + length <= max_tokens
    }

    fn put(&mut self, place: usize, length: usize) {
        self.places.push(place);
        self.tokens += length;
        self.cost = self.cost.saturating_add(cost(length));
    }
}

/// Numbers of packs that are tried.
const TRIES: usize = 8;

/// Which sequences go together, each pack in ascending order, packs in the order of their first.
///
/// The longest first, each into the cheapest pack with room (Graham 1969, "Bounds on multiprocessing timing anomalies":
/// longest processing time first), with as few packs as there can be; with one more where that leaves one over, a few times; in
/// the end as first-fit decreasing has them.
fn balanced(lengths: &[usize], max_tokens: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(lengths[place]));
    let first_fit = fill(&order, lengths, 0, |bins, length| {
        bins.iter().position(|bin| bin.has_room(length, max_tokens))
    });
    let most = first_fit.len();
    let (alone, rest): (Vec<usize>, Vec<usize>) = lengths.iter().partition(|length| **length > max_tokens);
    let tokens = rest.iter().sum::<usize>().div_ceil(max_tokens.max(1));
    // No two of these go together.
    let halves = rest.iter().filter(|&&length| 2 * length > max_tokens).count();
    let least = alone.len() + tokens.max(halves);
    let cheapest = |bins: &[Bin], length: usize| {
        let fits = bins
            .iter()
            .enumerate()
            .filter(|(_, bin)| bin.has_room(length, max_tokens));
        fits.min_by_key(|(_, bin)| bin.cost).map(|(index, _)| index)
    };
    let mut counts = (least..=most)
        .take(TRIES)
        .map(|count| (count, fill(&order, lengths, count, cheapest)));
    let even = counts.find_map(|(count, bins)| (bins.len() == count).then_some(bins));
    let mut packs: Vec<Vec<usize>> = even.unwrap_or(first_fit).into_iter().map(|bin| bin.places).collect();
    packs.retain(|places| !places.is_empty());
    packs.iter_mut().for_each(|places| places.sort_unstable());
    packs.sort_unstable();
    packs
}

/// Puts each sequence where `choose` says, into a new pack where it says nowhere; begins with `count` empty ones.
fn fill(order: &[usize], lengths: &[usize], count: usize, choose: impl Fn(&[Bin], usize) -> Option<usize>) -> Vec<Bin> {
    let mut bins: Vec<Bin> = (0..count).map(|_| Bin::default()).collect();
    for &place in order {
        let index = choose(&bins, lengths[place]).unwrap_or_else(|| {
            bins.push(Bin::default());
            bins.len() - 1
        });
        bins[index].put(place, lengths[place]);
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequences(lengths: &[usize]) -> Vec<Sequence> {
        let of = |(place, &length): (usize, &usize)| Sequence {
            ids: vec![place as u32; length],
            ..Sequence::default()
        };
        lengths.iter().enumerate().map(of).collect()
    }

    #[test]
    fn packs_are_few_and_even_by_hand() {
        // The cheapest pack first leaves no room for the last 2; first-fit decreasing has it.
        assert_eq!(balanced(&[5, 4, 3, 6, 2], 10), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(balanced(&[4, 4, 4], 8), [vec![0, 2], vec![1]]);
        assert_eq!(balanced(&[9, 1], 8), [vec![0], vec![1]]);
        assert_eq!(balanced(&[1; 6], 4), [vec![0, 2, 4], vec![1, 3, 5]]);
        assert_eq!(balanced(&[3, 3, 2, 2, 2], 6), [vec![0, 1], vec![2, 3, 4]]);
        assert_eq!(balanced(&[25, 3, 3, 3], 10), [vec![0], vec![1, 2, 3]]);
        assert!(balanced(&[], 8).is_empty());
    }

    #[test]
    fn what_comes_back_is_put_in_order() {
        let packs = packs(sequences(&[2, 7, 3, 5, 1]), 8);
        let answers = packs
            .iter()
            .map(|pack| pack.sequences.iter().map(|sequence| sequence.ids[0]).collect())
            .collect();
        assert!(packs.len() > 1);
        assert_eq!(unpacked::<u32>(&packs, answers), [0, 1, 2, 3, 4]);
    }

    proptest::proptest! {
        #[test]
        fn every_sequence_is_in_one_pack_that_is_not_too_large(
            lengths in proptest::collection::vec(1_usize..700, 0..200),
            max_tokens in 1_usize..2000,
        ) {
            let packs = balanced(&lengths, max_tokens);
            let mut places: Vec<usize> = packs.iter().flatten().copied().collect();
            places.sort_unstable();
            proptest::prop_assert_eq!(places, (0..lengths.len()).collect::<Vec<_>>());
            let tokens = |pack: &Vec<usize>| pack.iter().map(|place| lengths[*place]).sum::<usize>();
            for pack in &packs {
                proptest::prop_assert!(!pack.is_empty() && (pack.len() == 1 || tokens(pack) <= max_tokens));
            }
            // Two packs that fit into one would have been one.
            let mut all: Vec<usize> = packs.iter().map(tokens).collect();
            all.sort_unstable();
            if let [first, second, ..] = all.as_slice() {
                proptest::prop_assert!(first + second > max_tokens);
            }
        }

        /// With sequences of at most a sixteenth of a pack: Graham's bound is the mean and one sequence, where there is room
        /// for evenness; packs that are full to the last token have a mean as high.
        #[test]
        fn the_dearest_pack_is_near_the_mean(
            lengths in proptest::collection::vec(64_usize..=1024, 1..400),
        ) {
            let packs = balanced(&lengths, 16 * 1024);
            let costs: Vec<u64> = packs
                .iter()
                .map(|pack| pack.iter().map(|place| cost(lengths[*place])).sum())
                .collect();
            let mean = costs.iter().sum::<u64>() as f64 / costs.len() as f64;
            let largest = costs.iter().max().map_or(0.0, |cost| *cost as f64);
            proptest::prop_assert!(largest <= mean * 1.07 + cost(1024) as f64, "{} of {mean}", largest);
        }
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-15, "{left} is not {right}");
    }

    #[test]
    fn rates_rise_and_fall() {
        let decay = || DecaySchedule {
            warmup_steps: 2,
            min_lr: NonNegative::new(0.1).unwrap_or_else(|| unreachable!()),
        };
        let cosine = LrSchedule::Cosine(decay());
        near(cosine.rate(1.0, 1, 10), 0.5);
        near(cosine.rate(1.0, 2, 10), 1.0);
        near(cosine.rate(1.0, 6, 10), 0.55);
        near(cosine.rate(1.0, 10, 10), 0.1);
        let linear = LrSchedule::Linear(decay());
        near(linear.rate(1.0, 4, 10), 0.775);
        near(linear.rate(1.0, 10, 10), 0.1);
        near(LrSchedule::default().rate(3.0, 1, 1), 3.0);
        near(
            LrSchedule::Constant(ConstantSchedule { warmup_steps: 4 }).rate(1.0, 1, 9),
            0.25,
        );
    }
}
