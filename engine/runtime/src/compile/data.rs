//! RL10: the rows of data sets, through the model's template and tokenizer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlpipe_core::data::{Message, Row};
use rlpipe_core::diagnostic::{Code, Diagnostic, Diagnostics, codes};
use rlpipe_core::document::{Format, Origin, Range, Source, SourceId, Sources};
use rlpipe_core::kind::{OverLong, PortType, Role, Target};
use rlpipe_text::{InitSpec, TextError, Tokenizer, init_folder};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::config::{InitConfig, InitTokenizer, ModelConfig};
use super::pipeline::{Node, Pipeline};
use crate::plan::hex;

/// Faulty rows of a file that are shown one by one, no two with the same words; the rest is counted.
const SHOWN: usize = 5;

/// What the data sets hold.
#[derive(Default)]
pub struct Data {
    /// Rows of each sampler, tokenized.
    pub rows: BTreeMap<String, Arc<Vec<Arc<Row>>>>,
    /// Tokenizers of each model.
    pub tokenizers: BTreeMap<String, Arc<Tokenizer>>,
    /// SHA-256 of each sampler's file.
    pub fingerprints: BTreeMap<String, String>,
    /// Rows left out because their prompt is too long.
    pub skipped: BTreeMap<String, u64>,
}

/// Reads the data of every live sampler.
pub fn load(pipeline: &Pipeline, sources: &mut Sources, diagnostics: &mut Diagnostics) -> Data {
    let mut data = Data::default();
    for (index, sampler, contract) in pipeline.live() {
        let Role::Sampler {
            dataset,
            max_prompt_tokens,
            over_long,
            ..
        } = &contract.role
        else {
            continue;
        };
        let Some(needs) = needs(pipeline, index, *max_prompt_tokens, diagnostics) else {
            continue;
        };
        let Some(tokenizer) = tokenizer(pipeline, &needs.model, &mut data, diagnostics) else {
            continue;
        };
        let place = sampler.range_of(&["dataset", "path"]);
        let mut reader = Reader {
            sampler,
            place,
            needs: &needs,
            over_long: *over_long,
            tokenizer: &tokenizer,
            source: None,
            faults: BTreeMap::new(),
            scratch: is_scratch(pipeline, &needs.model).then_some(needs.model.as_str()),
            skipped: 0,
        };
        let rows = reader.read(
            &dataset.path,
            dataset.sample_ratio,
            sources,
            diagnostics,
            &mut data.fingerprints,
        );
        data.skipped.insert(sampler.name.clone(), reader.skipped);
        data.rows.insert(sampler.name.clone(), Arc::new(rows));
    }
    data
}

/// Train steps of `epochs` passes over the training prompts; none where there is not exactly one training sampler.
pub fn steps_of_epochs(pipeline: &Pipeline, data: &Data, epochs: u64) -> Option<u64> {
    let (trainer, _, _) = pipeline
        .live()
        .find(|(_, _, contract)| matches!(contract.role, Role::Trainer { .. }))?;
    let upstream = pipeline.upstream(trainer);
    let prompts_per_step = upstream
        .iter()
        .find_map(|index| match pipeline.nodes[*index].contract.as_ref()?.role {
            Role::Buffer { prompts_per_step, .. } => Some(u64::from(prompts_per_step)),
            _ => None,
        })?;
    let samplers: Vec<usize> = upstream
        .iter()
        .filter_map(|index| Some(pipeline.nodes[*index].input("prompts")?.node))
        .collect();
    let [sampler] = samplers.as_slice() else { return None };
    let rows = data.rows.get(&pipeline.nodes[*sampler].name)?.len() as u64;
    Some((rows * epochs / prompts_per_step).max(1))
}

/// What those who take from a sampler want of its rows.
struct Needs {
    /// The model whose tokenizer reads them.
    model: String,
    ground_truth: bool,
    prompts: bool,
    examples: bool,
    max_prompt_tokens: Option<u32>,
    /// Bound on prompt and answer.
    max_example_tokens: Option<u32>,
}

fn needs(pipeline: &Pipeline, sampler: usize, declared: Option<u32>, diagnostics: &mut Diagnostics) -> Option<Needs> {
    let mut needs = Needs {
        model: String::new(),
        ground_truth: false,
        prompts: false,
        examples: false,
        max_prompt_tokens: declared,
        max_example_tokens: None,
    };
    let mut model: Option<(String, Range)> = None;
    for (_, node, contract) in pipeline.live() {
        for endpoint in node
            .inputs
            .values()
            .flatten()
            .filter(|endpoint| endpoint.node == sampler)
        {
            let reads = match (&contract.role, endpoint.port_type) {
                (Role::AgentLoop { max_new_tokens, .. }, PortType::Prompts) => {
                    let engine = &pipeline.nodes[node.input("engine")?.node];
                    needs.prompts = true;
                    if let Some(Role::Engine { max_context_tokens, .. }) = engine.contract.as_ref().map(|c| &c.role) {
                        let room = max_context_tokens.saturating_sub(*max_new_tokens);
                        needs.max_prompt_tokens = Some(needs.max_prompt_tokens.map_or(room, |bound| bound.min(room)));
                    }
                    model_of(engine)?
                }
                (Role::SftTrainer { max_tokens_per_pack }, PortType::Examples) => {
                    needs.examples = true;
                    needs.max_example_tokens = Some(*max_tokens_per_pack);
                    model_of(node)?
                }
                _ => continue,
            };
            match &model {
                Some((known, range)) if *known != reads => diagnostics.push(
                    Diagnostic::error(
                        &codes::RL0316,
                        endpoint.range,
                        format!(
                            "`{}` feeds the models `{known}` and `{reads}`",
                            pipeline.nodes[sampler].name
                        ),
                    )
                    .label_text("for one of them")
                    .label(*range, "for the other")
                    .note("their tokenizers differ: give each its own sampler of the same data set"),
                ),
                _ => model = Some((reads, endpoint.range)),
            }
        }
    }
    needs.model = model?.0;
    needs.ground_truth = needs.prompts && feeds_a_judger(pipeline, sampler);
    Some(needs)
}

fn model_of(node: &Node) -> Option<String> {
    let uses = node.contract.iter().flat_map(|contract| &contract.uses);
    uses.into_iter()
        .find(|used| used.target == Target::Model)
        .map(|used| used.name.clone())
}

fn feeds_a_judger(pipeline: &Pipeline, sampler: usize) -> bool {
    pipeline.live().any(|(index, _, contract)| {
        matches!(
            contract.role,
            Role::Judger {
                needs_ground_truth: true
            }
        ) && pipeline.upstream(index).contains(&sampler)
    })
}

fn tokenizer(
    pipeline: &Pipeline,
    model: &str,
    data: &mut Data,
    diagnostics: &mut Diagnostics,
) -> Option<Arc<Tokenizer>> {
    if let Some(known) = data.tokenizers.get(model) {
        return Some(known.clone());
    }
    let section = pipeline.models.get(model)?;
    let config = section.config.as_ref()?;
    let loaded = match &config.init {
        Some(init) => scratch(init),
        None => {
            let path = config.path.as_ref()?.as_path();
            // A folder that is not there is RL11's to report.
            if !path.is_dir() {
                return None;
            }
            Tokenizer::load(path).map_err(|error| error.to_string())
        }
    };
    match loaded {
        Ok(tokenizer) => {
            let tokenizer = Arc::new(tokenizer);
            data.tokenizers.insert(model.to_owned(), tokenizer.clone());
            Some(tokenizer)
        }
        Err(error) => {
            let key = if config.init.is_some() { "init" } else { "path" };
            let range = pipeline.range_of(&["models", model, key]).unwrap_or(section.key_range);
            diagnostics.push(
                Diagnostic::error(&codes::RL1103, range, format!("the model `{model}`: {error}"))
                    .label_text("cannot be used"),
            );
            None
        }
    }
}

fn is_scratch(pipeline: &Pipeline, model: &str) -> bool {
    pipeline
        .models
        .get(model)
        .and_then(|model| model.config.as_ref())
        .is_some_and(|config| config.init.is_some())
}

/// The tokenizer of a model from nothing, by way of a folder that is gone afterwards.
fn scratch(init: &InitConfig) -> Result<Tokenizer, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder can be made: {error}"))?;
    let model = folder.path().join("model");
    init_folder(&model, &init_spec(init)).map_err(|error| error.to_string())?;
    Tokenizer::load(&model).map_err(|error| error.to_string())
}

/// A model from nothing, in the terms of the text crate.
fn init_spec(init: &InitConfig) -> InitSpec {
    let tokenizer = match &init.tokenizer.0 {
        InitTokenizer::Characters(characters) => rlpipe_text::InitTokenizer::Characters(characters.clone()),
        InitTokenizer::Bytes => rlpipe_text::InitTokenizer::Bytes,
    };
    InitSpec {
        hidden_size: init.hidden_size.get() as usize,
        layers: init.layers.get() as usize,
        heads: init.heads.get() as usize,
        key_value_heads: init.key_value_heads.unwrap_or(init.heads).get() as usize,
        intermediate_size: init.intermediate_size.get() as usize,
        max_position_embeddings: init.max_position_embeddings.get() as usize,
        rope_theta: init.rope_theta.get(),
        rms_norm_eps: init.rms_norm_eps.get(),
        tied: init.tied_embeddings,
        tokenizer,
    }
}

/// Writes the folder of a model from nothing, unless it is there already.
pub fn init_model(folder: &Path, init: &InitConfig) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    let partial = folder.with_extension("partial");
    crate::run::fresh_folder(&partial).map_err(|error| error.to_string())?;
    init_folder(&partial, &init_spec(init)).map_err(|error| error.to_string())?;
    crate::run::publish_folder(&partial, folder).map_err(|error| error.to_string())
}

/// Where a model's folder is: its path, or the folder in which a model from nothing is to be written.
pub fn model_folder(config: &ModelConfig, init_folder: PathBuf) -> PathBuf {
    config
        .path
        .as_ref()
        .map_or(init_folder, |path| path.as_path().to_owned())
}

/// A row as it is in the file. Other keys are left alone.
#[derive(Deserialize)]
struct RawRow {
    prompt: RawPrompt,
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
struct Faults {
    /// Those that are shown.
    shown: Vec<Diagnostic>,
    /// How many are not.
    hidden: usize,
}

struct Reader<'a> {
    sampler: &'a Node,
    /// Where the sampler names the file.
    place: Range,
    needs: &'a Needs,
    over_long: OverLong,
    tokenizer: &'a Tokenizer,
    /// The file, once a row of it is faulty.
    source: Option<SourceId>,
    /// Faulty rows by code.
    faults: BTreeMap<&'static str, Faults>,
    /// The model's name, where its folder was only made to read the tokenizer from.
    scratch: Option<&'a str>,
    skipped: u64,
}

impl Reader<'_> {
    fn read(
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
                // A file that is not there is RL11's to report.
                if error.kind() != std::io::ErrorKind::NotFound {
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
        fingerprints.insert(self.sampler.name.clone(), hex(&Sha256::digest(text.as_bytes())));
        let lines: Vec<(usize, &str)> = lines(&text).filter(|(_, line)| !line.trim().is_empty()).collect();
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
                            text: text.as_str().into(),
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
    fn row(&self, line: &str, number: u64) -> Result<Option<Row>, (&'static Code, String, Option<String>)> {
        let raw: RawRow = serde_json::from_str(line).map_err(|error| {
            let text = error.to_string();
            let text = text.split(" at line").next().unwrap_or_default();
            let what = if error.is_data() {
                "is not as it must be"
            } else {
                "is not valid JSON"
            };
            let note = "a row is a JSON object on one line: `{\"prompt\": \"...\"}` and what else is needed of it";
            (&codes::RL1002, format!("the row {what}: {text}"), Some(note.to_owned()))
        })?;
        let prompt = match raw.prompt {
            RawPrompt::Text(content) => vec![Message {
                role: "user".to_owned(),
                content,
            }],
            RawPrompt::Messages(messages) if messages.is_empty() => {
                return Err((&codes::RL1002, "the row's `prompt` has no messages".to_owned(), None));
            }
            RawPrompt::Messages(messages) => messages,
        };
        let ground_truth = raw
            .reward_model
            .and_then(|reward| reward.ground_truth)
            .map(|truth| match truth {
                RawTruth::Text(text) => text,
                RawTruth::Integer(number) => number.to_string(),
                RawTruth::Number(number) => number.to_string(),
            });
        if self.needs.ground_truth && ground_truth.is_none() {
            return Err((
                &codes::RL1003,
                "the row has no `reward_model.ground_truth`, which a judger needs".to_owned(),
                Some("add `\"reward_model\": {\"ground_truth\": \"...\"}` to the row".to_owned()),
            ));
        }
        let prompt_ids = self.prompt_ids(&prompt)?;
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
            line: number,
            prompt,
            prompt_ids,
            answer_ids,
            data_source: raw.data_source.unwrap_or_default(),
            ground_truth,
        }))
    }

    fn prompt_ids(&self, prompt: &[Message]) -> Result<Vec<u32>, (&'static Code, String, Option<String>)> {
        let messages: Vec<rlpipe_text::Message> = prompt
            .iter()
            .map(|message| rlpipe_text::Message::new(message.role.as_str(), message.content.as_str()))
            .collect();
        let text = self
            .tokenizer
            .render(&messages, true)
            .map_err(|error| (&codes::RL1008, self.words(&error), None))?;
        let ids = self.lossless(&text)?;
        if ids.is_empty() {
            return Err((&codes::RL1002, "the row's prompt has no tokens".to_owned(), None));
        }
        Ok(ids)
    }

    fn answer_ids(&self, answer: Option<&str>) -> Result<Vec<u32>, (&'static Code, String, Option<String>)> {
        let answer = answer.ok_or_else(|| {
            (
                &codes::RL1007,
                "the row has no `answer`, which an `sft_trainer` learns from".to_owned(),
                Some("add `\"answer\": \"...\"` to the row".to_owned()),
            )
        })?;
        let mut ids = self.lossless(answer)?;
        ids.extend(self.tokenizer.stop_ids().first());
        Ok(ids)
    }

    fn lossless(&self, text: &str) -> Result<Vec<u32>, (&'static Code, String, Option<String>)> {
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

/// Lines with the byte at which each starts.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        (at, line)
    })
}
