//! Resources.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL07: &[&Code] = &[&RL0701, &RL0702, &RL0703, &RL0704];

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
