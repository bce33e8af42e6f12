//! One pass over a data set: every row is made once, to see that it can be, and where it is is written down.
//!
//! Chunks of lines are worked on by all cores; what comes of them is taken in order, so that nothing depends on how many
//! there are. No row outlives its chunk.

use std::collections::BTreeSet;

use rlpipe_core::data::Row;
use sha2::{Digest, Sha256};

use super::Longest;
use super::files::{Chunk, DataFile};
use super::index::{Index, IndexWriter, Place};
use super::recipe::{Made, Recipe, RowFault};
use crate::hash::hex;

/// Chunks that are held at once.
const CHUNKS_AT_ONCE: usize = 16;
/// More data sources than these are not told apart.
pub const MOST_SOURCES: usize = 1000;

/// What a pass found.
pub struct Passed {
    /// Where the rows that pass are.
    pub index: Index,
    /// Rows in the files.
    pub read: u64,
    /// Rows for which `where` does not hold.
    pub unwanted: u64,
    /// Rows whose prompt is too long.
    pub over_long: u64,
    /// Of the files, and of what was made of them: a template or a tokenizer that changed changes the rows too.
    pub fingerprint: String,
    /// Values of `data_source`; of very many the first ones.
    pub sources: BTreeSet<String>,
    /// Rows of which `look` told something.
    pub told: u64,
    /// The first of them: its line, and what was told.
    pub first_told: Option<(u64, String)>,
    /// Most lines that were held at once.
    pub most_held: u64,
    /// Tokens of the longest rows that pass.
    pub longest: Longest,
}

/// A faulty row.
pub struct FaultyRow<'a> {
    /// The file.
    pub file: &'a DataFile,
    /// Its line, from 1.
    pub line: u64,
    /// Its text.
    pub text: &'a [u8],
    /// What is wrong with it.
    pub fault: RowFault,
}

/// Who is told how far a pass is: bytes done and bytes in all.
pub type OnProgress<'a> = &'a dyn Fn(u64, u64);

/// What came of one chunk.
struct Worked {
    digest: [u8; 32],
    places: Vec<Place>,
    faults: Vec<(usize, RowFault)>,
    unwanted: u64,
    over_long: u64,
    sources: BTreeSet<String>,
    told: u64,
    first_told: Option<(u64, String)>,
    longest: Longest,
}

/// Looks at a row that passes, and may tell something of it.
pub type Look<'a> = &'a (dyn Fn(&Row) -> Option<String> + Sync);

/// Goes through the files. An error comes with the file that it is about.
pub fn pass<'a>(
    files: &'a [DataFile],
    recipe: &Recipe,
    look: Look<'_>,
    progress: OnProgress<'_>,
    on_fault: &mut dyn FnMut(FaultyRow<'_>),
) -> Result<Passed, (Option<&'a DataFile>, std::io::Error)> {
    let spool = |error| (None, error);
    let mut writer = IndexWriter::new().map_err(spool)?;
    let (mut read, mut unwanted, mut over_long, mut most_held) = (0, 0, 0, 0);
    let (mut told, mut first_told, mut longest) = (0, None, Longest::default());
    let mut sources = BTreeSet::new();
    let mut digest = Sha256::new();
    let mut total = 0;
    for file in files {
        total += file.bytes().map_err(|error| (Some(file), error))?;
    }
    let mut before = 0;
    for (index, file) in files.iter().enumerate() {
        let of_file = |error| (Some(file), error);
        let mut chunks = file.chunks().map_err(of_file)?;
        loop {
            let mut batch = Vec::new();
            while batch.len() < CHUNKS_AT_ONCE
                && let Some(chunk) = chunks.next(index).map_err(of_file)?
            {
                batch.push(chunk);
            }
            if batch.is_empty() {
                break;
            }
            most_held = most_held.max(batch.iter().map(|chunk| chunk.lines.len() as u64).sum());
            for (chunk, worked) in batch.iter().zip(work(&batch, recipe, look)) {
                read += chunk.lines.len() as u64;
                unwanted += worked.unwanted;
                over_long += worked.over_long;
                told += worked.told;
                longest = longest.or(worked.longest);
                first_told = first_told.or(worked.first_told);
                digest.update(worked.digest);
                for place in &worked.places {
                    writer.push(place).map_err(spool)?;
                }
                for source in worked.sources {
                    if sources.len() < MOST_SOURCES {
                        sources.insert(source);
                    }
                }
                for (line, fault) in worked.faults {
                    let line = &chunk.lines[line];
                    on_fault(FaultyRow {
                        file,
                        line: line.number,
                        text: &chunk.bytes[line.bytes.clone()],
                        fault,
                    });
                }
            }
            progress(before + chunks.offset(), total);
        }
        before += chunks.offset();
    }
    Ok(Passed {
        index: writer.finish().map_err(spool)?,
        read,
        unwanted,
        over_long,
        fingerprint: hex(&digest.finalize()),
        sources,
        told,
        first_told,
        most_held,
        longest,
    })
}

/// What comes of each chunk, in order.
fn work(batch: &[Chunk], recipe: &Recipe, look: Look<'_>) -> Vec<Worked> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = batch.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = batch
            .chunks(share)
            .map(|share| {
                scope.spawn(move || {
                    share
                        .iter()
                        .map(|chunk| work_on(chunk, recipe, look))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn work_on(chunk: &Chunk, recipe: &Recipe, look: Look<'_>) -> Worked {
    let mut worked = Worked {
        digest: [0; 32],
        places: Vec::with_capacity(chunk.lines.len()),
        faults: Vec::new(),
        unwanted: 0,
        over_long: 0,
        sources: BTreeSet::new(),
        told: 0,
        first_told: None,
        longest: Longest::default(),
    };
    let mut digest = Sha256::new_with_prefix(&chunk.bytes);
    for (at, line) in chunk.lines.iter().enumerate() {
        let text = &chunk.bytes[line.bytes.clone()];
        match recipe.make(text, line.number) {
            Ok(Made::Row(row)) => {
                for ids in [&row.prompt_ids, &row.answer_ids] {
                    digest.update((ids.len() as u64).to_le_bytes());
                    ids.iter().for_each(|id| digest.update(id.to_le_bytes()));
                }
                for text in [Some(&row.data_source), row.ground_truth.as_ref()]
                    .into_iter()
                    .flatten()
                {
                    digest.update((text.len() as u64).to_le_bytes());
                    digest.update(text);
                }
                worked.longest = worked.longest.or(Longest::of(&row));
                if let Some(found) = look(&row) {
                    worked.told += 1;
                    worked.first_told.get_or_insert((line.number, found));
                }
                worked.places.push(Place {
                    offset: line.offset,
                    line: line.number,
                    // A line is shorter than 4 GiB.
                    length: text.len() as u32,
                    file: chunk.file as u32,
                    crc: crc32c::crc32c(text),
                });
                if !worked.sources.contains(&row.data_source) {
                    worked.sources.insert(row.data_source);
                }
            }
            Ok(Made::Unwanted) => worked.unwanted += 1,
            Ok(Made::OverLong) => worked.over_long += 1,
            Err(fault) => worked.faults.push((at, fault)),
        }
    }
    worked.digest = digest.finalize().into();
    worked
}
