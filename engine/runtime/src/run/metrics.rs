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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn metrics(pairs: &[(&str, f64)]) -> Metrics {
        Metrics(pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect())
    }

    fn steps(path: &Path) -> Vec<u64> {
        MetricsFile::read(path).unwrap().iter().map(|row| row.step).collect()
    }

    #[test]
    fn a_row_is_one_object_with_the_step_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut file = MetricsFile::open(&path).unwrap();
        file.append(
            3,
            &metrics(&[("reward/mean", 0.1), ("loss", f64::NAN), ("groups/failed", 2.0)]),
        )
        .unwrap();
        file.sync().unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"step\":3,\"groups/failed\":2.0,\"loss\":null,\"reward/mean\":0.1}\n"
        );
        assert!(
            MetricsFile::read(&path).unwrap()[0]
                .metrics
                .get("loss")
                .unwrap()
                .is_nan()
        );
    }

    proptest! {
        // Names without an `s` cannot be `step`, which is the row's own.
        #[test]
        fn rows_are_read_as_they_were_written(
            rows in prop::collection::vec(
                prop::collection::btree_map("[^s]*", prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO, 0..6),
                0..6,
            )
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics.jsonl");
            let mut file = MetricsFile::open(&path).unwrap();
            for (step, row) in rows.iter().enumerate() {
                file.append(step as u64, &Metrics(row.clone())).unwrap();
            }
            let bits = |row: &BTreeMap<String, f64>| {
                row.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect::<Vec<_>>()
            };
            let read = MetricsFile::read(&path).unwrap();
            prop_assert_eq!(read.len(), rows.len());
            for (step, (read, row)) in read.iter().zip(&rows).enumerate() {
                prop_assert_eq!(read.step, step as u64);
                prop_assert_eq!(bits(&read.metrics.0), bits(row));
            }
        }
    }

    #[test]
    fn later_rows_and_a_torn_line_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        cut_after(&path, Some(1)).unwrap();
        assert!(!path.exists());
        fs::write(
            &path,
            "{\"step\":0,\"a\":1}\n{\"step\":1}\n{\"step\":2}\n\0\0\0\n{\"step\":3}\n{\"step\":4",
        )
        .unwrap();
        cut_after(&path, Some(2)).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"step\":0,\"a\":1}\n{\"step\":1}\n{\"step\":2}\n"
        );
        MetricsFile::open(&path)
            .unwrap()
            .append(3, &Metrics::default())
            .unwrap();
        assert_eq!(steps(&path), [0, 1, 2, 3]);
        cut_after(&path, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn a_damaged_line_before_one_that_stays_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let text = "{\"step\":0}\n{\"step\":\n{\"step\":2}\n";
        fs::write(&path, text).unwrap();
        let error = cut_after(&path, Some(2)).unwrap_err().to_string();
        assert!(
            error.starts_with("line 2 of `") && error.contains("is damaged: "),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(MetricsFile::read(&path).is_err());
    }
}
