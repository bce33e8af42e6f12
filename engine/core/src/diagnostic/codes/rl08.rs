//! Liveness.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL08: &[&Code] = &[&RL0801, &RL0802, &RL0803, &RL0804, &RL0805];

/// A filter that can keep nothing.
pub static RL0801: Code = Code {
    id: "RL0801",
    title: "a filter can keep nothing",
    origin: &[
        "BytedTsinghua-SIA/DAPO#22, verl#953: dynamic sampling that never ends",
        "AReaL cli_args: a bound that filters everything",
        "verl#7155: a buffer that waits for ever",
    ],
    explanation: Explanation {
        meaning: "No rewards that the judgers before it can give pass a filter, or the filters of one way exclude each other. `spread_reward` keeps groups whose rewards differ: never those of one sample, nor those whose samples are all the same; `mean_reward` keeps means within bounds.",
        why: "Every step would ask for groups in vain until its rounds are used up.",
        example: "nodes:\n  scored: { type: judger, inputs: { groups: answers }, judge: gsm8k }       # 0 or 1\n  varied: { type: filter, inputs: { groups: scored }, keep: { spread_reward: { above: 1 } } }\n",
        fix: "Choose bounds that the judge can reach, draw several samples at a temperature above 0, or take the filter out.",
    },
};

/// No group may be asked for again.
pub static RL0802: Code = Code {
    id: "RL0802",
    title: "one group that is kept back ends the run",
    origin: &["verl#953: `max_num_gen_batches` used up"],
    explanation: Explanation {
        meaning: "A filter has `max_refill: 0` and `when_exhausted: fail`.",
        why: "A filter is there to keep groups back. The first that it does leaves the step short, and the run ends.",
        example: "nodes:\n  varied: { type: filter, inputs: { groups: scored }, keep: spread_reward, max_refill: 0 }\n",
        fix: "Allow some rounds, such as `max_refill: 4`, or set `when_exhausted: fill`.",
    },
};

/// Filters of one way that ask again differently.
pub static RL0803: Code = Code {
    id: "RL0803",
    title: "filters of one way ask again differently",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "Two filters that a group goes through one after the other have another `max_refill` or `when_exhausted`.",
        why: "A step asks for whole groups, whichever filter kept one back. Only one number can hold: the larger one, and `fill` if either has it. The other setting has no effect.",
        example: "nodes:\n  varied: { type: filter, inputs: { groups: scored }, keep: spread_reward, max_refill: 1 }\n  fair: { type: filter, inputs: { groups: varied }, keep: { mean_reward: { max: 0.9 } }, max_refill: 8 }\n",
        fix: "Give both the same.",
    },
};

/// An engine waits for weights that are made once.
pub static RL0804: Code = Code {
    id: "RL0804",
    title: "an engine waits for weights that are made once",
    origin: &[
        "PrimeIntellect-ai/prime-rl#2912: waits for a policy that never comes",
        "rllm-org/rllm#291: an engine that never hears of new weights",
    ],
    explanation: Explanation {
        meaning: "A `weight_sync` takes weights from an `sft_trainer`, which learns once, before the first step.",
        why: "The engine would wait for new weights that are never made, while the trainer learns and is not heard.",
        example: "nodes:\n  sync: { type: weight_sync, inputs: { weights: warm_up }, to: engine }\n",
        fix: "Take from the trainer: it begins with what the warm-up learnt, by its input `initial_weights`.",
    },
};

/// Epochs of several samplers.
pub static RL0805: Code = Code {
    id: "RL0805",
    title: "epochs of several samplers",
    origin: &["XTuner rl_trainer: steps of a run from the epochs of its one data set"],
    explanation: Explanation {
        meaning: "`total_epochs` says how long the run is, and prompts are drawn from several samplers.",
        why: "They may have different numbers of rows and shares: when one has been gone through once, another has not. There is no step at which the run would end.",
        example: "run: { work_dir: runs, total_epochs: 2 }\nnodes:\n  buffer: { type: replay_buffer, inputs: { groups: [maths, code] }, prompts_per_step: 64 }\n",
        fix: "Give `total_steps` instead. Several data sets of one sampler (`datasets`) are gone through as one.",
    },
};
