//! The header of a safetensors file: eight bytes of length, then JSON with type, shape and place of each tensor.
//! Tensors themselves are not read, so gigabytes are checked in milliseconds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;

use crate::Fault;

/// The longest header that the format allows.
const HEADER_LIMIT_BYTES: u64 = 100_000_000;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// Such as `F32` or `BF16`.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<i64>,
    /// First byte and the byte after the last, counted from the end of the header.
    data_offsets: (u64, u64),
}

impl Entry {
    /// Bytes of one number; none for types that are no floating-point numbers of 16 to 64 bits.
    fn float_bytes(&self) -> Option<u64> {
        match self.dtype.as_str() {
            "F64" => Some(8),
            "F32" => Some(4),
            "BF16" | "F16" => Some(2),
            _ => None,
        }
    }

    /// Its first byte and the byte after its last, counted from the end of the header.
    pub(crate) fn places(&self) -> (u64, u64) {
        self.data_offsets
    }

    /// Whether the worker reads this type.
    pub fn is_float(&self) -> bool {
        self.float_bytes().is_some()
    }
}

/// The tensors of a file by name. A fault where it is no whole safetensors file.
pub fn read_header(path: &Path) -> Result<BTreeMap<String, Entry>, Fault> {
    let broken = |problem: &str| {
        Fault::weights(format!(
            "`{}` is not a whole safetensors file ({problem}); copy it again",
            path.display()
        ))
    };
    let failed = |error: &io::Error| Fault::weights(format!("cannot read `{}`: {error}", path.display()));
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    let size = file.metadata().map_err(|error| failed(&error))?.len();
    if size < 8 {
        return Err(broken("it is too short for a header"));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|error| failed(&error))?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_LIMIT_BYTES {
        return Err(broken("its header has no sensible length"));
    }
    if length > size - 8 {
        return Err(broken("it ends within the header"));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(|error| failed(&error))?;
    let wrong = |error: &serde_json::Error| broken(&format!("its header is not as it should be: {error}"));
    let mut values: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    values.remove("__metadata__");
    let mut entries = BTreeMap::new();
    for (name, value) in values {
        entries.insert(name, serde_json::from_value(value).map_err(|error| wrong(&error))?);
    }
    check_places(&entries, size - 8 - length).map_err(|problem| broken(&problem))?;
    Ok(entries)
}

/// Tensors follow each other without gaps up to the end of the file, each as long as its shape.
fn check_places(entries: &BTreeMap<String, Entry>, data_bytes: u64) -> Result<(), String> {
    let mut places: Vec<(&String, &Entry)> = entries.iter().collect();
    places.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut end = 0;
    for (name, entry) in places {
        let (first, last) = entry.data_offsets;
        let count = entry
            .shape
            .iter()
            .try_fold(1_u64, |count, &size| count.checked_mul(u64::try_from(size).ok()?));
        let bytes = count
            .zip(entry.float_bytes())
            .map(|(count, bytes)| count.saturating_mul(bytes));
        if first != end || last < first || bytes.is_some_and(|bytes| bytes != last - first) || count.is_none() {
            return Err(format!(
                "the place of `{name}` does not fit its shape and its neighbours"
            ));
        }
        end = last;
    }
    match end.cmp(&data_bytes) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(format!("{} bytes are missing at its end", end - data_bytes)),
        std::cmp::Ordering::Less => Err(format!("{} bytes too many", data_bytes - end)),
    }
}
