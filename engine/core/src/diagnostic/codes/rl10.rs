//! The data.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL10: &[&Code] = &[&RL1001, &RL1002, &RL1003, &RL1004, &RL1005, &RL1006, &RL1007, &RL1008];

/// A data set cannot be read.
pub static RL1001: Code = Code {
    id: "RL1001",
    title: "a data set cannot be read",
    explanation: Explanation {
        meaning: "The file of a data set is there, but cannot be read as text: it is a folder, or may not be read, \
              or is not UTF-8.",
        why: "There are no rows to draw.",
        example: "dataset: { path: data }            # a folder\n",
        fix: "Name a JSONL file: UTF-8, one JSON object a line. The message says what the system answered.",
    },
};

/// A row is not as it must be.
pub static RL1002: Code = Code {
    id: "RL1002",
    title: "a row is not as it must be",
    explanation: Explanation {
        meaning: "A line of a data set is not valid JSON, or not an object with a `prompt` that is a text or a list \
              of messages.",
        why: "A row that is left out silently would change the data set, and one that is read wrongly the run.",
        example: "{\"question\": \"What is 1 + 2?\"}\n",
        fix: "Correct the line that is shown: `{\"prompt\": \"What is 1 + 2?\"}`, or `{\"prompt\": [{\"role\": \
              \"user\", \"content\": \"What is 1 + 2?\"}]}`. Empty lines are fine, and so are further keys.",
    },
};

/// A row has no ground truth.
pub static RL1003: Code = Code {
    id: "RL1003",
    title: "a row has no ground truth",
    explanation: Explanation {
        meaning: "A judger compares answers with a ground truth, and a row that reaches it has none.",
        why: "Without it no answer could be right: the row would give a reward of 0 whatever the model does.",
        example: "{\"prompt\": \"What is 1 + 2?\"}\n",
        fix: "Add it: `{\"prompt\": \"What is 1 + 2?\", \"reward_model\": {\"ground_truth\": \"3\"}}`.",
    },
};

/// A prompt is too long.
pub static RL1004: Code = Code {
    id: "RL1004",
    title: "a prompt is too long",
    explanation: Explanation {
        meaning: "A prompt has more tokens than `max_prompt_tokens` or the context allow and `over_long` is `error`, \
              or an example does not fit into a pack.",
        why: "A cut prompt is another question.",
        example: "nodes:\n  prompts:\n    type: sampler\n    dataset: { path: train.jsonl }\n    max_prompt_tokens: \
              64\n    over_long: error\n",
        fix: "Raise the bound, or set `over_long: skip`: such rows are left out, and counted.",
    },
};

/// No row is left.
pub static RL1005: Code = Code {
    id: "RL1005",
    title: "no row is left",
    explanation: Explanation {
        meaning: "A data set has no rows, or all of them are left out because their prompts are too long.",
        why: "The sampler would have nothing to draw.",
        example: "nodes:\n  prompts:\n    type: sampler\n    dataset: { path: train.jsonl }\n    max_prompt_tokens: \
              2           # through the chat template every prompt is longer\n",
        fix: "Check the path, and raise `max_prompt_tokens`: it counts the tokens of the chat template too.",
    },
};

/// Text that the tokenizer cannot represent.
pub static RL1006: Code = Code {
    id: "RL1006",
    title: "text that the tokenizer cannot represent",
    explanation: Explanation {
        meaning: "A prompt or an answer holds a character for which the tokenizer has no token.",
        why: "The model would see another text than the one in the file. It happens with small tokenizers, such as \
              that of `init` with `characters`.",
        example: "models:\n  tiny: { init: { tokenizer: { characters: \"0123456789+-=\" } } }   # shortened; a row \
              has \"4 plus 4\"\n",
        fix: "Add the character to the tokenizer, or take it out of the data. `tokenizer: bytes` represents every \
              text.",
    },
};

/// An example has no answer.
pub static RL1007: Code = Code {
    id: "RL1007",
    title: "an example has no answer",
    explanation: Explanation {
        meaning: "A row that reaches an `sft_trainer` lacks `answer`.",
        why: "The answer is what is learnt: without one there is nothing to train on.",
        example: "{\"prompt\": \"1+2=\"}\n",
        fix: "Add it: `{\"prompt\": \"1+2=\", \"answer\": \"3\"}`.",
    },
};

/// The chat template fails.
pub static RL1008: Code = Code {
    id: "RL1008",
    title: "the chat template fails",
    explanation: Explanation {
        meaning: "The model's chat template rejects the messages of a row, or fails on them.",
        why: "The template turns messages into the text that the model was trained on. Some want a system message, \
              or turns that alternate.",
        example: "{\"prompt\": [{\"role\": \"assistant\", \"content\": \"Hello\"}]}\n",
        fix: "Change the messages of the row as the message says, or correct the template in the model's folder: \
              `chat_template.jinja`.",
    },
};
