//! Whether a head that a tied model's files repeat is the embedding.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::Fault;
use crate::header::Entry;

/// Read at once.
const PART_BYTES: u64 = 1 << 20;

/// A fault where head and embedding differ. Numbers of another type are left to who loads them: they are compared there.
pub(crate) fn check_head(head: (&Path, &Entry), embedding: (&Path, &Entry)) -> Option<Fault> {
    let same_type = head.1.dtype == embedding.1.dtype;
    let is_equal = if head.1.shape != embedding.1.shape {
        Ok(false)
    } else if same_type {
        equal_bytes(head, embedding)
    } else {
        Ok(true)
    };
    match is_equal {
        Ok(true) => None,
        Ok(false) => Some(
            Fault::weights(
                "`lm_head.weight` differs from the embedding, but `tie_word_embeddings` is true; set it to false in \
                 config.json to keep both",
            )
            .at(head.0),
        ),
        Err(error) => Some(Fault::weights(format!("cannot be read: {error}")).at(head.0)),
    }
}

fn equal_bytes(left: (&Path, &Entry), right: (&Path, &Entry)) -> io::Result<bool> {
    let (mut left_data, length) = data(left)?;
    let (mut right_data, other) = data(right)?;
    let mut left_part = vec![0; PART_BYTES as usize];
    let mut right_part = left_part.clone();
    let mut rest = length;
    while rest > 0 && length == other {
        let part = rest.min(PART_BYTES) as usize;
        left_data.read_exact(&mut left_part[..part])?;
        right_data.read_exact(&mut right_part[..part])?;
        if left_part[..part] != right_part[..part] {
            return Ok(false);
        }
        rest -= part as u64;
    }
    Ok(length == other)
}

/// A file at the first byte of a tensor, and the tensor's bytes.
fn data((path, entry): (&Path, &Entry)) -> io::Result<(File, u64)> {
    let mut file = File::open(path)?;
    let mut header = [0; 8];
    file.read_exact(&mut header)?;
    let (first, last) = entry.places();
    file.seek(SeekFrom::Start(8 + u64::from_le_bytes(header) + first))?;
    Ok((file, last - first))
}
