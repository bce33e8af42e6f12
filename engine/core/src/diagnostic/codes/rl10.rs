//! The data.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL10: &[&Code] = &[&RL1001, &RL1002, &RL1003, &RL1004, &RL1005, &RL1006, &RL1007, &RL1008];

/// A data set cannot be read.
pub static RL1001: Code = Code {
    id: "RL1001",
    title: "a data set cannot be read",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A row is not as it must be.
pub static RL1002: Code = Code {
    id: "RL1002",
    title: "a row is not as it must be",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A row has no ground truth.
pub static RL1003: Code = Code {
    id: "RL1003",
    title: "a row has no ground truth",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A prompt is too long.
pub static RL1004: Code = Code {
    id: "RL1004",
    title: "a prompt is too long",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// No row is left.
pub static RL1005: Code = Code {
    id: "RL1005",
    title: "no row is left",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Text that the tokenizer cannot represent.
pub static RL1006: Code = Code {
    id: "RL1006",
    title: "text that the tokenizer cannot represent",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// An example has no answer.
pub static RL1007: Code = Code {
    id: "RL1007",
    title: "an example has no answer",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// The chat template fails.
pub static RL1008: Code = Code {
    id: "RL1008",
    title: "the chat template fails",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
