//! Time: intervals and bounds.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL04: &[&Code] = &[&RL0401, &RL0402, &RL0403];

/// An interval is no multiple of a weight sync's.
pub static RL0401: Code = Code {
    id: "RL0401",
    title: "an interval is no multiple of a weight sync's",
    origin: &[
        "XTuner rl_trainer: `evaluate_step`, `checkpoint_interval` and `hf_interval` are multiples of `sync_weights_interval`",
    ],
    explanation: Explanation {
        meaning: "An evaluator, `run.checkpoint` or `run.hf_export` fires at steps at which a `weight_sync` does not.",
        why: "Between two syncs the engine holds older weights than the trainer. An evaluation there would measure \
              another model than the step it is reported for, and a state saved there could not be continued \
              exactly.",
        example: "nodes:\n  sync: { type: weight_sync, inputs: { weights: trainer }, to: engine, every_steps: 3 \
              }\n  evaluator: { type: evaluator, inputs: { groups: marks }, every_steps: 10 }   # 9 or 12\n",
        fix: "Use a multiple, as the message proposes, or sync more often; `every_steps: 1` fits everything.",
    },
};

/// Two bounds contradict each other.
pub static RL0402: Code = Code {
    id: "RL0402",
    title: "two bounds contradict each other",
    origin: &[
        "AReaL cli_args: lower bound at most the upper one",
        "TRL grpo_config: clip minimum below maximum",
    ],
    explanation: Explanation {
        meaning: "A lower bound lies above the upper bound that goes with it, or the learning rate is to fall to more than it has.",
        why: "No value lies between them: the response could never end, or no value of the variable be right.",
        example: "sampling: { max_new_tokens: 256, min_new_tokens: 512 }\n",
        fix: "Exchange the two, or change one of them.",
    },
};

/// An evaluator never fires.
pub static RL0403: Code = Code {
    id: "RL0403",
    title: "an evaluator never fires",
    origin: &["XTuner rl_trainer: an evaluator that is enabled has all it needs"],
    explanation: Explanation {
        meaning: "An evaluator is enabled, but is to fire neither at the start, nor every so many steps, nor at the \
              end.",
        why: "It would be carried along and never measure anything.",
        example: "nodes:\n  evaluator:\n    type: evaluator\n    inputs: { groups: marks }\n    at_end: \
              false                  # and no every_steps, no at_start\n",
        fix: "Give it `every_steps`, `at_start: true` or `at_end: true`. To switch it off, set `enabled: false`: \
              what only it needs is then left out as well.",
    },
};
