//! RL10: the rows of data sets, through the model's template and tokenizer.

mod dataset;
mod files;
mod index;
mod models;
mod needs;
mod parquet;
mod pass;
mod raw;
mod recipe;
mod roles;
mod stored;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use rlpipe_core::data::Seed;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Sources;
use rlpipe_core::kind::Role;
use rlpipe_core::services::Rows;
use rlpipe_text::{ChatTemplateChoice, Tokenizer};

use super::pipeline::Pipeline;
use crate::hash::sha256;
use dataset::Reading;
pub(super) use models::init_spec;
use models::scratch;
pub use models::{init_model, missing_files, model_folder};
use needs::needs;
pub use raw::row_schema;
use stored::StoredRows;

/// What the data sets hold.
#[derive(Default)]
pub struct Data {
    /// Rows of each sampler.
    pub rows: BTreeMap<String, Arc<dyn Rows>>,
    /// Tokenizers of each model.
    pub tokenizers: BTreeMap<String, Arc<Tokenizer>>,
    /// SHA-256 of the `config.json` of each model that has a folder.
    pub configurations: BTreeMap<String, String>,
    /// SHA-256 of each data set, by the sampler's name, or `SAMPLER.NAME` for those of `datasets`.
    pub fingerprints: BTreeMap<String, String>,
    /// What became of the rows of each data set.
    pub tallies: Vec<Tally>,
    /// What programs that judge say of themselves, once they were tried with a row.
    pub programs: BTreeMap<String, String>,
}

/// What became of the rows of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The sampler.
    pub sampler: String,
    /// The key in `datasets`; none where there is one data set.
    pub dataset: Option<String>,
    /// Rows in the files.
    pub read: u64,
    /// Left out because `where` does not hold.
    pub unwanted: u64,
    /// Left out because the prompt is too long.
    pub over_long: u64,
    /// Drawn in an epoch, after `sample_ratio`.
    pub used: u64,
    /// Rows that were in memory at once, at most.
    pub most_held: u64,
    /// Tokens of the longest rows that pass.
    pub longest: Longest,
}

/// Tokens of the longest rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Longest {
    /// Of a prompt.
    pub prompt: u64,
    /// Of a prompt and its answer.
    pub example: u64,
}

impl Longest {
    /// Of these rows and those.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.max(other.prompt),
            example: self.example.max(other.example),
        }
    }

    fn of(row: &rlpipe_core::data::Row) -> Self {
        let prompt = row.prompt_ids.len() as u64;
        Self {
            prompt,
            example: prompt + row.answer_ids.len() as u64,
        }
    }
}

/// Is told how far reading is: the data set, bytes done, and bytes in all.
pub type OnProgress<'a> = &'a dyn Fn(&str, u64, u64);

/// Reads the data of every live sampler.
pub fn load(
    pipeline: &Pipeline,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
    progress: OnProgress<'_>,
) -> Data {
    let mut data = Data::default();
    for (index, sampler, contract) in pipeline.live() {
        let Role::Sampler {
            datasets,
            shuffle,
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
        if !template::has_template(pipeline, &tokenizer, &needs.model, diagnostics) {
            continue;
        }
        let reading = Reading {
            pipeline,
            sampler,
            needs: &needs,
            over_long: *over_long,
            shuffle: *shuffle,
            tokenizer: &tokenizer,
            scratch: is_scratch(pipeline, &needs.model).then_some(needs.model.as_str()),
            seed: Seed::run(pipeline.run.as_ref().map_or(0, |run| run.seed)),
            progress,
        };
        let (mut parts, mut data_sources) = (Vec::new(), BTreeSet::new());
        for dataset in datasets {
            let Some(read) = reading.read(dataset, sources, diagnostics) else {
                continue;
            };
            let name = match &dataset.name {
                Some(name) => format!("{}.{name}", sampler.name),
                None => sampler.name.clone(),
            };
            data.fingerprints.insert(name, read.fingerprint);
            data.tallies.push(read.tally);
            data_sources.extend(read.sources);
            parts.push(read.part);
        }
        // A sampler with a data set that cannot be read has no rows: that was said.
        if !parts.is_empty() && parts.len() == datasets.len() {
            let rows = StoredRows {
                parts,
                data_sources: data_sources.into_iter().take(pass::MOST_SOURCES).collect(),
            };
            data.rows.insert(sampler.name.clone(), Arc::new(rows));
        }
    }
    template::check_stop_strings(pipeline, &data, diagnostics);
    small(pipeline, &data, diagnostics);
    data
}

/// Warns where a step needs more prompts than there are: it would have some of them twice.
fn small(pipeline: &Pipeline, data: &Data, diagnostics: &mut Diagnostics) {
    for (index, buffer, contract) in pipeline.live() {
        let Role::Buffer { prompts_per_step, .. } = contract.role else {
            continue;
        };
        let samplers: BTreeSet<usize> = pipeline
            .upstream(index)
            .into_iter()
            .filter_map(|up| Some(pipeline.nodes[up].input("prompts")?.node))
            .collect();
        let names: Vec<&str> = samplers
            .iter()
            .map(|index| pipeline.nodes[*index].name.as_str())
            .collect();
        let rows: Option<Vec<u64>> = names.iter().map(|name| Some(data.rows.get(*name)?.count())).collect();
        let (Some(rows), Some(first)) = (rows, samplers.first()) else {
            continue;
        };
        let rows = rows.into_iter().fold(0, u64::saturating_add);
        if rows < u64::from(prompts_per_step) {
            let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL1012,
                    buffer.range_of(&["prompts_per_step"]),
                    format!(
                        "a step takes {prompts_per_step} prompts, and {} {} {rows}",
                        quoted.join(" and "),
                        if names.len() == 1 { "has" } else { "have" }
                    ),
                )
                .label_text("some prompts come twice in each step")
                .label(pipeline.nodes[*first].key_range, "what there is to draw")
                .note("lower `prompts_per_step`, or give it more data"),
            );
        }
    }
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
    let rows = data.rows.get(&pipeline.nodes[*sampler].name)?.count();
    Some((rows.saturating_mul(epochs) / prompts_per_step).max(1))
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
    let choice = config
        .chat_template
        .as_ref()
        .map_or_else(ChatTemplateChoice::default, |template| ChatTemplateChoice {
            file: template.file.as_ref().map(|file| file.as_path().to_owned()),
            variables: template.variables.clone(),
        });
    // A file that is not there is RL11's to report.
    if choice.file.as_ref().is_some_and(|file| !file.is_file()) {
        return None;
    }
    let loaded = match &config.init {
        Some(init) => scratch(init, &choice),
        None => {
            let folder = model_folder(config, PathBuf::new(), &pipeline.hub).ok()?;
            // A folder that is not there is RL11's to report.
            if !folder.is_dir() {
                return None;
            }
            // A file that is not there is RL11's to report.
            if let Ok(configuration) = std::fs::read(folder.join("config.json")) {
                data.configurations.insert(model.to_owned(), sha256(&configuration));
            }
            Tokenizer::load_with(&folder, &choice).map_err(|error| error.to_string())
        }
    };
    match loaded {
        Ok(tokenizer) => {
            let tokenizer = Arc::new(tokenizer);
            data.tokenizers.insert(model.to_owned(), tokenizer.clone());
            Some(tokenizer)
        }
        Err(error) => {
            let key = match (&config.init, &config.hub) {
                (Some(_), _) => "init",
                (None, Some(_)) => "hub",
                (None, None) => "path",
            };
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

#[cfg(test)]
mod tests;
