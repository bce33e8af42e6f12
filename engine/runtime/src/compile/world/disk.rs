//! RL1131 and RL1132: whether the disk can take what a run writes.

use std::path::{Path, PathBuf};

use rlpipe_core::data::ExportDtype;
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rustix::fs::{Access, access, statvfs};

use super::super::data::model_folder;
use super::super::memory::stored;
use super::super::pipeline::Pipeline;
use super::super::shown::shown_path;
use super::Machine;

/// What a run writes of models, in bytes. Rollouts and metrics are small beside it and not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskNeeds {
    /// One checkpoint.
    pub checkpoint: u64,
    /// Checkpoints that are there at once: an old one goes when the new one is whole.
    pub checkpoints: u64,
    /// One export.
    pub export: u64,
    /// Exports of the whole run, all of which stay.
    pub exports: u64,
}

impl DiskNeeds {
    /// All that is there at the end of the run, or just before.
    pub fn whole(&self) -> u64 {
        self.checkpoint
            .saturating_mul(self.checkpoints)
            .saturating_add(self.export.saturating_mul(self.exports))
    }

    /// The largest single thing: without room for it a run cannot go on, whatever is there already.
    pub fn least(&self) -> u64 {
        let one = |bytes: u64, count: u64| if count > 0 { bytes } else { 0 };
        one(self.checkpoint, self.checkpoints).max(one(self.export, self.exports))
    }
}

/// What a run writes; none where a model is not known.
pub fn needs(pipeline: &Pipeline, machine: &Machine) -> Option<DiskNeeds> {
    let run = pipeline.run.as_ref()?;
    let total = run.total_steps.map(|steps| u64::from(steps.get()));
    let models = stored(pipeline, machine);
    let trained = models.iter().find(|model| model.trained)?;
    let mut needs = DiskNeeds::default();
    if let Some(checkpoint) = &run.checkpoint {
        let written = total.map_or(u64::MAX, |total| total / u64::from(checkpoint.every_steps.get()));
        needs.checkpoint = models.iter().map(|model| model.checkpoint_bytes).sum();
        needs.checkpoints = written.min(u64::from(checkpoint.keep.get()) + 1);
    }
    if let Some(export) = &run.hf_export {
        needs.export = match export.dtype {
            ExportDtype::Float32 => trained.parameters * 4,
            ExportDtype::Bfloat16 | ExportDtype::Float16 => trained.parameters * 2,
            ExportDtype::Source => weights_of(pipeline, trained.model).unwrap_or(trained.parameters * 4),
        };
        // The last step is always exported; with `total_epochs` nothing more is known yet.
        needs.exports = total.map_or(1, |total| total.div_ceil(u64::from(export.every_steps.get())));
    }
    Some(needs)
}

/// Bytes of the weight files of a model that is read; none of one from nothing.
fn weights_of(pipeline: &Pipeline, model: &str) -> Option<u64> {
    let config = pipeline.models.get(model)?.config.as_ref()?;
    if config.init.is_some() {
        return None;
    }
    let folder = model_folder(config, PathBuf::new(), &pipeline.hub).ok()?;
    let files = std::fs::read_dir(folder).ok()?.flatten();
    let weights = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "safetensors"));
    // A hub's files are links.
    let sizes = weights.filter_map(|file| std::fs::metadata(file.path()).ok());
    Some(sizes.map(|file| file.len()).sum()).filter(|sum| *sum > 0)
}

/// The innermost folder of a path that is there, or what is in its way.
pub fn existing_folder(path: &Path) -> Result<&Path, &Path> {
    let there = path
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() {
        Path::new(".")
    } else {
        there
    };
    if there.is_dir() { Ok(there) } else { Err(there) }
}

/// Bytes that this user may still write on the file system of a folder.
pub fn free_disk(folder: &Path) -> Option<u64> {
    let system = statvfs(folder).ok()?;
    system.f_bavail.checked_mul(system.f_frsize)
}

/// Bytes in the unit that shows them best.
pub fn shown_bytes(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

/// Looks at where run folders are made.
pub fn check(pipeline: &Pipeline, machine: &Machine, diagnostics: &mut Diagnostics) {
    let Some(run) = &pipeline.run else { return };
    let Some(range) = pipeline.range_of(&["run", "work_dir"]) else {
        return;
    };
    let shown = |path: &Path| shown_path(path).display().to_string();
    let folder = match existing_folder(run.work_dir.as_path()) {
        Ok(folder) => folder,
        Err(file) => {
            diagnostics.push(
                Diagnostic::error(&codes::RL1132, range, format!("`{}` is no folder", shown(file)))
                    .label_text("run folders cannot be made here")
                    .note("`--work-dir` names another folder"),
            );
            return;
        }
    };
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let message = format!("nothing can be written into `{}`: {error}", shown(folder));
        diagnostics.push(
            Diagnostic::error(&codes::RL1132, range, message)
                .label_text("run folders cannot be made here")
                .note("`--work-dir` names another folder"),
        );
    }
    let (Some(needs), Some(free)) = (needs(pipeline, machine), (machine.free_disk)(folder)) else {
        return;
    };
    let (least, whole) = (needs.least(), needs.whole());
    if whole <= free {
        return;
    }
    let is_error = least > free;
    let new = if is_error {
        Diagnostic::error
    } else {
        Diagnostic::warning
    };
    let (folder, free) = (shown(folder), shown_bytes(free));
    // A run that goes on has some of it on the disk already: that not all fits is no certain end.
    let message = match is_error {
        true => format!(
            "a checkpoint or export takes {}, and `{folder}` has {free} free",
            shown_bytes(least)
        ),
        false => format!("a run writes {}, and `{folder}` has {free} free", shown_bytes(whole)),
    };
    let mut diagnostic = new(&codes::RL1131, range, message).label_text("too little disk");
    if needs.checkpoints > 0 {
        let place = pipeline.range_of(&["run", "checkpoint"]).unwrap_or(range);
        let text = format!(
            "{} of {}",
            count(needs.checkpoints, "checkpoint"),
            shown_bytes(needs.checkpoint)
        );
        diagnostic = diagnostic.label(place, text);
        diagnostic =
            diagnostic.note("an old checkpoint goes when the new one is whole: `keep` and one more are there at once");
    }
    if needs.exports > 0 {
        let place = pipeline.range_of(&["run", "hf_export"]).unwrap_or(range);
        let text = format!("{} of {}", count(needs.exports, "export"), shown_bytes(needs.export));
        diagnostic = diagnostic.label(place, text);
    }
    diagnostics
        .push(diagnostic.note("free some space, keep fewer, export less often, or use another folder: `--work-dir`"));
}

fn count(number: u64, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_whole_and_the_least() {
        let needs = DiskNeeds {
            checkpoint: 10,
            checkpoints: 3,
            export: 4,
            exports: 5,
        };
        assert_eq!((needs.whole(), needs.least()), (50, 10));
        assert_eq!(
            DiskNeeds {
                checkpoints: 0,
                ..needs
            }
            .least(),
            4
        );
        assert_eq!(
            DiskNeeds {
                checkpoint: u64::MAX,
                ..needs
            }
            .whole(),
            u64::MAX
        );
    }

    #[test]
    fn folders_that_are_there_and_files_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(existing_folder(&folder.path().join("a/b")), Ok(folder.path()));
        assert_eq!(existing_folder(&file.join("b")), Err(&*file));
        assert_eq!(existing_folder(Path::new("absent")), Ok(Path::new(".")));
        assert!(free_disk(folder.path()).unwrap() > 0);
        assert_eq!(free_disk(&folder.path().join("absent")), None);
    }

    #[test]
    fn bytes_for_people() {
        let shown = [0, 1023, 1024, 3 << 19, 5 << 30].map(shown_bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
    }
}
