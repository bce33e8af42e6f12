//! The world outside.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL11: &[&Code] = &[
    &RL1101, &RL1102, &RL1103, &RL1104, &RL1105, &RL1106, &RL1107, &RL1108, &RL1109, &RL1110, &RL1111, &RL1120,
    &RL1121, &RL1122, &RL1123, &RL1124, &RL1131, &RL1132, &RL1133,
];

/// More workers than this version can run.
pub static RL1101: Code = Code {
    id: "RL1101",
    title: "more workers than this version can run",
    origin: &[
        "XTuner ray_accelerator_worker: workers against accelerators",
        "prime-rl rl.py: processes against GPUs of a node",
    ],
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
    origin: &[
        "XTuner rl_trainer: folders that are not there",
        "verl#3182: found after the data is loaded",
    ],
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
    origin: &[
        "XTuner rl_trainer: `load_from` is a Hugging Face folder",
        "verl#2319: tensors missing without an error",
    ],
    explanation: Explanation {
        meaning: "A model folder lacks a file that is needed, a file in it cannot be read, or its weights are not \
                  those that its `config.json` asks for: tensors are missing, unexpected, of another shape, or in a \
                  type that is no floating-point number.",
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
    origin: &["verl#539: \"Total available GPUs 0 is less than total desired\""],
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
    origin: &["rlpipe"],
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
    origin: &["XTuner ray_accelerator_worker: memory of workers against the machine's"],
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
    origin: &["rlpipe"],
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

/// A model that this version does not run.
pub static RL1108: Code = Code {
    id: "RL1108",
    title: "a model that this version does not run",
    origin: &["NeMo-RL FleetHealthConfig: what is not implemented is refused"],
    explanation: Explanation {
        meaning: "The `config.json` of a model folder asks for something that this version does not compute, or \
                  contradicts itself.",
        why: "Computing something else in its place would give other log-probs than those of the model.",
        example: "models:\n  policy: { path: models/qwen3-30b-a3b }  # a mixture of experts\n",
        fix: "Use a Llama, a Qwen2 or a dense Qwen3 in float32, bfloat16 or float16, with full attention. Rotary \
              scaling may be `linear`, `dynamic`, `llama3` or `yarn`.",
    },
};

/// A context longer than the model reads.
pub static RL1109: Code = Code {
    id: "RL1109",
    title: "a context longer than the model reads",
    origin: &["slime arguments: context of the model"],
    explanation: Explanation {
        meaning: "`max_context_tokens` of an engine is above the number of positions that its model was made for: \
                  `max_position_embeddings`, times the factor of `linear` scaling, or the original length times the \
                  factor of `yarn`.",
        why: "Beyond them a model answers nonsense. With `dynamic` scaling the engine keeps to \
              `max_position_embeddings`: past it the angles of all earlier tokens change, and what is in the cache \
              would no longer be what the trainer computes.",
        example: "models:\n  policy: { path: models/smollm2 }      # reads 8192 positions\nnodes:\n  engine: { type: \
                  rollout_engine, pool: gpu, model: policy, max_context_tokens: 16384 }\n",
        fix: "Lower `max_context_tokens`, or use a model that reads more.",
    },
};

/// A tokenizer with more tokens than the model.
pub static RL1110: Code = Code {
    id: "RL1110",
    title: "a tokenizer with more tokens than the model",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "`tokenizer.json` has token ids that are not below the `vocab_size` of `config.json`.",
        why: "A text that contains such a token cannot be read by the model, and the run would end at it.",
        example: "models:\n  policy: { path: models/tuned }          # `vocab_size` 32000, and a token `<pad>` of id 32000\n",
        fix: "Harmless where no text contains those tokens, such as one for padding. Otherwise use the tokenizer \
              that the model was released with.",
    },
};

/// A stop token that the model does not have.
pub static RL1111: Code = Code {
    id: "RL1111",
    title: "a stop token that the model does not have",
    origin: &["hiyouga/EasyR1 PR 11007: a model that never stops"],
    explanation: Explanation {
        meaning: "`eos_token_id` of the model's `generation_config.json`, or of its `config.json`, names an id that is not \
              below `vocab_size`.",
        why: "The model can never draw that token: a response that should end there goes on to its bound. The run would \
              end at the first response.",
        example: "generation_config.json: { \"eos_token_id\": [151645, 151936] }   # and `vocab_size` is 151936\n",
        fix: "Correct `eos_token_id`, or copy both files again from where the model was released.",
    },
};

/// A program that judges is not there.
pub static RL1120: Code = Code {
    id: "RL1120",
    title: "a program that judges is not there",
    origin: &["verl#2680: `No module named 'custom_module'`"],
    explanation: Explanation {
        meaning: "The first word of `run` is no program that can be executed, or a script among its arguments does not \
              exist.",
        why: "It is looked for before anything starts, not when the first response is judged.",
        example: "judge: { command: { run: [python3, reward.py] } }   # the script lies beside this file\n",
        fix: "A word that begins with `./` or `../` is a path from the folder of this file: `./reward.py`. Other names \
              are looked for in `PATH`, and files in the folder that rlpipe was started in.",
    },
};

/// A variable that a program is to be given is not set.
pub static RL1121: Code = Code {
    id: "RL1121",
    title: "a variable that a program is to be given is not set",
    origin: &["SkyRL utils: a key that is not set fails at once"],
    explanation: Explanation {
        meaning: "`environment` of a `command` names a variable that rlpipe's own environment does not have.",
        why: "A program gets `PATH`, `HOME`, the language, Python's and a few other common variables, and beyond these \
              only what `environment` names: what a run depends on is in its file.",
        example: "judge: { command: { run: [./judge], environment: [API_TOKEN] } }   # it is not set\n",
        fix: "Set the variable where rlpipe is started, or take its name out.",
    },
};

/// A program that judges does not start.
pub static RL1122: Code = Code {
    id: "RL1122",
    title: "a program that judges does not start",
    origin: &["verl#3150: a reward that only fails in its worker"],
    explanation: Explanation {
        meaning: "Before a run each program is called once, as the run would call it. It ended, said nothing in time, or \
              said something other than `ready`.",
        why: "A missing module or a wrong argument is found now, not after the model is loaded and the first responses are \
              generated.",
        example: "judge: { command: { run: [python3, ./reward.py] } }   # ModuleNotFoundError: No module named 'numpy'\n",
        fix: "The end of what it wrote to standard error says why. Its standard output is for messages alone; what else it \
              prints goes to standard error. A program that loads for long needs a longer `start_timeout`.",
    },
};

/// A program does not take its config.
pub static RL1123: Code = Code {
    id: "RL1123",
    title: "a program does not take its config",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The program says in `config_schema` what it takes, and its `config` is something else.",
        why: "A misspelt setting would be left out without a word.",
        example: "judge: { command: { run: [python3, ./length.py], config: { tokens: 64 } } }   # it takes `characters`\n",
        fix: "Correct `config`; the program's own documentation says what it takes.",
    },
};

/// A program cannot judge the data.
pub static RL1124: Code = Code {
    id: "RL1124",
    title: "a program cannot judge the data",
    origin: &[
        "TRL#6533: one reward for several completions",
        "verl PR 5635: a judge that fails gives 0",
    ],
    explanation: Explanation {
        meaning: "Before a run each program judges one row, with its ground truth as the response. It gave an error, the \
              wrong number of scores, or no answer in time; or rows lack a column that it says it reads (the first 1000 \
              are looked at).",
        why: "What fails for a row of the data is likely to fail for every response.",
        example: "judge: { command: { run: [python3, ./reward.py] } }   # KeyError: 'level', which rows do not have\n",
        fix: "Correct the program, or the data. With `on_error: drop_group` or `abstain` an error of one row is a warning.",
    },
};

/// Too little disk.
pub static RL1131: Code = Code {
    id: "RL1131",
    title: "too little disk",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The file system of `run.work_dir` has less space free than the checkpoints and exports of the run take. It \
              is a warning where some of them fit: a run that goes on has others on the disk already.",
        why: "The run would end in the middle, when the disk is full. What is written follows from the number of the \
              model's parameters, so it is known before.",
        example: "run:\n  work_dir: /small/disk/runs\n  total_steps: 1000\n  checkpoint: { every_steps: 10, keep: 5 }\n  \
              hf_export: { every_steps: 50 }          # 20 exports stay\n",
        fix: "Free some space, lower `run.checkpoint.keep`, raise `run.hf_export.every_steps`, or put the run on another \
              disk with `--work-dir`.",
    },
};

/// Run folders cannot be made.
pub static RL1132: Code = Code {
    id: "RL1132",
    title: "run folders cannot be made",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "`run.work_dir`, or the innermost folder of it that is there, is no folder, or this user may not write \
              into it.",
        why: "A run keeps its checkpoints, rollouts and metrics there.",
        example: "run: { work_dir: /etc/passwd/runs, total_steps: 100 }\n",
        fix: "Name another folder with `run.work_dir` or `--work-dir`, or get the right to write there.",
    },
};

/// The machine has too little memory for what a pool holds.
pub static RL1133: Code = Code {
    id: "RL1133",
    title: "too little memory for what a pool holds",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "What the nodes of a pool hold at once in a worker is more than this machine, or its card, has for it. It \
                  is an error where what is held for certain is more already, and a warning where it is so only with \
                  packs and prompts that are as large as settings let them be. A card's cache that may take less than \
                  a rollout needs is an error, too.",
        why: "The run would end in the middle of a step, on a processor by the system's choice of what to kill.",
        example: "nodes:\n  trainer: { type: trainer, pool: local, max_tokens_per_pack: 131072 }      # shortened\n",
        fix: "Change the setting that the finding names, or run on a machine with more. `rlpipe plan` shows every \
              part.",
    },
};
