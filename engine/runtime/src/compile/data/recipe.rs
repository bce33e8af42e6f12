//! From a line of a file to a row: JSON, `where`, `schema`, `map`, the chat template, the tokenizer.

use std::sync::Arc;

use rlpipe_core::data::{Message, Row};
use rlpipe_core::diagnostic::{Code, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::{OverLong, Truth};
use rlpipe_text::{Chat, Columns, TextError, Tokenizer};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::needs::Needs;
use super::raw::{RawPrompt, RawRow, RawTruth};
use super::roles::Roles;
use crate::compile::datasets::Templates;
use crate::compile::read::quoted;

/// Columns of a row that a note names.
const SHOWN_COLUMNS: usize = 8;
/// What a row is.
const ROW_HELP: &str = "a row is a JSON object on one line: `{\"prompt\": \"...\"}` and what else is needed of it";

/// What is wrong with a row, and what to do.
pub struct RowFault {
    pub code: &'static Code,
    pub message: String,
    pub note: Option<String>,
    /// The setting that it goes against, if it is not the row alone.
    pub setting: Option<Range>,
}

/// What becomes of a line.
pub enum Made {
    /// A row to draw.
    Row(Box<Row>),
    /// `where` does not hold for it.
    Unwanted,
    /// Its prompt is too long.
    OverLong,
}

/// All that decides what a line becomes. The same line becomes the same row whenever it is read.
pub struct Recipe {
    /// The data set's name: its key in `datasets`, or the sampler's.
    pub dataset: String,
    /// The `data_source` of rows that have none, or an empty one.
    pub data_source: String,
    pub needs: Needs,
    pub over_long: OverLong,
    pub tokenizer: Arc<Tokenizer>,
    /// The model's name, where its folder was only made to read the tokenizer from.
    pub scratch: Option<String>,
    pub templates: Templates,
    /// What the columns must fit, and where that is said.
    pub schema: Option<(jsonschema::Validator, Range)>,
    /// Which roles the chat template shows.
    pub roles: Roles,
}

impl RowFault {
    fn new(code: &'static Code, message: impl Into<String>, note: Option<&str>) -> Self {
        Self {
            code,
            message: message.into(),
            note: note.map(str::to_owned),
            setting: None,
        }
    }

    fn at(mut self, setting: Range) -> Self {
        self.setting = Some(setting);
        self
    }
}

impl Recipe {
    /// Makes a row of a line, whose number is only kept.
    pub fn make(&self, line: &[u8], number: u64) -> Result<Made, RowFault> {
        let row = json(line)?;
        if let Some((schema, place)) = &self.schema {
            fits(schema, &row, *place)?;
        }
        let Value::Object(columns) = row else {
            return Err(RowFault::new(
                &codes::RL1002,
                "the row is not a JSON object",
                Some(ROW_HELP),
            ));
        };
        let seen = Columns::new(&columns);
        if let Some((filter, place)) = &self.templates.filter {
            let holds = filter
                .holds(&seen)
                .map_err(|error| RowFault::new(&codes::RL1010, format!("`where`: {error}"), None).at(*place))?;
            if !holds {
                return Ok(Made::Unwanted);
            }
        }
        let raw = self.raw(&columns, &seen)?;
        drop(seen);
        self.row(raw, columns, number)
    }

    /// The row, with what `map` says in place of columns.
    fn raw(&self, columns: &Map<String, Value>, seen: &Columns<'_>) -> Result<RawRow, RowFault> {
        let mapped = self.templates.apply(columns, seen).map_err(|(key, error, place)| {
            RowFault::new(&codes::RL1010, format!("`{key}`: {error}"), None).at(place)
        })?;
        let mut row = mapped.unwrap_or_else(|| columns.clone());
        if !self.needs.examples {
            // Raw data has all sorts of answers; what nobody learns need not be a text.
            row.remove("answer");
        }
        RawRow::deserialize(Value::Object(row)).map_err(|error| {
            let which = if self.templates.map.is_empty() {
                "the row"
            } else {
                "the row, mapped,"
            };
            let note = self.how_to_map(columns);
            RowFault::new(
                &codes::RL1002,
                format!("{which} is not as it must be: {error}"),
                Some(note.as_deref().unwrap_or(ROW_HELP)),
            )
        })
    }

    /// For a row without `prompt`, what `map` could make one of.
    fn how_to_map(&self, columns: &Map<String, Value>) -> Option<String> {
        if !self.templates.map.is_empty() || columns.contains_key("prompt") {
            return None;
        }
        let (text, _) = columns.iter().find(|(_, value)| value.is_string())?;
        let names: Vec<&str> = columns.keys().take(SHOWN_COLUMNS).map(String::as_str).collect();
        let more = if columns.len() > names.len() { ", ..." } else { "" };
        Some(format!(
            "the row has {}{more}; `map` makes a prompt of them, such as `map: {{ prompt: \"{{{{ {text} }}}}\" }}`",
            quoted(&names)
        ))
    }

    /// What a row that passes gives the chat template beside its messages: tools and documents.
    pub fn for_template(&self, columns: &Map<String, Value>) -> (Option<Vec<Value>>, Option<Vec<Value>>) {
        let raw = self.raw(columns, &Columns::new(columns));
        raw.map(|raw| (raw.tools, raw.documents)).unwrap_or_default()
    }

    fn row(&self, raw: RawRow, columns: Map<String, Value>, number: u64) -> Result<Made, RowFault> {
        let prompt = messages(raw.prompt)?;
        let own = raw.data_source.filter(|source| !source.is_empty());
        let data_source = own.unwrap_or_else(|| self.data_source.clone());
        for (judger, sources) in &self.needs.judged_sources {
            if !sources.contains(&data_source) {
                let known: Vec<String> = sources.iter().map(|name| format!("`{name}`")).collect();
                let what = match data_source.as_str() {
                    "" => "rows without a `data_source`".to_owned(),
                    source => format!("the data source `{source}`"),
                };
                return Err(RowFault::new(
                    &codes::RL1009,
                    format!("`{judger}` has no judge for {what}"),
                    Some(&format!("it judges {}", known.join(", "))),
                ));
            }
        }
        let ground_truth = ground_truth(raw.reward_model.and_then(|reward| reward.ground_truth))?;
        self.judged(&data_source, ground_truth.as_deref())?;
        let prompt_ids = self.prompt_ids(&prompt, raw.tools.as_deref(), raw.documents.as_deref())?;
        if let Some(bound) = self
            .needs
            .max_prompt_tokens
            .filter(|bound| prompt_ids.len() > *bound as usize)
        {
            return match self.over_long {
                OverLong::Skip => Ok(Made::OverLong),
                OverLong::Error => Err(RowFault::new(
                    &codes::RL1004,
                    format!("a prompt of {} tokens is above the limit of {bound}", prompt_ids.len()),
                    Some("raise `max_prompt_tokens`, or set `over_long: skip` to leave such rows out"),
                )),
            };
        }
        let answer_ids = if self.needs.examples {
            self.answer_ids(raw.answer.as_deref())?
        } else {
            Vec::new()
        };
        if let Some(bound) = self.needs.max_example_tokens {
            let length = prompt_ids.len() + answer_ids.len();
            if length > bound as usize {
                return Err(RowFault::new(
                    &codes::RL1004,
                    format!("an example of {length} tokens does not fit into a pack of {bound}"),
                    Some("raise `max_tokens_per_pack` of the `sft_trainer`"),
                ));
            }
        }
        Ok(Made::Row(Box::new(Row {
            dataset: self.dataset.clone(),
            line: number,
            prompt,
            prompt_ids,
            answer_ids,
            data_source,
            ground_truth,
            columns,
        })))
    }

    /// Whether judgers can judge the row by its ground truth.
    fn judged(&self, data_source: &str, ground_truth: Option<&str>) -> Result<(), RowFault> {
        for (judger, Truth { source, form }) in &self.needs.truths {
            if source.as_ref().is_some_and(|source| source != data_source) {
                continue;
            }
            let Some(ground_truth) = ground_truth else {
                return Err(RowFault::new(
                    &codes::RL1003,
                    "the row has no `reward_model.ground_truth`, which a judger needs",
                    Some(
                        "add `\"reward_model\": {\"ground_truth\": \"...\"}` to the row, or make it of another column with \
                         `map: { ground_truth: ... }`",
                    ),
                ));
            };
            if !form.fits(ground_truth) {
                return Err(RowFault::new(
                    &codes::RL1014,
                    format!(
                        "the row's ground truth is {ground_truth:?}, and `{judger}` looks for {}",
                        form.name()
                    ),
                    Some("no answer could be right: correct it, make it with `map`, or judge by `exact`"),
                ));
            }
        }
        Ok(())
    }

    fn prompt_ids(
        &self,
        prompt: &[Message],
        tools: Option<&[Value]>,
        documents: Option<&[Value]>,
    ) -> Result<Vec<u32>, RowFault> {
        let chat = Chat {
            tools,
            documents,
            ..Chat::prompt(prompt)
        };
        let text = self
            .tokenizer
            .render(&chat)
            .map_err(|error| RowFault::new(&codes::RL1008, self.words(&error), None))?;
        if let Some(role) = self.roles.left_out(&self.tokenizer, &chat) {
            return Err(RowFault::new(
                &codes::RL1013,
                format!("the chat template leaves out messages of the role `{role}`"),
                Some("the model would not see them: use a role that the template knows, such as `user`"),
            ));
        }
        let ids = self.lossless(&text)?;
        if ids.is_empty() {
            return Err(RowFault::new(&codes::RL1002, "the row's prompt has no tokens", None));
        }
        Ok(ids)
    }

    fn answer_ids(&self, answer: Option<&str>) -> Result<Vec<u32>, RowFault> {
        let answer = answer.ok_or_else(|| {
            RowFault::new(
                &codes::RL1007,
                "the row has no `answer`, which an `sft_trainer` learns from",
                Some("add `\"answer\": \"...\"` to the row, or make it of another column with `map: { answer: ... }`"),
            )
        })?;
        if answer.is_empty() {
            return Err(RowFault::new(
                &codes::RL1007,
                "the row's `answer` is empty: there would be nothing but the stop token to learn",
                Some("give it an answer, or leave the row out"),
            ));
        }
        let mut ids = self.lossless(answer)?;
        ids.extend(self.tokenizer.stop_ids().first());
        Ok(ids)
    }

    fn lossless(&self, text: &str) -> Result<Vec<u32>, RowFault> {
        self.tokenizer
            .encode_lossless(text)
            .map_err(|error| RowFault::new(&codes::RL1006, self.words(&error), None))
    }

    /// The error, without a folder that is gone again.
    fn words(&self, error: &TextError) -> String {
        let text = error.to_string();
        let folder = text.find(" of `/").map(|at| at + 4).zip(self.scratch.as_ref());
        match folder.and_then(|(start, model)| Some((start, start + 1 + text[start + 1..].find('`')?, model))) {
            Some((start, end, model)) => format!("{}`{model}{}", &text[..start], &text[end..]),
            None => text,
        }
    }
}

fn json(line: &[u8]) -> Result<Value, RowFault> {
    let fault = |message: String| RowFault::new(&codes::RL1002, message, Some(ROW_HELP));
    let text = std::str::from_utf8(line).map_err(|error| {
        fault(format!(
            "the row is not UTF-8: its byte {} is not",
            error.valid_up_to() + 1
        ))
    })?;
    if !text.trim_start().starts_with('{') {
        return Err(fault("the row is not a JSON object".to_owned()));
    }
    serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        let text = text.split(" at line").next().unwrap_or_default();
        fault(format!("the row is not valid JSON: {text}"))
    })
}

fn fits(schema: &jsonschema::Validator, row: &Value, place: Range) -> Result<(), RowFault> {
    let Err(error) = schema.validate(row) else {
        return Ok(());
    };
    let at = error.instance_path().to_string();
    let at = if at.is_empty() {
        String::new()
    } else {
        format!(" at `{at}`")
    };
    Err(RowFault::new(
        &codes::RL1011,
        format!("the row does not fit `schema`{at}: {error}"),
        None,
    )
    .at(place))
}

fn messages(prompt: RawPrompt) -> Result<Vec<Message>, RowFault> {
    let messages = match prompt {
        RawPrompt::Text(content) => vec![Message::new("user", content)],
        RawPrompt::Messages(messages) if messages.is_empty() => {
            return Err(RowFault::new(
                &codes::RL1002,
                "the row's `prompt` has no messages",
                None,
            ));
        }
        RawPrompt::Messages(messages) => messages,
    };
    if messages.iter().all(is_silent) {
        return Err(RowFault::new(
            &codes::RL1002,
            "the row's `prompt` is empty: it asks nothing",
            None,
        ));
    }
    Ok(messages)
}

/// Whether a message has nothing but its role and no text: no parts of another kind, no calls.
fn is_silent(message: &Message) -> bool {
    let said = |(key, value): (&String, &Value)| match value {
        _ if key == "role" => false,
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(parts) => !parts.is_empty(),
        _ => true,
    };
    !message.entries().iter().any(said)
}

fn ground_truth(truth: Option<RawTruth>) -> Result<Option<String>, RowFault> {
    let is_number = matches!(truth, Some(RawTruth::Number(_)));
    let truth = truth.map(|truth| match truth {
        RawTruth::Text(text) => text,
        RawTruth::Integer(number) => number.to_string(),
        RawTruth::Number(number) => number.to_string(),
    });
    let rounded = |text: &String| text.parse::<f64>().is_ok_and(|number| number.abs() >= 2_f64.powi(53));
    match truth.as_ref().filter(|text| is_number && rounded(text)) {
        Some(rounded) => Err(RowFault::new(
            &codes::RL1002,
            format!("the row's ground truth is a number too large to be kept exactly: it would be {rounded}"),
            Some("write it as a text, in quotes"),
        )),
        None => Ok(truth),
    }
}
