//! Text to tree: picks the format, and holds what the formats report alike.

use super::source::{Format, Range, SourceId, Sources};
use super::tree::Tree;
use super::{toml, yaml};
use crate::diagnostic::{Diagnostic, Diagnostics, codes};

/// Longer texts are refused: a pipeline is a few kilobytes, data sets are files of their own.
pub const MAXIMUM_TEXT_BYTES: usize = 4 << 20;

/// Deeper documents are refused.
pub const MAXIMUM_DEPTH: usize = 32;

/// More faults than this are not reported of one text.
const MAXIMUM_FAULTS: usize = 100;

/// Reads the text of `id` into a tree and reports every fault of its syntax.
///
/// None when nothing can be said of the text. A tree may come with errors: duplicate keys (the first counts),
/// references that lack quotes (read as if quoted), numbers that do not fit ([`super::Value::Unresolved`]).
pub fn parse(sources: &Sources, id: SourceId, diagnostics: &mut Diagnostics) -> Option<Tree> {
    let source = sources.get(id);
    let origin = sources.origin(id);
    if source.text.len() > MAXIMUM_TEXT_BYTES {
        let (found, limit) = (source.text.len(), MAXIMUM_TEXT_BYTES);
        let headline = format!("the text has {found} bytes, more than the {limit} that a pipeline may have");
        diagnostics.push(
            Diagnostic::error(&codes::RL0112, Range::new(id, 0, 0), headline)
                .note("is this a data set? a pipeline names data sets by their path"),
        );
        return None;
    }
    let mut found = Diagnostics::default();
    let tree = match source.format {
        Format::Toml => toml::parse(&source.text, id, &origin, &mut found),
        _ => yaml::parse(&source.text, id, 0, &origin, &mut found),
    };
    diagnostics.extend(found.into_iter().take(MAXIMUM_FAULTS));
    tree
}

pub(super) fn duplicate_key(key: &str, range: Range, first: Option<Range>) -> Diagnostic {
    let diagnostic =
        Diagnostic::error(&codes::RL0102, range, format!("the key `{key}` is given twice")).label_text("given again");
    match first {
        Some(first) => diagnostic.label(first, "first given here"),
        None => diagnostic,
    }
}

pub(super) fn number_out_of_range(range: Range, written: &str) -> Diagnostic {
    Diagnostic::error(
        &codes::RL0111,
        range,
        format!("`{written}` is no number that can be held"),
    )
    .label_text("a whole number lies between -9223372036854775808 and 9223372036854775807, and others are finite")
}

pub(super) fn too_deep(range: Range) -> Diagnostic {
    Diagnostic::error(
        &codes::RL0112,
        range,
        format!("the document nests deeper than {MAXIMUM_DEPTH} levels"),
    )
    .label_text("reading stops here")
}
