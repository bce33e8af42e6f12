//! Rows of a file, each checked and tokenized.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rlpipe_core::data::{Message, Row};
use rlpipe_core::diagnostic::{Code, Diagnostic, Diagnostics, codes};
use rlpipe_core::document::{Format, Origin, Range, Source, SourceId, Sources};
use rlpipe_core::kind::OverLong;
use rlpipe_text::{Chat, TextError, Tokenizer};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::Needs;
use crate::compile::pipeline::Node;
use crate::hash::hex;

/// What is wrong with a row, and what to do.
type RowFault = (&'static Code, String, Option<String>);

/// Faulty rows of a file that are shown one by one, no two with the same words; the rest is counted.
const SHOWN: usize = 5;
/// What a row is.
const ROW_HELP: &str = "a row is a JSON object on one line: `{\"prompt\": \"...\"}` and what else is needed of it";

/// A row as it is in the file. Other keys are left alone.
#[derive(Deserialize)]
#[serde(expecting = "a JSON object with a `prompt`")]
struct RawRow {
    prompt: RawPrompt,
    /// JSON schemas of functions, for the chat template.
    #[serde(default)]
    tools: Option<Vec<Value>>,
    /// Documents, for the chat template.
    #[serde(default)]
    documents: Option<Vec<Value>>,
    #[serde(default)]
    answer: Option<String>,
    #[serde(default)]
    data_source: Option<String>,
    #[serde(default)]
    reward_model: Option<RawRewardModel>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`prompt` must be a text, or a list of messages with `role` and `content`"
)]
enum RawPrompt {
    Text(String),
    Messages(Vec<Message>),
}

#[derive(Deserialize)]
#[serde(expecting = "`reward_model` must be an object with a `ground_truth`")]
struct RawRewardModel {
    #[serde(default)]
    ground_truth: Option<RawTruth>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`reward_model.ground_truth` must be a text or a number")]
enum RawTruth {
    Text(String),
    Integer(i64),
    Number(f64),
}

/// Faulty rows with the same code.
#[derive(Default)]
pub struct Faults {
    /// Those that are shown.
    shown: Vec<Diagnostic>,
    /// How many are not.
    hidden: usize,
}

pub struct Reader<'a> {
    pub sampler: &'a Node,
    /// Where the sampler names the file.
    pub place: Range,
    pub needs: &'a Needs,
    pub over_long: OverLong,
    pub tokenizer: &'a Tokenizer,
    /// The file, once a row of it is faulty.
    pub source: Option<SourceId>,
    /// Faulty rows by code.
    pub faults: BTreeMap<&'static str, Faults>,
    /// The model's name, where its folder was only made to read the tokenizer from.
    pub scratch: Option<&'a str>,
    pub skipped: u64,
}

impl Reader<'_> {
    /// The rows that pass.
    pub fn read(
        &mut self,
        path: &Path,
        sample_ratio: f64,
        sources: &mut Sources,
        diagnostics: &mut Diagnostics,
        fingerprints: &mut BTreeMap<String, String>,
    ) -> Vec<Arc<Row>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                // RL11 may have said already that the file is not there.
                let told = |found: &Diagnostic| found.code == &codes::RL1102 && found.primary.range == self.place;
                if !diagnostics.iter().any(told) {
                    let message = format!("cannot read `{}`: {error}", path.display());
                    diagnostics.push(
                        Diagnostic::error(&codes::RL1001, self.place, message)
                            .label_text("not a data set")
                            .note("a data set is a JSONL file: UTF-8, a row on each line"),
                    );
                }
                return Vec::new();
            }
        };
        let text = text.trim_start_matches('\u{feff}');
        let lines: Vec<(usize, &str)> = lines(text).filter(|(_, line)| !line.trim().is_empty()).collect();
        let used = ((lines.len() as f64 * sample_ratio).ceil() as usize).min(lines.len());
        let mut rows = Vec::new();
        let mut number = 0;
        let mut last_start = 0;
        for (start, line) in &lines[..used] {
            number += text[last_start..*start].bytes().filter(|byte| *byte == b'\n').count() as u64;
            last_start = *start;
            match self.row(line, number + 1) {
                Ok(Some(row)) => rows.push(Arc::new(row)),
                Ok(None) => self.skipped += 1,
                Err((code, message, note)) => {
                    let faults = self.faults.entry(code.id).or_default();
                    if faults.shown.len() == SHOWN || faults.shown.iter().any(|shown| shown.message == message) {
                        faults.hidden += 1;
                        continue;
                    }
                    let id = *self.source.get_or_insert_with(|| {
                        sources.add(Source {
                            name: shown_path(path, sources),
                            text: text.into(),
                            format: Format::BuiltIn,
                            folder: None,
                        })
                    });
                    let range = Range::new(id, *start as u32, (start + line.trim_end().len()) as u32);
                    let diagnostic = Diagnostic::error(code, range, message)
                        .label(self.place, format!("`{}` reads this file", self.sampler.name));
                    faults.shown.push(match note {
                        Some(note) => diagnostic.note(note),
                        None => diagnostic,
                    });
                }
            }
        }
        fingerprints.insert(self.sampler.name.clone(), fingerprint(text, &rows));
        self.conclude(path, used, rows.len(), diagnostics);
        for mut faults in std::mem::take(&mut self.faults).into_values() {
            if let Some(last) = faults.shown.last_mut().filter(|_| faults.hidden > 0) {
                let have = if faults.hidden == 1 { "row has" } else { "rows have" };
                last.notes.push(format!("{} more {have} such a fault", faults.hidden));
            }
            diagnostics.extend(faults.shown);
        }
        rows
    }

    /// What is to be said of the file as a whole.
    fn conclude(&self, path: &Path, used: usize, kept: usize, diagnostics: &mut Diagnostics) {
        if kept == 0 && self.faults.is_empty() {
            let message = match used {
                0 => format!("`{}` has no rows", path.display()),
                _ => format!(
                    "none of the {used} rows of `{}` has a prompt that is short enough",
                    path.display()
                ),
            };
            let mut diagnostic = Diagnostic::error(&codes::RL1005, self.place, message).label_text("nothing to draw");
            if let Some(bound) = self.needs.max_prompt_tokens.filter(|_| used > 0) {
                let place = self.sampler.range_of(&["max_prompt_tokens"]);
                diagnostic = diagnostic.label(place, format!("a prompt may have {bound} tokens"));
            }
            diagnostics.push(diagnostic);
        }
    }

    /// A row, nothing where it is left out, or what is wrong with it and what to do.
    fn row(&self, line: &str, number: u64) -> Result<Option<Row>, RowFault> {
        if !line.trim_start().starts_with('{') {
            return Err((
                &codes::RL1002,
                "the row is not a JSON object".to_owned(),
                Some(ROW_HELP.to_owned()),
            ));
        }
        let columns: Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
        let raw: RawRow = serde_json::from_str(line).map_err(|error| {
            let text = error.to_string();
            let text = text.split(" at line").next().unwrap_or_default();
            let what = if error.is_data() {
                "is not as it must be"
            } else {
                "is not valid JSON"
            };
            (
                &codes::RL1002,
                format!("the row {what}: {text}"),
                Some(ROW_HELP.to_owned()),
            )
        })?;
        let prompt = match raw.prompt {
            RawPrompt::Text(content) => vec![Message::new("user", content)],
            RawPrompt::Messages(messages) if messages.is_empty() => {
                return Err((&codes::RL1002, "the row's `prompt` has no messages".to_owned(), None));
            }
            RawPrompt::Messages(messages) => messages,
        };
        let truth = raw.reward_model.and_then(|reward| reward.ground_truth);
        let is_number = matches!(truth, Some(RawTruth::Number(_)));
        let ground_truth = truth.map(|truth| match truth {
            RawTruth::Text(text) => text,
            RawTruth::Integer(number) => number.to_string(),
            RawTruth::Number(number) => number.to_string(),
        });
        let exact = |text: &String| text.parse::<f64>().is_ok_and(|number| number.abs() >= 2_f64.powi(53));
        if let Some(rounded) = ground_truth.as_ref().filter(|text| is_number && exact(text)) {
            return Err((
                &codes::RL1002,
                format!("the row's ground truth is a number too large to be kept exactly: it would be {rounded}"),
                Some("write it as a text, in quotes".to_owned()),
            ));
        }
        if self.needs.ground_truth && ground_truth.is_none() {
            return Err((
                &codes::RL1003,
                "the row has no `reward_model.ground_truth`, which a judger needs".to_owned(),
                Some("add `\"reward_model\": {\"ground_truth\": \"...\"}` to the row".to_owned()),
            ));
        }
        let prompt_ids = self.prompt_ids(&prompt, raw.tools, raw.documents)?;
        if let Some(bound) = self
            .needs
            .max_prompt_tokens
            .filter(|bound| prompt_ids.len() > *bound as usize)
        {
            return match self.over_long {
                OverLong::Skip => Ok(None),
                OverLong::Error => Err((
                    &codes::RL1004,
                    format!("a prompt of {} tokens is above the limit of {bound}", prompt_ids.len()),
                    Some("raise `max_prompt_tokens`, or set `over_long: skip` to leave such rows out".to_owned()),
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
                return Err((
                    &codes::RL1004,
                    format!("an example of {length} tokens does not fit into a pack of {bound}"),
                    Some("raise `max_tokens_per_pack` of the `sft_trainer`".to_owned()),
                ));
            }
        }
        Ok(Some(Row {
            dataset: self.sampler.name.clone(),
            columns,
            line: number,
            prompt,
            prompt_ids,
            answer_ids,
            data_source: raw.data_source.unwrap_or_default(),
            ground_truth,
        }))
    }

    fn prompt_ids(
        &self,
        prompt: &[Message],
        tools: Option<Vec<Value>>,
        documents: Option<Vec<Value>>,
    ) -> Result<Vec<u32>, RowFault> {
        let chat = Chat {
            tools: tools.as_deref(),
            documents: documents.as_deref(),
            ..Chat::prompt(prompt)
        };
        let text = self
            .tokenizer
            .render(&chat)
            .map_err(|error| (&codes::RL1008, self.words(&error), None))?;
        let ids = self.lossless(&text)?;
        if ids.is_empty() {
            return Err((&codes::RL1002, "the row's prompt has no tokens".to_owned(), None));
        }
        Ok(ids)
    }

    fn answer_ids(&self, answer: Option<&str>) -> Result<Vec<u32>, RowFault> {
        let answer = answer.ok_or_else(|| {
            (
                &codes::RL1007,
                "the row has no `answer`, which an `sft_trainer` learns from".to_owned(),
                Some("add `\"answer\": \"...\"` to the row".to_owned()),
            )
        })?;
        if answer.is_empty() {
            return Err((
                &codes::RL1007,
                "the row's `answer` is empty: there would be nothing but the stop token to learn".to_owned(),
                Some("give it an answer, or leave the row out".to_owned()),
            ));
        }
        let mut ids = self.lossless(answer)?;
        ids.extend(self.tokenizer.stop_ids().first());
        Ok(ids)
    }

    fn lossless(&self, text: &str) -> Result<Vec<u32>, RowFault> {
        self.tokenizer
            .encode_lossless(text)
            .map_err(|error| (&codes::RL1006, self.words(&error), None))
    }

    /// The error, without a folder that is gone again.
    fn words(&self, error: &TextError) -> String {
        let text = error.to_string();
        let folder = text.find(" of `/").map(|at| at + 4).zip(self.scratch);
        match folder.and_then(|(start, model)| Some((start, start + 1 + text[start + 1..].find('`')?, model))) {
            Some((start, end, model)) => format!("{}`{model}{}", &text[..start], &text[end..]),
            None => text,
        }
    }
}

/// The path as the user would write it: from the working folder, where it lies below.
fn shown_path(path: &Path, sources: &Sources) -> String {
    let (Origin::Working(folder) | Origin::File(folder)) = sources.working();
    path.strip_prefix(&folder).unwrap_or(path).display().to_string()
}

/// Of the file and of what was made of it: a template or a tokenizer that changed changes the rows too.
fn fingerprint(text: &str, rows: &[Arc<Row>]) -> String {
    let mut digest = Sha256::new_with_prefix(text.as_bytes());
    for row in rows {
        for ids in [&row.prompt_ids, &row.answer_ids] {
            digest.update((ids.len() as u64).to_le_bytes());
            ids.iter().for_each(|id| digest.update(id.to_le_bytes()));
        }
    }
    hex(&digest.finalize())
}

/// Lines with the byte at which each starts.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        (at, line)
    })
}
