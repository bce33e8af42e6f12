//! What nodes ask of each pool's worker, in numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rlpipe_core::data::Activations;
use rlpipe_core::kind::{Contract, Role, Target};
use rlpipe_model::ModelConfig as Network;

use super::super::config::{Dtype, ModelConfig};
use super::super::data::{Longest, Tally, init_spec, model_folder};
use super::super::pipeline::{Node, Pipeline};

/// A model in a worker.
#[derive(Clone)]
pub struct Held<'a> {
    /// Its name.
    pub model: &'a str,
    /// Its network, or why it is not known.
    pub network: Result<Network, String>,
    /// What it computes in.
    pub dtype: Dtype,
    /// Bytes of its largest file of weights, where it was looked at.
    pub file_bytes: u64,
    /// Whether it has fp32 master weights, moments and gradients.
    pub trained: bool,
    /// Whether a copy stays as it is.
    pub frozen: bool,
    /// How it generates.
    pub engine: Option<Engine>,
    /// Who runs packs through it.
    pub learners: Vec<Learner>,
}

/// How a model generates.
#[derive(Clone)]
pub struct Engine {
    /// The node.
    pub node: usize,
    /// Tokens of prompt and response together.
    pub context: u64,
    /// Rollouts in flight; none: the worker chooses.
    pub slots: Option<u64>,
    /// Share of an accelerator's memory.
    pub memory_fraction: f64,
    /// Whether it keeps weights of its own.
    pub own_weights: bool,
    /// Tokens of the longest prompt that it is given.
    pub longest_prompt: u64,
    /// Fewest samples that a prompt of its loops has.
    pub fewest_samples: u64,
    /// Bytes for each entry of the vocabulary and slot while tokens are drawn.
    pub drawing_bytes: u64,
}

/// Who runs packs.
#[derive(Clone, Copy)]
pub struct Learner {
    /// The node.
    pub node: usize,
    /// Whether gradients are wanted.
    pub trains: bool,
    /// Tokens that go through the model together, as it is set.
    pub pack_tokens: u64,
    /// Tokens that there are for it at once, if every sequence is as long as it may be.
    pub most_tokens: u64,
    /// Tokens of the longest sequence; a pack has one at least.
    pub longest: u64,
    /// Tokens whose logits exist at the same time, as it is set.
    pub chunk_tokens: u64,
    /// What is kept of each layer.
    pub activations: Activations,
    /// Of so many tokens of a pack, so many have logits: those of responses.
    pub responses: (u64, u64),
}

impl Learner {
    /// Tokens of its largest pack.
    pub fn tokens(&self) -> u64 {
        self.pack_tokens.max(self.longest).min(self.most_tokens)
    }

    /// Tokens of its largest chunk.
    pub fn chunk(&self) -> u64 {
        let (of, all) = self.responses;
        self.chunk_tokens.min((self.tokens() * of / all.max(1)).max(1))
    }
}

/// What each pool's worker holds, by pool. `outside`: folders of models may be looked at. `tallies`: of the data that was read.
pub fn of_pools<'a>(pipeline: &'a Pipeline, outside: bool, tallies: &[Tally]) -> BTreeMap<&'a str, Vec<Held<'a>>> {
    let mut pools: BTreeMap<&str, Vec<Held<'_>>> = BTreeMap::new();
    for (index, node, contract) in pipeline.live() {
        let (Some(pool), Some(model)) = (contract.used(Target::Pool), contract.used(Target::Model)) else {
            continue;
        };
        let Some(config) = pipeline.models.get(model).and_then(|model| model.config.as_ref()) else {
            continue;
        };
        let models = pools.entry(pool).or_default();
        let at = models.iter().position(|held| held.model == model).unwrap_or_else(|| {
            let folder = outside.then(|| model_folder(config, PathBuf::new(), &pipeline.hub));
            models.push(Held {
                model,
                network: network(config, folder.as_ref()),
                dtype: config.dtype,
                file_bytes: folder.and_then(Result::ok).map_or(0, |folder| largest_file(&folder)),
                trained: false,
                frozen: false,
                engine: None,
                learners: Vec::new(),
            });
            models.len() - 1
        });
        let held = &mut models[at];
        match contract.role {
            Role::Trainer { .. } | Role::SftTrainer { .. } => held.trained = true,
            Role::Reference { .. } => held.frozen = true,
            Role::Engine { .. } => held.engine = engine(pipeline, index, node, contract, tallies),
            _ => {}
        }
        let positions = held
            .network
            .as_ref()
            .map_or(u64::MAX, |network| network.positions() as u64);
        held.learners
            .extend(learners(pipeline, index, contract, positions, tallies));
    }
    // The order in which a worker loads them: an engine's cache is sized by what those before it left.
    for models in pools.values_mut() {
        models.sort_by_key(|held| held.model);
    }
    pools
}

/// Train steps between two syncs of an engine.
pub fn synced_every(pipeline: &Pipeline, engine: &str) -> u32 {
    pipeline
        .live()
        .find_map(|(_, _, contract)| match &contract.role {
            Role::WeightSync { to, every_steps } if to == engine => Some(*every_steps),
            _ => None,
        })
        .unwrap_or(1)
}

fn network(config: &ModelConfig, folder: Option<&Result<PathBuf, String>>) -> Result<Network, String> {
    if let Some(init) = &config.init {
        return init_spec(init).model_config().map_err(|error| error.to_string());
    }
    match folder {
        None => Err("its `config.json` is read only with `--environment`, by `plan` and by `run`".to_owned()),
        Some(Err(why)) => Err(why.clone()),
        Some(Ok(folder)) => rlpipe_model::read_config(folder).map_err(|faults| rlpipe_model::joined(&faults)),
    }
}

fn largest_file(folder: &std::path::Path) -> u64 {
    let files = rlpipe_model::weight_files(folder).unwrap_or_default();
    let sizes = files.iter().filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.max().unwrap_or(0)
}

fn engine(pipeline: &Pipeline, index: usize, node: &Node, contract: &Contract, tallies: &[Tally]) -> Option<Engine> {
    let Role::Engine {
        max_context_tokens,
        max_concurrent_rollouts,
        memory_fraction,
        ..
    } = contract.role
    else {
        return None;
    };
    let context = u64::from(max_context_tokens);
    let (mut longest_prompt, mut fewest_samples, mut drawing_bytes) = (1, u64::MAX, 0);
    for (_, one, contract) in pipeline.live() {
        let (Role::AgentLoop { .. }, true) = (&contract.role, one.input("engine").is_some_and(|to| to.node == index))
        else {
            continue;
        };
        let (prompt, samples) = prompts(pipeline, one, tallies);
        longest_prompt = prompt.unwrap_or(context).min(context).max(longest_prompt);
        fewest_samples = samples.min(fewest_samples);
        drawing_bytes = drawing(&contract.role).max(drawing_bytes);
    }
    Some(Engine {
        node: index,
        context,
        slots: max_concurrent_rollouts.map(u64::from),
        memory_fraction,
        own_weights: synced_every(pipeline, &node.name) > 1,
        longest_prompt,
        fewest_samples,
        drawing_bytes,
    })
}

/// The bound on an agent loop's prompts, if there is one, and the samples of each.
fn prompts(pipeline: &Pipeline, agent_loop: &Node, tallies: &[Tally]) -> (Option<u64>, u64) {
    let sampler = agent_loop.input("prompts").map(|from| &pipeline.nodes[from.node]);
    match sampler
        .and_then(|sampler| sampler.contract.as_ref())
        .map(|contract| &contract.role)
    {
        Some(Role::Sampler {
            samples_per_prompt,
            max_prompt_tokens,
            ..
        }) => (
            tallied(sampler, tallies)
                .map(|longest| longest.prompt)
                .or(max_prompt_tokens.map(u64::from)),
            u64::from(*samples_per_prompt),
        ),
        _ => (None, 1),
    }
}

/// The longest rows of a sampler, where its data was read.
fn tallied(sampler: Option<&Node>, tallies: &[Tally]) -> Option<Longest> {
    let name = &sampler?.name;
    let of = tallies
        .iter()
        .filter(|tally| tally.sampler == *name)
        .map(|tally| tally.longest);
    of.reduce(Longest::or)
}

/// What `SlotSampling::draw` has at once beside the logits, in bytes for each logit (nodes/torch/src/generate/sampling.rs).
fn drawing(role: &Role) -> u64 {
    let Role::AgentLoop {
        temperature,
        top_k,
        top_p,
        min_new_tokens,
        ..
    } = *role
    else {
        return 0;
    };
    // Scaled logits and log-probs in float32; then their exponential, that in float64, and its running sum.
    let drawn = if temperature > 0.0 { 4 + 4 + 4 + 8 + 8 } else { 4 + 4 };
    let is_ranked = temperature > 0.0 && (top_k > 0 || top_p < 1.0);
    // Scaled logits; sorted ones, those of the first k, their probabilities, the running sum, and that before each.
    let ranked = if is_ranked { 4 + 4 + 4 + 8 + 8 + 8 } else { 0 };
    // Logits with stop ids held back.
    drawn.max(ranked) + if min_new_tokens > 0 { 4 } else { 0 }
}

/// Who runs packs at a node: a trainer with several optimizer steps recomputes log-probs before it trains.
fn learners(pipeline: &Pipeline, index: usize, contract: &Contract, positions: u64, tallies: &[Tally]) -> Vec<Learner> {
    let of = |trains, pack: u32, chunk: u32, (longest, most_tokens, responses), activations| Learner {
        activations,
        responses,
        node: index,
        trains,
        pack_tokens: pack.into(),
        most_tokens,
        longest,
        chunk_tokens: chunk.into(),
    };
    match contract.role {
        Role::Trainer {
            max_tokens_per_pack,
            logprob_chunk_tokens,
            optimizer_steps,
            activations,
            ..
        } => {
            let rollouts = rollouts(pipeline, index, u64::from(optimizer_steps), positions, tallies);
            let one = |trains| of(trains, max_tokens_per_pack, logprob_chunk_tokens, rollouts, activations);
            let mut found = vec![one(true)];
            if optimizer_steps > 1 {
                found.push(one(false));
            }
            found
        }
        Role::Reference {
            max_tokens_per_pack,
            logprob_chunk_tokens,
        } => {
            let rollouts = rollouts(pipeline, index, 1, positions, tallies);
            vec![of(
                false,
                max_tokens_per_pack,
                logprob_chunk_tokens,
                rollouts,
                Activations::Auto,
            )]
        }
        Role::SftTrainer {
            examples_per_step,
            max_tokens_per_pack,
            logprob_chunk_tokens,
            activations,
            ..
        } => {
            let sampler = pipeline.nodes[index]
                .input("examples")
                .map(|from| &pipeline.nodes[from.node]);
            let longest =
                tallied(sampler, tallies).map_or(positions.min(max_tokens_per_pack.into()), |longest| longest.example);
            let most = (longest, longest.saturating_mul(examples_per_step.into()), (1, 1));
            vec![of(true, max_tokens_per_pack, logprob_chunk_tokens, most, activations)]
        }
        _ => Vec::new(),
    }
}

/// Tokens of the longest rollout that reaches a node, of all those that it gets at once, and the share of responses in them,
/// prompts taken to be half as long as they may be.
fn rollouts(
    pipeline: &Pipeline,
    index: usize,
    shares: u64,
    positions: u64,
    tallies: &[Tally],
) -> (u64, u64, (u64, u64)) {
    let upstream = pipeline.upstream(index);
    let nodes = || upstream.iter().map(|index| &pipeline.nodes[*index]);
    let role = |node: &Node| node.contract.as_ref().map(|contract| contract.role.clone());
    let (mut longest, mut samples, mut prompts_per_step, mut responses) = (1, 1, 1, (1, 1));
    for node in nodes() {
        match role(node) {
            Some(Role::AgentLoop { max_new_tokens, .. }) => {
                let (prompt, of_prompt) = prompts(pipeline, node, tallies);
                let engine = node
                    .input("engine")
                    .and_then(|engine| role(&pipeline.nodes[engine.node]));
                let context = match engine {
                    Some(Role::Engine { max_context_tokens, .. }) => u64::from(max_context_tokens),
                    _ => positions,
                };
                let one = prompt
                    .map_or(context, |prompt| prompt + u64::from(max_new_tokens))
                    .min(context);
                if one >= longest {
                    let new = u64::from(max_new_tokens).min(one);
                    responses = (new, new + (one - new) / 2);
                }
                longest = one.max(longest);
                samples = of_prompt.max(samples);
            }
            Some(Role::Buffer {
                prompts_per_step: all, ..
            }) => prompts_per_step = u64::from(all),
            _ => {}
        }
    }
    let groups = prompts_per_step.div_ceil(shares.max(1));
    (
        longest,
        groups.saturating_mul(samples).saturating_mul(longest),
        responses,
    )
}
