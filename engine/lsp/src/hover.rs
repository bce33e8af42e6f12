//! What is known of the word under the cursor.

use gen_lsp_types as lsp;
use rlpipe_core::document::{Segment, Tree, path_text};
use rlpipe_runtime::compile::{Outcome, Pipeline, describe_ports, flow_text, is_secret};
use serde_json::Value;

use crate::complete::type_and_default;
use crate::document::{Document, Surroundings};
use crate::names::{bytes, name_at, names, variables};
use crate::scan::{Place, scan};
use crate::shapes::{Shapes, key_of};

/// Longer values are cut.
const MAXIMUM_VALUE_CHARACTERS: usize = 300;

/// The hover at a byte.
pub fn hover(
    document: &Document,
    shapes: &Shapes,
    outcome: &Outcome,
    surroundings: &Surroundings,
    offset: usize,
) -> Option<lsp::Hover> {
    let text = document.text.as_str();
    let found = scan(text, document.format, Some(offset));
    let named = names(&found, text, shapes);
    let (value, range) = match name_at(&named, offset) {
        Some(named) => (
            of_name(&named.target, &found.tree, shapes, surroundings)?,
            named.range.clone(),
        ),
        None => {
            let spot = found.spot.filter(|spot| !spot.word.is_empty())?;
            let word = &text[spot.word.clone()];
            let value = match spot.place {
                Place::Value => of_value(&spot.path, word, &found.tree, shapes),
                Place::Key | Place::Header => None,
            };
            let mut path = spot.path;
            if spot.place != Place::Value {
                path.push(word.into());
            }
            let of_setting = || of_setting(&path, &found.tree, shapes, outcome, document, surroundings);
            (value.or_else(of_setting)?, spot.word)
        }
    };
    let contents = lsp::Contents::MarkupContent(lsp::MarkupContent {
        kind: lsp::MarkupKind::Markdown,
        value,
    });
    Some(lsp::Hover {
        contents,
        range: Some(document.text.range(range)),
    })
}

/// A node, pool, model or variable.
fn of_name(target: &[Segment], tree: &Tree, shapes: &Shapes, surroundings: &Surroundings) -> Option<String> {
    let keys: Vec<&str> = target.iter().filter_map(key_of).collect();
    let declared = tree.at(target);
    if declared.depth < target.len() {
        return None;
    }
    match keys.as_slice() {
        ["nodes", name] => {
            let kind = shapes.kind_of(tree, name);
            let kind = kind.map(|kind| (kind.name, kind.summary, describe_ports(kind)));
            let (kind, summary, ports) =
                kind.unwrap_or(("unknown", "Its `type` is missing or unknown.", String::new()));
            Some(format!("node `{name}`: **{kind}**\n\n{summary}\n{}", fenced(&ports)))
        }
        ["env", "vars", name] => Some(of_variable(name, declared.tree, surroundings)),
        [section, name] => {
            let what = section.trim_end_matches('s');
            Some(format!(
                "{what} `{name}`\n{}",
                fenced(&flow_text(&declared.tree.to_json()))
            ))
        }
        _ => None,
    }
}

/// A variable: what it is for, and its value where that is no secret.
fn of_variable(name: &str, declared: &Tree, surroundings: &Surroundings) -> String {
    let text = |key: &str| declared.get(key).and_then(Tree::as_text);
    let help = text("help").map(|help| format!("\n\n{help}")).unwrap_or_default();
    let now = match (
        surroundings.variable(name).filter(|value| !value.is_empty()),
        text("default"),
    ) {
        (Some(_), _) if is_secret(name) => "set in the environment; its value is not shown".to_owned(),
        (Some(value), _) => format!("`{}`, from the environment of the editor", cut(&value)),
        (None, Some(_)) if is_secret(name) => "its default; its value is not shown".to_owned(),
        (None, Some(default)) => format!("`{}`, its default", cut(default)),
        (None, None) => "not set in the environment of the editor".to_owned(),
    };
    format!(
        "variable `{name}`: {}{help}\n\nnow: {now}",
        text("kind").unwrap_or("of no kind")
    )
}

/// A kind, or the value of a choice.
fn of_value(path: &[Segment], word: &str, tree: &Tree, shapes: &Shapes) -> Option<String> {
    let keys: Vec<Option<&str>> = path.iter().map(key_of).collect();
    if let [Some("nodes"), Some(_), Some("type")] = keys.as_slice() {
        let kind = shapes.kind(word)?;
        return Some(format!(
            "**{}**\n\n{}\n{}",
            kind.name,
            kind.summary,
            fenced(&describe_ports(kind))
        ));
    }
    let alternatives = shapes.alternatives(path, tree);
    let chosen = alternatives.iter().find(|alternative| alternative.name == word)?;
    (!chosen.description.is_empty()).then(|| format!("**{word}**\n\n{}", chosen.description))
}

fn of_setting(
    path: &[Segment],
    tree: &Tree,
    shapes: &Shapes,
    outcome: &Outcome,
    document: &Document,
    surroundings: &Surroundings,
) -> Option<String> {
    let setting = shapes.setting(path, tree)?;
    let mut text = format!(
        "`{}`: {}\n\n{}",
        path_text(path),
        type_and_default(&setting),
        setting.description
    );
    for (name, description, _) in &setting.choices {
        text.push_str(&format!("\n- `{name}`: {description}"));
    }
    if let Some(pipeline) = &outcome.pipeline
        && let Some(value) = resolved(pipeline, path)
    {
        let origin = origin(path, pipeline, document, surroundings);
        let shown = if origin.is_secret {
            "not shown".to_owned()
        } else {
            format!("`{}`", cut(&flow_text(&value)))
        };
        text.push_str(&format!("\n\nresolved: {shown}, {}", origin.words));
    }
    Some(text)
}

/// The value that a setting has in the end, with defaults and variables filled in.
fn resolved(pipeline: &Pipeline, path: &[Segment]) -> Option<Value> {
    let keys: Vec<&str> = path.iter().map(key_of).collect::<Option<_>>()?;
    let (whole, rest) = match keys.as_slice() {
        ["run", rest @ ..] => (serde_json::to_value(pipeline.run.as_ref()?).ok()?, rest),
        ["pools", name, rest @ ..] => (
            serde_json::to_value(pipeline.pools.get(*name)?.config.as_ref()?).ok()?,
            rest,
        ),
        ["models", name, rest @ ..] => (
            serde_json::to_value(pipeline.models.get(*name)?.config.as_ref()?).ok()?,
            rest,
        ),
        ["nodes", name, rest @ ..] => (pipeline.nodes[pipeline.find(name)?].config.as_ref()?.resolved(), rest),
        _ => return None,
    };
    let found = rest.iter().try_fold(&whole, |value, key| value.get(key))?;
    Some(found.clone()).filter(|value| !value.is_null())
}

struct Origin {
    words: String,
    is_secret: bool,
}

/// Where a resolved value comes from.
fn origin(path: &[Segment], pipeline: &Pipeline, document: &Document, surroundings: &Surroundings) -> Origin {
    let found = pipeline.tree.at(path);
    if found.depth < path.len() {
        return Origin {
            words: "by default".to_owned(),
            is_secret: false,
        };
    }
    let written = document.text.as_str().get(bytes(found.tree.range)).unwrap_or_default();
    let used: Vec<&str> = variables(written)
        .into_iter()
        .map(|(at, length)| &written[at..at + length])
        .collect();
    let is_secret = used.iter().any(|name| is_secret(name));
    let words = match used.first() {
        None => "written here".to_owned(),
        Some(name) if surroundings.variable(name).is_some_and(|value| !value.is_empty()) => {
            format!("by `${{{name}}}` of the environment")
        }
        Some(name) => format!("by the default of `${{{name}}}`"),
    };
    Origin { words, is_secret }
}

fn fenced(text: &str) -> String {
    let text = text.trim_matches('\n');
    if text.is_empty() {
        String::new()
    } else {
        format!("\n```text\n{text}\n```")
    }
}

fn cut(text: &str) -> String {
    let short: String = text.chars().take(MAXIMUM_VALUE_CHARACTERS).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", short.replace('`', "'"))
}
