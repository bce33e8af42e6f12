//! The rules of the batch arithmetic, and what is said where one is broken.

use std::collections::{BTreeMap, BTreeSet};

use rlpipe_core::diagnostic::{Diagnostic, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::{Role, Target};

use super::super::pipeline::{Node, Pipeline};
use super::super::read::quoted;
use super::Settings;
use super::solve::Constraint;

/// A sampler and an agent loop that answers its prompts.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    sampler: &'a Node,
    max_prompt_tokens: Option<u32>,
    agent_loop: &'a Node,
    max_new_tokens: u32,
    min_new_tokens: u32,
}

/// What must fit.
pub enum Rule<'a> {
    /// Prompt and response into the engine's context.
    Context {
        answered: Answered<'a>,
        engine: &'a Node,
        context: u32,
    },
    /// A rollout into a pack.
    Pack {
        answered: Answered<'a>,
        trainer: &'a Node,
        pack: u32,
    },
    /// The groups of a step into equal optimizer steps.
    Shares { step: Step<'a> },
    /// The samples of a prompt and what an estimator compares.
    Samples {
        sampler: &'a Node,
        samples: u32,
        advantage: &'a Node,
        wanted: u32,
    },
    /// The rollouts of an optimizer step and the workers.
    Workers {
        step: Step<'a>,
        samplers: Vec<(&'a Node, u32)>,
        pool: &'a str,
        pool_range: Range,
        nodes: u32,
        workers_per_node: u32,
    },
    /// The groups of a step and the inputs that share it.
    Mix {
        step: Step<'a>,
        inputs: Vec<(&'a Node, f64)>,
    },
}

/// The groups of a step, and the optimizer steps that they are split into.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    buffer: &'a Node,
    prompts_per_step: u32,
    trainer: &'a Node,
    optimizer_steps: u32,
}

/// All rules that apply to a pipeline.
pub fn rules(pipeline: &Pipeline) -> Vec<Rule<'_>> {
    let mut rules = Vec::new();
    for (index, node, contract) in pipeline.live() {
        match contract.role {
            Role::AgentLoop { .. } => rules.extend(context(pipeline, node)),
            Role::Advantage { min_samples_per_prompt } => {
                for (sampler, samples) in samplers(pipeline, index) {
                    rules.push(Rule::Samples {
                        sampler,
                        samples,
                        advantage: node,
                        wanted: min_samples_per_prompt,
                    });
                }
            }
            Role::Trainer {
                optimizer_steps,
                max_tokens_per_pack,
                ..
            } => {
                for up in pipeline.upstream(index) {
                    let up = &pipeline.nodes[up];
                    if let Some(answered) = answered(pipeline, up) {
                        rules.push(Rule::Pack {
                            answered,
                            trainer: node,
                            pack: max_tokens_per_pack,
                        });
                    }
                    let Some(Role::Buffer { prompts_per_step, mix }) = role(up) else {
                        continue;
                    };
                    let step = Step {
                        buffer: up,
                        prompts_per_step: *prompts_per_step,
                        trainer: node,
                        optimizer_steps,
                    };
                    rules.push(Rule::Shares { step });
                    rules.extend(mixed(pipeline, step, mix));
                    rules.extend(workers(pipeline, index, step));
                }
            }
            _ => {}
        }
    }
    rules
}

fn role(node: &Node) -> Option<&Role> {
    Some(&node.contract.as_ref()?.role)
}

fn answered<'a>(pipeline: &'a Pipeline, agent_loop: &'a Node) -> Option<Answered<'a>> {
    let Some(Role::AgentLoop {
        max_new_tokens,
        min_new_tokens,
        ..
    }) = role(agent_loop)
    else {
        return None;
    };
    let sampler = &pipeline.nodes[agent_loop.input("prompts")?.node];
    let Some(Role::Sampler { max_prompt_tokens, .. }) = role(sampler) else {
        return None;
    };
    Some(Answered {
        sampler,
        max_prompt_tokens: *max_prompt_tokens,
        agent_loop,
        max_new_tokens: *max_new_tokens,
        min_new_tokens: *min_new_tokens,
    })
}

fn context<'a>(pipeline: &'a Pipeline, agent_loop: &'a Node) -> Option<Rule<'a>> {
    let engine = &pipeline.nodes[agent_loop.input("engine")?.node];
    let Some(Role::Engine { max_context_tokens, .. }) = role(engine) else {
        return None;
    };
    Some(Rule::Context {
        answered: answered(pipeline, agent_loop)?,
        engine,
        context: *max_context_tokens,
    })
}

/// Samplers whose prompts are answered upstream of a node, each once.
fn samplers(pipeline: &Pipeline, index: usize) -> Vec<(&Node, u32)> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for up in pipeline.upstream(index) {
        let Some(answered) = answered(pipeline, &pipeline.nodes[up]) else {
            continue;
        };
        if let Some(Role::Sampler { samples_per_prompt, .. }) = role(answered.sampler)
            && seen.insert(&answered.sampler.name)
        {
            found.push((answered.sampler, *samples_per_prompt));
        }
    }
    found
}

/// Inputs of a buffer with their weights, where there are several and each has one.
fn mixed<'a>(pipeline: &'a Pipeline, step: Step<'a>, mix: &[(String, f64)]) -> Option<Rule<'a>> {
    let inputs = step.buffer.inputs.get("groups")?;
    let weights: BTreeMap<&str, f64> = mix.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
    let inputs: Option<Vec<(&Node, f64)>> = inputs
        .iter()
        .map(|endpoint| {
            let node = &pipeline.nodes[endpoint.node];
            let weight = match weights.is_empty() {
                true => Some(1.0),
                false => weights.get(node.name.as_str()).copied(),
            };
            Some((node, weight?))
        })
        .collect();
    let inputs = inputs.filter(|inputs| inputs.len() > 1 && inputs.iter().all(|(_, weight)| *weight > 0.0))?;
    Some(Rule::Mix { step, inputs })
}

/// The trainer's workers, where there are several.
fn workers<'a>(pipeline: &'a Pipeline, trainer: usize, step: Step<'a>) -> Option<Rule<'a>> {
    let pool = step.trainer.contract.as_ref()?.used(Target::Pool)?;
    let section = pipeline.pools.get(pool)?;
    let config = section.config.as_ref().filter(|pool| pool.workers() > 1)?;
    Some(Rule::Workers {
        step,
        samplers: samplers(pipeline, trainer),
        pool,
        pool_range: pipeline
            .range_of(&["pools", pool, "workers_per_node"])
            .unwrap_or(section.key_range),
        nodes: config.nodes.get(),
        workers_per_node: config.workers_per_node.get(),
    })
}

impl Answered<'_> {
    /// The setting of its response, which may not go below the lower bound.
    fn response(&self, settings: &mut Settings) -> usize {
        let least = match self.min_new_tokens {
            lower if lower <= self.max_new_tokens => lower.max(1),
            _ => 1,
        };
        let path = format!("nodes.{}.sampling.max_new_tokens", self.agent_loop.name);
        settings.add(path, self.max_new_tokens.into(), least.into())
    }

    /// Settings of prompt and response, and what else takes room: a prompt without a bound has a token at least.
    fn terms(&self, settings: &mut Settings) -> (Vec<usize>, u64) {
        let response = self.response(settings);
        match self.max_prompt_tokens {
            Some(prompt) => {
                let path = format!("nodes.{}.max_prompt_tokens", self.sampler.name);
                (vec![settings.add(path, prompt.into(), 1), response], 0)
            }
            None => (vec![response], 1),
        }
    }

    fn longest(&self) -> u64 {
        u64::from(self.max_prompt_tokens.unwrap_or(1)) + u64::from(self.max_new_tokens)
    }
}

impl Step<'_> {
    fn settings(&self, settings: &mut Settings) -> (usize, usize) {
        let groups = format!("nodes.{}.prompts_per_step", self.buffer.name);
        let steps = format!("nodes.{}.optimizer_steps", self.trainer.name);
        (
            settings.add(groups, self.prompts_per_step.into(), 1),
            settings.add(steps, self.optimizer_steps.into(), 1),
        )
    }
}

fn samples_of(sampler: &Node, samples: u32, settings: &mut Settings) -> usize {
    settings.add(format!("nodes.{}.samples_per_prompt", sampler.name), samples.into(), 1)
}

impl Rule<'_> {
    /// The rule in numbers.
    pub fn constraint(&self, settings: &mut Settings) -> Constraint {
        match self {
            Self::Context {
                answered,
                engine,
                context,
            } => {
                let (terms, constant) = answered.terms(settings);
                let path = format!("nodes.{}.max_context_tokens", engine.name);
                let room = settings.add(path, (*context).into(), 1);
                Constraint::Fits { terms, constant, room }
            }
            Self::Pack {
                answered,
                trainer,
                pack,
            } => {
                let (terms, constant) = answered.terms(settings);
                let path = format!("nodes.{}.max_tokens_per_pack", trainer.name);
                let room = settings.add(path, (*pack).into(), 1);
                Constraint::Fits { terms, constant, room }
            }
            Self::Shares { step } => {
                let (whole, parts) = step.settings(settings);
                Constraint::Divides { parts, whole }
            }
            Self::Samples {
                sampler,
                samples,
                wanted,
                ..
            } => Constraint::AtLeast {
                setting: samples_of(sampler, *samples, settings),
                bound: (*wanted).into(),
            },
            Self::Workers {
                step,
                samplers,
                pool,
                nodes,
                workers_per_node,
                ..
            } => {
                let (whole, parts) = step.settings(settings);
                let path = format!("pools.{pool}.workers_per_node");
                Constraint::Fed {
                    whole,
                    parts,
                    samples: samplers
                        .iter()
                        .map(|(node, samples)| samples_of(node, *samples, settings))
                        .collect(),
                    workers_per_node: settings.add(path, (*workers_per_node).into(), 1),
                    nodes: (*nodes).into(),
                }
            }
            Self::Mix { step, inputs } => Constraint::Shared {
                whole: step.settings(settings).0,
                weights: inputs.iter().map(|(_, weight)| *weight).collect(),
            },
        }
    }

    /// What is said where it is broken; what would fit is added to it.
    pub fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Context {
                answered,
                engine,
                context,
            } => not_in_context(answered, engine, *context),
            Self::Pack {
                answered,
                trainer,
                pack,
            } => {
                let (longest, prompt) = (answered.longest(), answered.max_prompt_tokens.unwrap_or(1));
                Diagnostic::error(
                    &codes::RL0502,
                    trainer.range_of(&["max_tokens_per_pack"]),
                    format!("a pack of {pack} tokens cannot hold a rollout of {longest}"),
                )
                .label_text(format!("at least {longest} are needed"))
                .label(
                    answered.agent_loop.range_of(&["sampling", "max_new_tokens"]),
                    format!("{} response tokens", answered.max_new_tokens),
                )
                .label(
                    answered.sampler.range_of(&["max_prompt_tokens"]),
                    format!("{prompt} prompt tokens"),
                )
                .note("a rollout is never cut: it must fit into one pack")
            }
            Self::Shares { step } => Diagnostic::error(
                &codes::RL0503,
                step.trainer.range_of(&["optimizer_steps"]),
                format!(
                    "`prompts_per_step: {}` cannot be split into {} equal optimizer steps",
                    step.prompts_per_step, step.optimizer_steps
                ),
            )
            .label_text(format!("does not divide {}", step.prompts_per_step))
            .label(step.buffer.range_of(&["prompts_per_step"]), "groups in a train step"),
            Self::Samples {
                sampler,
                samples,
                advantage,
                wanted,
            } => Diagnostic::error(
                &codes::RL0504,
                sampler.range_of(&["samples_per_prompt"]),
                format!(
                    "`{}` compares the samples of a prompt and needs {wanted}, but `{}` gives {samples}",
                    advantage.name, sampler.name
                ),
            )
            .label_text(format!("at least {wanted} are needed; 5 to 16 is usual"))
            .label(
                advantage.range_of(&["estimator"]),
                format!("needs at least {wanted} samples of a prompt"),
            )
            .note("with one sample its advantage is always 0, and nothing is learnt"),
            Self::Workers {
                step,
                samplers,
                pool,
                pool_range,
                nodes,
                workers_per_node,
            } => {
                let samples = samplers.iter().map(|(_, samples)| *samples).min().unwrap_or(1);
                let groups = step.prompts_per_step / step.optimizer_steps;
                let rollouts = u64::from(groups) * u64::from(samples);
                let workers = u64::from(*nodes) * u64::from(*workers_per_node);
                let mut diagnostic = Diagnostic::error(
                    &codes::RL0505,
                    *pool_range,
                    format!("an optimizer step has {rollouts} rollouts for the {workers} workers of `{pool}`"),
                )
                .label_text(format!("{workers} workers"))
                .label(
                    step.buffer.range_of(&["prompts_per_step"]),
                    format!(
                        "{} groups in {} optimizer steps",
                        step.prompts_per_step, step.optimizer_steps
                    ),
                );
                for (sampler, samples) in samplers {
                    diagnostic = diagnostic.label(
                        sampler.range_of(&["samples_per_prompt"]),
                        format!("{samples} rollouts in a group"),
                    );
                }
                diagnostic.note("a worker without a rollout would wait for the others in every step")
            }
            Self::Mix { step, inputs } => without_share(step, inputs),
        }
    }
}

fn not_in_context(answered: &Answered<'_>, engine: &Node, context: u32) -> Diagnostic {
    let response = answered.agent_loop.range_of(&["sampling", "max_new_tokens"]);
    let place = engine.range_of(&["max_context_tokens"]);
    let max_new_tokens = answered.max_new_tokens;
    let Some(prompt) = answered.max_prompt_tokens else {
        return Diagnostic::error(
            &codes::RL0501,
            response,
            format!("a response of {max_new_tokens} tokens leaves no room for a prompt in a context of {context}"),
        )
        .label_text("no room is left")
        .label(place, "the context");
    };
    let wanted = answered.longest();
    Diagnostic::error(
        &codes::RL0501,
        place,
        format!("a prompt of {prompt} and a response of {max_new_tokens} tokens make {wanted}, but the context has {context}"),
    )
    .label_text(format!("at least {wanted} are needed"))
    .label(
        answered.sampler.range_of(&["max_prompt_tokens"]),
        format!("{prompt} prompt tokens"),
    )
    .label(response, format!("{max_new_tokens} response tokens"))
}

fn without_share(step: &Step<'_>, inputs: &[(&Node, f64)]) -> Diagnostic {
    let weights: Vec<f64> = inputs.iter().map(|(_, weight)| *weight).collect();
    let shares = rlpipe_core::data::largest_remainder(step.prompts_per_step as usize, &weights);
    let without: Vec<&str> = inputs
        .iter()
        .zip(&shares)
        .filter(|(_, share)| **share == 0)
        .map(|((node, _), _)| node.name.as_str())
        .collect();
    let total: f64 = weights.iter().sum();
    let mut diagnostic = Diagnostic::error(
        &codes::RL0506,
        step.buffer.range_of(&["prompts_per_step"]),
        format!(
            "of {} groups a step none {} from {}",
            step.prompts_per_step,
            if without.len() == 1 { "comes" } else { "come" },
            quoted(&without)
        ),
    )
    .label_text(format!("shared by {} inputs", inputs.len()));
    for (node, weight) in inputs.iter().filter(|(node, _)| without.contains(&node.name.as_str())) {
        if let Some(place) = step.buffer.written(&["mix", &node.name]) {
            let exact = f64::from(step.prompts_per_step) * weight / total;
            diagnostic = diagnostic.label(place, format!("{exact:.2} groups, rounded to 0"));
        }
    }
    diagnostic.note("each step is shared anew in the same way: an input without a group in one has none in any")
}
