//! The batch table: how the numbers of a train step fit together.

use rlpipe_core::kind::Role;

use super::BatchTable;
use crate::compile::Pipeline;

/// The table of a pipeline with a trainer; none where it has none.
pub fn batch_table(pipeline: &Pipeline) -> Option<BatchTable> {
    let (trainer, optimizer_steps, max_tokens_per_pack) =
        pipeline.live().find_map(|(index, _, contract)| match contract.role {
            Role::Trainer {
                optimizer_steps,
                max_tokens_per_pack,
                ..
            } => Some((index, u64::from(optimizer_steps), u64::from(max_tokens_per_pack))),
            _ => None,
        })?;
    let upstream = pipeline.upstream(trainer);
    let roles = || {
        upstream
            .iter()
            .filter_map(|index| Some(&pipeline.nodes[*index].contract.as_ref()?.role))
    };
    let prompts_per_step = roles().find_map(|role| match role {
        Role::Buffer { prompts_per_step, .. } => Some(u64::from(*prompts_per_step)),
        _ => None,
    })?;
    // The warm-up's examples are upstream too, through `initial_weights`: only prompts that are answered count.
    let samplers = || {
        upstream.iter().filter_map(|index| {
            let sampler = pipeline.nodes[*index].input("prompts")?.node;
            match pipeline.nodes[sampler].contract.as_ref()?.role {
                Role::Sampler {
                    samples_per_prompt,
                    max_prompt_tokens,
                    ..
                } => Some((u64::from(samples_per_prompt), max_prompt_tokens.map(u64::from))),
                _ => None,
            }
        })
    };
    let samples_per_prompt = samplers().map(|(samples, _)| samples).max()?;
    let max_prompt_tokens = samplers()
        .map(|(_, tokens)| tokens)
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .max();
    let max_new_tokens = roles()
        .filter_map(|role| match role {
            Role::AgentLoop { max_new_tokens, .. } => Some(u64::from(*max_new_tokens)),
            _ => None,
        })
        .max()?;
    let prompts_per_optimizer_step = prompts_per_step / optimizer_steps;
    Some(BatchTable {
        prompts_per_step,
        samples_per_prompt,
        rollouts_per_step: prompts_per_step * samples_per_prompt,
        optimizer_steps,
        prompts_per_optimizer_step,
        max_prompt_tokens,
        max_new_tokens,
        max_tokens_per_pack,
        most_packs_per_optimizer_step: max_prompt_tokens.map(|prompt| {
            let in_a_pack = (max_tokens_per_pack / (prompt + max_new_tokens)).max(1);
            (prompts_per_optimizer_step * samples_per_prompt).div_ceil(in_a_pack)
        }),
    })
}
