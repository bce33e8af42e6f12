//! The files of a data set, and their lines in chunks.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlpipe_core::kind::DatasetFormat;

/// Lines of a chunk, at most.
pub const CHUNK_LINES: usize = 512;
/// Bytes after which a chunk ends with the line.
const CHUNK_BYTES: usize = 1 << 20;
/// A longer line is none of JSON lines.
const LONGEST_LINE: usize = 256 << 20;

/// A file of a data set, as lines of JSON.
pub struct DataFile {
    /// Where the user's file is.
    pub path: PathBuf,
    /// Where its lines are.
    pub lines: Lines,
}

/// Where the lines of a file are.
pub enum Lines {
    /// In the file itself.
    There,
    /// In a file without a name that is gone with this process: it was written from another format.
    Spool(Arc<File>),
}

impl DataFile {
    /// The bytes of a line.
    pub fn line(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        let mut line = vec![0; length];
        match &self.lines {
            // Not held open: a folder may have more files than a process may open.
            Lines::There => File::open(&self.path)?.read_exact_at(&mut line, offset)?,
            Lines::Spool(file) => file.read_exact_at(&mut line, offset)?,
        }
        Ok(line)
    }

    /// Its size, as lines.
    pub fn bytes(&self) -> std::io::Result<u64> {
        match &self.lines {
            Lines::There => std::fs::metadata(&self.path).map(|metadata| metadata.len()),
            Lines::Spool(file) => file.metadata().map(|metadata| metadata.len()),
        }
    }

    /// Its lines from the first on.
    pub fn chunks(&self) -> std::io::Result<Chunks> {
        let mut file = match &self.lines {
            Lines::There => File::open(&self.path)?,
            Lines::Spool(file) => file.try_clone()?,
        };
        file.seek(SeekFrom::Start(0))?;
        Ok(Chunks {
            reader: BufReader::with_capacity(1 << 18, file),
            offset: 0,
            line: 0,
        })
    }
}

/// The files of a path: the file itself, or what a folder has of them, by name.
///
/// # Errors
/// Says why there are none.
pub fn list(path: &Path, format: DatasetFormat) -> Result<Vec<PathBuf>, String> {
    let cannot = |error: std::io::Error| format!("cannot read `{}`: {error}", path.display());
    if !std::fs::metadata(path).map_err(cannot)?.is_dir() {
        check_regular(path)?;
        return Ok(vec![path.to_owned()]);
    }
    let endings: &[&str] = match format {
        DatasetFormat::Auto => &["jsonl", "parquet"],
        DatasetFormat::Jsonl => &["jsonl"],
        DatasetFormat::Parquet => &["parquet"],
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        let fits = file
            .extension()
            .and_then(|ending| ending.to_str())
            .is_some_and(|ending| endings.contains(&ending));
        if fits {
            found.push(file);
        }
    }
    if found.is_empty() {
        let wanted: Vec<String> = endings.iter().map(|ending| format!("`*.{ending}`")).collect();
        return Err(format!(
            "the folder `{}` has no files {}; folders in it are not looked into",
            path.display(),
            wanted.join(" or ")
        ));
    }
    found.sort();
    found.iter().try_for_each(|file| check_regular(file))?;
    Ok(found)
}

/// Says why a path is no regular file, links followed: of another, such as a pipe, reading could wait forever.
fn check_regular(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(metadata) => Err(format!(
            "cannot read `{shown}`: it is {}, not a regular file; put a file in its place, or take it away",
            if metadata.is_dir() {
                "a folder"
            } else {
                "a pipe, a socket or a device"
            }
        )),
        Err(error) => Err(match std::fs::read_link(path) {
            Ok(target) => format!(
                "cannot read `{shown}`: it is a link to `{}`: {error}; fetch the file again, or take the link away",
                target.display()
            ),
            Err(_) => format!("cannot read `{shown}`: {error}"),
        }),
    }
}

/// Whether a file is Parquet.
pub fn is_parquet(path: &Path, format: DatasetFormat) -> bool {
    match format {
        DatasetFormat::Auto => path.extension().is_some_and(|ending| ending == "parquet"),
        DatasetFormat::Jsonl => false,
        DatasetFormat::Parquet => true,
    }
}

/// One line of a chunk.
#[derive(Clone)]
pub struct Line {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its number in the file, from 1.
    pub number: u64,
    /// Its bytes in the chunk, without the line's end.
    pub bytes: std::ops::Range<usize>,
}

/// Some lines that follow one another. Where chunks begin and end depends on the file alone.
#[derive(Default)]
pub struct Chunk {
    /// Index of the file.
    pub file: usize,
    pub bytes: Vec<u8>,
    /// The lines that are not empty.
    pub lines: Vec<Line>,
}

/// Goes through a file.
pub struct Chunks {
    reader: BufReader<File>,
    offset: u64,
    line: u64,
}

impl Chunks {
    /// The next lines; none at the end.
    pub fn next(&mut self, file: usize) -> std::io::Result<Option<Chunk>> {
        let mut chunk = Chunk {
            file,
            ..Chunk::default()
        };
        let mut read_lines = 0;
        while read_lines < CHUNK_LINES && chunk.bytes.len() < CHUNK_BYTES {
            let start = chunk.bytes.len();
            let limit = LONGEST_LINE as u64 + 1;
            let read = (&mut self.reader).take(limit).read_until(b'\n', &mut chunk.bytes)?;
            if read == 0 {
                break;
            }
            if read > LONGEST_LINE {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    format!("its line {} is longer than {} MiB", self.line + 1, LONGEST_LINE >> 20),
                ));
            }
            self.line += 1;
            read_lines += 1;
            let mut bytes = start..chunk.bytes.len();
            if self.offset == 0 && chunk.bytes.starts_with(b"\xef\xbb\xbf") {
                bytes.start += 3;
            }
            while chunk.bytes[bytes.clone()].last().is_some_and(u8::is_ascii_whitespace) {
                bytes.end -= 1;
            }
            if !bytes.is_empty() {
                chunk.lines.push(Line {
                    offset: self.offset + (bytes.start - start) as u64,
                    number: self.line,
                    bytes,
                });
            }
            self.offset += read as u64;
        }
        Ok((read_lines > 0).then_some(chunk))
    }

    /// Bytes that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}
