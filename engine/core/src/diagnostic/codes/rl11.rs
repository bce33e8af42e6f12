//! The world outside.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL11: &[&Code] = &[&RL1101, &RL1102, &RL1103, &RL1104, &RL1105, &RL1106];

/// More workers than this version can run.
pub static RL1101: Code = Code {
    id: "RL1101",
    title: "more workers than this version can run",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A path does not exist.
pub static RL1102: Code = Code {
    id: "RL1102",
    title: "a path does not exist",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A model folder cannot be used.
pub static RL1103: Code = Code {
    id: "RL1103",
    title: "a model folder cannot be used",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A device is not there.
pub static RL1104: Code = Code {
    id: "RL1104",
    title: "a device is not there",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// The worker program is not there.
pub static RL1105: Code = Code {
    id: "RL1105",
    title: "the worker program is not there",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Too little disk or memory.
pub static RL1106: Code = Code {
    id: "RL1106",
    title: "too little disk or memory",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
