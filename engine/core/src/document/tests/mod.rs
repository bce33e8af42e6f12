#![allow(clippy::unwrap_used)]

mod decoding;
mod interpolation;
mod parsing;
mod properties;

use std::path::Path;

use super::*;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// A text, its tree, and what was said of it.
struct Parsed {
    sources: Sources,
    tree: Option<Tree>,
    diagnostics: Diagnostics,
}

fn parsed(file: &str, text: &str) -> Parsed {
    let mut sources = Sources::new("/home/ada");
    let id = sources.add_file(Path::new(file), text);
    let mut diagnostics = Diagnostics::default();
    let tree = parse(&sources, id, &mut diagnostics);
    Parsed {
        sources,
        tree,
        diagnostics,
    }
}

fn yaml(text: &str) -> Parsed {
    parsed("runs/a.yaml", text)
}

fn toml(text: &str) -> Parsed {
    parsed("runs/a.toml", text)
}

impl Parsed {
    fn tree(&self) -> &Tree {
        assert!(self.diagnostics.is_empty(), "{:?}", self.said());
        self.tree.as_ref().unwrap()
    }

    /// Code and text under the primary label of each diagnostic.
    fn said(&self) -> Vec<(&str, &str)> {
        self.diagnostics
            .iter()
            .map(|found| (found.code.id, self.under(found.primary.range)))
            .collect()
    }

    fn only(&self) -> &Diagnostic {
        assert_eq!(self.diagnostics.len(), 1, "{:?}", self.said());
        self.diagnostics.iter().next().unwrap()
    }

    fn under(&self, range: Range) -> &str {
        self.sources.text(range)
    }

    /// The text under the key and under the value at a path such as `a.b.0`.
    fn at(&self, path: &str) -> (&str, &str) {
        let path = segments(path);
        let found = self.tree.as_ref().unwrap().at(&path);
        assert_eq!(found.depth, path.len());
        (
            found.key_range.map_or("", |range| self.under(range)),
            self.under(found.tree.range),
        )
    }
}

fn segments(path: &str) -> Vec<Segment> {
    path.split('.')
        .map(|part| part.parse().map_or_else(|_| part.into(), Segment::Index))
        .collect()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}
