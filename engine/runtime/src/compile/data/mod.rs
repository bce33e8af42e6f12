//! RL10: the rows of data sets, through the model's template and tokenizer.

mod models;
mod rows;
mod template;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::{Range, Sources};
use rlpipe_core::kind::{PortType, Role, Target};
use rlpipe_core::services::Rows;
use rlpipe_text::{ChatTemplateChoice, Tokenizer};

use super::pipeline::{Node, Pipeline};
use models::scratch;
pub use models::{init_model, missing_files, model_folder};
use rows::Reader;

/// What the data sets hold.
#[derive(Default)]
pub struct Data {
    /// Rows of each sampler, tokenized.
    pub rows: BTreeMap<String, Arc<dyn Rows>>,
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
        if !template::has_template(pipeline, &tokenizer, &needs.model, diagnostics) {
            continue;
        }
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
        let mut lint = template::Lint::new(pipeline, &tokenizer, &needs.model, needs.examples, place);
        rows.iter().for_each(|row| lint.see(row));
        lint.conclude(diagnostics);
        data.skipped.insert(sampler.name.clone(), reader.skipped);
        data.rows.insert(sampler.name.clone(), Arc::new(rows));
    }
    template::check_stop_strings(pipeline, &data, diagnostics);
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
    let rows = data.rows.get(&pipeline.nodes[*sampler].name)?.count();
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
    node.contract.as_ref()?.used(Target::Model).map(str::to_owned)
}

fn feeds_a_judger(pipeline: &Pipeline, sampler: usize) -> bool {
    pipeline.live().any(|(index, _, contract)| {
        matches!(
            contract.role,
            Role::Judger {
                needs_ground_truth: true,
                ..
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
    let choice = config
        .chat_template
        .as_ref()
        .map_or_else(ChatTemplateChoice::default, |template| ChatTemplateChoice {
            file: template.file.as_ref().map(|file| file.as_path().to_owned()),
            variables: template.variables.clone(),
        });
    let loaded = match &config.init {
        Some(init) => scratch(init, &choice),
        None => {
            let folder = model_folder(config, PathBuf::new(), &pipeline.hub).ok()?;
            // A folder that is not there is RL11's to report.
            if !folder.is_dir() {
                return None;
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
