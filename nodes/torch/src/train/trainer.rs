//! Gradients of packs and the optimizer step.
//!
//! A pack's trunk runs once; the head runs chunk by chunk, each backward at once into the hidden states; one backward
//! through the trunk ends the pack. Gradients are summed in fp32 (float64 for float64).

use rlpipe_wire::v1;
use tch::{Kind, Tensor};

use super::adamw::AdamW;
use super::check;
use super::loss::policy_terms;
use super::pack::{Selected, chunks, packed};
use super::scale::LossScale;
use super::trunk::Trunk;
use crate::device::{together, wide};
use crate::model::Network;
use crate::native::operators;
use crate::ops::{self, HeadOutput};
use crate::{Result, fail};

/// Columns of the report of a token.
const COLUMNS: usize = 5;

/// Gradient sums and the optimizer of one model.
#[derive(Debug)]
pub struct Trainer {
    /// The optimizer.
    pub optimizer: AdamW,
    /// In float16.
    pub loss_scale: Option<LossScale>,
    gradients: Vec<Tensor>,
    /// Packs since the last step.
    packs: u64,
    /// Whether a pack failed after part of its gradient was added.
    is_broken: bool,
    /// Whether the losses of all packs since the last step were finite.
    is_finite: bool,
}

impl Trainer {
    /// Fresh moments, counters and gradients for `master` weights of a model that computes in `kind`.
    pub fn new(settings: v1::AdamW, master: &[Tensor], kind: Kind) -> Result<Self> {
        let gradients = master.iter().map(|parameter| parameter.detach().zeros_like()).collect();
        Ok(Self {
            optimizer: AdamW::new(settings, master)?,
            loss_scale: LossScale::of(kind),
            gradients,
            packs: 0,
            is_broken: false,
            is_finite: true,
        })
    }

    /// Packs that wait for an optimizer step.
    pub fn pending_packs(&self) -> u64 {
        self.packs
    }

    /// The summed gradients, one a leaf, times the loss scale.
    pub fn gradients(&self) -> &[Tensor] {
        &self.gradients
    }

    /// Adds the gradient of sum(token loss) / denominator at `weights`, and returns the sums of each sequence.
    pub fn add_pack(
        &mut self,
        network: &Network,
        weights: &[Tensor],
        command: &v1::TrainPack,
    ) -> Result<Vec<v1::SequenceSums>> {
        let _no_grad = tch::no_grad_guard();
        let nothing = v1::Pack::default();
        let pack = command.pack.as_ref().unwrap_or(&nothing);
        let Some(loss) = &command.loss else {
            fail!("the pack comes without a loss")
        };
        check(pack, &network.config, true)?;
        check_loss(pack, loss)?;
        if !(command.denominator > 0.0 && command.denominator.is_finite()) {
            fail!(
                "`denominator` is {}, but a positive number is needed",
                command.denominator
            );
        }
        self.packs += 1;
        self.is_broken = true;
        // All that the device is sent; from here on nothing waits for it but the report.
        let selected = Selected::new(pack, true, wide(network.kind), network.device);
        if selected.count() == 0 {
            self.is_broken = false;
            return Ok(vec![v1::SequenceSums::default(); pack.sequences.len()]);
        }
        let inputs = TokenInputs::new(pack, &selected);
        let tokens = packed(pack, network.device);
        let trunk = Trunk::forward(network, weights, &tokens, command.activations());
        let hidden = trunk.hidden.index_select(0, &selected.rows);
        let mut d_hidden = trunk.hidden.zeros_like();
        let head = network.layout.head();
        // Gradients are linear in those of the loss: a denominator is a scale.
        let denominator = command.denominator / self.factor();
        let mut reports = Vec::new();
        for range in chunks(selected.count(), command.logprob_chunk_tokens) {
            let of = |all: &Tensor| all.narrow(0, range.0, range.1);
            let (hidden, targets) = (of(&hidden), of(&selected.targets));
            let inverse_temperatures = of(&selected.inverse_temperatures);
            let logits = network.logits(weights, &hidden);
            let kind = network.kind;
            let found = ops::head_forward(&logits, &targets, &inverse_temperatures, kind);
            let (slopes, report) = inputs.slopes(loss, &found, denominator, range)?;
            let log_sum = &found.log_sum;
            let d_logits = ops::head_backward(&logits, &targets, &inverse_temperatures, log_sum, &slopes, kind);
            drop(logits);
            let _ = d_hidden.index_copy_(0, &of(&selected.rows), &d_logits.matmul(&weights[head]));
            ops::add_product(&mut self.gradients[head], &d_logits, &hidden);
            reports.push(report);
        }
        trunk.backward(network, weights, &tokens, &d_hidden, &mut self.gradients);
        let report: Vec<f64> = Vec::try_from(Tensor::cat(&reports, 0).to_kind(Kind::Double).view([-1]))?;
        self.is_broken = false;
        self.is_finite &= report.iter().all(|value| value.is_finite());
        Ok(sums(pack, &selected, loss, &report))
    }

    fn factor(&self) -> f64 {
        self.loss_scale.map_or(1.0, |scale| scale.factor)
    }

    /// Clips, updates `master` in place and zeroes the gradients; changes nothing but the loss scale when their norm is
    /// not finite.
    pub fn step(&mut self, master: &[Tensor], learning_rate: f64) -> Result<v1::OptimizerStepped> {
        if !(learning_rate >= 0.0 && learning_rate.is_finite()) {
            fail!("`learning_rate` is {learning_rate}, but at least 0 is needed");
        }
        if self.is_broken {
            self.drop_gradients()?;
            fail!("a pack of this step failed, so its gradient is not whole; send all packs of the step again");
        }
        let grad_norm = self
            .optimizer
            .step(master, &self.gradients, learning_rate, self.factor())?;
        let skipped = !grad_norm.is_finite();
        let mut again = false;
        match &mut self.loss_scale {
            Some(scale) if !skipped => scale.keep(),
            Some(scale) if self.is_finite => again = scale.lower(),
            _ => (),
        }
        self.drop_gradients()?;
        Ok(v1::OptimizerStepped {
            grad_norm,
            skipped,
            again,
            loss_scale: self.loss_scale.map(|scale| scale.factor),
        })
    }

    /// Forgets the packs since the last step.
    pub fn drop_gradients(&mut self) -> Result<()> {
        operators::foreach_zero(&self.gradients)?;
        self.packs = 0;
        self.is_broken = false;
        self.is_finite = true;
        Ok(())
    }
}

/// Log-probs of every response token of a pack under `weights`, aligned with each response; no gradient.
pub fn logprobs(network: &Network, weights: &[Tensor], pack: &v1::Pack, chunk_tokens: u32) -> Result<Vec<Vec<f32>>> {
    let _no_grad = tch::no_grad_guard();
    check(pack, &network.config, false)?;
    let selected = Selected::new(pack, false, wide(network.kind), network.device);
    let mut all: Vec<f32> = Vec::new();
    if selected.count() > 0 {
        let hidden = network
            .packed(weights, &packed(pack, network.device), |_, _, _| ())
            .index_select(0, &selected.rows);
        let of = |(start, length)| {
            let of = |all: &Tensor| all.narrow(0, start, length);
            let logits = network.logits(weights, &of(&hidden));
            let (targets, inverse_temperatures) = (of(&selected.targets), of(&selected.inverse_temperatures));
            ops::head_forward(&logits, &targets, &inverse_temperatures, network.kind).logprobs
        };
        let chunks: Vec<Tensor> = chunks(selected.count(), chunk_tokens).map(of).collect();
        all = Vec::try_from(Tensor::cat(&chunks, 0).to_kind(Kind::Float))?;
    }
    let mut rest = all.as_slice();
    Ok(selected
        .places
        .iter()
        .map(|places| {
            let (own, later) = rest.split_at(places.len());
            rest = later;
            own.to_vec()
        })
        .collect())
}

fn check_loss(pack: &v1::Pack, loss: &v1::train_pack::Loss) -> Result<()> {
    let v1::train_pack::Loss::Policy(settings) = loss else {
        return Ok(());
    };
    for (index, sequence) in pack.sequences.iter().enumerate() {
        let response = sequence.mask.len();
        if sequence.advantages.len() != response {
            fail!("sequence {index}: the policy loss needs `advantages`, one a response token");
        }
        if settings.kl() != v1::Kl::None && sequence.reference_logprobs.len() != response {
            fail!("sequence {index}: the KL term needs `reference_logprobs`, one a response token");
        }
    }
    Ok(())
}

/// What the driver said about each picked token, `[count]` each.
struct TokenInputs {
    advantages: Tensor,
    old: Tensor,
    /// Where `old` is the policy's own; none when it never is.
    own: Option<Tensor>,
    reference: Tensor,
}

impl TokenInputs {
    fn new(pack: &v1::Pack, selected: &Selected) -> Self {
        let own = |sequence: &v1::Sequence| sequence.old_logprobs.is_empty();
        let (device, kind) = (selected.rows.device(), selected.inverse_temperatures.kind());
        let flags = || {
            let sequences = pack.sequences.iter().zip(&selected.places);
            let flags = sequences.flat_map(|(sequence, places)| vec![own(sequence); places.len()]);
            Tensor::from_slice(&flags.collect::<Vec<bool>>()).to_device(device)
        };
        let picked = [
            selected.pick(pack, |sequence| &sequence.advantages),
            selected.pick(pack, |sequence| &sequence.old_logprobs),
            selected.pick(pack, |sequence| &sequence.reference_logprobs),
        ];
        let [advantages, old, reference] = together(picked, device).map(|values| values.to_kind(kind));
        Self {
            advantages,
            old,
            own: pack.sequences.iter().any(own).then(flags),
            reference,
        }
    }

    /// The gradient of sum(objective) / denominator at the log-probs of a chunk, and the report of its tokens
    /// `[length, COLUMNS]`: loss, KL, ratio, log-prob, entropy.
    fn slopes(
        &self,
        loss: &v1::train_pack::Loss,
        found: &HeadOutput,
        denominator: f64,
        (start, length): (i64, i64),
    ) -> Result<(Tensor, Tensor)> {
        let of = |all: &Tensor| all.narrow(0, start, length);
        let current = &found.logprobs;
        let old = self
            .own
            .as_ref()
            .map_or_else(|| of(&self.old), |own| current.where_self(&of(own), &of(&self.old)));
        let zeros = current.zeros_like();
        // The only graph: what a loss term is, its gradient follows.
        let logprobs = current.detach().set_requires_grad(true);
        let (objective, token_loss, kl, ratio) = tch::with_grad(|| match loss {
            v1::train_pack::Loss::CrossEntropy(_) => (-&logprobs, -current, zeros.shallow_clone(), zeros),
            v1::train_pack::Loss::Policy(settings) => {
                let terms = policy_terms(settings, &logprobs, &old, &of(&self.advantages), &of(&self.reference));
                let token_loss = terms.loss.detach();
                let kl = terms.kl.as_ref().map_or(zeros, Tensor::detach);
                let objective = match terms.kl {
                    Some(kl) => terms.loss + kl * settings.kl_coefficient,
                    None => terms.loss,
                };
                (objective, token_loss, kl, terms.ratio.detach())
            }
        });
        let root = tch::with_grad(|| objective.sum(None) / denominator);
        let slopes = Tensor::f_run_backward(&[root], &[&logprobs], false, false)?;
        let columns = [&token_loss, &kl, &ratio, current, &found.entropy];
        let slopes = slopes.into_iter().next().unwrap_or_default();
        Ok((slopes, Tensor::stack(&columns, 1)))
    }
}

fn sums(pack: &v1::Pack, selected: &Selected, loss: &v1::train_pack::Loss, report: &[f64]) -> Vec<v1::SequenceSums> {
    let (low, high) = match loss {
        v1::train_pack::Loss::Policy(settings) => (1.0 - settings.clip_low, 1.0 + settings.clip_high),
        v1::train_pack::Loss::CrossEntropy(_) => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let mut tokens = report.chunks_exact(COLUMNS);
    let of = |(sequence, places): (&v1::Sequence, &Vec<usize>)| {
        let mut sums = v1::SequenceSums {
            tokens: places.len() as u32,
            ..Default::default()
        };
        for (&at, token) in places.iter().zip(&mut tokens) {
            sums.loss += token[0];
            sums.kl += token[1];
            sums.ratio += token[2];
            sums.clipped_low += f64::from(token[2] < low);
            sums.clipped_high += f64::from(token[2] > high);
            sums.entropy += token[4];
            if let Some(&rollout) = sequence.rollout_logprobs.get(at) {
                let difference = (token[3] - f64::from(rollout)).abs();
                sums.logprob_abs_diff += difference;
                sums.logprob_abs_diff_max = sums.logprob_abs_diff_max.max(difference);
            }
        }
        sums
    };
    pack.sequences.iter().zip(&selected.places).map(of).collect()
}
