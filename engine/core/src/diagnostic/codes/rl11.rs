//! The world outside.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL11: &[&Code] = &[&RL1101, &RL1102, &RL1103, &RL1104, &RL1105, &RL1106, &RL1107];

/// More workers than this version can run.
pub static RL1101: Code = Code {
    id: "RL1101",
    title: "more workers than this version can run",
    explanation: Explanation {
        meaning: "The pools that compute have more than one worker altogether.",
        why: "This version runs one worker: a model on several accelerators waits for a later one. The rest of such \
              a pipeline is checked all the same.",
        example: "pools:\n  gpu: { accelerator: cuda, workers_per_node: 8 }\n",
        fix: "Run it with one worker: `--num-workers 1`, and `nodes: 1`.",
    },
};

/// A path does not exist.
pub static RL1102: Code = Code {
    id: "RL1102",
    title: "a path does not exist",
    explanation: Explanation {
        meaning: "A file or folder that the run reads is not there.",
        why: "It is looked for before anything starts, not when its turn comes.",
        example: "dataset: { path: data/train.jsonl }        # the file lies elsewhere\n",
        fix: "Correct the path. A path written in a file is relative to the folder of that file; one from a variable \
              or an argument to the folder that rlpipe was started in.",
    },
};

/// A model folder cannot be used.
pub static RL1103: Code = Code {
    id: "RL1103",
    title: "a model folder cannot be used",
    explanation: Explanation {
        meaning: "A model folder lacks a file that is needed, or a file in it cannot be read.",
        why: "The worker would find out only after minutes of starting up.",
        example: "models:\n  policy: { path: models/policy }  # has no tokenizer.json\n",
        fix: "A Hugging Face model folder has `config.json`, `tokenizer.json`, `tokenizer_config.json` and the \
              weights as safetensors, in one file or with an index. Copy what is missing from the release of the \
              model.",
    },
};

/// A device is not there.
pub static RL1104: Code = Code {
    id: "RL1104",
    title: "a device is not there",
    explanation: Explanation {
        meaning: "A pool wants an accelerator or processor cores that this machine does not have.",
        why: "Workers would not start, or their threads would wait for each other.",
        example: "pools:\n  gpu: { accelerator: cuda }       # on a machine without a card\n",
        fix: "Use `accelerator: auto`, which takes what is there, or run on another machine. On a machine with a \
              card, check its driver: `nvidia-smi` must list it.",
    },
};

/// The worker program is not there.
pub static RL1105: Code = Code {
    id: "RL1105",
    title: "the worker program is not there",
    explanation: Explanation {
        meaning: "The program `rlpipe-worker`, which holds the model, is neither beside `rlpipe` nor where \
              `RLPIPE_WORKER` says.",
        why: "The driver does not link libtorch; everything that computes is in the worker.",
        example: "rlpipe run gsm8k.yaml              # rlpipe was copied alone\n",
        fix: "Build both with `make build` and keep them in one folder, or set `RLPIPE_WORKER` to the program.",
    },
};

/// Too little memory.
pub static RL1106: Code = Code {
    id: "RL1106",
    title: "too little memory",
    explanation: Explanation {
        meaning: "The workers of a pool want more memory than this machine has.",
        why: "The system would end a worker in the middle of the run.",
        example: "pools:\n  gpu: { accelerator: cuda, workers_per_node: 8, host_memory_per_worker: 64GiB }\n",
        fix: "Lower `host_memory_per_worker` to what a worker needs, or run on a machine with more.",
    },
};

/// A model of a hub is not on this machine.
pub static RL1107: Code = Code {
    id: "RL1107",
    title: "a model of a hub is not on this machine",
    explanation: Explanation {
        meaning: "A model is named by its repository on a hub, and the Hugging Face cache of this machine does not have \
              it in that revision.",
        why: "`run` and `validate` never open a connection: a run must not wait for a download, or go on with other \
              weights because a branch has moved.",
        example: "models:\n  policy:\n    hub: { repository: HuggingFaceTB/SmolLM2-135M-Instruct, revision: main }\n",
        fix: "`rlpipe download FILE` fetches it into the cache that transformers uses too: `HF_HUB_CACHE`, else \
              `HF_HOME/hub`, else `~/.cache/huggingface/hub`. Where another machine has it, copy the folder \
              `models--ORG--NAME` of its cache.",
    },
};
