//! RL08: whether a step can wait for ever. Each buffer is proved to get its groups, or the reason is shown with the chain
//! of nodes; and every run has an end.
//!
//! A step asks each input for its share of groups, and again for what was kept back, in a bounded number of rounds. It
//! waits in vain where a filter can keep nothing, whatever the model does: that follows from the rewards that judgers
//! can give, from the number of samples, and from how they are drawn. Weights reach engines once before the first step,
//! so that no engine waits for a trainer that waits for it.

mod rewards;

use rlpipe_core::data::largest_remainder;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::kind::Role;
use serde::{Deserialize, Serialize};

use super::pipeline::{Node, Pipeline};
use super::read::quoted;
use rewards::{Rewards, Vain};

/// Rounds of asking again where no filter says how many.
pub const REFILL_WITHOUT_FILTER: u32 = 4;

/// Why a buffer gets the groups of each step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferProof {
    /// The buffer.
    pub buffer: String,
    /// Groups in a step.
    pub groups_per_step: u64,
    /// Where they come from.
    pub inputs: Vec<InputProof>,
}

/// Why one input of a buffer gives its share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputProof {
    /// The way of a group, from the sampler to the node that the buffer takes from.
    pub chain: Vec<String>,
    /// Its share of a step.
    pub groups_per_step: u64,
    /// Rounds of asking in one step, at most.
    pub most_rounds: u64,
    /// What happens when those are used up.
    pub when_used_up: WhenUsedUp,
    /// Why a group can reach the buffer: sentences.
    pub because: Vec<String>,
}

/// What happens when a step has asked as often as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUsedUp {
    /// The run ends and says why groups were kept back.
    Fail,
    /// Groups that a filter kept back complete the step.
    Fill,
}

/// Checks that no step waits in vain, and that the run ends.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (_, node, contract) in pipeline.live() {
        match &contract.role {
            Role::Buffer { .. } => {
                for endpoint in node.inputs.get("groups").into_iter().flatten() {
                    let Some(way) = Way::to(pipeline, endpoint.node) else {
                        continue;
                    };
                    if let Err(vain) = way.reasons() {
                        diagnostics.push(vain.diagnostic(&way, node));
                    }
                    refills(&way, diagnostics);
                }
            }
            Role::WeightSync { to, .. } => once(pipeline, node, to, diagnostics),
            _ => {}
        }
    }
    epochs(pipeline, diagnostics);
}

/// Why every buffer of a pipeline without errors gets its groups.
pub fn proof(pipeline: &Pipeline) -> Vec<BufferProof> {
    let mut proofs = Vec::new();
    for (_, node, contract) in pipeline.live() {
        let Role::Buffer { prompts_per_step, mix } = &contract.role else {
            continue;
        };
        let endpoints = node.inputs.get("groups").map(Vec::as_slice).unwrap_or_default();
        let weight = |name: &str| {
            mix.iter()
                .find(|(weighed, _)| weighed == name)
                .map_or(1.0, |(_, weight)| *weight)
        };
        let weights: Vec<f64> = endpoints
            .iter()
            .map(|end| weight(&pipeline.nodes[end.node].name))
            .collect();
        let shares = largest_remainder(*prompts_per_step as usize, &weights);
        let inputs = endpoints.iter().zip(shares).filter_map(|(endpoint, share)| {
            let way = Way::to(pipeline, endpoint.node)?;
            Some(InputProof {
                chain: way.names().map(str::to_owned).collect(),
                groups_per_step: share as u64,
                most_rounds: 1 + u64::from(way.max_refill()),
                when_used_up: if way.fills() {
                    WhenUsedUp::Fill
                } else {
                    WhenUsedUp::Fail
                },
                because: way.reasons().unwrap_or_default(),
            })
        });
        proofs.push(BufferProof {
            buffer: node.name.clone(),
            groups_per_step: (*prompts_per_step).into(),
            inputs: inputs.collect(),
        });
    }
    proofs
}

/// The way of a group: a sampler, an agent loop, then judgers and filters.
struct Way<'a> {
    sampler: &'a Node,
    samples: u32,
    agent_loop: &'a Node,
    /// Whether all samples of a prompt are the same.
    greedy: bool,
    stages: Vec<(&'a Node, &'a Role)>,
}

impl<'a> Way<'a> {
    /// The way that ends in a node; none where it is not whole.
    fn to(pipeline: &'a Pipeline, end: usize) -> Option<Self> {
        let mut stages = Vec::new();
        let mut at = end;
        // Cycles were reported; they have no beginning.
        while stages.len() <= pipeline.nodes.len() {
            let node = &pipeline.nodes[at];
            match &node.contract.as_ref()?.role {
                role @ (Role::Judger { .. } | Role::Filter { .. }) => {
                    stages.push((node, role));
                    at = node.input("groups")?.node;
                }
                Role::AgentLoop { temperature, top_k, .. } => {
                    let sampler = &pipeline.nodes[node.input("prompts")?.node];
                    let Role::Sampler { samples_per_prompt, .. } = sampler.contract.as_ref()?.role else {
                        return None;
                    };
                    stages.reverse();
                    return Some(Self {
                        sampler,
                        samples: samples_per_prompt,
                        agent_loop: node,
                        greedy: *temperature == 0.0 || *top_k == 1,
                        stages,
                    });
                }
                _ => return None,
            }
        }
        None
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let ends = [self.sampler, self.agent_loop].into_iter();
        ends.chain(self.stages.iter().map(|(node, _)| *node))
            .map(|node| node.name.as_str())
    }

    fn filters(&self) -> impl Iterator<Item = (&'a Node, u32, bool)> {
        self.stages.iter().filter_map(|(node, role)| match role {
            Role::Filter { max_refill, fill, .. } => Some((*node, *max_refill, *fill)),
            _ => None,
        })
    }

    /// Rounds of asking again: the filter that allows most decides.
    fn max_refill(&self) -> u32 {
        self.filters()
            .map(|(_, refill, _)| refill)
            .max()
            .unwrap_or(REFILL_WITHOUT_FILTER)
    }

    fn fills(&self) -> bool {
        self.filters().any(|(_, _, fill)| fill)
    }

    /// Why each of its stages lets some group on; or which filter can keep none.
    fn reasons(&self) -> Result<Vec<String>, Vain<'a>> {
        let mut because = Vec::new();
        let mut rewards = Rewards::new(self);
        for (node, role) in &self.stages {
            match role {
                Role::Judger {
                    reward_range,
                    rewards_are_ends,
                    errors_are_fatal,
                    ..
                } => {
                    rewards = Rewards::judged(self, node, *reward_range, *rewards_are_ends);
                    if !errors_are_fatal {
                        because.push(format!(
                            "what `{}` cannot judge is counted, and asked for again",
                            node.name
                        ));
                    }
                }
                Role::Filter { keeps, .. } => {
                    because.push(rewards.pass(node, *keeps)?);
                }
                _ => {}
            }
        }
        if self.filters().next().is_none() {
            because.push("no filter keeps groups back".to_owned());
        }
        Ok(because)
    }
}

/// How often a step may ask, where groups are kept back.
fn refills(way: &Way<'_>, diagnostics: &mut Diagnostics) {
    let filters: Vec<_> = way.filters().collect();
    let Some(((first, refill, fill), others)) = filters.split_first() else {
        return;
    };
    if way.max_refill() == 0 && !way.fills() {
        let place = first.range_of(&["max_refill"]);
        diagnostics.push(
            Diagnostic::warning(
                &codes::RL0802,
                place,
                format!("the first group that `{}` keeps back ends the run", first.name),
            )
            .label_text("no group may be asked for again")
            .fix("ask again up to 4 times, as is usual", place, "4")
            .note("or let groups that were kept back complete the step: `when_exhausted: fill`"),
        );
    }
    for (other, other_refill, other_fill) in others {
        if (refill, fill) == (other_refill, other_fill) {
            continue;
        }
        let filling = if way.fills() {
            "`when_exhausted: fill`"
        } else {
            "`when_exhausted: fail`"
        };
        let of = |fill: bool| if fill { "fill" } else { "fail" };
        diagnostics.push(
            Diagnostic::warning(
                &codes::RL0803,
                other.key_range,
                format!("`{}` and `{}` are on one way and ask again differently", first.name, other.name),
            )
            .label_text(format!("`max_refill: {other_refill}`, `{}`", of(*other_fill)))
            .label(first.key_range, format!("`max_refill: {refill}`, `{}`", of(*fill)))
            .note(format!(
                "a step asks for whole groups, not for those of one filter: `max_refill: {}` and {filling} hold for both",
                way.max_refill()
            ))
            .note("give both the same"),
        );
    }
}

/// A weight sync takes from what goes on learning.
fn once(pipeline: &Pipeline, sync: &Node, engine: &str, diagnostics: &mut Diagnostics) {
    let Some(endpoint) = sync.input("weights") else { return };
    let giver = &pipeline.nodes[endpoint.node];
    if !matches!(
        giver.contract.as_ref().map(|contract| &contract.role),
        Some(Role::SftTrainer { .. })
    ) {
        return;
    }
    let trainer = pipeline
        .live()
        .find(|(_, _, contract)| matches!(contract.role, Role::Trainer { .. }));
    let Some((_, trainer, _)) = trainer else { return };
    diagnostics.push(
        Diagnostic::error(
            &codes::RL0804,
            endpoint.range,
            format!(
                "`{engine}` waits for `{}`, which waits for `{}`, which is over before step 1",
                sync.name, giver.name
            ),
        )
        .label_text("learns once, before the first step")
        .label(trainer.key_range, "goes on learning, and no engine hears of it")
        .note(format!(
            "the trainer begins with what `{}` learnt: take its weights",
            giver.name
        ))
        .fix(
            format!("take from `{}`", trainer.name),
            endpoint.range,
            trainer.name.clone(),
        ),
    );
}

/// A run that is measured in epochs knows whose.
fn epochs(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    let Some(range) = pipeline.range_of(&["run", "total_epochs"]) else {
        return;
    };
    if pipeline.run.as_ref().is_none_or(|run| run.total_epochs.is_none()) {
        return;
    }
    let trainer = pipeline
        .live()
        .find(|(_, _, contract)| matches!(contract.role, Role::Trainer { .. }));
    let Some((trainer, _, _)) = trainer else { return };
    let mut samplers: Vec<&Node> = Vec::new();
    for up in pipeline.upstream(trainer) {
        let node = pipeline.nodes[up]
            .input("prompts")
            .map(|endpoint| &pipeline.nodes[endpoint.node]);
        samplers.extend(node.filter(|node| !samplers.iter().any(|known| known.name == node.name)));
    }
    if samplers.len() < 2 {
        return;
    }
    let names: Vec<&str> = samplers.iter().map(|sampler| sampler.name.as_str()).collect();
    let mut diagnostic = Diagnostic::error(
        &codes::RL0805,
        range,
        format!(
            "`total_epochs` needs one training sampler, and there are {}: {}",
            names.len(),
            quoted(&names)
        ),
    )
    .label_text("epochs of which?");
    for sampler in samplers {
        diagnostic = diagnostic.label(sampler.key_range, "draws prompts that are trained");
    }
    diagnostics.push(diagnostic.note("say how long the run is by `total_steps`"));
}
