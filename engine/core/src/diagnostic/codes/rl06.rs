//! The environment.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL06: &[&Code] = &[&RL0601, &RL0602, &RL0603, &RL0604, &RL0605, &RL0606];

/// A variable is not declared.
pub static RL0601: Code = Code {
    id: "RL0601",
    title: "a variable is not declared",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A variable is not set.
pub static RL0602: Code = Code {
    id: "RL0602",
    title: "a variable is not set",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A variable has a value of the wrong kind.
pub static RL0603: Code = Code {
    id: "RL0603",
    title: "a variable has a value of the wrong kind",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A rule among variables is broken.
pub static RL0604: Code = Code {
    id: "RL0604",
    title: "a rule among variables is broken",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A flag asks for another backend.
pub static RL0605: Code = Code {
    id: "RL0605",
    title: "a flag asks for another backend",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A variable is declared and not used.
pub static RL0606: Code = Code {
    id: "RL0606",
    title: "a variable is declared and not used",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
