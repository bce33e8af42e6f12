//! Where names are, the outline, and the fixes of faults.

use std::collections::HashMap;

use gen_lsp_types as lsp;
use rlpipe_core::diagnostic::{Fix, applicable};
use rlpipe_core::document::{Entry, SourceId, Tree};
use rlpipe_runtime::compile::Outcome;

use crate::document::{Document, is_map};
use crate::names::{Named, bytes, name_at, names};
use crate::shapes::Shapes;

/// Where the name at a byte is declared.
pub fn definition(document: &Document, shapes: &Shapes, offset: usize) -> Option<lsp::Location> {
    let named = names(document.scan(), document.text.as_str(), shapes);
    let target = &name_at(&named, offset)?.target;
    let declared = named
        .iter()
        .find(|named| named.is_declaration && named.target == *target)?;
    Some(location(document, declared))
}

/// Everywhere that the name at a byte is.
pub fn references(document: &Document, shapes: &Shapes, offset: usize, declaration: bool) -> Vec<lsp::Location> {
    let named = names(document.scan(), document.text.as_str(), shapes);
    let Some(found) = name_at(&named, offset) else {
        return Vec::new();
    };
    let same = named
        .iter()
        .filter(|named| named.target == found.target && (declaration || !named.is_declaration));
    same.map(|named| location(document, named)).collect()
}

/// The bytes of the name that may be changed.
pub fn renameable(document: &Document, shapes: &Shapes, offset: usize) -> Option<lsp::Range> {
    let named = names(document.scan(), document.text.as_str(), shapes);
    let found = name_at(&named, offset)?;
    let declared = named
        .iter()
        .any(|named| named.is_declaration && named.target == found.target);
    declared.then(|| document.text.range(found.range.clone()))
}

/// Another name everywhere, or why it cannot be one.
pub fn rename(document: &Document, shapes: &Shapes, offset: usize, to: &str) -> Result<lsp::WorkspaceEdit, String> {
    let named = names(document.scan(), document.text.as_str(), shapes);
    let Some(found) = name_at(&named, offset) else {
        return Err("there is no name of a node, pool, model or variable here".to_owned());
    };
    let is_variable = found.target.len() == 3;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' && !is_variable;
    let starts_well = !is_variable || !to.starts_with(|c: char| c.is_ascii_digit());
    if to.is_empty() || !to.chars().all(plain) || !starts_well {
        return Err(format!(
            "`{to}` cannot be a name: letters, digits and `_` make one, and `-` but in variables"
        ));
    }
    let is_text = |word: &str| word.parse::<f64>().is_err() && !["true", "false", "null"].contains(&word);
    if !is_text(&to.to_lowercase()) {
        return Err(format!("`{to}` cannot be a name: unquoted, it is not read as text"));
    }
    let mut target = found.target.clone();
    target.pop();
    target.push(to.into());
    if target != found.target && named.iter().any(|named| named.is_declaration && named.target == target) {
        return Err(format!("there is a `{to}` already"));
    }
    let same = named.iter().filter(|named| named.target == found.target);
    let edits = same.map(|named| lsp::TextEdit {
        range: document.text.range(named.range.clone()),
        new_text: to.to_owned(),
    });
    Ok(edit(document, edits.collect()))
}

fn location(document: &Document, named: &Named) -> lsp::Location {
    lsp::Location {
        uri: document.uri.clone(),
        range: document.text.range(named.range.clone()),
    }
}

fn edit(document: &Document, edits: Vec<lsp::TextEdit>) -> lsp::WorkspaceEdit {
    lsp::WorkspaceEdit {
        changes: Some(HashMap::from([(document.uri.clone(), edits)])),
        ..lsp::WorkspaceEdit::default()
    }
}

/// Sections, and below them nodes with their kinds, pools, models and variables.
pub fn symbols(document: &Document) -> Vec<lsp::DocumentSymbol> {
    let tops = document.scan().tree.entries().iter();
    tops.map(|entry| match entry.key.as_str() {
        "nodes" | "pools" | "models" | "tests" => {
            let below = entry.value.entries().iter();
            let children = below.map(|entry| symbol(document, entry, lsp::SymbolKind::Class, Vec::new()));
            symbol(document, entry, lsp::SymbolKind::Namespace, children.collect())
        }
        "env" => {
            let vars = entry.value.get("vars").map(Tree::entries).unwrap_or_default();
            let children = vars
                .iter()
                .map(|entry| symbol(document, entry, lsp::SymbolKind::Variable, Vec::new()));
            symbol(document, entry, lsp::SymbolKind::Namespace, children.collect())
        }
        _ if is_map(&entry.value) => {
            let below = entry.value.entries().iter();
            let children = below.map(|entry| symbol(document, entry, lsp::SymbolKind::Property, Vec::new()));
            symbol(document, entry, lsp::SymbolKind::Namespace, children.collect())
        }
        _ => symbol(document, entry, lsp::SymbolKind::Property, Vec::new()),
    })
    .collect()
}

#[expect(deprecated, reason = "the field must be given, and is left empty")]
fn symbol(
    document: &Document,
    entry: &Entry,
    kind: lsp::SymbolKind,
    children: Vec<lsp::DocumentSymbol>,
) -> lsp::DocumentSymbol {
    let detail = ["type", "kind", "accelerator"]
        .iter()
        .find_map(|key| entry.value.get(key).and_then(Tree::as_text));
    let detail = detail.or(entry.value.as_text()).map(str::to_owned);
    let selected = bytes(entry.key_range);
    let mut whole = selected.clone();
    extent(&entry.value, &mut whole);
    lsp::DocumentSymbol {
        // An empty name is refused by clients.
        name: if entry.key.is_empty() {
            "\"\"".to_owned()
        } else {
            entry.key.clone()
        },
        detail,
        kind,
        tags: None,
        deprecated: None,
        range: document.text.range(whole),
        selection_range: document.text.range(selected),
        children: Some(children).filter(|children| !children.is_empty()),
    }
}

/// Widens a range to all that a value holds: a table of TOML may be in several places.
fn extent(tree: &Tree, whole: &mut std::ops::Range<usize>) {
    let own = bytes(tree.range);
    (whole.start, whole.end) = (whole.start.min(own.start), whole.end.max(own.end));
    tree.entries().iter().for_each(|entry| extent(&entry.value, whole));
    tree.elements().iter().for_each(|element| extent(element, whole));
}

/// The fixes of faults that touch a range, and one of all that do not overlap.
pub fn actions(document: &Document, outcome: &Outcome, params: &lsp::CodeActionParams) -> Vec<lsp::CodeAction> {
    let wanted = |kind: &lsp::CodeActionKind| {
        let only = params.context.only.as_deref();
        let named = |kind: &lsp::CodeActionKind| String::from(kind.clone());
        // A kind stands for those below it, as `source` for `source.fixAll`.
        only.is_none_or(|only| only.iter().any(|only| named(kind).starts_with(&named(only))))
    };
    let is_own = |fix: &&Fix| fix.range.source == SourceId(0);
    let mut actions = Vec::new();
    let faults = outcome.diagnostics.sorted();
    if wanted(&lsp::CodeActionKind::QuickFix) {
        for fault in &faults {
            let Some(fix) = fault.fix.as_ref().filter(is_own) else {
                continue;
            };
            let diagnostic = document.diagnostic(fault, &outcome.sources);
            let touched = [diagnostic.range, document.range(fix.range)];
            if !touched
                .iter()
                .any(|range| range.start <= params.range.end && params.range.start <= range.end)
            {
                continue;
            }
            actions.push(lsp::CodeAction {
                title: format!("{} ({})", fix.title, fault.code.id),
                kind: Some(lsp::CodeActionKind::QuickFix),
                diagnostics: Some(vec![diagnostic]),
                is_preferred: Some(true),
                edit: Some(edit(document, vec![text_edit(document, fix)])),
                ..lsp::CodeAction::default()
            });
        }
    }
    let fixes = faults.iter().filter_map(|fault| fault.fix.as_ref());
    let fixes = applicable(document.text.as_str(), &fixes.filter(is_own).collect::<Vec<_>>());
    if wanted(&lsp::CodeActionKind::SourceFixAll) && !fixes.is_empty() {
        let edits = fixes.iter().map(|fix| text_edit(document, fix));
        actions.push(lsp::CodeAction {
            title: "fix all that rlpipe can".to_owned(),
            kind: Some(lsp::CodeActionKind::SourceFixAll),
            edit: Some(edit(document, edits.collect())),
            ..lsp::CodeAction::default()
        });
    }
    actions
}

fn text_edit(document: &Document, fix: &Fix) -> lsp::TextEdit {
    lsp::TextEdit {
        range: document.range(fix.range),
        new_text: fix.replacement.clone(),
    }
}
