//! The environment.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL06: &[&Code] = &[&RL0601, &RL0602, &RL0603, &RL0604, &RL0605, &RL0606];

/// A variable is not declared.
pub static RL0601: Code = Code {
    id: "RL0601",
    title: "a variable is not declared",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The file refers to `${NAME}`, or a rule speaks of it, and `env.vars` does not declare it.",
        why: "All that a pipeline takes from outside stands in one place, with its kind, so that it can be checked \
              before anything starts, and so that a reader sees what must be set.",
        example: "run:\n  work_dir: ${WORK_DIR}            # no env.vars.WORK_DIR\n  total_steps: 100\n",
        fix: "Declare it: `env: { vars: { WORK_DIR: { kind: path } } }`; `rlpipe validate --fix` puts a \
              declaration in. Where another variable is meant, its name is proposed.",
    },
};

/// A variable is not set.
pub static RL0602: Code = Code {
    id: "RL0602",
    title: "a variable is not set",
    origin: &["benthos: all missing variables at once", "vector#21270"],
    explanation: Explanation {
        meaning: "The environment lacks a variable, or has it empty, that the run needs and that has no default.",
        why: "The value it stands for is unknown. All missing variables are reported at once, and only those that \
              the run needs.",
        example: "env:\n  vars:\n    MODEL_PATH: { kind: dir, help: a Hugging Face model folder \
              }\nmodels:\n  policy: { path: \"${MODEL_PATH}\" }\n",
        fix: "Set it in the shell, `export MODEL_PATH=...`, or give it a `default` in `env.vars`, or at its place: \
              `${MODEL_PATH:-models/policy}`.",
    },
};

/// A variable has a value of the wrong kind.
pub static RL0603: Code = Code {
    id: "RL0603",
    title: "a variable has a value of the wrong kind",
    origin: &["XTuner: variables of time that become text"],
    explanation: Explanation {
        meaning: "The value of a variable, from the environment or its default, is not of the declared kind: no \
              number, outside `min` and `max`, or none of the choices.",
        why: "It would go wrong wherever it is used; here it is said once, with the name of the variable.",
        example: "env:\n  vars:\n    GPUS_PER_NODE: { kind: int, min: 1 }   # export GPUS_PER_NODE=eight\n",
        fix: "Set another value, or correct the declaration. Flags are `1`, `true`, `0` or `false`.",
    },
};

/// A rule among variables is broken.
pub static RL0604: Code = Code {
    id: "RL0604",
    title: "a rule among variables is broken",
    origin: &["XTuner: one of `XTUNER_USE_SGLANG`, `_VLLM`, `_LMDEPLOY`"],
    explanation: Explanation {
        meaning: "A rule under `env.rules` does not hold: `at_most_one`, `exactly_one` or `all_or_none` of some \
              variables may be set.",
        why: "Whoever wrote the pipeline said that these settings do not go together, or only together.",
        example: "env:\n  rules:\n    - at_most_one: [USE_SGLANG, USE_VLLM]  # both are set\n",
        fix: "Set or unset variables until the rule holds: `unset USE_VLLM`. A flag with the value `0` or `false` \
              counts as not set.",
    },
};

/// A flag asks for another backend.
pub static RL0605: Code = Code {
    id: "RL0605",
    title: "a flag asks for another backend",
    origin: &["XTuner: a flag of another backend"],
    explanation: Explanation {
        meaning: "One of the variables `XTUNER_USE_SGLANG`, `XTUNER_USE_LMDEPLOY` and `XTUNER_USE_VLLM` is on, and \
              an engine has another backend.",
        why: "There these flags choose what generates. Here the pipeline does, and a flag that silently has no \
              effect would be a run with the wrong engine.",
        example: "env:\n  vars:\n    XTUNER_USE_VLLM: { kind: flag, optional: true }      # export \
              XTUNER_USE_VLLM=1\nnodes:\n  engine: { type: rollout_engine, backend: torch }       # shortened\n",
        fix: "Unset the flag, or choose that backend, where this version has it.",
    },
};

/// A variable is declared and not used.
pub static RL0606: Code = Code {
    id: "RL0606",
    title: "a variable is declared and not used",
    origin: &["allenai/open-instruct PR 1823: declared and never read"],
    explanation: Explanation {
        meaning: "Nothing refers to a variable of `env.vars`, and no rule speaks of it.",
        why: "Setting it has no effect, though the file looks as if it had.",
        example: "env:\n  vars:\n    SEED: { kind: int, default: 1 }        # nowhere ${SEED}\n",
        fix: "Refer to it as `${SEED}`, or take it out.",
    },
};
