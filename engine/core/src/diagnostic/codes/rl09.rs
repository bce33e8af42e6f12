//! Legal, but probably not what is meant.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL09: &[&Code] = &[&RL0901, &RL0902, &RL0903, &RL0904, &RL0905, &RL0906, &RL0907, &RL0908];

/// K1 in a loss ignores the reference.
pub static RL0901: Code = Code {
    id: "RL0901",
    title: "k1 in a loss ignores the reference",
    origin: &["allenai/open-instruct#530, PR 535: k1 in the loss ignores the reference"],
    explanation: Explanation {
        meaning: "The KL term of the loss uses the estimator `k1`.",
        why: "As a number `k1` is right on average. As a loss its gradient is that of the log-prob of what was \
              sampled: the reference drops out, and the term only makes everything that was sampled less likely.",
        example: "loss: { kl: { k1: { coefficient: 0.001 } } }\n",
        fix: "Use `k2`, whose gradient is that of the divergence, or `k3`, which is usual; or `none`.",
    },
};

/// Training on a cut distribution.
pub static RL0902: Code = Code {
    id: "RL0902",
    title: "training on a cut distribution",
    origin: &["NVIDIA-NeMo/RL PR 935, TRL PR 3029: log-probs of a cut distribution"],
    explanation: Explanation {
        meaning: "Rollouts that are trained on are drawn with `top_p` below 1 or `top_k` above 0.",
        why: "The engine draws from a distribution without its tail, and its log-probs are of that. The trainer \
              reckons with the whole one; the ratio between the two is then not 1 even for the same weights.",
        example: "sampling: { max_new_tokens: 1024, top_p: 0.9 }\n",
        fix: "Set `top_p: 1.0` and `top_k: 0` for training. In evaluation both are fine.",
    },
};

/// A warm-up that never ends.
pub static RL0903: Code = Code {
    id: "RL0903",
    title: "a warm-up that never ends",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The warm-up of the learning rate has as many steps as the run, or more.",
        why: "The rate rises to the last step and never reaches its height.",
        example: "run: { work_dir: runs, total_steps: 40 }\nnodes:\n  trainer:\n    type: trainer\n    lr_schedule: \
              { cosine: { warmup_steps: 100 } }\n",
        fix: "Shorten the warm-up to a tenth of the run or less, or lengthen the run.",
    },
};

/// All samples of a prompt are the same.
pub static RL0904: Code = Code {
    id: "RL0904",
    title: "all samples of a prompt are the same",
    origin: &["slime arguments: temperature above 0"],
    explanation: Explanation {
        meaning: "Rollouts that are trained on are drawn with `temperature: 0` or `top_k: 1`.",
        why: "The likeliest token is taken each time, so that all samples of a prompt are equal, their rewards too, \
              and there is nothing to learn from.",
        example: "sampling: { max_new_tokens: 1024, temperature: 0.0 }\n",
        fix: "Use `temperature: 1.0`, `top_p: 1.0` and `top_k: 0` for training. In evaluation `temperature: 0` is \
              usual.",
    },
};

/// An interval beyond the end of the run.
pub static RL0905: Code = Code {
    id: "RL0905",
    title: "an interval beyond the end of the run",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A weight sync, an evaluator or a checkpoint has an interval that is longer than the run.",
        why: "It will not fire in between. A weight sync that does not fire leaves the engine with its first weights.",
        example: "run: { work_dir: runs, total_steps: 40 }\nnodes:\n  evaluator: { type: evaluator, inputs: { \
              groups: marks }, every_steps: 50 }\n",
        fix: "Shorten the interval or lengthen the run. For an evaluation at the end alone, leave `every_steps` out.",
    },
};

/// A pool or a model is not used.
pub static RL0906: Code = Code {
    id: "RL0906",
    title: "a pool or a model is not used",
    origin: &["TRL PR 6023, verl PR 6317: declared and ignored"],
    explanation: Explanation {
        meaning: "No node names a pool or a model that the pipeline declares.",
        why: "Nothing is started for it. It is usually left over from an edit, or a node names another one by mistake.",
        example: "pools:\n  gpu: { accelerator: cuda }\n  spare: { accelerator: cuda }     # no node has `pool: \
              spare`\n",
        fix: "Take it out, or name it in the node that is to use it.",
    },
};

/// Bfloat16 on a processor.
pub static RL0907: Code = Code {
    id: "RL0907",
    title: "bfloat16 on a processor",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A model is to compute in bfloat16 on a processor that has no instructions for it.",
        why: "Every product is then emulated: several times slower than float32, and less exact.",
        example: "pools:\n  local: { accelerator: cpu }\nmodels:\n  policy: { path: models/policy, dtype: bfloat16 }\n",
        fix: "Use `dtype: auto`, which takes bfloat16 on CUDA and float32 on a processor.",
    },
};

/// The trained model is not kept.
pub static RL0908: Code = Code {
    id: "RL0908",
    title: "the trained model is not kept",
    origin: &["XTuner rl_trainer: exports at the last step whatever the interval"],
    explanation: Explanation {
        meaning: "The run has no `hf_export`, and no checkpoint at its last step.",
        why: "Everything that the steps after the last checkpoint have taught is lost when the run ends.",
        example: "run:\n  work_dir: runs\n  total_steps: 8\n  checkpoint: { every_steps: 5 }    # steps 6 to 8 are in none\n",
        fix: "Add `hf_export: { every_steps: N }`: the last step is always exported then. Or let `total_steps` be a \
              multiple of the checkpoint's interval.",
    },
};
