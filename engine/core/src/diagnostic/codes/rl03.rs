//! The graph: names, ports, fields, and what reaches what.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL03: &[&Code] = &[
    &RL0301, &RL0302, &RL0303, &RL0304, &RL0305, &RL0306, &RL0307, &RL0308, &RL0309, &RL0310, &RL0311, &RL0312,
    &RL0313, &RL0314, &RL0315, &RL0316,
];

/// An input names a node that is not there.
pub static RL0301: Code = Code {
    id: "RL0301",
    title: "an input names a node that is not there",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A node has no such output.
pub static RL0302: Code = Code {
    id: "RL0302",
    title: "a node has no such output",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Two ends of an edge have different types.
pub static RL0303: Code = Code {
    id: "RL0303",
    title: "two ends of an edge have different types",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// An input is not connected.
pub static RL0304: Code = Code {
    id: "RL0304",
    title: "an input is not connected",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A kind has no such input.
pub static RL0305: Code = Code {
    id: "RL0305",
    title: "a kind has no such input",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// An input takes another number of nodes.
pub static RL0306: Code = Code {
    id: "RL0306",
    title: "an input takes another number of nodes",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A field is needed that nothing adds.
pub static RL0307: Code = Code {
    id: "RL0307",
    title: "a field is needed that nothing adds",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Nodes wait for each other.
pub static RL0308: Code = Code {
    id: "RL0308",
    title: "nodes wait for each other",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Nothing needs a node.
pub static RL0309: Code = Code {
    id: "RL0309",
    title: "nothing needs a node",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A name is not declared.
pub static RL0310: Code = Code {
    id: "RL0310",
    title: "a name is not declared",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Not exactly one node trains.
pub static RL0311: Code = Code {
    id: "RL0311",
    title: "not exactly one node trains",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// An engine hears of no weights.
pub static RL0312: Code = Code {
    id: "RL0312",
    title: "an engine hears of no weights",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A name cannot be used.
pub static RL0313: Code = Code {
    id: "RL0313",
    title: "a name cannot be used",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// Two nodes mean different models.
pub static RL0314: Code = Code {
    id: "RL0314",
    title: "two nodes mean different models",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// A mix does not fit its inputs.
pub static RL0315: Code = Code {
    id: "RL0315",
    title: "a mix does not fit its inputs",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};

/// One sampler feeds two models.
pub static RL0316: Code = Code {
    id: "RL0316",
    title: "one sampler feeds two models",
    explanation: Explanation {
        meaning: "",
        why: "",
        example: "",
        fix: "",
    },
};
