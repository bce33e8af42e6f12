//! Resources.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL07: &[&Code] = &[&RL0701, &RL0702, &RL0703, &RL0704, &RL0705];

/// Two weight syncs bring weights to one engine.
pub static RL0701: Code = Code {
    id: "RL0701",
    title: "two weight syncs bring weights to one engine",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "Two nodes of kind `weight_sync` name the same engine in `to`.",
        why: "Which weights the engine holds after a step would depend on which of them came last.",
        example: "nodes:\n  sync: { type: weight_sync, inputs: { weights: trainer }, to: engine }\n  again: { type: \
              weight_sync, inputs: { weights: trainer }, to: engine }\n",
        fix: "Take one of them out.",
    },
};

/// A model is in two pools.
pub static RL0702: Code = Code {
    id: "RL0702",
    title: "a model is in two pools",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "Nodes that work with the same model name different pools.",
        why: "In this version a worker holds a model once, and what generates and what trains share its weights \
              there. Copies in two pools would have to be brought together after each step.",
        example: "nodes:\n  engine: { type: rollout_engine, pool: rollout, model: policy, max_context_tokens: 1536 \
              }\n  trainer: { type: trainer, pool: train, model: policy }       # shortened\n",
        fix: "Name the same pool in both.",
    },
};

/// A pool does not compute.
pub static RL0703: Code = Code {
    id: "RL0703",
    title: "a pool does not compute",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A node that holds a model is in a pool with `accelerator: none`.",
        why: "Such a pool has processor time for judging, and no worker that could load a model.",
        example: "pools:\n  judges: { accelerator: none }\nnodes:\n  trainer: { type: trainer, pool: judges, model: \
              policy }      # shortened\n",
        fix: "Put the node into a pool with `accelerator: cuda`, `cpu` or `auto`.",
    },
};

/// Two engines serve one model.
pub static RL0704: Code = Code {
    id: "RL0704",
    title: "two engines serve one model",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "Two nodes of kind `rollout_engine` name the same model.",
        why: "Both would take memory for a cache of their own, and one engine serves any number of agent loops.",
        example: "nodes:\n  engine: { type: rollout_engine, pool: gpu, model: policy, max_context_tokens: 1536 \
              }\n  examiner: { type: rollout_engine, pool: gpu, model: policy, max_context_tokens: 4096 }\n",
        fix: "Keep one of them, with the longest context that is needed, and let all agent loops take from it.",
    },
};

/// A pool's worker has too little memory for what is put into it.
pub static RL0705: Code = Code {
    id: "RL0705",
    title: "too little memory for what the pool holds",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "What the nodes of a pool hold at once in a worker is more than `memory_per_accelerator`, or \
                  `host_memory_per_worker` of a pool that computes on a processor. It is an error where what is held \
                  for certain, such as weights, optimizer and cache, is more already, and a warning where it is so \
                  only with packs and prompts that are as large as settings let them be. A card's cache that may take \
                  less than a rollout needs is an error, too.",
        why: "The run would end in the middle of a step. `rlpipe plan` shows every part, and docs/memory.md has their \
              formulas.",
        example: "pools:\n  gpu: { accelerator: cuda, memory_per_accelerator: 16GiB }\nnodes:\n  trainer: { type: \
                  trainer, pool: gpu, max_tokens_per_pack: 131072 }      # shortened\n",
        fix: "Lower the setting that the finding names: `max_tokens_per_pack`, `logprob_chunk_tokens` or \
              `max_concurrent_rollouts`; or let `activations` be `auto`, which keeps as much of a pack as there is \
              room for.",
    },
};
