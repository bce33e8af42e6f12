//! Draws the next token of every slot on the device, and its log-prob under the distribution drawn from.
//!
//! Logits, with stop ids held back below `min_new_tokens`, are divided by the temperature, cut to the `top_k` largest,
//! then to the fewest that reach `top_p`, then to those with at least `min_p` times the largest probability (Nguyen et al.
//! 2024, arXiv:2407.01082); a uniform number is looked up in the cumulative sum, in vocabulary order. Cuts are thresholds on
//! the value: what equals the last that is kept is kept, too. What a row gets depends on that row alone.

use tch::{Device, Kind, Tensor};

/// What one slot wants.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotSettings {
    /// 0: the largest logit, its log-prob at temperature 1 and without cuts.
    pub temperature: f64,
    /// 0: off.
    pub top_k: i64,
    /// 1: off.
    pub top_p: f64,
    /// 0: off.
    pub min_p: f64,
    /// Held back while the token's position is below `stops_from`.
    pub stop_ids: Vec<i64>,
    /// First position at which a stop id may be drawn.
    pub stops_from: i64,
}

impl Default for SlotSettings {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            stop_ids: Vec::new(),
            stops_from: 0,
        }
    }
}

impl SlotSettings {
    /// Whether tokens are left out by their rank, which is what sorting is for.
    fn is_ranked(&self) -> bool {
        self.temperature > 0.0 && (self.top_k > 0 || self.top_p < 1.0)
    }

    fn is_cut(&self) -> bool {
        self.is_ranked() || self.temperature > 0.0 && self.min_p > 0.0
    }
}

/// The settings of all slots, on the device.
#[derive(Debug)]
pub struct SlotSampling {
    /// `[slots, 1]`.
    temperature: Tensor,
    /// `[slots, 1]`; none when no slot is greedy.
    greedy: Option<Tensor>,
    every_slot_greedy: bool,
    cuts: Option<Cuts>,
    held: Option<Held>,
}

/// `[slots, 1]` each, with values that cut nothing where a cut is off.
#[derive(Debug)]
struct Cuts {
    ranks: Option<Ranks>,
    /// What a logit may lie below the largest.
    distance: Tensor,
}

#[derive(Debug)]
struct Ranks {
    /// Index of the last that is kept, in descending order.
    last: Tensor,
    top_p: Tensor,
}

#[derive(Debug)]
struct Held {
    ids: Tensor,
    from: Tensor,
}

impl SlotSampling {
    /// Uploads the settings; logits will be of `kind` and `vocabulary` wide.
    pub fn new(slots: &[SlotSettings], vocabulary: i64, kind: Kind, device: Device) -> Self {
        let column = |values: Vec<f64>| Tensor::from_slice(&values).to_device(device).unsqueeze(1);
        let counts = |values: Vec<i64>| Tensor::from_slice(&values).to_device(device).unsqueeze(1);
        let flags = |values: Vec<bool>| Tensor::from_slice(&values).to_device(device).unsqueeze(1);
        let is_greedy = |slot: &SlotSettings| slot.temperature == 0.0;
        let temperatures = slots
            .iter()
            .map(|slot| if is_greedy(slot) { 1.0 } else { slot.temperature });
        let longest = slots
            .iter()
            .filter(|slot| slot.stops_from > 0)
            .map(|slot| slot.stop_ids.len())
            .max();
        let held = longest.filter(|longest| *longest > 0).map(|longest| {
            let ids: Vec<i64> = slots.iter().flat_map(|slot| padded(&slot.stop_ids, longest)).collect();
            let from = slots
                .iter()
                .map(|slot| if slot.stop_ids.is_empty() { 0 } else { slot.stops_from });
            let ids = Tensor::from_slice(&ids)
                .view([slots.len() as i64, longest as i64])
                .to_device(device);
            Held {
                ids,
                from: counts(from.collect()),
            }
        });
        let ranks = slots.iter().any(SlotSettings::is_ranked).then(|| {
            let last = |slot: &SlotSettings| match (slot.is_ranked(), slot.top_k) {
                (true, 1..) => slot.top_k.min(vocabulary) - 1,
                _ => vocabulary - 1,
            };
            // Rounding must not cut the last token of an uncut distribution.
            let top_p = |slot: &SlotSettings| match slot.is_ranked() && slot.top_p < 1.0 {
                true => slot.top_p,
                false => 2.0,
            };
            Ranks {
                last: counts(slots.iter().map(last).collect()),
                top_p: column(slots.iter().map(top_p).collect()),
            }
        });
        let cuts = slots.iter().any(SlotSettings::is_cut).then(|| {
            let distance = |slot: &SlotSettings| match is_greedy(slot) {
                true => f64::INFINITY,
                false => -slot.min_p.ln(),
            };
            Cuts {
                ranks,
                distance: column(slots.iter().map(distance).collect()).to_kind(kind),
            }
        });
        Self {
            temperature: column(temperatures.collect()).to_kind(kind),
            greedy: slots
                .iter()
                .any(is_greedy)
                .then(|| flags(slots.iter().map(is_greedy).collect())),
            every_slot_greedy: slots.iter().all(is_greedy),
            cuts,
            held,
        }
    }

    /// Ids and log-probs, `[slots]` each, from `logits` `[slots, vocabulary]`, the `positions` that the tokens will have
    /// `[slots]`, and `uniforms` in (0, 1), float64 `[slots]`.
    pub fn draw(&self, logits: &Tensor, positions: &Tensor, uniforms: &Tensor) -> (Tensor, Tensor) {
        let mut logits = logits.shallow_clone();
        if let Some(held) = &self.held {
            let early = positions.unsqueeze(1).lt_tensor(&held.from);
            let kept = logits
                .gather(1, &held.ids, false)
                .masked_fill(&early, f64::NEG_INFINITY);
            logits = logits.scatter(1, &held.ids, &kept);
        }
        let mut scaled = logits / &self.temperature;
        if let Some(cuts) = &self.cuts {
            scaled = scaled.masked_fill(&scaled.lt_tensor(&cuts.thresholds(&scaled)), f64::NEG_INFINITY);
        }
        let logprobs = scaled.log_softmax(-1, None);
        let best = logprobs.argmax(-1, true);
        let ids = if self.every_slot_greedy {
            best
        } else {
            let cumulative = logprobs.exp().to_kind(Kind::Double).cumsum(-1, None);
            let vocabulary = cumulative.size()[1];
            let target = uniforms.unsqueeze(1) * cumulative.narrow(1, vocabulary - 1, 1);
            // The clamp only matters for logits that are not finite; those are noticed by their log-prob.
            let drawn = target
                .searchsorted(&cumulative, false, true, "right", None::<&Tensor>)
                .clamp_max(vocabulary - 1);
            // A parallel sum may round a step up at an id of probability zero.
            let mut instead = logprobs.gather(1, &drawn, false).eq(f64::NEG_INFINITY);
            if let Some(greedy) = &self.greedy {
                instead = instead.logical_or(greedy);
            }
            best.where_self(&instead, &drawn)
        };
        let chosen = logprobs.gather(1, &ids, false);
        (ids.squeeze_dim(1), chosen.squeeze_dim(1))
    }
}

impl Cuts {
    /// The least value of each row that is kept, `[slots, 1]`.
    fn thresholds(&self, scaled: &Tensor) -> Tensor {
        let near = scaled.amax([-1], true) - &self.distance;
        match &self.ranks {
            Some(ranks) => near.maximum(&ranks.thresholds(scaled)),
            None => near,
        }
    }
}

impl Ranks {
    fn thresholds(&self, scaled: &Tensor) -> Tensor {
        let (sorted, _) = scaled.sort(-1, true);
        let of_top_k = sorted.gather(1, &self.last, false);
        let sorted = sorted.masked_fill(&sorted.lt_tensor(&of_top_k), f64::NEG_INFINITY);
        let probabilities = sorted.softmax(-1, Kind::Double);
        let before = probabilities.cumsum(-1, None) - probabilities;
        let beyond = before.ge_tensor(&self.top_p);
        let of_top_p = sorted.masked_fill(&beyond, f64::INFINITY).amin([-1], true);
        of_top_p.maximum(&of_top_k)
    }
}

/// The ids repeated to a common length: writing one value twice changes nothing.
fn padded(ids: &[i64], length: usize) -> impl Iterator<Item = i64> + '_ {
    let first = ids.first().copied().unwrap_or(0);
    ids.iter().copied().chain(std::iter::repeat(first)).take(length)
}
