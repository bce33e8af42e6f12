//! Where the rows of a data set are: a list in a file, so that its length is bounded by the disk.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;

/// Bytes of a place.
const BYTES: usize = 28;

/// Where a row is, and what it was when it was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First byte of its line.
    pub offset: u64,
    /// Number of its line, from 1.
    pub line: u64,
    /// Bytes of its line.
    pub length: u32,
    /// Index of the file.
    pub file: u32,
    /// CRC-32C of its line.
    pub crc: u32,
}

impl Place {
    fn write(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.line.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.file.to_le_bytes());
        bytes[24..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; BYTES]) -> Self {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self {
            offset: long(0),
            line: long(8),
            length: short(16),
            file: short(20),
            crc: short(24),
        }
    }
}

/// A list of places that is being written.
pub struct IndexWriter {
    file: BufWriter<File>,
    count: u64,
}

/// A list of places.
pub struct Index {
    file: File,
    count: u64,
}

impl IndexWriter {
    /// An empty list, in a file without a name that is gone with this process.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            file: BufWriter::with_capacity(1 << 18, tempfile::tempfile()?),
            count: 0,
        })
    }

    /// Adds one at the end.
    pub fn push(&mut self, place: &Place) -> std::io::Result<()> {
        self.count += 1;
        self.file.write_all(&place.write())
    }

    /// No more come.
    pub fn finish(self) -> std::io::Result<Index> {
        Ok(Index {
            file: self.file.into_inner().map_err(std::io::IntoInnerError::into_error)?,
            count: self.count,
        })
    }
}

impl Index {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// One of them.
    pub fn get(&self, at: u64) -> std::io::Result<Place> {
        let mut bytes = [0; BYTES];
        self.file.read_exact_at(&mut bytes, at * BYTES as u64)?;
        Ok(Place::read(&bytes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_as_they_were_in_any_order() {
        let place = |number: u64| Place {
            offset: number << 40,
            line: number + 1,
            length: u32::MAX - number as u32,
            file: number as u32 % 3,
            crc: number as u32 * 77,
        };
        let mut writer = IndexWriter::new().unwrap();
        (0..20_000).for_each(|number| writer.push(&place(number)).unwrap());
        let index = writer.finish().unwrap();
        assert_eq!(index.count(), 20_000);
        for number in [19_999, 0, 777, 10_000] {
            assert_eq!(index.get(number).unwrap(), place(number));
        }
        assert!(index.get(20_000).is_err());
    }
}
