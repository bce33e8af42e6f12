//! Batch arithmetic.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL05: &[&Code] = &[&RL0501, &RL0502, &RL0503, &RL0504, &RL0505, &RL0506];

/// Prompt and response do not fit into the context.
pub static RL0501: Code = Code {
    id: "RL0501",
    title: "prompt and response do not fit into the context",
    origin: &[
        "slime arguments: a prompt leaves room for one generated token",
        "XTuner: context against prompt and response",
    ],
    explanation: Explanation {
        meaning: "The longest prompt and the longest response together are more than the engine's \
              `max_context_tokens`.",
        why: "Long answers to long prompts would be cut before they end, and be scored as wrong for it.",
        example: "nodes:\n  prompts: { type: sampler, dataset: { path: train.jsonl }, max_prompt_tokens: 512 \
              }\n  engine: { type: rollout_engine, pool: gpu, model: policy, max_context_tokens: 1024 \
              }\n  answers:\n    type: agent_loop\n    inputs: { prompts: prompts, engine: engine }\n    sampling: { \
              max_new_tokens: 1024 }     # 512 + 1024 = 1536\n",
        fix: "Raise `max_context_tokens` to the sum, which costs memory of the cache, or lower `max_prompt_tokens` \
              or `max_new_tokens`.",
    },
};

/// A rollout does not fit into a pack.
pub static RL0502: Code = Code {
    id: "RL0502",
    title: "a rollout does not fit into a pack",
    origin: &["XTuner rl_trainer: `pack_max_length` holds prompt and response"],
    explanation: Explanation {
        meaning: "The longest prompt and the longest response together are more than the trainer's \
              `max_tokens_per_pack`.",
        why: "Sequences are packed whole: a cut one would be trained on half an answer with the reward of the whole.",
        example: "nodes:\n  trainer:\n    type: trainer\n    max_tokens_per_pack: 1024      # prompts of 512 and \
              responses of 1024: 1536\n",
        fix: "Raise `max_tokens_per_pack` at least to the sum. It bounds memory only; results do not depend on it.",
    },
};

/// A number does not divide another.
pub static RL0503: Code = Code {
    id: "RL0503",
    title: "a number does not divide another",
    origin: &[
        "verl utils/config: batches divide",
        "verl#1524",
        "verl#473: \"only support equal chunk\" deep in the run",
        "SkyRL utils: batch by mini-batch",
        "slime arguments: `num_steps_per_rollout`",
        "ROLL agentic_config: names divisors",
    ],
    explanation: Explanation {
        meaning: "One number must be a divisor of another and is not: `optimizer_steps` of `prompts_per_step`, \
              `heads` of `hidden_size`, `key_value_heads` of `heads`.",
        why: "The parts are equal by definition. With a remainder one optimizer step would be smaller and its groups \
              count for more, or a head would have no whole width.",
        example: "nodes:\n  buffer: { type: replay_buffer, inputs: { groups: [scored] }, prompts_per_step: 64 \
              }\n  trainer:\n    type: trainer\n    optimizer_steps: 3             # 2 or 4\n",
        fix: "Take one of the divisors that the message lists, or change the number that is to be divided.",
    },
};

/// Too few samples of a prompt.
pub static RL0504: Code = Code {
    id: "RL0504",
    title: "too few samples of a prompt",
    origin: &[
        "TRL grpo_config: `num_generations` of at least 2",
        "XTuner: K of at least 2 for GRPO",
    ],
    explanation: Explanation {
        meaning: "An estimator compares the samples of a prompt with each other, and a sampler gives fewer than it \
              needs.",
        why: "With one sample its reward is the mean of its group and its advantage 0: the run would go through all \
              its steps and learn nothing.",
        example: "nodes:\n  prompts:\n    type: sampler\n    dataset: { path: train.jsonl }\n    samples_per_prompt: \
              1          # grpo needs at least 2\n",
        fix: "Raise `samples_per_prompt`; 5 to 16 is usual. Samplers of evaluations may stay at 1.",
    },
};

/// Workers without a rollout.
pub static RL0505: Code = Code {
    id: "RL0505",
    title: "fewer rollouts than workers",
    origin: &[
        "verl utils/config: `train_batch_size` by `rollout.n` against GPUs",
        "SkyRL utils: a batch is at least the least common multiple of all data-parallel sizes",
        "ROLL PR 135: a batch size that hangs",
    ],
    explanation: Explanation {
        meaning: "The pool of the trainer has more workers than an optimizer step has rollouts: `prompts_per_step` by `optimizer_steps`, times `samples_per_prompt`.",
        why: "Rollouts are spread over the workers. One that gets none has nothing to do in that step, and the others wait for it.",
        example: "pools:\n  gpu: { accelerator: cuda, workers_per_node: 8 }\nnodes:\n  prompts: { type: sampler, dataset: { path: train.jsonl }, samples_per_prompt: 2 }\n  buffer: { type: replay_buffer, inputs: { groups: [scored] }, prompts_per_step: 6 }\n  trainer: { type: trainer, optimizer_steps: 2 }      # shortened: 3 groups of 2 rollouts for 8 workers\n",
        fix: "Take more prompts or samples, fewer optimizer steps, or fewer workers; the message lists what would fit.",
    },
};

/// An input without a share.
pub static RL0506: Code = Code {
    id: "RL0506",
    title: "an input gets no groups of a step",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A buffer shares its `prompts_per_step` among its inputs by `mix`, in whole groups, and an input's share is none.",
        why: "Each step is shared in the same way. The input would be declared, and nothing of it ever drawn.",
        example: "nodes:\n  buffer:\n    type: replay_buffer\n    inputs: { groups: [maths, code] }\n    prompts_per_step: 8\n    mix: { maths: 20, code: 1 }       # 0.38 groups, rounded to 0\n",
        fix: "Raise `prompts_per_step`, give the input a larger weight, or take it out.",
    },
};
