//! Legal, but probably not what is meant.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL09: &[&Code] = &[&RL0901, &RL0902, &RL0903, &RL0904, &RL0905, &RL0906, &RL0907];

/// K1 in a loss ignores the reference.
pub static RL0901: Code = Code {
    id: "RL0901",
    title: "k1 in a loss ignores the reference",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Training on a cut distribution.
pub static RL0902: Code = Code {
    id: "RL0902",
    title: "training on a cut distribution",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A warm-up that never ends.
pub static RL0903: Code = Code {
    id: "RL0903",
    title: "a warm-up that never ends",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// All samples of a prompt are the same.
pub static RL0904: Code = Code {
    id: "RL0904",
    title: "all samples of a prompt are the same",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// An interval beyond the end of the run.
pub static RL0905: Code = Code {
    id: "RL0905",
    title: "an interval beyond the end of the run",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A pool or a model is not used.
pub static RL0906: Code = Code {
    id: "RL0906",
    title: "a pool or a model is not used",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Bfloat16 on a processor.
pub static RL0907: Code = Code {
    id: "RL0907",
    title: "bfloat16 on a processor",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
