//! Time: intervals and bounds.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL04: &[&Code] = &[&RL0401, &RL0402, &RL0403];

/// An interval is no multiple of a weight sync's.
pub static RL0401: Code = Code {
    id: "RL0401",
    title: "an interval is no multiple of a weight sync's",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Two bounds contradict each other.
pub static RL0402: Code = Code {
    id: "RL0402",
    title: "two bounds contradict each other",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// An evaluator never fires.
pub static RL0403: Code = Code {
    id: "RL0403",
    title: "an evaluator never fires",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
