//! `rlpipe validate --watch`: checks again whenever a file changes.
//!
//! Files are looked at, a few times a second: that sees every way in which editors save (written in place, renamed over,
//! taken away and made anew), also on file systems that send no events, and costs a `stat` a file.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use rlpipe_core::kind::Role;
use rlpipe_runtime::compile::Outcome;

use crate::arguments::ValidateArguments;
use crate::output;
use crate::validate::{compiled, outside_and_show};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A file that is gone for less than this is being saved.
const SAVED_WITHIN: Duration = Duration::from_millis(600);
const CLEAR: &str = "\x1b[2J\x1b[3J\x1b[H";

/// What tells a file from what it was: none where there is none.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Checks, waits for a change, and checks again; Ctrl-C ends it as it ends any program.
pub fn watch(arguments: &ValidateArguments) -> Result<ExitCode> {
    let clears = std::io::stderr().is_terminal();
    loop {
        // Looked at before they are read: what changes meanwhile is a change.
        let mut seen = stamps(&arguments.pipeline.files);
        let mut outcome = compiled(&arguments.pipeline)?;
        if arguments.data {
            seen.extend(stamps(&data_files(&outcome)));
        }
        if clears {
            output::error(CLEAR);
        }
        outside_and_show(&mut outcome, arguments)?;
        let files = if seen.len() == 1 {
            "1 file".to_owned()
        } else {
            format!("{} files", seen.len())
        };
        output::error(&format!("watching {files}; Ctrl-C ends\n"));
        wait(&seen);
    }
}

/// Returns once a file is another and stays so for a moment.
fn wait(seen: &BTreeMap<PathBuf, Stamp>) {
    let paths: Vec<PathBuf> = seen.keys().cloned().collect();
    let mut before = seen.clone();
    let mut missing_for = Duration::ZERO;
    loop {
        sleep(LOOK_EVERY);
        let now = stamps(&paths);
        let is_settled = now == before;
        before = now;
        let gone = before
            .iter()
            .any(|(path, stamp)| stamp.is_none() && seen[path].is_some());
        missing_for = if gone { missing_for + LOOK_EVERY } else { Duration::ZERO };
        if is_settled && before != *seen && (!gone || missing_for >= SAVED_WITHIN) {
            return;
        }
    }
}

fn stamps(paths: &[PathBuf]) -> BTreeMap<PathBuf, Stamp> {
    paths.iter().map(|path| (path.clone(), stamp(path))).collect()
}

fn stamp(path: &Path) -> Stamp {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

/// The files and folders of data sets; of a folder, its files too.
fn data_files(outcome: &Outcome) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (_, _, contract) in outcome.pipeline.iter().flat_map(|pipeline| pipeline.live()) {
        let Role::Sampler { datasets, .. } = &contract.role else {
            continue;
        };
        for dataset in datasets {
            paths.push(dataset.path.clone());
            let below = std::fs::read_dir(&dataset.path).into_iter().flatten().flatten();
            paths.extend(below.map(|entry| entry.path()));
        }
    }
    paths
}
