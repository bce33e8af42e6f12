//! Kinds and settings: what each node and section says by itself.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL02: &[&Code] = &[
    &RL0201, &RL0202, &RL0203, &RL0204, &RL0205, &RL0206, &RL0207, &RL0208, &RL0209, &RL0210, &RL0211, &RL0212,
];

/// A key is not known here.
pub static RL0201: Code = Code {
    id: "RL0201",
    title: "a key is not known here",
    origin: &[
        "vector#13783: a misspelt key changes the run",
        "ROLL: dacite ignores extra keys",
        "NeMo-RL: `extra=\"allow\"` ignores typos",
        "connect#985: a key that belongs elsewhere",
    ],
    explanation: Explanation {
        meaning: "A mapping has a key that this place does not know. Where the key is nearly a known one, that is \
              proposed; where it belongs into another mapping of the same node, that is named.",
        why: "Ignored, a mistyped setting would silently keep its default, and the run would not be the one that was \
              written down.",
        example: "nodes:\n  trainer:\n    type: trainer\n    max_gradient_norm: 0.5         # max_grad_norm\n",
        fix: "Write the proposed key, or move it to the mapping that the message names. `rlpipe kinds trainer` lists \
              every setting of a kind; an editor that knows the schema offers them.",
    },
};

/// A choice is not known here.
pub static RL0202: Code = Code {
    id: "RL0202",
    title: "a choice is not known here",
    origin: &["NeMo-RL FleetHealthConfig: choices with one value, what is not implemented is refused"],
    explanation: Explanation {
        meaning: "A setting takes one of a few names, and the one given is none of them. Some names of other \
              systems, or of later versions, are not there in this version.",
        why: "Each choice is code of its own; there is nothing that could stand in for an unknown one.",
        example: "nodes:\n  trainer:\n    type: trainer\n    old_logprobs: recompte         # recompute\n",
        fix: "Use one of the names that the message lists. A choice with settings is written `kl: { k3: { \
              coefficient: 0.001 } }`, one without as its bare name: `kl: none`.",
    },
};

/// A key is missing.
pub static RL0203: Code = Code {
    id: "RL0203",
    title: "a key is missing",
    origin: &["NVIDIA-NeMo/RL PR 3401: a new key, and seven recipes end in `KeyError`"],
    explanation: Explanation {
        meaning: "A mapping lacks a key that has no default.",
        why: "There is no value that would be right for everybody: which judge scores the answers, or how high the \
              learning rate is, must be said.",
        example: "nodes:\n  scored:\n    type: judger                   # which judge?\n    inputs: { groups: \
              answers }\n",
        fix: "Add the key. `rlpipe kinds judger` shows its type, its meaning and an example. A key with a misspelt \
              name is reported as that, not as missing.",
    },
};

/// A value has the wrong type.
pub static RL0204: Code = Code {
    id: "RL0204",
    title: "a value has the wrong type",
    origin: &[
        "NVIDIA-NeMo/Automodel#1603: `lr=abc`",
        "ROLL worker_config: YAML text run as Python",
        "OpenRLHF loss: dual clip above 1",
    ],
    explanation: Explanation {
        meaning: "A value is of another type than its key takes, or a number lies outside its bounds.",
        why: "Values are not converted: `\"4\"` is text and `4.0` is no whole number, so that a slip is found here \
              and not in the middle of a run.",
        example: "nodes:\n  trainer:\n    type: trainer\n    optimizer_steps: two           # a whole number from 1\n",
        fix: "Write a value of the type that the message names. Quotes make text; without them YAML reads `true`, \
              `3` and `1e-6` as what they look like. A whole `${NAME}` takes the type that is wanted, whether it is \
              quoted or not.",
    },
};

/// A value is not allowed.
pub static RL0205: Code = Code {
    id: "RL0205",
    title: "a value is not allowed",
    origin: &[
        "XTuner rl_trainer: steps, epochs and intervals above 0",
        "TRL grpo_config: bounds",
        "verl PR 5216: a length of 0 gives NaN rewards",
    ],
    explanation: Explanation {
        meaning: "A value has the right type, but not a form that can be used: a list of another length, two choices \
              at once, a name that cannot be a folder.",
        why: "It could not be carried out, or would fail only later.",
        example: "name: my run                       # becomes a folder: no spaces\n",
        fix: "Change the value as the message says. Names of runs have letters, digits, `-`, `_` and `.`.",
    },
};

/// A key has another name here.
pub static RL0206: Code = Code {
    id: "RL0206",
    title: "a key has another name here",
    origin: &["verl#136: a renamed key", "NeMo-RL `_reject_renamed_keys`"],
    explanation: Explanation {
        meaning: "The key is what XTuner, verl, TRL or another system calls a setting that has another name here.",
        why: "Names say what they count: `prompts_per_step` and `samples_per_prompt` cannot be mistaken for each \
              other, as batch sizes can.",
        example: "nodes:\n  prompts:\n    type: sampler\n    num_generations: 8             # samples_per_prompt\n",
        fix: "Write the name that the message gives; `rlpipe validate --fix` does. Check that the value counts the \
              same thing.",
    },
};

/// There is no such kind.
pub static RL0207: Code = Code {
    id: "RL0207",
    title: "there is no such kind",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The `type` of a node is the name of no kind.",
        why: "The kind decides which settings, inputs and outputs a node has; without it nothing else of the node \
              can be checked.",
        example: "nodes:\n  trainer:\n    type: trianer                  # trainer\n",
        fix: "Use one of the kinds that the message lists; `rlpipe kinds` says what each is for.",
    },
};

/// A node has no type.
pub static RL0208: Code = Code {
    id: "RL0208",
    title: "a node has no type",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A node lacks the key `type`.",
        why: "The kind decides which settings, inputs and outputs a node has. It is not guessed from its name.",
        example: "nodes:\n  trainer:                         # type: trainer\n    pool: gpu\n    model: policy\n",
        fix: "Add `type:` with the name of a kind. Something that is no node belongs outside `nodes`.",
    },
};

/// Keys that exclude each other, or one of which is needed.
pub static RL0209: Code = Code {
    id: "RL0209",
    title: "keys that exclude each other, or one of which is needed",
    origin: &[
        "XTuner rl_trainer: `total_train_steps` or `total_epochs`",
        "verl actor.py: one of two batch sizes",
        "TRL grpo_config: `generation_batch_size` or `steps_per_generation`",
        "prime-rl orchestrator: `batch_size` or `token_batch_size`",
    ],
    explanation: Explanation {
        meaning: "Two keys are given of which only one may be, or none of which one must be.",
        why: "With both, one of them would have to be ignored; with none, something essential is open.",
        example: "run:\n  work_dir: runs\n  total_steps: 100\n  total_epochs: 2                  # which of them \
              ends the run?\n",
        fix: "Keep one of them: `total_steps` or `total_epochs` of a run; of a model one of `path`, `hub` and `init`.",
    },
};

/// A section is missing.
pub static RL0210: Code = Code {
    id: "RL0210",
    title: "a section is missing",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The file lacks one of the keys that every pipeline has: `name`, `run`, `pools`, `models`, `nodes`.",
        why: "Each of them is needed to run: where the results go, what computes, which model, and what is done.",
        example: "version: 1\nname: grpo_gsm8k\nnodes: {}                          # and run, pools, models?\n",
        fix: "Add the section. `pipelines/quickstart.yaml` has all of them.",
    },
};

/// A template cannot be read.
pub static RL0211: Code = Code {
    id: "RL0211",
    title: "a template cannot be read",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A template of `map` is not valid Jinja, or `where` is not a valid expression.",
        why: "It is what makes rows of the columns of a data set.",
        example: "dataset:\n  path: train.jsonl\n  map: { prompt: \"{{ question\" }      # }} is missing\n",
        fix: "Correct it where the message says. Templates have columns in braces, `\"Q: {{ question }}\"`; `where` is an \
              expression without braces, `level > 3`. Text methods of Python, such as `split`, work in both.",
    },
};

/// A key has a new name.
pub static RL0212: Code = Code {
    id: "RL0212",
    title: "a key has a new name",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A setting is given by the name that it had in an earlier version. It works as before.",
        why: "Names that say what they count are worth a change, and files that worked should go on working.",
        example: "nodes:\n  warm_up:\n    type: sft_trainer\n    batch_size: 64                 # examples_per_step\n",
        fix: "Write the new name; `rlpipe validate --fix` does, in every file that is named.",
    },
};
