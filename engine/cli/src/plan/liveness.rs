//! Why no step of a run waits for ever, as `rlpipe plan` shows it.

use std::fmt::Write as _;

use rlpipe_runtime::compile::WhenUsedUp;
use rlpipe_runtime::plan::Plan;

/// A section of the plan for people.
pub fn section(plan: &Plan) -> String {
    let mut out = String::from("\nwhy no step waits for ever\n");
    for buffer in &plan.liveness {
        let _ = writeln!(
            out,
            "  `{}` cannot stall: it asks for {} groups a step",
            buffer.buffer, buffer.groups_per_step
        );
        for input in &buffer.inputs {
            let then = match input.when_used_up {
                WhenUsedUp::Fail => "then the run ends and says why",
                WhenUsedUp::Fill => "then takes what was kept back",
            };
            let rounds = if input.most_rounds == 1 { "round" } else { "rounds" };
            let _ = writeln!(
                out,
                "    {} of them by {}, in at most {} {rounds}, {then}",
                input.groups_per_step,
                input.chain.join(" -> "),
                input.most_rounds
            );
            for reason in input.because.iter().filter(|reason| !reason.is_empty()) {
                let _ = writeln!(out, "      {reason}");
            }
        }
    }
    out
}
