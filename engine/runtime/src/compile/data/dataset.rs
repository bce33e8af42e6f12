//! One data set: its files found and read, its faulty rows shown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rlpipe_core::data::Seed;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::{Origin, Range, Sources};
use rlpipe_core::kind::{DatasetSource, OverLong};
use rlpipe_text::Tokenizer;

use super::files::{DataFile, Lines, is_parquet, list};
use super::needs::Needs;
use super::parquet::spool;
use super::pass::{FaultyRow, pass};
use super::recipe::Recipe;
use super::roles::Roles;
use super::stored::{Part, used};
use super::template::Lint;
use super::{OnProgress, Tally};
use crate::compile::datasets::Templates;
use crate::compile::pipeline::{Node, Pipeline};

/// Faulty rows of a data set that are shown one by one, no two with the same words; the rest is counted.
const SHOWN: usize = 5;

/// What the data sets of a sampler have in common.
pub struct Reading<'a> {
    pub pipeline: &'a Pipeline,
    pub sampler: &'a Node,
    pub needs: &'a Needs,
    pub over_long: OverLong,
    pub shuffle: bool,
    pub tokenizer: &'a Arc<Tokenizer>,
    /// The model's name, where its folder was only made to read the tokenizer from.
    pub scratch: Option<&'a str>,
    pub seed: Seed,
    pub progress: OnProgress<'a>,
}

/// A data set that was read.
pub struct ReadDataset {
    pub part: Part,
    pub fingerprint: String,
    /// Values of `data_source`.
    pub sources: BTreeSet<String>,
    pub tally: Tally,
}

impl Reading<'_> {
    /// Reads a data set; none where that is not possible, which was said.
    pub fn read(
        &self,
        dataset: &DatasetSource,
        sources: &mut Sources,
        diagnostics: &mut Diagnostics,
    ) -> Option<ReadDataset> {
        let place = self.range_of(dataset, "path");
        // What is wrong with its templates was said before.
        let templates = Templates::compile(self.sampler, dataset).ok()?;
        let schema = self.schema(dataset, diagnostics)?;
        let files = match open(dataset) {
            Ok(files) => files,
            Err(error) => {
                unreadable(place, error, diagnostics);
                return None;
            }
        };
        let recipe = Recipe {
            dataset: dataset.name.clone().unwrap_or_else(|| self.sampler.name.clone()),
            data_source: dataset.name.clone().unwrap_or_default(),
            needs: self.needs.clone(),
            over_long: self.over_long,
            tokenizer: self.tokenizer.clone(),
            scratch: self.scratch.map(str::to_owned),
            templates,
            schema,
            roles: Roles::default(),
        };
        let mut faults = Faults::default();
        let label = format!("`{}` reads this file", self.sampler.name);
        let mut lint = Lint::new(
            self.pipeline,
            self.tokenizer,
            &self.needs.model,
            self.needs.examples,
            place,
        );
        let told = |done, total| (self.progress)(&recipe.dataset, done, total);
        let result = pass(&files, &recipe, &|row| lint.spelt_out(row), &told, &mut |row| {
            faults.add(row, place, &label, sources)
        });
        let passed = match result {
            Ok(passed) => passed,
            Err((file, error)) => {
                let error = match file {
                    Some(file) => format!("cannot read `{}`: {error}", file.path.display()),
                    None => no_temporary_file(&error),
                };
                unreadable(place, error, diagnostics);
                return None;
            }
        };
        let used = used(passed.index.count(), dataset.sample_ratio);
        let tally = Tally {
            sampler: self.sampler.name.clone(),
            dataset: dataset.name.clone(),
            read: passed.read,
            unwanted: passed.unwanted,
            over_long: passed.over_long,
            used,
            most_held: passed.most_held,
            longest: passed.longest,
        };
        if faults.is_empty() {
            self.conclude(dataset, &tally, passed.index.count(), diagnostics);
        }
        let is_whole = faults.is_empty() && used > 0;
        faults.close(diagnostics);
        let part = Part {
            recipe,
            files,
            index: passed.index,
            used,
            drawn_by: self.shuffle.then(|| self.drawn_by(dataset)),
        };
        if let Some(Ok(row)) = part.first() {
            let (tools, documents) = part.recipe.for_template(&row.columns);
            lint.first(&row, tools.as_deref(), documents.as_deref());
        }
        lint.conclude(passed.told, passed.first_told, diagnostics);
        is_whole.then_some(ReadDataset {
            part,
            fingerprint: passed.fingerprint,
            sources: passed.sources,
            tally,
        })
    }

    fn drawn_by(&self, dataset: &DatasetSource) -> Seed {
        let name = dataset.name.as_deref().unwrap_or_default();
        self.seed.named(&self.sampler.name).named("sample_ratio").named(name)
    }

    fn range_of(&self, dataset: &DatasetSource, key: &str) -> Range {
        self.sampler.range_of(&[&dataset.keys()[..], &[key]].concat())
    }

    /// What the columns must fit; an outer none where that cannot be read.
    #[allow(clippy::option_option)]
    fn schema(
        &self,
        dataset: &DatasetSource,
        diagnostics: &mut Diagnostics,
    ) -> Option<Option<(jsonschema::Validator, Range)>> {
        let Some(path) = &dataset.schema else { return Some(None) };
        let place = self.range_of(dataset, "schema");
        let read = std::fs::read(path)
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))
            .and_then(|text| {
                serde_json::from_slice(&text)
                    .map_err(|error| format!("`{}` is not valid JSON: {error}", path.display()))
            })
            .and_then(|schema| {
                jsonschema::validator_for(&schema)
                    .map_err(|error| format!("`{}` is no JSON schema: {error}", path.display()))
            });
        match read {
            Ok(schema) => Some(Some((schema, place))),
            Err(error) => {
                diagnostics.push(Diagnostic::error(&codes::RL1001, place, error).label_text("not a schema"));
                None
            }
        }
    }

    /// What is to be said of the data set as a whole.
    fn conclude(&self, dataset: &DatasetSource, tally: &Tally, kept: u64, diagnostics: &mut Diagnostics) {
        if tally.used > 0 {
            return;
        }
        let path = dataset.path.display();
        let (message, place) = if tally.read == 0 {
            (format!("`{path}` has no rows"), self.range_of(dataset, "path"))
        } else if kept > 0 {
            (
                format!(
                    "`sample_ratio: {}` leaves none of the {kept} rows of `{path}`",
                    dataset.sample_ratio
                ),
                self.range_of(dataset, "sample_ratio"),
            )
        } else if tally.unwanted == tally.read {
            (
                format!("`where` holds for none of the {} rows of `{path}`", tally.read),
                self.range_of(dataset, "where"),
            )
        } else if tally.unwanted > 0 {
            (
                format!(
                    "none of the {} rows of `{path}` is left: `where` does not hold for {}, the prompts of {} are too long",
                    tally.read, tally.unwanted, tally.over_long
                ),
                self.range_of(dataset, "path"),
            )
        } else {
            (
                format!(
                    "none of the {} rows of `{path}` has a prompt that is short enough",
                    tally.read
                ),
                self.range_of(dataset, "path"),
            )
        };
        let mut diagnostic = Diagnostic::error(&codes::RL1005, place, message).label_text("nothing to draw");
        if let Some(bound) = self.needs.max_prompt_tokens.filter(|_| tally.over_long > 0) {
            let place = self.sampler.range_of(&["max_prompt_tokens"]);
            diagnostic = diagnostic.label(place, format!("a prompt may have {bound} tokens"));
        }
        diagnostics.push(diagnostic);
    }
}

fn open(dataset: &DatasetSource) -> Result<Vec<DataFile>, String> {
    let open = |path: std::path::PathBuf| {
        let lines = if is_parquet(&path, dataset.format) {
            Lines::Spool(Arc::new(spool(&path)?))
        } else {
            Lines::There
        };
        Ok(DataFile { path, lines })
    };
    list(&dataset.path, dataset.format)?.into_iter().map(open).collect()
}

/// What to say where no temporary file can be made or filled.
pub fn no_temporary_file(error: &std::io::Error) -> String {
    let more = if error.kind() == ErrorKind::StorageFull {
        "with more space"
    } else {
        "that can be written"
    };
    format!("cannot write a temporary file: {error}; set `TMPDIR` to a folder {more}")
}

fn unreadable(place: Range, error: String, diagnostics: &mut Diagnostics) {
    // RL11 may have said already that the file is not there.
    let told = |found: &Diagnostic| found.code == &codes::RL1102 && found.primary.range == place;
    if !diagnostics.iter().any(told) {
        diagnostics.push(
            Diagnostic::error(&codes::RL1001, place, error)
                .label_text("not a data set")
                .note("a data set is a file of JSON lines or of Parquet, or a folder of such files"),
        );
    }
}

/// Faulty rows with the same code.
#[derive(Default)]
struct OfCode {
    shown: Vec<Diagnostic>,
    hidden: u64,
}

/// Faulty rows of a data set, by code.
#[derive(Default)]
struct Faults(BTreeMap<&'static str, OfCode>);

impl Faults {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, row: FaultyRow<'_>, place: Range, label: &str, sources: &mut Sources) {
        let of_code = self.0.entry(row.fault.code.id).or_default();
        if of_code.shown.len() == SHOWN || of_code.shown.iter().any(|shown| shown.message == row.fault.message) {
            of_code.hidden += 1;
            return;
        }
        let text = String::from_utf8_lossy(row.text);
        let length = text.len() as u32;
        let first_line = u32::try_from(row.line).unwrap_or(u32::MAX);
        let id = sources.add_excerpt(shown_path(&row.file.path, sources), text, first_line);
        let (other, label) = match row.fault.setting {
            Some(setting) => (setting, "by this setting"),
            None => (place, label),
        };
        let diagnostic =
            Diagnostic::error(row.fault.code, Range::new(id, 0, length), row.fault.message).label(other, label);
        of_code.shown.push(match row.fault.note {
            Some(note) => diagnostic.note(note),
            None => diagnostic,
        });
    }

    fn close(self, diagnostics: &mut Diagnostics) {
        for mut of_code in self.0.into_values() {
            if let Some(last) = of_code.shown.last_mut().filter(|_| of_code.hidden > 0) {
                let have = if of_code.hidden == 1 { "row has" } else { "rows have" };
                last.notes.push(format!("{} more {have} such a fault", of_code.hidden));
            }
            diagnostics.extend(of_code.shown);
        }
    }
}

/// The path as the user would write it: from the working folder, where it lies below.
fn shown_path(path: &Path, sources: &Sources) -> String {
    let (Origin::Working(folder) | Origin::File(folder)) = sources.working();
    path.strip_prefix(&folder).unwrap_or(path).display().to_string()
}
