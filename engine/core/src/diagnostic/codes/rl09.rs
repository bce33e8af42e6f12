//! Legal, but probably not what is meant.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL09: &[&Code] = &[
    &RL0901, &RL0902, &RL0903, &RL0904, &RL0905, &RL0906, &RL0907, &RL0908, &RL0909, &RL0910, &RL0911, &RL0912,
    &RL0913, &RL0914, &RL0915,
];

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
        meaning: "Rollouts that are trained on are drawn with `top_p` below 1, or `top_k`, `min_p` or \
                  `min_new_tokens` above 0.",
        why: "The engine draws from a distribution without its tail, or at first without stop tokens, and its \
              log-probs are of that. The trainer reckons with the whole one; the ratio between the two is then not 1 \
              even for the same weights.",
        example: "sampling: { max_new_tokens: 1024, top_p: 0.9 }\n",
        fix: "Set `top_p: 1.0`, `top_k: 0`, `min_p: 0.0` and `min_new_tokens: 0` for training. In evaluation all are \
              fine.",
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

/// A half type on a processor.
pub static RL0907: Code = Code {
    id: "RL0907",
    title: "a half type on a processor",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A model is to compute in bfloat16 or float16 on a processor that has no instructions for it.",
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
        meaning: "The run has neither an `hf_export` nor a checkpoint.",
        why: "What the run has taught the model is lost when it ends.",
        example: "run: { work_dir: runs, total_steps: 8 }\n",
        fix: "Add `hf_export: { every_steps: N }`: the last step is always exported then.",
    },
};

/// The last step is in no checkpoint.
pub static RL0909: Code = Code {
    id: "RL0909",
    title: "the last step is in no checkpoint",
    origin: &[
        "XTuner rl_trainer: saves at the last step whatever the interval",
        "verl#7401: a resume from the wrong step",
    ],
    explanation: Explanation {
        meaning: "`total_steps` is no multiple of `run.checkpoint.every_steps`.",
        why: "When the run is to go on for more steps, those after its last checkpoint are done again.",
        example: "run:\n  work_dir: runs\n  total_steps: 8\n  checkpoint: { every_steps: 5 }    # steps 6 to 8 are in none\n",
        fix: "Use an interval that divides `total_steps`, or a `total_steps` that is a multiple of it.",
    },
};

/// An evaluation behind a filter.
pub static RL0910: Code = Code {
    id: "RL0910",
    title: "an evaluation sees only what a filter keeps",
    origin: &["NovaSky-AI/SkyRL PR 1317: evaluation curves that mean something else"],
    explanation: Explanation {
        meaning: "An evaluator takes groups that come through a `filter`.",
        why: "Prompts that the filter keeps back, such as those that are always right or always wrong, are not in the accuracy: it measures the filter as much as the model.",
        example: "nodes:\n  hard: { type: filter, inputs: { groups: marks }, keep: { mean_reward: { max: 0.9 } } }\n  evaluator: { type: evaluator, inputs: { groups: hard }, every_steps: 10 }\n",
        fix: "Take from the judger before the filter.",
    },
};

/// Bounds of the ratio are distances from 1.
pub static RL0911: Code = Code {
    id: "RL0911",
    title: "bounds of the ratio are distances from 1",
    origin: &[
        "TRL grpo_config: clip bounds",
        "AReaL cli_args: bounds that filter everything",
    ],
    explanation: Explanation {
        meaning: "`low` and `high` of `clip` say how far the ratio of new to old probability may go from 1. Here `low` is 0.5 or more, `high` is 1 or more, or both are 0.",
        why: "`low: 0.8` lets a probability fall to a fifth in one step: the clipping hardly ever takes effect. With both 0 nothing is learnt from tokens whose probability has changed at all.",
        example: "loss: { policy: { clip: { low: 0.8, high: 1.28 } } }       # meant: 0.2 and 0.28\n",
        fix: "Use distances, such as `low: 0.2` and `high: 0.28`.",
    },
};

/// A reference that counts for nothing.
pub static RL0912: Code = Code {
    id: "RL0912",
    title: "a reference that counts for nothing",
    origin: &[
        "slime arguments, SkyRL utils: a KL term and its reference go together",
        "rlpipe",
    ],
    explanation: Explanation {
        meaning: "A `reference` computes log-probs for every step, and the loss has no KL term, or one with `coefficient: 0`.",
        why: "A frozen copy of the model takes memory, and a pass over each step time, for numbers that nothing uses.",
        example: "nodes:\n  frozen: { type: reference, inputs: { batch: buffer }, pool: gpu, model: policy }\n  trainer: { type: trainer, loss: { kl: none } }      # shortened\n",
        fix: "Give the loss a term, such as `kl: { k3: { coefficient: 0.001 } }`, or take the `reference` out and connect its neighbours.",
    },
};

/// A weight that does not reward.
pub static RL0913: Code = Code {
    id: "RL0913",
    title: "a weight that does not reward",
    origin: &[
        "TRL#5352: weights of rewards",
        "XTuner: weights of judges that are declared and not used",
    ],
    explanation: Explanation {
        meaning: "In a weighted sum a judge has the weight 0, or no weight is above 0.",
        why: "With 0 the judge is asked and not heard. Where no weight is above 0, the best that a response can do is to be wrong.",
        example: "judge: { weighted_sum: { right: { judge: gsm8k, weight: 0 }, short: { judge: { command: { run: [./short.py] } }, weight: 0.1 } } }\n",
        fix: "Give it a weight, or take the judge out. Penalties have weights below 0, beside something that rewards.",
    },
};

/// An evaluation on prompts that are trained.
pub static RL0914: Code = Code {
    id: "RL0914",
    title: "an evaluation on prompts that are trained",
    origin: &["XTuner: one replay buffer for training and evaluation"],
    explanation: Explanation {
        meaning: "An evaluator takes from the same sampler as the trainer.",
        why: "What was trained is known: the accuracy says nothing of other prompts. It is sampled as in training, too.",
        example: "nodes:\n  evaluator: { type: evaluator, inputs: { groups: scored }, every_steps: 10 }      # and the buffer takes `scored` too\n",
        fix: "Give the evaluation a sampler, an agent loop and a judger of its own.",
    },
};

/// A template that names no column.
pub static RL0915: Code = Code {
    id: "RL0915",
    title: "a template that names no column",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A template of `map` that makes the prompt or the answer has no `{{ }}` and no `{% %}`.",
        why: "It gives the same text for every row: the braces around a column's name were forgotten.",
        example: "dataset: { path: train.jsonl, map: { prompt: question } }\n",
        fix: "Write the column between braces: `prompt: \"{{ question }}\"`.",
    },
};
