//! The data.

use super::{Code, Explanation};

/// The codes of this hundred.
pub(super) static LIST_RL10: &[&Code] = &[
    &RL1001, &RL1002, &RL1003, &RL1004, &RL1005, &RL1006, &RL1007, &RL1008, &RL1009, &RL1010, &RL1011, &RL1012,
    &RL1013, &RL1014, &RL1020, &RL1021, &RL1022, &RL1023, &RL1024, &RL1025, &RL1026, &RL1027, &RL1031,
];

/// A data set cannot be read.
pub static RL1001: Code = Code {
    id: "RL1001",
    title: "a data set cannot be read",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A data set is there, but cannot be read: a file may not be read, is no Parquet, or has a line \
              without end; a folder has no `*.jsonl` or `*.parquet` in it; or the file of `schema` holds no JSON schema.",
        why: "There are no rows to draw.",
        example: "dataset: { path: data }            # a folder of folders\n",
        fix: "Name a file of JSON lines (UTF-8, one JSON object a line) or of Parquet, or a folder of such files. The \
              message says what the system answered.",
    },
};

/// A row is not as it must be.
pub static RL1002: Code = Code {
    id: "RL1002",
    title: "a row is not as it must be",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A line of a data set is not valid JSON, or not an object with a `prompt` that is a text or a list \
              of messages and asks something. With `map` it is the row that the templates make.",
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
    origin: &["XTuner: missing `ground_truth`"],
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
    origin: &["slime arguments: a prompt leaves room for an answer"],
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
    origin: &["rlpipe"],
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
    origin: &["rlpipe"],
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
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A row that reaches an `sft_trainer` lacks `answer`, or has an empty one.",
        why: "The answer is what is learnt: without one there is nothing to train on.",
        example: "{\"prompt\": \"1+2=\"}\n",
        fix: "Add it: `{\"prompt\": \"1+2=\", \"answer\": \"3\"}`.",
    },
};

/// The chat template fails.
pub static RL1008: Code = Code {
    id: "RL1008",
    title: "the chat template fails",
    origin: &["verl chat_template_checker"],
    explanation: Explanation {
        meaning: "The model's chat template rejects the messages of a row, or fails on them.",
        why: "The template turns messages into the text that the model was trained on. Some want a system message, \
              or turns that alternate.",
        example: "{\"prompt\": [{\"role\": \"assistant\", \"content\": \"Hello\"}]}\n",
        fix: "Change the messages of the row as the message says, or correct the template in the model's folder: \
              `chat_template.jinja`.",
    },
};

/// A model has no chat template.
pub static RL1020: Code = Code {
    id: "RL1020",
    title: "a model has no chat template",
    origin: &["prime-rl orchestrator: no renderer for a model"],
    explanation: Explanation {
        meaning: "Rows are messages, and nothing says how this model reads messages: its folder has neither \
                  `chat_template.jinja` nor a `chat_template` in `tokenizer_config.json`. Base models often come so.",
        why: "A made-up format would be another for training than the one that the model is used with later.",
        example: "models:\n  policy: { path: models/base }       # a folder without a template\n",
        fix: "Name a file with one: `chat_template: { file: chat.jinja }`, or use the chat model of the family. \
              `{% for message in messages %}{{ message.content }}{% endfor %}` gives the model the texts alone.",
    },
};

/// The chat template ignores the generation prompt.
pub static RL1021: Code = Code {
    id: "RL1021",
    title: "the chat template ignores the generation prompt",
    origin: &["NovaSky-AI/SkyRL PR 710: the generation prompt is trained"],
    explanation: Explanation {
        meaning: "The template writes the same whether the assistant's turn is to be opened or not, but writes something \
                  before an answer that is there.",
        why: "The model is asked to continue where no turn is open: it has to write the opening of its turn itself, \
              which is then trained as if it were the answer.",
        example: "chat_template.jinja: |\n  {% for message in messages %}<{{ message.role }}>{{ message.content }}<end>{% endfor %}\n",
        fix: "End the template with the opening of the assistant's turn: \
              `{% if add_generation_prompt %}<assistant>{% endif %}`.",
    },
};

/// The template writes something between prompt and answer.
pub static RL1022: Code = Code {
    id: "RL1022",
    title: "examples are not what the chat template writes",
    origin: &[
        "NVIDIA-NeMo/Automodel PR 3739: an empty `<think></think>` is trained",
        "TRL#4879: a mask that trains nothing",
    ],
    explanation: Explanation {
        meaning: "An example is trained as the prompt through the template, then the answer. The template itself writes \
                  something else where the answer is in the conversation: it changes the prompt, or puts something \
                  between prompt and answer, such as an empty `<think></think>`.",
        why: "The model learns to answer in a place where it is not asked later.",
        example: "models:\n  policy: { path: models/Qwen3-0.6B }   # thinks unless it is told otherwise\n",
        fix: "Set the variables of the template so that both agree, such as \
              `chat_template: { variables: { enable_thinking: false } }`, or write what the template puts there into the \
              answers.",
    },
};

/// The token after an answer does not stop.
pub static RL1023: Code = Code {
    id: "RL1023",
    title: "the token that ends an answer is not the one that stops",
    origin: &[
        "TRL PR 5988: the stop token is not in the mask",
        "hiyouga/EasyR1 PR 11007: an export without its second stop token",
    ],
    explanation: Explanation {
        meaning: "The special token that the chat template writes after an answer is not among the model's stop tokens \
                  (`eos_token`, and `eos_token_id` of `generation_config.json` or `config.json`); or it is, but examples \
                  are trained to end with another one, the first.",
        why: "A model that follows its template ends an answer with a token that does not stop it, and goes on to the \
              bound: every response is cut off.",
        example: "generation_config.json: { \"eos_token_id\": 151643 }   # and the template ends turns with <|im_end|>\n",
        fix: "Add the token's id to `eos_token_id` of the folder's `generation_config.json`, and name it as `eos_token` in \
              `tokenizer_config.json` where examples are trained; or name a template that fits the model.",
    },
};

/// A prompt begins twice.
pub static RL1024: Code = Code {
    id: "RL1024",
    title: "a prompt begins with its first token twice",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The token that begins a text (`bos_token`) stands at the start of the prompt twice: the template writes it \
                  and the text of the first message has it too, or the template writes it twice.",
        why: "Models were not trained on it, and answer worse.",
        example: "{\"prompt\": \"<s>What is 1 + 2?\"}\n",
        fix: "Take it out of the data, or out of the template. Nothing else adds it here.",
    },
};

/// Prompt ids that are another text.
pub static RL1025: Code = Code {
    id: "RL1025",
    title: "the tokens of a prompt are another text",
    origin: &["TRL#5224: ids that are another text"],
    explanation: Explanation {
        meaning: "The tokens of the first prompt, turned into text again, are not the text that the chat template made.",
        why: "The tokenizer changes texts (lower case, white space, accents), or does not fit the template: the model reads \
              something else than the template says.",
        example: "tokenizer.json: { \"normalizer\": { \"type\": \"Lowercase\" } }\n",
        fix: "Look at the difference that is shown. Where it is what the model was trained on, nothing needs to be done; \
              otherwise correct `tokenizer.json`, or name a template that fits.",
    },
};

/// Special tokens in the data.
pub static RL1026: Code = Code {
    id: "RL1026",
    title: "a text of the data has a special token in it",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The content of a message spells out a special token of the model, such as `<|im_end|>`. It is read as that \
                  token, not as text.",
        why: "It can close the turn and open another: what stands after it is no longer said by whom the row says.",
        example: "{\"prompt\": \"Say <|im_end|> twice\"}\n",
        fix: "Take it out of the data, or write it otherwise, unless it is meant.",
    },
};

/// A stop string that is never found.
pub static RL1027: Code = Code {
    id: "RL1027",
    title: "a stop string cannot be found",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A text in `sampling.stop` has a special token in it, which is never part of a response's text; or the tokens \
                  of the model do not stand for bytes, so that stop strings cannot be looked for at all.",
        why: "Responses would go on as if it were not there.",
        example: "sampling: { max_new_tokens: 64, stop: [\"<|im_end|>\"] }\n",
        fix: "Special tokens stop a response by their id: add it to `eos_token_id` in the model's \
              `generation_config.json`. For the rest take `stop` out.",
    },
};

/// A row has a data source that nobody judges.
pub static RL1009: Code = Code {
    id: "RL1009",
    title: "a row has a data source that nobody judges",
    origin: &["verl#5558: no reward function for a data source, found after the model is loaded"],
    explanation: Explanation {
        meaning: "A judger chooses among judges by the `data_source` of a row, and has none for this one.",
        why: "The row could be answered, but not rewarded: the run would end at the first such group.",
        example: "{\"prompt\": \"What is 1 + 2?\", \"data_source\": \"gsm8\"}     # the judger knows `gsm8k`\n",
        fix: "Add the data source to the judger, correct the row, or leave such rows out: `where: \"data_source != \
              'gsm8'\"`.",
    },
};

/// A template of a data set fails on a row.
pub static RL1010: Code = Code {
    id: "RL1010",
    title: "a template of a data set fails on a row",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "A template of `map`, or the expression `where`, asks for a column that the row does not have, or \
              for a part of one that is not there; or `where` compares a text with a number.",
        why: "An empty text in its place would be another question, or an answer that nobody can give. And every text is \
              above every number: `level > 3` would hold for all rows whose `level` is a text.",
        example: "dataset:\n  path: train.jsonl\n  map: { prompt: \"{{ problem }}\" }   # the rows have `question`\n",
        fix: "Use the columns that the message lists. What some rows lack can be given another value, `{{ hint | \
              default('') }}`, or such rows can be left out: `where: \"hint is defined\"`. A text becomes a number by `level | int`.",
    },
};

/// A row does not fit the schema of its data set.
pub static RL1011: Code = Code {
    id: "RL1011",
    title: "a row does not fit the schema of its data set",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The data set names a JSON schema, and a row as it is in the file does not fit it.",
        why: "The schema says what the rest of the pipeline, such as a judge of your own, relies upon.",
        example: "{\"question\": \"What is 1 + 2?\", \"level\": \"3\"}     # `level` is to be a number\n",
        fix: "Correct the row or the schema.",
    },
};

/// There are fewer rows than a step takes.
pub static RL1012: Code = Code {
    id: "RL1012",
    title: "there are fewer rows than a step takes",
    origin: &["XTuner rl_trainer: steps of an epoch are rows by `train_batch_size`"],
    explanation: Explanation {
        meaning: "The data sets of the training samplers have, after all that leaves rows out, fewer rows than \
              `prompts_per_step`.",
        why: "A step then has the same prompt several times: its groups say less than they seem to.",
        example: "nodes:\n  buffer:\n    type: replay_buffer\n    inputs: { groups: [scored] }\n    prompts_per_step: \
              64           # and train.jsonl has 20 rows\n",
        fix: "Lower `prompts_per_step`, or use more data. For a first try on a few rows it does no harm.",
    },
};

/// A chat template leaves messages out.
pub static RL1013: Code = Code {
    id: "RL1013",
    title: "a chat template leaves messages out",
    origin: &["THUDM/slime#1476: the system prompt"],
    explanation: Explanation {
        meaning: "A row has a message of a role that the model's chat template passes over: its content is not in the \
              text that the template makes.",
        why: "The model would never see the message, and nothing would say so.",
        example: "{\"prompt\": [{\"role\": \"human\", \"content\": \"What is 1 + 2?\"}]}\n",
        fix: "Use the roles that the template knows, mostly `system`, `user` and `assistant`. `map` can rename them: \
              `prompt: [{ role: user, content: \"{{ question }}\" }]`.",
    },
};

/// A ground truth that no answer can match.
pub static RL1014: Code = Code {
    id: "RL1014",
    title: "a ground truth that no answer can match",
    origin: &["verl#2150: a parser that misreports"],
    explanation: Explanation {
        meaning: "A judger takes a number out of a response, and the ground truth of a row is none: `three`, or `3 apples`.",
        why: "The row would give a reward of 0 whatever the model does, and pull the whole step down.",
        example: "{\"prompt\": \"What is 1 + 2?\", \"reward_model\": {\"ground_truth\": \"three\"}}     # judge: number\n",
        fix: "Write the number alone. `map` can take it out of a longer text: `ground_truth: \"{{ answer.split('#### ')[1] \
              }}\"`. Texts are judged by `exact`, or by a program of your own.",
    },
};

/// Rollouts that a test is fed cannot be read.
pub static RL1031: Code = Code {
    id: "RL1031",
    title: "rollouts that a test is fed cannot be read",
    origin: &["rlpipe"],
    explanation: Explanation {
        meaning: "The file that a test names as `rollouts` is not there, is empty, or has a line that is no rollout.",
        why: "The test would try nothing, or something else than what was meant.",
        example: "tests:\n  yesterdays_responses:\n    feed: { scored: { rollouts: ../runs/quickstart/0001/rollouts/train/step-1.jsonl \
              } }\n    expect: { scored: { same_rewards: true } }\n",
        fix: "Name a file of `rollouts/train` or `rollouts/eval` in a run folder; the message shows the line that is none.",
    },
};
