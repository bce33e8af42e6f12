//! Event files of TensorBoard: records of protobuf messages, framed as TFRecord.
//!
//! A record is its length (u64), the masked crc32c of that, the message, and its masked crc32c, all little-endian
//! (tensorflow/core/lib/io/record_writer.h). The messages are `Event` and `Summary` (tensorboard/compat/proto).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rlpipe_core::data::Metrics;

use super::disk::{names, sync_folder, write_atomic};
use super::errors::{Named, RunError};

const SUFFIX: &str = ".rlpipe";
const PREFIX: &str = "events.out.tfevents.";

/// An event file of its own for each start of the process.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// A new file behind those in `folder`. `wall_time_s` counts from the Unix epoch.
    pub fn create(folder: &Path, wall_time_s: f64) -> Result<Self, RunError> {
        let path = next_path(folder)?;
        let mut file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&path)
            .named("make", &path)?;
        let head = record(&version_event(wall_time_s));
        file.write_all(&head).named_write(&path, head.len())?;
        Ok(Self { path, file })
    }

    /// Adds one point to the curve of each metric, in one write.
    pub fn append(&mut self, step: u64, wall_time_s: f64, metrics: &Metrics) -> Result<(), RunError> {
        let record = record(&scalars_event(step, wall_time_s, metrics));
        self.file.write_all(&record).named_write(&self.path, record.len())
    }

    /// Returns when all points would survive a power cut.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_all().named("sync", &self.path)
    }
}

/// Puts the points up to `step` (None: no point) of all event files into a new one and removes the others.
///
/// The new file begins with a session start at step 0, at which a reader drops all it has read before: a TensorBoard
/// that is looking on shows no point twice, nor does anyone if the process dies before the old files are gone.
pub(super) fn cut_after(folder: &Path, step: Option<u64>) -> Result<(), RunError> {
    let old = event_files(folder)?;
    if old.is_empty() {
        return Ok(());
    }
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut first_wall_time_s = 0.0;
    for (_, path) in &old {
        let bytes = fs::read(path).named("read", path)?;
        for message in records(&bytes) {
            let head = EventHead::read(message);
            if first_wall_time_s == 0.0 {
                first_wall_time_s = head.wall_time_s;
            }
            if head.is_session_start {
                kept.retain(|message| EventHead::read(message).step < head.step);
            } else if head.has_summary && step.is_some_and(|step| head.step <= step) {
                kept.push(message.to_vec());
            }
        }
    }
    let mut bytes = record(&version_event(first_wall_time_s));
    bytes.extend(record(&session_start_event(first_wall_time_s)));
    for message in &kept {
        bytes.extend(record(message));
    }
    // Readers take whatever has `tfevents` in its name, so the file gets that only when it is whole.
    let (whole, path) = (folder.join("cut-back"), next_path(folder)?);
    write_atomic(&whole, &bytes)?;
    fs::rename(&whole, &path).named("write", &path)?;
    sync_folder(folder)?;
    for (_, path) in &old {
        fs::remove_file(path).named("remove", path)?;
    }
    sync_folder(folder)
}

/// Readers take files in the order of their names, so these are numbered.
fn next_path(folder: &Path) -> Result<PathBuf, RunError> {
    let number = event_files(folder)?.last().map_or(1, |(number, _)| number + 1);
    Ok(folder.join(format!("{PREFIX}{number:010}{SUFFIX}")))
}

fn event_files(folder: &Path) -> Result<Vec<(u64, PathBuf)>, RunError> {
    let mut files: Vec<(u64, PathBuf)> = names(folder)?
        .into_iter()
        .filter_map(|name| {
            let number = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()?;
            Some((number, folder.join(name)))
        })
        .collect();
    files.sort_unstable();
    Ok(files)
}

// Framing.

fn record(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(message.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(message);
    record.extend(masked_crc(message).to_le_bytes());
    record
}

/// Whole messages up to the first that is torn or damaged.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some((message, rest)) = split_record(bytes) {
        messages.push(message);
        bytes = rest;
    }
    messages
}

fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (length_crc, rest) = rest.split_first_chunk::<4>()?;
    let (message, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let (message_crc, rest) = rest.split_first_chunk::<4>()?;
    let whole = masked_crc(length) == u32::from_le_bytes(*length_crc)
        && masked_crc(message) == u32::from_le_bytes(*message_crc);
    whole.then_some((message, rest))
}

/// The mask of tensorflow/core/lib/hash/crc32c.h.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

// Messages. Event: 1 wall_time double, 2 step int64, 3 file_version string, 5 summary, 7 session_log.
// Summary: 1 value (repeated). Value: 1 tag string, 2 simple_value float. SessionLog: 1 status enum (START = 1).

fn version_event(wall_time_s: f64) -> Vec<u8> {
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time_s);
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

fn session_start_event(wall_time_s: f64) -> Vec<u8> {
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time_s);
    put_bytes(&mut event, 7, &[1 << 3, 1]);
    event
}

fn scalars_event(step: u64, wall_time_s: f64, metrics: &Metrics) -> Vec<u8> {
    let mut summary = Vec::new();
    for (name, &value) in &metrics.0 {
        let mut point = Vec::new();
        put_bytes(&mut point, 1, name.as_bytes());
        put_key(&mut point, 2, 5);
        point.extend((value as f32).to_le_bytes());
        put_bytes(&mut summary, 1, &point);
    }
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time_s);
    if step > 0 {
        put_key(&mut event, 2, 0);
        put_varint(&mut event, step);
    }
    put_bytes(&mut event, 5, &summary);
    event
}

fn put_double(message: &mut Vec<u8>, field: u64, value: f64) {
    put_key(message, field, 1);
    message.extend(value.to_le_bytes());
}

fn put_bytes(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(message, field, 2);
    put_varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn put_key(message: &mut Vec<u8>, field: u64, wire_type: u64) {
    put_varint(message, field << 3 | wire_type);
}

fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// What `cut_after` needs to know of an event.
#[derive(Debug, Default, PartialEq)]
struct EventHead {
    wall_time_s: f64,
    step: u64,
    has_summary: bool,
    is_session_start: bool,
}

impl EventHead {
    fn read(mut message: &[u8]) -> Self {
        let mut head = Self::default();
        while head.read_field(&mut message).is_some() {}
        head
    }

    fn read_field(&mut self, message: &mut &[u8]) -> Option<()> {
        let key = take_varint(message)?;
        match (key >> 3, key & 7) {
            (1, 1) => self.wall_time_s = f64::from_le_bytes(*message.split_off(..8)?.first_chunk()?),
            (2, 0) => self.step = take_varint(message)?,
            (field, 2) => {
                let length = usize::try_from(take_varint(message)?).ok()?;
                let bytes = message.split_off(..length)?;
                self.has_summary |= field == 5;
                self.is_session_start |= field == 7 && bytes == [1 << 3, 1];
            }
            _ => return None,
        }
        Some(())
    }
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn metrics(pairs: &[(&str, f64)]) -> Metrics {
        Metrics(pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect())
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Steps of the points in a folder, as a reader sees them that drops what it has at a session start.
    fn steps(folder: &Path) -> Vec<u64> {
        let mut steps = Vec::new();
        for (_, path) in event_files(folder).unwrap() {
            for message in records(&fs::read(path).unwrap()) {
                let head = EventHead::read(message);
                if head.is_session_start {
                    steps.retain(|&step| step < head.step);
                } else if head.has_summary {
                    steps.push(head.step);
                }
            }
        }
        steps
    }

    #[test]
    fn records_are_byte_for_byte_those_of_tensorboard() {
        // Written by tensorboard's own `Event`, `Summary` and `RecordWriter`.
        assert_eq!(
            hex(&record(&version_event(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"
        );
        assert_eq!(
            hex(&record(&scalars_event(
                300,
                2.25,
                &metrics(&[("loss", -0.5), ("reward/mean", 0.75)])
            ))),
            "2f000000000000006d5d1d5009000000000000024010ac022a210a0b0a046c6f737315000000bf0a120a0b7265776172642f6d65616e\
             150000403f45224b37"
        );
        assert_eq!(
            hex(&record(&scalars_event(0, 2.25, &metrics(&[("a", 1.0)])))),
            "1500000000000000d6ab6b2b0900000000000002402a0a0a080a0161150000803f1436ff3d"
        );
        assert_eq!(
            hex(&record(&session_start_event(1.5))),
            "0d000000000000003c37b83409000000000000f83f3a020801b718825c"
        );
    }

    #[test]
    fn the_checksum_is_castagnoli_s() {
        // RFC 3720, B.4.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_torn_or_damaged_record_ends_the_reading() {
        let one = record(b"one");
        let bytes = [one.clone(), record(b"two")].concat();
        for length in one.len()..bytes.len() {
            assert_eq!(records(&bytes[..length]), [b"one"]);
        }
        for place in one.len()..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1;
            assert_eq!(records(&bytes), [b"one"]);
        }
    }

    #[test]
    fn no_point_is_there_twice_after_a_cut_back() {
        let folder = tempfile::tempdir().unwrap();
        cut_after(folder.path(), Some(3)).unwrap();
        let mut file = EventFile::create(folder.path(), 1.0).unwrap();
        for step in 0..=5 {
            file.append(step, 1.0, &metrics(&[("a", 1.0)])).unwrap();
        }
        let old = fs::read(&file.path).unwrap();
        fs::write(&file.path, [&old[..], &old[..9]].concat()).unwrap();
        let old_path = file.path.clone();
        cut_after(folder.path(), Some(3)).unwrap();
        assert_eq!(steps(folder.path()), [0, 1, 2, 3]);

        // Killed between writing the new file and removing the old one.
        fs::write(&old_path, &old).unwrap();
        assert_eq!(steps(folder.path()), [0, 1, 2, 3]);
        let mut file = EventFile::create(folder.path(), 2.0).unwrap();
        file.append(4, 2.0, &metrics(&[("a", 1.0)])).unwrap();
        cut_after(folder.path(), Some(4)).unwrap();
        assert_eq!(steps(folder.path()), [0, 1, 2, 3, 4]);
        assert_eq!(event_files(folder.path()).unwrap().len(), 1);
        cut_after(folder.path(), None).unwrap();
        assert!(steps(folder.path()).is_empty());
    }
}
