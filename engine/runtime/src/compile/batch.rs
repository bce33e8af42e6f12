//! RL05: whether prompts, samples, steps, packs and contexts fit together.

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::kind::Role;

use super::configs::{near_divisors, nearest_divisors};
use super::pipeline::{Node, Pipeline};

/// Checks the batch arithmetic.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (index, node, contract) in pipeline.live() {
        match contract.role {
            Role::AgentLoop { max_new_tokens, .. } => context(pipeline, node, max_new_tokens, diagnostics),
            Role::Trainer {
                optimizer_steps,
                max_tokens_per_pack,
                ..
            } => {
                shares(pipeline, index, optimizer_steps, diagnostics);
                packs(pipeline, index, max_tokens_per_pack, diagnostics);
            }
            Role::Advantage { min_samples_per_prompt } => {
                samples(pipeline, index, min_samples_per_prompt, diagnostics);
            }
            _ => {}
        }
    }
}

/// Nodes upstream of one that have a certain role.
fn above<'a, T>(
    pipeline: &'a Pipeline,
    index: usize,
    pick: impl Fn(&Role) -> Option<T> + 'a,
) -> impl Iterator<Item = (&'a Node, T)> + 'a {
    pipeline.upstream(index).into_iter().filter_map(move |up| {
        let node = &pipeline.nodes[up];
        Some((node, pick(&node.contract.as_ref()?.role)?))
    })
}

fn context(pipeline: &Pipeline, node: &Node, max_new_tokens: u32, diagnostics: &mut Diagnostics) {
    let (Some(engine), Some(sampler)) = (node.input("engine"), node.input("prompts")) else {
        return;
    };
    let engine = &pipeline.nodes[engine.node];
    let sampler = &pipeline.nodes[sampler.node];
    let role = |node: &Node| node.contract.as_ref().map(|contract| contract.role.clone());
    let Some(Role::Engine { max_context_tokens, .. }) = role(engine) else {
        return;
    };
    let Some(Role::Sampler { max_prompt_tokens, .. }) = role(sampler) else {
        return;
    };
    let response = node.range_of(&["sampling", "max_new_tokens"]);
    let Some(prompt) = max_prompt_tokens else {
        if max_new_tokens >= max_context_tokens {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0501,
                    response,
                    format!("a response of {max_new_tokens} tokens leaves no room for a prompt in a context of {max_context_tokens}"),
                )
                .label_text("no room is left")
                .label(engine.range_of(&["max_context_tokens"]), "the context")
                .note("raise `max_context_tokens`, or lower `max_new_tokens`"),
            );
        }
        return;
    };
    let wanted = u64::from(prompt) + u64::from(max_new_tokens);
    if wanted > u64::from(max_context_tokens) {
        let place = engine.range_of(&["max_context_tokens"]);
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0501,
                place,
                format!("a prompt of {prompt} and a response of {max_new_tokens} tokens make {wanted}, but the context has {max_context_tokens}"),
            )
            .label_text(format!("at least {wanted} are needed"))
            .label(sampler.range_of(&["max_prompt_tokens"]), format!("{prompt} prompt tokens"))
            .label(response, format!("{max_new_tokens} response tokens"))
            .fix(format!("make the context {wanted}"), place, wanted.to_string()),
        );
    }
}

fn packs(pipeline: &Pipeline, trainer: usize, max_tokens_per_pack: u32, diagnostics: &mut Diagnostics) {
    let node = &pipeline.nodes[trainer];
    let loops = above(pipeline, trainer, |role| match role {
        Role::AgentLoop { max_new_tokens, .. } => Some(*max_new_tokens),
        _ => None,
    });
    for (agent_loop, max_new_tokens) in loops {
        let Some(sampler) = agent_loop
            .input("prompts")
            .map(|endpoint| &pipeline.nodes[endpoint.node])
        else {
            continue;
        };
        let prompt = match sampler.contract.as_ref().map(|contract| &contract.role) {
            Some(Role::Sampler {
                max_prompt_tokens: Some(prompt),
                ..
            }) => *prompt,
            _ => 1,
        };
        let longest = u64::from(prompt) + u64::from(max_new_tokens);
        if longest > u64::from(max_tokens_per_pack) {
            let place = node.range_of(&["max_tokens_per_pack"]);
            let mut diagnostic = Diagnostic::error(
                &codes::RL0502,
                place,
                format!("a pack of {max_tokens_per_pack} tokens cannot hold a rollout of {longest}"),
            )
            .label_text(format!("at least {longest} are needed"))
            .label(
                agent_loop.range_of(&["sampling", "max_new_tokens"]),
                format!("{max_new_tokens} response tokens"),
            )
            .label(
                sampler.range_of(&["max_prompt_tokens"]),
                format!("{prompt} prompt tokens"),
            )
            .note("a rollout is never cut: it must fit into one pack");
            if node.written(&["max_tokens_per_pack"]).is_some() {
                diagnostic = diagnostic.fix(format!("make packs of {longest}"), place, longest.to_string());
            }
            diagnostics.push(diagnostic);
        }
    }
}

fn shares(pipeline: &Pipeline, trainer: usize, optimizer_steps: u32, diagnostics: &mut Diagnostics) {
    let node = &pipeline.nodes[trainer];
    let buffers = above(pipeline, trainer, |role| match role {
        Role::Buffer { prompts_per_step, .. } => Some(*prompts_per_step),
        _ => None,
    });
    for (buffer, prompts_per_step) in buffers {
        if prompts_per_step.is_multiple_of(optimizer_steps) {
            continue;
        }
        let place = node.range_of(&["optimizer_steps"]);
        let below = prompts_per_step - prompts_per_step % optimizer_steps;
        let above = u64::from(below) + u64::from(optimizer_steps);
        let steps = if below > 0 {
            format!("`{below}` or `{above}`")
        } else {
            format!("`{above}`")
        };
        let nearest = nearest_divisors(prompts_per_step, optimizer_steps)
            .first()
            .copied()
            .unwrap_or(1);
        diagnostics.push(
            Diagnostic::error(
                &codes::RL0503,
                place,
                format!("`prompts_per_step: {prompts_per_step}` cannot be split into {optimizer_steps} equal optimizer steps"),
            )
            .label_text(format!("does not divide {prompts_per_step}"))
            .label(buffer.range_of(&["prompts_per_step"]), "groups in a train step")
            .note(format!("or change `prompts_per_step` to a multiple of {optimizer_steps}, such as {steps}"))
            .fix(
                format!("use a divisor of {prompts_per_step}, such as {}", near_divisors(prompts_per_step, optimizer_steps)),
                place,
                nearest.to_string(),
            ),
        );
    }
}

fn samples(pipeline: &Pipeline, advantage: usize, wanted: u32, diagnostics: &mut Diagnostics) {
    let node = &pipeline.nodes[advantage];
    let samplers = above(pipeline, advantage, |role| match role {
        Role::Sampler { samples_per_prompt, .. } => Some(*samples_per_prompt),
        _ => None,
    });
    for (sampler, samples_per_prompt) in samplers {
        if samples_per_prompt >= wanted {
            continue;
        }
        let place = sampler.range_of(&["samples_per_prompt"]);
        let mut diagnostic = Diagnostic::error(
            &codes::RL0504,
            place,
            format!(
                "`{}` compares the samples of a prompt and needs {wanted}, but `{}` gives {samples_per_prompt}",
                node.name, sampler.name
            ),
        )
        .label_text(format!("at least {wanted} are needed"))
        .label(
            node.range_of(&["estimator"]),
            format!("needs at least {wanted} samples of a prompt"),
        )
        .note("with one sample its advantage is always 0, and nothing is learnt");
        if sampler.written(&["samples_per_prompt"]).is_some() {
            diagnostic = diagnostic.fix("give each prompt 8, as is usual", place, "8");
        } else {
            diagnostic = diagnostic.note(format!("add `samples_per_prompt: 8` to `{}`", sampler.name));
        }
        diagnostics.push(diagnostic);
    }
}
