//! What a configured node promises and needs, in terms that the compiler's passes share.

use super::{Arity, DatasetSource, Field, OverLong, PortType, Truth};
use crate::data::{Activations, KlEstimator};
use crate::services::JudgeCommand;

/// Everything the compiler knows of a node beyond its text.
#[derive(Debug, Clone)]
pub struct Contract {
    /// Input ports.
    pub inputs: Vec<Input>,
    /// Output ports; the first is meant where a reference names no port.
    pub outputs: Vec<Output>,
    /// Names of other things that the config mentions.
    pub uses: Vec<Use>,
    /// What it is in a run.
    pub role: Role,
}

impl Contract {
    /// The name of the pool, model or state that the node uses.
    pub fn used(&self, target: Target) -> Option<&str> {
        self.uses
            .iter()
            .find(|used| used.target == target)
            .map(|used| used.name.as_str())
    }
}

/// An input port.
#[derive(Debug, Clone)]
pub struct Input {
    /// Key under `inputs`.
    pub name: &'static str,
    /// What it takes.
    pub port_type: PortType,
    /// How many.
    pub arity: Arity,
    /// Fields that must have been added upstream.
    pub needs: Vec<Field>,
}

impl Input {
    /// An input of exactly one node.
    pub fn one(name: &'static str, port_type: PortType) -> Self {
        Self {
            name,
            port_type,
            arity: Arity::One,
            needs: Vec::new(),
        }
    }

    /// The same, with another arity.
    #[must_use]
    pub fn arity(mut self, arity: Arity) -> Self {
        self.arity = arity;
        self
    }

    /// The same, with fields that must be there.
    #[must_use]
    pub fn needs(mut self, fields: &[Field]) -> Self {
        self.needs.extend_from_slice(fields);
        self
    }
}

/// An output port. `groups` and `batch` carry on the fields that came in.
#[derive(Debug, Clone)]
pub struct Output {
    /// Name after the dot in `node.port`.
    pub name: &'static str,
    /// What it gives.
    pub port_type: PortType,
    /// Fields that this node adds.
    pub adds: Vec<Field>,
}

impl Output {
    /// An output that adds no fields.
    pub fn new(name: &'static str, port_type: PortType) -> Self {
        Self {
            name,
            port_type,
            adds: Vec::new(),
        }
    }

    /// The same, with fields that this node adds.
    #[must_use]
    pub fn adds(mut self, fields: &[Field]) -> Self {
        self.adds.extend_from_slice(fields);
        self
    }
}

/// A name in the config of something declared elsewhere.
#[derive(Debug, Clone)]
pub struct Use {
    /// The key that holds the name.
    pub key: &'static str,
    /// The name.
    pub name: String,
    /// What must have that name.
    pub target: Target,
}

impl Use {
    /// The key `pool`.
    pub fn pool(name: &str) -> Self {
        Self {
            key: "pool",
            name: name.to_owned(),
            target: Target::Pool,
        }
    }

    /// The key `model`.
    pub fn model(name: &str) -> Self {
        Self {
            key: "model",
            name: name.to_owned(),
            target: Target::Model,
        }
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A key of `pools`.
    Pool,
    /// A key of `models`.
    Model,
    /// The state of a node with an output of this type. Not an edge: cycles through state are what training is.
    State(PortType),
}

/// Which groups a filter lets on, by the rewards of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keeps {
    /// The largest less the smallest is above this.
    Spread {
        /// The bound.
        above: f64,
    },
    /// Their mean lies between these, both included; a bound that is left out is infinite.
    Mean {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
}

/// How a learning rate goes over the steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRate {
    /// At its height.
    pub peak: f64,
    /// Steps in which it rises to it.
    pub warmup_steps: u32,
    /// What it falls to at the last step; none where it does not fall.
    pub min: Option<f64>,
}

/// What a node is in a run, with the numbers that the passes reckon with.
#[derive(Debug, Clone)]
pub enum Role {
    /// Draws prompts.
    Sampler {
        /// Where rows come from: the data sets of `datasets` by name, or the one of `dataset`.
        datasets: Vec<DatasetSource>,
        /// Whether they are drawn in another order in each epoch.
        shuffle: bool,
        /// Samples that each prompt gets.
        samples_per_prompt: u32,
        /// Bound on the prompt's tokens; none: the context is the bound.
        max_prompt_tokens: Option<u32>,
        /// What happens above it.
        over_long: OverLong,
    },
    /// Generates.
    Engine {
        /// Prompt and response together.
        max_context_tokens: u32,
        /// Rollouts in flight; none: the worker chooses.
        max_concurrent_rollouts: Option<u32>,
        /// Share of the device's memory.
        memory_fraction: f64,
        /// Accelerators that one copy of the model takes.
        tensor_parallel: u32,
    },
    /// Turns prompts into groups.
    AgentLoop {
        /// Bound on a response.
        max_new_tokens: u32,
        /// Lower bound on a response.
        min_new_tokens: u32,
        /// See [`crate::data::Sampling::temperature`].
        temperature: f64,
        /// See [`crate::data::Sampling::top_p`].
        top_p: f64,
        /// See [`crate::data::Sampling::top_k`].
        top_k: u32,
        /// See [`crate::data::Sampling::min_p`].
        min_p: f64,
        /// Texts that end a response.
        stop_strings: Vec<String>,
    },
    /// Gives rewards.
    Judger {
        /// Which rows must have a ground truth.
        truths: Vec<Truth>,
        /// The values of `data_source` that it can judge; none: all.
        sources: Option<Vec<String>>,
        /// Programs that it judges by.
        commands: Vec<JudgeCommand>,
        /// Whether a response that cannot be judged ends the run.
        errors_are_fatal: bool,
        /// The least and the most that it gives; none where a program of the user's judges.
        reward_range: Option<(f64, f64)>,
        /// Whether it gives one of the two and nothing between.
        rewards_are_ends: bool,
        /// Weights of sums, each with the keys that lead to it in the config.
        weights: Vec<(Vec<String>, f64)>,
    },
    /// Keeps groups back.
    Filter {
        /// Which groups go on.
        keeps: Keeps,
        /// Rounds of asking again in one step.
        max_refill: u32,
        /// When those are used up, groups that were kept back fill the step; otherwise the run ends.
        fill: bool,
    },
    /// Makes steps of a stream.
    Buffer {
        /// Groups in a step.
        prompts_per_step: u32,
        /// Weights of the inputs by node name; empty: equal.
        mix: Vec<(String, f64)>,
    },
    /// Rewards to advantages.
    Advantage {
        /// Fewer samples of a prompt make no sense to it.
        min_samples_per_prompt: u32,
    },
    /// Log-probs of a frozen copy.
    Reference {
        /// Tokens that go through the model together.
        max_tokens_per_pack: u32,
        /// Tokens whose logits exist at the same time.
        logprob_chunk_tokens: u32,
    },
    /// Learns from steps.
    Trainer {
        /// Each over an equal share of the step's groups.
        optimizer_steps: u32,
        /// Tokens that go through the model together.
        max_tokens_per_pack: u32,
        /// Tokens whose logits exist at the same time.
        logprob_chunk_tokens: u32,
        /// What is kept for the backward pass.
        activations: Activations,
        /// Workers that share one sequence.
        sequence_parallel: u32,
        /// How the learning rate goes.
        learning_rate: LearningRate,
        /// The KL term of the loss, with its coefficient.
        kl: Option<(KlEstimator, f64)>,
        /// The bounds of the ratio of new to old probability, as distances from 1 below and above.
        clip: (f64, f64),
    },
    /// Learns from examples, once, before the first step.
    SftTrainer {
        /// Examples in one optimizer step.
        examples_per_step: u32,
        /// Tokens that go through the model together.
        max_tokens_per_pack: u32,
        /// Tokens whose logits exist at the same time.
        logprob_chunk_tokens: u32,
        /// What is kept for the backward pass.
        activations: Activations,
        /// How the learning rate goes.
        learning_rate: LearningRate,
    },
    /// Brings weights to an engine.
    WeightSync {
        /// The engine node.
        to: String,
        /// Every so many train steps.
        every_steps: u32,
    },
    /// Measures.
    Evaluator {
        /// Whether it fires at all; if not, what only it needs is left out.
        enabled: bool,
        /// Before the first train step.
        at_start: bool,
        /// Every so many train steps.
        every_steps: Option<u32>,
        /// After the last one.
        at_end: bool,
        /// At most so many prompts.
        limit: Option<u32>,
    },
}
