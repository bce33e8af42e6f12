//! Whether model folders are there and whole, and hold models that this version runs.

use std::path::Path;

use rlpipe_core::diagnostic::{Code, Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::{Role, Target};
use rlpipe_model::{Part, check_folder, read_config};

use super::super::config::{ModelConfig, VarKind};
use super::super::data::missing_files;
use super::super::pipeline::{Pipeline, Section};
use super::super::read::quoted;
use super::super::shown::shown_path;
use super::was_told;

/// Looks at every model that is used.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    absent(pipeline, diagnostics);
    for (name, model, config) in used(pipeline) {
        if let Some(init) = &config.init {
            let reads = i64::from(init.max_position_embeddings.get());
            let place = pipeline.range_of(&["models", name, "init", "max_position_embeddings"]);
            contexts(pipeline, name, reads, place, "", diagnostics);
        }
        let at = |key: &str| pipeline.range_of(&["models", name, key]).unwrap_or(model.key_range);
        if let Some(folder) = config
            .path
            .as_ref()
            .map(|path| path.as_path())
            .filter(|path| path.is_dir())
        {
            let way_out =
                "copy them from where the model was released: rlpipe reads Hugging Face folders with safetensors";
            model_in(pipeline, folder, name, at("path"), way_out, diagnostics);
        }
        if let Some(snapshot) = config.hub.as_ref().and_then(|hub| pipeline.hub.find(hub)) {
            let way_out = "`rlpipe download` with this pipeline fetches what is missing";
            model_in(pipeline, &snapshot.folder, name, at("hub"), way_out, diagnostics);
        }
    }
}

/// Looks for what is not there at all: folders, snapshots and chat templates of the models that are used.
pub fn absent(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for (name, model, config) in used(pipeline) {
        let at = |key: &str| pipeline.range_of(&["models", name, key]).unwrap_or(model.key_range);
        let template = config
            .chat_template
            .as_ref()
            .and_then(|template| template.file.as_ref());
        if let Some(file) = template.map(|file| file.as_path()).filter(|file| !file.is_file()) {
            let path = ["models", name, "chat_template", "file"];
            if !was_told(pipeline, &path, VarKind::File) {
                let message = format!("the model `{name}`: there is no chat template `{}`", file.display());
                diagnostics.push(
                    Diagnostic::error(
                        &codes::RL1102,
                        pipeline.range_of(&path).unwrap_or(model.key_range),
                        message,
                    )
                    .label_text("no such file")
                    .note("a relative path in a file starts at the folder of that file"),
                );
            }
        }
        if let Some(folder) = config.path.as_ref().map(|path| path.as_path())
            && !folder.is_dir()
            && !was_told(pipeline, &["models", name, "path"], VarKind::Dir)
        {
            let message = format!(
                "the model `{name}`: there is no folder `{}`",
                shown_path(folder).display()
            );
            diagnostics.push(
                Diagnostic::error(&codes::RL1102, at("path"), message)
                    .label_text("no such folder")
                    .note("a relative path in a file starts at the folder of that file"),
            );
        }
        if let Some(hub) = config.hub.as_ref().filter(|hub| pipeline.hub.find(hub).is_none()) {
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL1107,
                    at("hub"),
                    format!("the model `{name}`: `{hub}` is not on this machine"),
                )
                .label_text("not downloaded")
                .note(format!(
                    "looked in `{}`",
                    pipeline.hub.repository(&hub.repository).display()
                ))
                .note("`rlpipe download` with this pipeline fetches it; `HF_HUB_CACHE` names another cache"),
            );
        }
    }
}

/// The models that anything that runs names.
fn used(pipeline: &Pipeline) -> impl Iterator<Item = (&str, &Section<ModelConfig>, &ModelConfig)> {
    let used = pipeline
        .models
        .iter()
        .filter(|(name, _)| pipeline.uses(Target::Model, name));
    used.filter_map(|(name, model)| Some((name.as_str(), model, model.config.as_ref()?)))
}

/// What a model folder lacks, and what of it cannot be run.
fn model_in(
    pipeline: &Pipeline,
    folder: &Path,
    name: &str,
    range: Range,
    way_out: &str,
    diagnostics: &mut Diagnostics,
) {
    let missing = missing_files(folder);
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let message = format!("the model `{name}` lacks files: {}", quoted(&missing));
        diagnostics.push(
            Diagnostic::error(&codes::RL1103, range, message)
                .label_text("not a whole model folder")
                .note(format!("looked in `{}`", shown_path(folder).display()))
                .note(way_out),
        );
    }
    // What is not there was just named.
    let lacks_config = missing.iter().any(|file| file == "config.json");
    let lacks_weights = missing.iter().any(|file| file.ends_with(".safetensors"));
    for fault in check_folder(folder) {
        let (code, label): (&'static Code, _) = match fault.part {
            Part::Config if !lacks_config => (&codes::RL1108, "not a model that this version runs"),
            Part::Weights if !lacks_weights => (&codes::RL1103, "its weights cannot be loaded"),
            Part::Tokenizer => (&codes::RL1110, "its tokenizer does not fit"),
            Part::Stop => (&codes::RL1111, "its responses could not stop"),
            _ => continue,
        };
        let diagnostic = if fault.part == Part::Tokenizer {
            Diagnostic::warning
        } else {
            Diagnostic::error
        };
        diagnostics.push(diagnostic(code, range, format!("the model `{name}`: {fault}")).label_text(label));
    }
    if let Ok(config) = read_config(folder) {
        let why = if config.generated_positions() < config.positions() {
            "with `dynamic` rotary scaling a longer context would change what is in the cache already"
        } else {
            ""
        };
        contexts(
            pipeline,
            name,
            config.generated_positions(),
            Some(range),
            why,
            diagnostics,
        );
    }
}

/// Whether engines keep to the `reads` positions of the model that they serve.
fn contexts(
    pipeline: &Pipeline,
    model: &str,
    reads: i64,
    place: Option<Range>,
    why: &str,
    diagnostics: &mut Diagnostics,
) {
    for (_, node, contract) in pipeline.live() {
        let Role::Engine { max_context_tokens, .. } = contract.role else {
            continue;
        };
        if contract.used(Target::Model) != Some(model) || i64::from(max_context_tokens) <= reads {
            continue;
        }
        let message =
            format!("a context of {max_context_tokens} tokens, but the model `{model}` reads {reads} positions");
        let mut diagnostic = Diagnostic::error(&codes::RL1109, node.range_of(&["max_context_tokens"]), message)
            .label_text("longer than the model reads")
            .note(format!("lower `max_context_tokens` to {reads} or less"));
        if let Some(place) = place {
            diagnostic = diagnostic.label(place, "the model");
        }
        if !why.is_empty() {
            diagnostic = diagnostic.note(why);
        }
        diagnostics.push(diagnostic);
    }
}
