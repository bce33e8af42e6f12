//! The texts a pipeline is made of, and places in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::tree::Origin;

/// Names one text of a [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// What kind of text a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A YAML file.
    Yaml,
    /// A TOML file.
    Toml,
    /// A `--set` argument, `path=value`.
    Argument,
    /// The process environment, which has no text to show.
    Environment,
    /// Something that rlpipe itself provides, such as a default or a template.
    BuiltIn,
}

impl Format {
    /// The format of a file by its extension: TOML for `.toml`, else YAML.
    pub fn of_file(path: &Path) -> Format {
        if path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
        {
            Format::Toml
        } else {
            Format::Yaml
        }
    }
}

/// One text.
#[derive(Debug, Clone)]
pub struct Source {
    /// As the user knows it: the path as given, or `--set nodes.trainer.lr=1e-5`.
    pub name: String,
    /// The whole text.
    pub text: Arc<str>,
    /// What kind of text it is.
    pub format: Format,
    /// The folder that relative paths written in this text start from; none means the working folder.
    pub folder: Option<PathBuf>,
}

/// A range of bytes in one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// The text.
    pub source: SourceId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Range {
    /// A range of `source` from byte `start` to before byte `end`.
    pub fn new(source: SourceId, start: u32, end: u32) -> Range {
        Range { source, start, end }
    }

    /// The smallest range that holds both; `self` when they lie in different sources.
    pub fn cover(self, other: Range) -> Range {
        if self.source != other.source {
            return self;
        }
        Range {
            source: self.source,
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// A range as people and editors count: lines and columns from 1, columns in characters, the end exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The source's name.
    pub file: String,
    /// Line of the first character.
    pub line: u32,
    /// Column of the first character.
    pub column: u32,
    /// Line of the end.
    pub end_line: u32,
    /// Column of the end.
    pub end_column: u32,
}

/// All texts of one check.
#[derive(Debug, Clone)]
pub struct Sources {
    list: Vec<Source>,
    /// Where lines of each text begin, found out when it is first asked.
    line_starts: Vec<OnceLock<Vec<usize>>>,
    /// Where the text of a source begins in its file, if not in line 1.
    first_lines: BTreeMap<SourceId, u32>,
    working_folder: Arc<Path>,
}

impl Sources {
    /// No texts yet; relative paths in arguments and variables start from `working_folder`.
    pub fn new(working_folder: impl AsRef<Path>) -> Sources {
        Sources {
            list: Vec::new(),
            line_starts: Vec::new(),
            first_lines: BTreeMap::new(),
            working_folder: Arc::from(working_folder.as_ref()),
        }
    }

    /// Adds a text.
    pub fn add(&mut self, source: Source) -> SourceId {
        let id = SourceId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(source);
        self.line_starts.push(OnceLock::new());
        id
    }

    /// Adds a file's text; its folder is where its relative paths start from.
    pub fn add_file(&mut self, path: &Path, text: impl Into<Arc<str>>) -> SourceId {
        let folder = path.parent().map(|parent| self.working_folder.join(parent));
        self.add(Source {
            name: path.display().to_string(),
            text: text.into(),
            format: Format::of_file(path),
            folder: folder.or_else(|| Some(self.working_folder.to_path_buf())),
        })
    }

    /// Adds a part of a text that is too large to be held: it begins with line `first_line`, counted from 1.
    pub fn add_excerpt(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>, first_line: u32) -> SourceId {
        let id = self.add(Source {
            name: name.into(),
            text: text.into(),
            format: Format::BuiltIn,
            folder: None,
        });
        self.first_lines.insert(id, first_line);
        id
    }

    /// The line of its file that a source begins with.
    pub fn first_line(&self, source: SourceId) -> u32 {
        self.first_lines.get(&source).copied().unwrap_or(1)
    }

    /// A place that has a name but no text, for faults that lie in no file.
    pub fn add_place(&mut self, name: impl Into<String>, format: Format) -> Range {
        let source = self.add(Source {
            name: name.into(),
            text: Arc::from(""),
            format,
            folder: None,
        });
        Range {
            source,
            start: 0,
            end: 0,
        }
    }

    /// The source of an id.
    ///
    /// # Panics
    /// When the id is of another `Sources`.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.list[id.0 as usize]
    }

    /// All sources with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        (0u32..).map(SourceId).zip(&self.list)
    }

    /// The base of relative paths that come from variables and arguments.
    pub fn working(&self) -> Origin {
        Origin::Working(self.working_folder.clone())
    }

    /// The base of relative paths written in this source.
    pub fn origin(&self, id: SourceId) -> Origin {
        match &self.get(id).folder {
            Some(folder) => Origin::File(Arc::from(folder.as_path())),
            None => self.working(),
        }
    }

    /// The text under a range, cut to the text and to whole characters.
    pub fn text(&self, range: Range) -> &str {
        let text = &*self.get(range.source).text;
        let start = text.floor_char_boundary(range.start as usize);
        let end = text.floor_char_boundary(range.end as usize).max(start);
        &text[start..end]
    }

    /// Line and column of a byte, both from 1, the column in characters.
    pub fn line_column(&self, source: SourceId, offset: u32) -> (u32, u32) {
        let text = &*self.get(source).text;
        let offset = text.floor_char_boundary(offset as usize);
        let starts = self.line_starts[source.0 as usize].get_or_init(|| {
            let newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
            std::iter::once(0).chain(newlines).collect()
        });
        // The first line begins at 0, so that at least one begins at or before any byte.
        let line = starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let line_start = starts.get(line).copied().unwrap_or(0);
        let line = line as u32;
        let column = text[line_start..offset]
            .chars()
            .filter(|&character| character != '\u{feff}')
            .count()
            + 1;
        (line.saturating_add(self.first_line(source)), column as u32)
    }

    /// The range as lines and columns.
    pub fn place(&self, range: Range) -> Place {
        let (line, column) = self.line_column(range.source, range.start);
        let (end_line, end_column) = self.line_column(range.source, range.end);
        Place {
            file: self.get(range.source).name.clone(),
            line,
            column,
            end_line,
            end_column,
        }
    }
}

impl Default for Sources {
    fn default() -> Sources {
        Sources::new(".")
    }
}
