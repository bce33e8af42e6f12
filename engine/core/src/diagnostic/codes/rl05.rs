//! Batch arithmetic.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL05: &[&Code] = &[&RL0501, &RL0502, &RL0503, &RL0504];

/// Prompt and response do not fit into the context.
pub static RL0501: Code = Code {
    id: "RL0501",
    title: "prompt and response do not fit into the context",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A rollout does not fit into a pack.
pub static RL0502: Code = Code {
    id: "RL0502",
    title: "a rollout does not fit into a pack",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A number does not divide another.
pub static RL0503: Code = Code {
    id: "RL0503",
    title: "a number does not divide another",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Too few samples of a prompt.
pub static RL0504: Code = Code {
    id: "RL0504",
    title: "too few samples of a prompt",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
