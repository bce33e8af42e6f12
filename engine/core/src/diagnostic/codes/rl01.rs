//! Syntax: what keeps a text from being read.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL01: &[&Code] = &[
    &RL0100, &RL0101, &RL0102, &RL0103, &RL0104, &RL0105, &RL0106, &RL0107, &RL0108, &RL0109, &RL0111, &RL0112,
    &RL0113, &RL0114,
];

/// Unreadable file.
pub static RL0100: Code = Code {
    id: "RL0100",
    title: "a file cannot be read",
    origin: &["vector#23008: a fault names its file"],
    explanation: Explanation {
        meaning: "A pipeline file that was named does not exist, may not be read, or is not UTF-8.",
        why: "There is nothing to check.",
        example: "rlpipe validate gsm8k.yml        # the file is gsm8k.yaml\n",
        fix: "Check the path and the working folder; the message says what the system answered.",
    },
};

/// Syntax error.
pub static RL0101: Code = Code {
    id: "RL0101",
    title: "the text is not valid YAML or TOML",
    origin: &["vector#9093: a fault names its file and place"],
    explanation: Explanation {
        meaning: "The file cannot be read from the marked place on. Nothing else can be said of it until it can.",
        why: "A reader that guesses on would report faults that are not there, or miss ones that are.",
        example: "nodes:\n  trainer:\n\ttype: trainer        # indented with a tab\n",
        fix: "Look at the marked place and the line before it. Usual causes: a tab where YAML wants spaces, keys of one \
              mapping at different depths, a bracket or quote left open, a value that holds `: ` or ` #` without \
              quotes. In TOML: text without quotes, and a table header without its closing `]`.",
    },
};

/// Duplicate key.
pub static RL0102: Code = Code {
    id: "RL0102",
    title: "a key is given twice in one mapping",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "One mapping has the same key twice. Both places are shown; the check goes on with the first.",
        why: "Most readers silently take the last one, so an edit to the first has no effect.",
        example: "nodes:\n  trainer: { type: trainer, pool: gpu, model: policy, pool: judges }\n",
        fix: "Remove or rename one of the two. To change a few values of a pipeline, put them in an overlay file or \
              give `--set`. A key beside a YAML merge key (`<<`) is no duplicate of what the merge brings.",
    },
};

/// Unquoted reference inside brackets.
pub static RL0103: Code = Code {
    id: "RL0103",
    title: "a `${NAME}` inside brackets is not quoted",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A value inside `{ }` or `[ ]` holds a `${NAME}` and has no quotes. The check goes on as if it had.",
        why: "Inside brackets YAML ends a plain value at the first `{` or `}`, so the file does not parse. On a line of \
              its own (`path: ${NAME}`) the same value needs no quotes.",
        example: "dataset: { path: ${DATA_PATH} }\n",
        fix: "Put it in quotes: `dataset: { path: \"${DATA_PATH}\" }`. It still takes the type that is wanted there, a \
              number for instance. `rlpipe validate --fix` does this.",
    },
};

/// Number with a leading zero.
pub static RL0104: Code = Code {
    id: "RL0104",
    title: "a number begins with a zero",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "An unquoted value such as `010` can be read as eight, as ten, or as text.",
        why: "YAML 1.1 reads it as octal, YAML 1.2 as decimal, and other tools as text; TOML forbids it.",
        example: "seed: 010\n",
        fix: "Write `10` for the number ten, `0o10` for the octal number, or `\"010\"` for the text.",
    },
};

/// Malformed reference.
pub static RL0105: Code = Code {
    id: "RL0105",
    title: "a `${` does not begin a reference",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A text holds `${`, but what follows is not `NAME}` or `NAME:-default}`.",
        why: "Left as it is, a mistyped reference would end up in a path or a command as text.",
        example: "run:\n  work_dir: ${WORK-DIR}\n",
        fix: "A name has letters, digits and `_`, and no digit first. The only operator is `:-`, which gives a default; \
              a default cannot hold a reference or a `}`. Where `${` itself is meant, as in a shell command, write \
              `$${`.",
    },
};

/// Bad `--set` argument.
pub static RL0106: Code = Code {
    id: "RL0106",
    title: "a `--set` argument cannot be read",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The argument is not `PATH=VALUE`, or its value is not valid YAML.",
        why: "An argument is an overlay of one value: keys joined with dots, `=`, and the value as it would stand in a \
              YAML file.",
        example: "rlpipe run gsm8k.yaml --set nodes.trainer.max_grad_norm\n",
        fix: "Give `--set nodes.trainer.max_grad_norm=0.5`. Lists are set whole, as in \
              `--set nodes.buffer.inputs.groups=[scored]`. Quote the argument when the shell \
              would read its brackets, spaces or `$`.",
    },
};

/// Version of the format.
pub static RL0107: Code = Code {
    id: "RL0107",
    title: "the version of the format is missing or unknown",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The key `version` at the top of the file is missing, or names a version that this rlpipe does not read.",
        why: "A later format may use the same keys with other meanings; a file says which one it was written for.",
        example: "name: grpo_gsm8k                 # no version\n",
        fix: "Put `version: 1` on the first line.",
    },
};

/// Document that is no mapping.
pub static RL0108: Code = Code {
    id: "RL0108",
    title: "a pipeline is not a mapping of keys",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The file holds a list, a single value, or nothing, where a pipeline is a mapping of keys.",
        why: "A pipeline consists of named sections: `version`, `name`, `nodes` and others.",
        example: "- type: sampler\n- type: trainer\n",
        fix: "Begin with `version: 1`, and put the nodes under `nodes:` with a name each. `pipelines/quickstart.yaml` is one.",
    },
};

/// Unknown top-level key.
pub static RL0109: Code = Code {
    id: "RL0109",
    title: "a top-level key is not known",
    origin: &["NVIDIA-NeMo/Gym#2220: junk keys called valid"],
    explanation: Explanation {
        meaning: "The top of the file has a key that no section has.",
        why: "Ignored, a mistyped section would silently have no effect.",
        example: "version: 1\nnode:                            # nodes\n  prompts: { type: sampler }\n",
        fix: "Use the key that the message proposes. A key of a section belongs under it, indented.",
    },
};

/// Number that cannot be held.
pub static RL0111: Code = Code {
    id: "RL0111",
    title: "a number cannot be held",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A whole number lies outside 64 bits, or a number is infinite or not a number.",
        why: "It would be rounded or wrapped silently, and no setting takes an infinite value.",
        example: "seed: 123456789012345678901234567890\n",
        fix: "Give a whole number between -9223372036854775808 and 9223372036854775807, or a finite number. Quote it \
              if it is text. To switch a bound off, leave its key out or give `null`.",
    },
};

/// Document too large or too deep.
pub static RL0112: Code = Code {
    id: "RL0112",
    title: "the document is too large, nests too deep, or unfolds to too much",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A text of more than 4 MiB, a value nested deeper than 32 levels, or anchors that multiply to very \
                  many values.",
        why: "No pipeline comes near these bounds, and a file that does would cost memory without end.",
        example: "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]    # and so on\n",
        fix: "Check that the file is a pipeline and not a data set; a pipeline names its data by path.",
    },
};

/// An overlay changes what is not there.
pub static RL0113: Code = Code {
    id: "RL0113",
    title: "an overlay changes what is not there",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "An overlay or a `--set` argument changes or removes a node, pool or model that the files before it do not \
              have, and what it says does not make a new one.",
        why: "Mostly the name is mistyped. Taken as a new node, it would be reported for all that it lacks.",
        example: "# rlpipe validate base.yaml mine.yaml, where base.yaml has a node `trainer`\nnodes:\n  trainr: { max_grad_norm: \
              0.5 }\n",
        fix: "Write the name that is proposed. A new node has a `type`, a new pool an `accelerator`, a new model `path`, \
              `hub` or `init`.",
    },
};

/// An overlay stands alone.
pub static RL0114: Code = Code {
    id: "RL0114",
    title: "an overlay stands alone",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The only file that was named has neither `version` nor most sections: it looks like an overlay, which \
              changes a part of a pipeline.",
        why: "Checked as a pipeline, it would lack nearly everything, and its names would lead nowhere.",
        example: "nodes:\n  trainer: { max_grad_norm: 0.5 }     # rlpipe validate mine.yaml, without base.yaml\n",
        fix: "Name the pipeline first and the overlay after it: `rlpipe validate base.yaml mine.yaml`. A pipeline begins with \
              `version: 1` and has `name`, `run`, `pools`, `models` and `nodes`.",
    },
};
