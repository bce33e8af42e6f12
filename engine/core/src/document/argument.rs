//! `--set` arguments: `nodes.trainer.max_grad_norm=0.5`, the value in YAML.

use std::sync::Arc;

use super::source::{Format, Range, Source, Sources};
use super::tree::{Entry, Tree, Value};
use super::yaml;
use crate::diagnostic::{Diagnostic, Diagnostics, codes};

/// Reads one `--set` argument as an overlay. It becomes a source of its own, so that faults point into the argument.
#[expect(clippy::result_large_err, reason = "a handful of arguments are read once")]
pub fn set_argument(sources: &mut Sources, argument: &str) -> Result<Tree, Diagnostic> {
    let id = sources.add(Source {
        name: format!("--set {argument}"),
        text: Arc::from(argument),
        format: Format::Argument,
        folder: None,
    });
    let range = |start: usize, end: usize| {
        Range::new(
            id,
            u32::try_from(start).unwrap_or(u32::MAX),
            u32::try_from(end).unwrap_or(u32::MAX),
        )
    };
    let fault = |start, end, message: String| {
        Diagnostic::error(&codes::RL0106, range(start, end), message)
            .note("write `--set PATH=VALUE`, such as `--set nodes.trainer.max_grad_norm=0.5`")
    };
    let Some(equals) = argument.find('=') else {
        return Err(fault(0, argument.len(), "the argument has no `=`".into()).label_text("a path without a value"));
    };
    let mut keys = Vec::new();
    let mut start = 0;
    for key in argument[..equals].split('.') {
        let end = start + key.len();
        let trimmed = key.trim();
        if trimmed.is_empty() {
            return Err(
                fault(start, end.max(start + 1), "the path has an empty part".into()).label_text("a key is missing")
            );
        }
        if trimmed.contains(['[', ']']) || trimmed.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(fault(start, end, "an argument cannot set one element of a list".into())
                .label_text("set the whole list, as in `PATH=[a, b]`"));
        }
        let lead = key.len() - key.trim_start().len();
        keys.push((trimmed, range(start + lead, start + lead + trimmed.len())));
        start = end + 1;
    }
    let value = &argument[equals + 1..];
    if value.trim().is_empty() {
        return Err(fault(equals, equals + 1, "nothing follows the `=`".into())
            .label_text("write `null` for no value, or `\"\"` for an empty text"));
    }
    let origin = sources.working();
    let mut diagnostics = Diagnostics::default();
    let tree = yaml::parse(value, id, equals + 1, &origin, &mut diagnostics);
    let first = diagnostics.into_iter().next();
    if let Some(mut diagnostic) = first {
        if diagnostic.code == &codes::RL0101 {
            diagnostic.code = &codes::RL0106;
            diagnostic =
                diagnostic.note("quote the value for the shell, and once more for YAML if it holds `: ` or ` #`");
        }
        return Err(diagnostic);
    }
    let Some(mut tree) = tree else {
        return Err(fault(equals, argument.len(), "the value cannot be read".into()));
    };
    let whole = range(0, argument.len());
    for (key, key_range) in keys.into_iter().rev() {
        let entry = Entry {
            key: key.to_owned(),
            key_range,
            value: tree,
        };
        tree = Tree::new(whole, Value::Map(vec![entry]), origin.clone());
    }
    Ok(tree)
}
