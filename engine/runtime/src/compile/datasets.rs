//! RL02, once more: what a sampler says of its data, as far as it can be checked without looking at it.

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::{Range, Segment, path_text};
use rlpipe_core::kind::{DatasetSource, PromptMap, Role};
use rlpipe_text::{ColumnError, ColumnTemplate, Columns};
use serde_json::{Map, Value, json};

use super::pipeline::{Node, Pipeline};

/// What a template makes a part of.
#[derive(Debug, Clone, Copy)]
enum Part {
    Prompt,
    /// The role of the next message.
    Role,
    /// The content of the message at an index.
    Content(usize),
    Answer,
    GroundTruth,
    DataSource,
    Tools,
}

/// A template of `map`.
pub struct MapTemplate {
    part: Part,
    /// Its key, such as `map.prompt`.
    key: String,
    template: ColumnTemplate,
    place: Range,
}

/// The templates and the expression of a data set.
#[derive(Default)]
pub struct Templates {
    /// Those of `map`.
    pub map: Vec<MapTemplate>,
    /// `where`, and its place.
    pub filter: Option<(ColumnTemplate, Range)>,
}

/// Checks what every sampler says of its data.
pub fn check(pipeline: &Pipeline, diagnostics: &mut Diagnostics) {
    for node in &pipeline.nodes {
        let Some(Role::Sampler { datasets, .. }) = node.contract.as_ref().map(|contract| &contract.role) else {
            continue;
        };
        one_of_two(node, datasets, diagnostics);
        for dataset in datasets {
            match Templates::compile(node, dataset) {
                Ok(_) => same_for_every_row(node, dataset, diagnostics),
                Err(faults) => diagnostics.extend(faults),
            }
        }
    }
}

/// Templates that forgot the braces around a column: RL0915.
fn same_for_every_row(node: &Node, dataset: &DatasetSource, diagnostics: &mut Diagnostics) {
    let prompt = match &dataset.map.prompt {
        Some(PromptMap::Text(source)) => Some(source),
        _ => None,
    };
    for (key, source) in [("prompt", prompt), ("answer", dataset.map.answer.as_ref())] {
        let Some(source) = source.filter(|source| !source.contains("{{") && !source.contains("{%")) else {
            continue;
        };
        let (shown, place) = placed(node, dataset, &["map".into(), key.into()]);
        let diagnostic = Diagnostic::warning(
            &codes::RL0915,
            place,
            format!("`{shown}` gives every row the same text"),
        )
        .label_text("no `{{ }}` and no `{% %}`");
        diagnostics.push(match source.contains(char::is_whitespace) {
            true => diagnostic.note("a column is named between braces, such as `{{ question }}`"),
            false => {
                let meant = format!("{{{{ {source} }}}}");
                diagnostic.fix(format!("name the column: `{meant}`"), place, format!("\"{meant}\""))
            }
        });
    }
}

fn one_of_two(node: &Node, datasets: &[DatasetSource], diagnostics: &mut Diagnostics) {
    let name = &node.name;
    match (node.written(&["dataset"]), node.written(&["datasets"])) {
        (Some(one), Some(several)) => diagnostics.push(
            Diagnostic::error(
                &codes::RL0209,
                one,
                format!("`{name}` has both `dataset` and `datasets`"),
            )
            .label_text("one data set")
            .label(several, "and several")
            .note("leave one of them out: a data set of `datasets` can be written like `dataset`, below its name"),
        ),
        (None, several) if datasets.is_empty() => diagnostics.push(
            Diagnostic::error(
                &codes::RL0209,
                several.unwrap_or(node.key_range),
                format!("`{name}` has neither `dataset` nor `datasets`"),
            )
            .note("say where its rows are: `dataset: { path: train.jsonl }`"),
        ),
        _ => {}
    }
}

impl Templates {
    /// The templates of a data set, or what is wrong with them.
    pub fn compile(node: &Node, dataset: &DatasetSource) -> Result<Self, Vec<Diagnostic>> {
        let mut faults = Vec::new();
        let mut templates = Self::default();
        for (part, keys, source) in sources(dataset) {
            let (key, place) = placed(node, dataset, &keys);
            match ColumnTemplate::template(source) {
                Ok(template) => templates.map.push(MapTemplate {
                    part,
                    key,
                    template,
                    place,
                }),
                Err(error) => faults.push(
                    Diagnostic::error(&codes::RL0211, place, format!("`{key}` is no template: {error}"))
                        .note("a template is Jinja over the columns of a row, such as `\"{{ question }}\"`"),
                ),
            }
        }
        if let Some(source) = &dataset.filter {
            let (key, place) = placed(node, dataset, &["where".into()]);
            match ColumnTemplate::expression(source) {
                Ok(filter) => templates.filter = Some((filter, place)),
                Err(error) => faults.push(
                    Diagnostic::error(&codes::RL0211, place, format!("`{key}` is no expression: {error}"))
                        .note("an expression is Jinja without braces over the columns of a row, such as `level > 3`"),
                ),
            }
        }
        if faults.is_empty() { Ok(templates) } else { Err(faults) }
    }

    /// The row with what `map` makes of its columns; none where it maps nothing. An error comes with key and place.
    pub fn apply(
        &self,
        columns: &Map<String, Value>,
        seen: &Columns<'_>,
    ) -> Result<Option<Map<String, Value>>, (String, ColumnError, Range)> {
        if self.map.is_empty() {
            return Ok(None);
        }
        let mut row = columns.clone();
        let mut messages: Vec<Value> = Vec::new();
        for MapTemplate {
            part,
            key,
            template,
            place,
        } in &self.map
        {
            let value = template.evaluate(seen).map_err(|error| (key.clone(), error, *place))?;
            match part {
                Part::Prompt => drop(row.insert("prompt".to_owned(), value)),
                Part::Answer => drop(row.insert("answer".to_owned(), value)),
                Part::DataSource => drop(row.insert("data_source".to_owned(), value)),
                Part::Tools => drop(row.insert("tools".to_owned(), value)),
                Part::GroundTruth => drop(row.insert("reward_model".to_owned(), json!({ "ground_truth": value }))),
                Part::Role => messages.push(json!({ "role": value })),
                Part::Content(index) => {
                    if let Some(Value::Object(message)) = messages.get_mut(*index) {
                        message.insert("content".to_owned(), value);
                    }
                }
            }
        }
        if !messages.is_empty() {
            row.insert("prompt".to_owned(), Value::Array(messages));
        }
        Ok(Some(row))
    }
}

/// The templates of a data set, each with what it makes and its keys below the data set. A message's role comes before
/// its content.
fn sources(dataset: &DatasetSource) -> Vec<(Part, Vec<Segment>, &str)> {
    let mut found: Vec<(Part, Vec<Segment>, &str)> = Vec::new();
    let below = |keys: &[Segment]| [&["map".into()], keys].concat();
    match &dataset.map.prompt {
        Some(PromptMap::Text(source)) => found.push((Part::Prompt, below(&["prompt".into()]), source)),
        Some(PromptMap::Messages(messages)) => {
            for (index, message) in messages.iter().enumerate() {
                let keys = |key: &str| below(&["prompt".into(), Segment::Index(index), key.into()]);
                found.push((Part::Role, keys("role"), &message.role));
                found.push((Part::Content(index), keys("content"), &message.content));
            }
        }
        None => {}
    }
    let map = &dataset.map;
    for (part, key, source) in [
        (Part::Answer, "answer", &map.answer),
        (Part::GroundTruth, "ground_truth", &map.ground_truth),
        (Part::DataSource, "data_source", &map.data_source),
        (Part::Tools, "tools", &map.tools),
    ] {
        found.extend(source.as_deref().map(|source| (part, below(&[key.into()]), source)));
    }
    found
}

/// Keys below a data set as text, and where they stand.
fn placed(node: &Node, dataset: &DatasetSource, keys: &[Segment]) -> (String, Range) {
    let parent: Vec<Segment> = dataset.keys().into_iter().map(Segment::from).collect();
    let found = node.tree.at(&[&parent[..], keys].concat());
    (path_text(keys), found.head())
}
