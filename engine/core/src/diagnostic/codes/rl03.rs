//! The graph: names, ports, fields, and what reaches what.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL03: &[&Code] = &[
    &RL0301, &RL0302, &RL0303, &RL0304, &RL0305, &RL0306, &RL0307, &RL0308, &RL0309, &RL0310, &RL0311, &RL0312,
    &RL0313, &RL0314, &RL0315, &RL0316, &RL0321, &RL0322,
];

/// An input names a node that is not there.
pub static RL0301: Code = Code {
    id: "RL0301",
    title: "an input names a node that is not there",
    origin: &["siiRL config_loader: dependencies exist"],
    explanation: Explanation {
        meaning: "An input takes from a node that the pipeline does not have.",
        why: "The node would wait for ever for something that nobody gives.",
        example: "nodes:\n  answers: { type: agent_loop }    # shortened\n  scored:\n    type: judger\n    inputs: { \
              groups: answer }     # answers\n    judge: gsm8k\n",
        fix: "Write the name of a node as it stands under `nodes`; the message lists those that give what is wanted. \
              Names of pools and models are not names of nodes.",
    },
};

/// A node has no such output.
pub static RL0302: Code = Code {
    id: "RL0302",
    title: "a node has no such output",
    origin: &["siiRL: edges without types"],
    explanation: Explanation {
        meaning: "An input takes `node.port`, and that node has no output of this name, or it has no outputs at all.",
        why: "What is meant cannot be known: most kinds have one output, a sampler has two.",
        example: "nodes:\n  buffer:\n    type: replay_buffer\n    inputs: { groups: [scored.rewards] }   # scored, \
              or scored.groups\n    prompts_per_step: 64\n",
        fix: "Name an output that the node has, or leave the port out: then the output that fits the input is taken. \
              `rlpipe kinds NAME` lists outputs.",
    },
};

/// Two ends of an edge have different types.
pub static RL0303: Code = Code {
    id: "RL0303",
    title: "two ends of an edge have different types",
    origin: &["siiRL: edges without types"],
    explanation: Explanation {
        meaning: "A node gives something else than the input takes: a stream of groups where a whole step is wanted, \
              or prompts where answers are.",
        why: "The types follow the work: prompts are answered, answers scored, scored groups collected into steps, \
              and steps trained on. An edge that skips one of these has nothing to carry.",
        example: "nodes:\n  advantages:\n    type: advantage\n    inputs: { batch: scored }      # groups, not \
              batch\n    estimator: grpo\n",
        fix: "Put the node between them that the message names, or take from a node that gives what is wanted. A \
              `filter` goes before the `replay_buffer`: behind it a step is complete and may not shrink.",
    },
};

/// An input is not connected.
pub static RL0304: Code = Code {
    id: "RL0304",
    title: "an input is not connected",
    origin: &["siiRL dagworker: a node without a function passes data through"],
    explanation: Explanation {
        meaning: "A node lacks an input that it must have.",
        why: "It would have nothing to work on.",
        example: "nodes:\n  scored:\n    type: judger                   # of which groups?\n    judge: gsm8k\n",
        fix: "Add the input under `inputs`, with the name of a node that gives what it takes; the message lists them.",
    },
};

/// A kind has no such input.
pub static RL0305: Code = Code {
    id: "RL0305",
    title: "a kind has no such input",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A key under `inputs` is the name of no input of this kind.",
        why: "Inputs have fixed names, which say what the node does with what comes in.",
        example: "nodes:\n  scored:\n    type: judger\n    inputs: { answers: answers }   # groups: \
              answers\n    judge: gsm8k\n",
        fix: "Use the names that the message lists: on the left the input, on the right the node that it takes from.",
    },
};

/// An input takes another number of nodes.
pub static RL0306: Code = Code {
    id: "RL0306",
    title: "an input takes another number of nodes",
    origin: &["siiRL dagworker: one node downstream only"],
    explanation: Explanation {
        meaning: "An input that takes one node is given several, or one that takes several is given none.",
        why: "Only some inputs can join what several nodes give: the `groups` of a `replay_buffer` do, by the \
              weights in `mix`.",
        example: "nodes:\n  scored:\n    type: judger\n    inputs: { groups: [answers, others] }\n    judge: gsm8k\n",
        fix: "Give each its own node, and join them at the `replay_buffer`: `inputs: { groups: [scored, \
              others_scored] }`.",
    },
};

/// A field is needed that nothing adds.
pub static RL0307: Code = Code {
    id: "RL0307",
    title: "a field is needed that nothing adds",
    origin: &[
        "siiRL dagworker: KL in the reward before its log-probs",
        "XTuner: a train task without a judger",
        "slime arguments: rules between flags of reward and KL",
    ],
    explanation: Explanation {
        meaning: "What arrives at a node lacks a field that it reads: the reward that an estimator compares, or the \
              log-probs of a reference that a KL term needs.",
        why: "Groups carry fields which nodes add on the way. The node would find nothing where it looks, in the \
              first step, after minutes of starting up.",
        example: "nodes:\n  advantages: { type: advantage, inputs: { batch: buffer }, estimator: grpo \
              }\n  trainer:\n    type: trainer\n    inputs: { batch: advantages }\n    loss: { kl: k3 \
              }               # no `reference` node before it\n",
        fix: "Put a node of the kind that the message names somewhere before this one, on every path that leads \
              here; or change the setting that asks for the field, such as `kl: none`.",
    },
};

/// Nodes wait for each other.
pub static RL0308: Code = Code {
    id: "RL0308",
    title: "nodes wait for each other",
    origin: &["siiRL task_graph: a cycle is found and not named"],
    explanation: Explanation {
        meaning: "The inputs of some nodes form a circle; the message prints it.",
        why: "Each of them would wait for the one before it, and the run would stand still. What does go round \
              in training is state: new weights reach the engine through a `weight_sync`, whose `to` is no input.",
        example: "nodes:\n  scored: { type: judger, inputs: { groups: picked }, judge: gsm8k }\n  picked: { type: \
              filter, inputs: { groups: scored }, keep: spread_reward }\n",
        fix: "Let one of them take from a node outside the circle, here `scored` from `answers`.",
    },
};

/// Nothing needs a node.
pub static RL0309: Code = Code {
    id: "RL0309",
    title: "nothing needs a node",
    origin: &["siiRL: nodes that reach nothing"],
    explanation: Explanation {
        meaning: "No trainer, weight sync or evaluator takes from the node, directly or through others. It is left \
              out of the run.",
        why: "Work is done on demand. A node that nobody asks is usually one that was forgotten when another was put \
              in its place.",
        example: "nodes:\n  scored: { type: judger, inputs: { groups: answers }, judge: gsm8k }\n  spare: { type: \
              judger, inputs: { groups: answers }, judge: exact }   # nobody takes from it\n",
        fix: "Connect it, or take it out. Nodes that only a disabled evaluator needs are left out without a word.",
    },
};

/// A name is not declared.
pub static RL0310: Code = Code {
    id: "RL0310",
    title: "a name is not declared",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A node names a pool, a model or an engine that the pipeline does not have.",
        why: "Pools, models and nodes are declared once and referred to by name, so that one change reaches all who \
              use them.",
        example: "pools:\n  gpu: { accelerator: cuda }\nnodes:\n  trainer:\n    type: trainer\n    pool: \
              gpus                     # gpu\n",
        fix: "Write the declared name, or declare it under `pools`, `models` or `nodes`.",
    },
};

/// Not exactly one node trains.
pub static RL0311: Code = Code {
    id: "RL0311",
    title: "not exactly one node trains",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The pipeline has no trainer, or more than one.",
        why: "A run is a sequence of train steps, and the trainer is what makes one. This version has one trainer \
              in a pipeline.",
        example: "nodes:\n  prompts: { type: sampler, dataset: { path: train.jsonl } }   # and who learns?\n",
        fix: "Add a node of kind `trainer`, or give each trainer its own pipeline.",
    },
};

/// An engine hears of no weights.
pub static RL0312: Code = Code {
    id: "RL0312",
    title: "an engine hears of no weights",
    origin: &[
        "rllm-org/rllm#291: no weight sync at all",
        "prime-rl algorithm: an on-policy loss cannot sample from a frozen model",
    ],
    explanation: Explanation {
        meaning: "No `weight_sync` brings an engine what the trainer learns.",
        why: "It would go on generating with its first weights: the rollouts would grow older with each step, and \
              evaluations would measure the model that the run began with.",
        example: "nodes:\n  engine: { type: rollout_engine, pool: gpu, model: policy, max_context_tokens: 1536 \
              }\n  trainer: { type: trainer }       # shortened; no weight_sync\n",
        fix: "Add `sync: { type: weight_sync, inputs: { weights: trainer }, to: engine }`.",
    },
};

/// A name cannot be used.
pub static RL0313: Code = Code {
    id: "RL0313",
    title: "a name cannot be used",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The name of a node, a pool or a model has other characters than letters, digits, `_` and `-`.",
        why: "Names appear in paths, in `--set` arguments and before the dot of `node.port`; a dot or a space \
              in them would be ambiguous.",
        example: "nodes:\n  judge.two: { type: judger, inputs: { groups: answers }, judge: exact }\n",
        fix: "Rename it, here to `judge_two`, and everything that refers to it.",
    },
};

/// Two nodes mean different models.
pub static RL0314: Code = Code {
    id: "RL0314",
    title: "two nodes mean different models",
    origin: &["prime-rl algorithm: an on-policy loss cannot sample from another model"],
    explanation: Explanation {
        meaning: "A weight sync joins a trainer and an engine that name different models, or a trainer begins with \
              weights that were learnt for another model.",
        why: "Weights of one model mean nothing to another, even where the sizes agree: their tokenizers may differ.",
        example: "nodes:\n  engine: { type: rollout_engine, pool: gpu, model: base, max_context_tokens: 1536 \
              }\n  trainer: { type: trainer, pool: gpu, model: policy }         # shortened\n  sync: { type: \
              weight_sync, inputs: { weights: trainer }, to: engine }\n",
        fix: "Let both name the model that is trained.",
    },
};

/// A mix does not fit its inputs.
pub static RL0315: Code = Code {
    id: "RL0315",
    title: "a mix does not fit its inputs",
    origin: &[
        "TRL grpo_trainer: as many reward weights as functions",
        "XTuner: duplicate tasks, weights",
    ],
    explanation: Explanation {
        meaning: "The `mix` of a `replay_buffer` weighs a node that is none of its inputs, or lacks a weight for one \
              that is.",
        why: "A step is divided among the inputs by these weights; a missing one is not taken for 1 or for 0.",
        example: "nodes:\n  buffer:\n    type: replay_buffer\n    inputs: { groups: [maths, code] \
              }\n    prompts_per_step: 64\n    mix: { maths: 2 }              # and code?\n",
        fix: "Give every input a weight by the name of its node, or leave `mix` out for equal parts.",
    },
};

/// One sampler feeds two models.
pub static RL0316: Code = Code {
    id: "RL0316",
    title: "one sampler feeds two models",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The rows of one sampler go to two models with tokenizers of their own.",
        why: "A row is turned into token ids once, and these mean different text to another tokenizer.",
        example: "nodes:\n  prompts: { type: sampler, dataset: { path: train.jsonl } }\n  answers: { type: \
              agent_loop, inputs: { prompts: prompts, engine: small } }   # shortened\n  others: { type: agent_loop, \
              inputs: { prompts: prompts, engine: large } }    # shortened\n",
        fix: "Give each model a sampler of its own; both may read the same file.",
    },
};

/// A test cannot run a node.
pub static RL0321: Code = Code {
    id: "RL0321",
    title: "a test cannot run a node",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "Between what a test feeds and what it expects there is a node that needs a model, an engine or \
              something else that tests do not have.",
        why: "Tests run the nodes themselves, without workers: what a model would do there cannot be made up.",
        example: "tests:\n  learns:\n    feed: { advantages: { batch: [{ responses: [\"2\"], rewards: [1] }] } }\n    expect: \
              { trainer: { metrics: { loss: 0 } } }   # a trainer needs its model\n",
        fix: "Feed the node after it, and expect things of nodes before it. Judgers, filters, buffers, advantages and \
              evaluators can be run.",
    },
};

/// A test does not reach what it names.
pub static RL0322: Code = Code {
    id: "RL0322",
    title: "a test does not reach what it names",
    origin: &[
        "Vector 7821: a test that names a missing node passes",
        "Vector 20277: any output suffices",
    ],
    explanation: Explanation {
        meaning: "Nothing that a test feeds can come to a node of which it expects something; or what it feeds, or the \
              settings that it gives, change nothing of what it expects.",
        why: "An expectation that nothing reaches would hold for ever, or never.",
        example: "tests:\n  marks_are_right:\n    feed: { scored: { groups: [{ responses: [\"2\"] }] } }\n    expect: { marks: \
              { groups: [{ rewards: [1] }] } }     # takes from `tries`, not from `scored`\n",
        fix: "Expect things of the nodes that are fed and of those after them, and feed nodes that lie before.",
    },
};
