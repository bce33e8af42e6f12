//! `metrics.jsonl`: one JSON object a step, `step` first, then the metrics by name.
//!
//! JSON has no number for NaN and the infinities: they are written as `null`, and read back as NaN.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rlpipe_core::data::Metrics;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

use super::disk::{read_if_there, write_atomic};
use super::errors::{Named, RunError};

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsRow {
    /// The train step; 0 before the first.
    pub step: u64,
    /// Its metrics.
    pub metrics: Metrics,
}

/// `metrics.jsonl`, open for new rows.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    file: File,
    /// Bytes of whole rows.
    length: u64,
}

impl MetricsFile {
    /// Opens the file behind the rows that are there.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .named("open", path)?;
        let length = file.metadata().named("open", path)?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
        })
    }

    /// Adds one row, in one write. A metric named `step` is not written: the step is.
    pub fn append(&mut self, step: u64, metrics: &Metrics) -> Result<(), RunError> {
        let mut line = serde_json::to_vec(&Line { step, metrics })
            .map_err(|error| RunError::io("write", &self.path, None, error.into()))?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            // Part of a row may have fitted; readers should find whole ones.
            let _ = self.file.set_len(self.length);
            return Err(RunError::io("write", &self.path, Some(line.len() as u64), error));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Returns when all rows would survive a power cut.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_all().named("sync", &self.path)
    }

    /// The rows of a file, in order; none where there is no file. A last line that was torn is left out.
    pub fn read(path: &Path) -> Result<Vec<MetricsRow>, RunError> {
        let bytes = read_if_there(path)?.unwrap_or_default();
        lines(&bytes)
            .enumerate()
            .map(|(index, line)| {
                parse(line).map_err(|reason| RunError::DamagedLine {
                    path: path.to_owned(),
                    line: index + 1,
                    reason,
                })
            })
            .collect()
    }
}

/// Drops the rows of later steps (None: all rows) and a torn last line, at once or not at all.
///
/// Rows up to a checkpoint were synced with it, so that only what follows can have suffered: a damaged line is an error
/// where a row that stays comes after it.
pub(super) fn cut_after(path: &Path, step: Option<u64>) -> Result<(), RunError> {
    let Some(bytes) = read_if_there(path)? else {
        return Ok(());
    };
    let (mut kept, mut damaged) = (Vec::new(), None);
    for (index, line) in lines(&bytes).enumerate() {
        match (parse(line), &damaged) {
            (Ok(row), None) if step.is_some_and(|step| row.step <= step) => {
                kept.extend_from_slice(line);
                kept.push(b'\n');
            }
            (Ok(row), Some((line, reason))) if step.is_some_and(|step| row.step <= step) => {
                return Err(RunError::DamagedLine {
                    path: path.to_owned(),
                    line: *line,
                    reason: String::clone(reason),
                });
            }
            (Err(reason), None) => damaged = Some((index + 1, reason)),
            _ => {}
        }
    }
    if kept == bytes {
        Ok(())
    } else {
        write_atomic(path, &kept)
    }
}

/// Lines that end in a newline, without it.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .filter_map(|line| line.strip_suffix(b"\n"))
}

fn parse(line: &[u8]) -> Result<MetricsRow, String> {
    #[derive(Deserialize)]
    struct Read {
        step: u64,
        #[serde(flatten)]
        metrics: BTreeMap<String, Option<f64>>,
    }
    let read: Read = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let metrics = read
        .metrics
        .into_iter()
        .map(|(name, value)| (name, value.unwrap_or(f64::NAN)))
        .collect();
    Ok(MetricsRow {
        step: read.step,
        metrics: Metrics(metrics),
    })
}

struct Line<'a> {
    step: u64,
    metrics: &'a Metrics,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("step", &self.step)?;
        for (name, value) in self.metrics.0.iter().filter(|(name, _)| *name != "step") {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
