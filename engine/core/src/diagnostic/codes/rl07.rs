//! Resources.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL07: &[&Code] = &[&RL0701, &RL0702, &RL0703, &RL0704];

/// Two weight syncs bring weights to one engine.
pub static RL0701: Code = Code {
    id: "RL0701",
    title: "two weight syncs bring weights to one engine",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A model is in two pools.
pub static RL0702: Code = Code {
    id: "RL0702",
    title: "a model is in two pools",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A pool does not compute.
pub static RL0703: Code = Code {
    id: "RL0703",
    title: "a pool does not compute",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Two engines serve one model.
pub static RL0704: Code = Code {
    id: "RL0704",
    title: "two engines serve one model",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
