//! Kinds and settings: what each node and section says by itself.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL02: &[&Code] = &[
    &RL0201, &RL0202, &RL0203, &RL0204, &RL0205, &RL0206, &RL0207, &RL0208, &RL0209, &RL0210,
];

/// A key is not known here.
pub static RL0201: Code = Code {
    id: "RL0201",
    title: "a key is not known here",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A choice is not known here.
pub static RL0202: Code = Code {
    id: "RL0202",
    title: "a choice is not known here",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A key is missing.
pub static RL0203: Code = Code {
    id: "RL0203",
    title: "a key is missing",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A value has the wrong type.
pub static RL0204: Code = Code {
    id: "RL0204",
    title: "a value has the wrong type",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A value is not allowed.
pub static RL0205: Code = Code {
    id: "RL0205",
    title: "a value is not allowed",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A key has another name here.
pub static RL0206: Code = Code {
    id: "RL0206",
    title: "a key has another name here",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// There is no such kind.
pub static RL0207: Code = Code {
    id: "RL0207",
    title: "there is no such kind",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A node has no type.
pub static RL0208: Code = Code {
    id: "RL0208",
    title: "a node has no type",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Keys that exclude each other, or one of which is needed.
pub static RL0209: Code = Code {
    id: "RL0209",
    title: "keys that exclude each other, or one of which is needed",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A section is missing.
pub static RL0210: Code = Code {
    id: "RL0210",
    title: "a section is missing",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
