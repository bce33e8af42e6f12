//! The arithmetic of a train step, worked out.

use std::fmt::Write as _;

use rlpipe_runtime::plan::Plan;

use super::grouped;

/// The batch table; nothing for a pipeline without a trainer.
pub fn section(plan: &Plan) -> String {
    let Some(batch) = &plan.batch else {
        return String::new();
    };
    let mut out = String::from("\na train step\n");
    let _ = writeln!(
        out,
        "  {} prompts x {} samples = {} rollouts",
        grouped(batch.prompts_per_step),
        batch.samples_per_prompt,
        grouped(batch.rollouts_per_step)
    );
    let _ = writeln!(
        out,
        "  {} prompts / {} optimizer {} = {} prompts, {} rollouts each",
        grouped(batch.prompts_per_step),
        batch.optimizer_steps,
        if batch.optimizer_steps == 1 { "step" } else { "steps" },
        grouped(batch.prompts_per_optimizer_step),
        grouped(batch.prompts_per_optimizer_step * batch.samples_per_prompt)
    );
    match (batch.max_prompt_tokens, batch.most_packs_per_optimizer_step) {
        (Some(prompt), Some(packs)) => {
            let longest = prompt + batch.max_new_tokens;
            let _ = writeln!(
                out,
                "  {} prompt + {} response = {} tokens in the longest rollout",
                grouped(prompt),
                grouped(batch.max_new_tokens),
                grouped(longest)
            );
            let _ = writeln!(
                out,
                "  {} tokens of a pack / {} = {} or more rollouts in a pack: at most {} packs in an optimizer step",
                grouped(batch.max_tokens_per_pack),
                grouped(longest),
                grouped((batch.max_tokens_per_pack / longest.max(1)).max(1)),
                grouped(packs)
            );
            let _ = writeln!(
                out,
                "  {} rollouts x {} = at most {} tokens",
                grouped(batch.rollouts_per_step),
                grouped(longest),
                grouped(batch.rollouts_per_step * longest)
            );
        }
        _ => {
            let _ = writeln!(
                out,
                "  prompts of any length, responses of at most {} tokens, packs of at most {}",
                grouped(batch.max_new_tokens),
                grouped(batch.max_tokens_per_pack)
            );
        }
    }
    if let Some(steps) = plan.total_steps {
        let _ = writeln!(
            out,
            "  over {} {}: {} prompts, {} rollouts, {} optimizer steps",
            grouped(steps),
            if steps == 1 { "step" } else { "steps" },
            grouped(steps * batch.prompts_per_step),
            grouped(steps * batch.rollouts_per_step),
            grouped(steps * batch.optimizer_steps)
        );
    }
    out
}
