//! `work_dir/NAME/ATTEMPT/`: claiming an attempt, holding it, and where things are in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process;

use super::checkpoint::Checkpoints;
use super::disk::{make_folder, names, step_of, sync_folder};
use super::errors::{Named, RunError};
use super::{metrics, tensorboard};

/// Folders that every attempt has.
const FOLDERS: [&str; 7] = [
    "rollouts/train",
    "rollouts/eval",
    "tensorboard",
    "checkpoints",
    "hf",
    "logs",
    "models",
];

/// What rollouts are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// They are trained on.
    Train,
    /// They measure the policy.
    Eval,
}

/// One attempt of a run, held by this process for as long as the value lives. The system lets go of it when the
/// process dies, however it dies; processes that it started do not inherit the hold.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    attempt: String,
    lock: File,
}

impl RunFolder {
    /// A new attempt `0001`, `0002`, ... of the run `name`; `latest` points at it.
    ///
    /// # Errors
    /// The name is no folder name, or the system refuses.
    pub fn create(work_dir: &Path, name: &str) -> Result<Self, RunError> {
        let run = run_path(work_dir, name)?;
        make_folder(&run)?;
        loop {
            let number = taken(&run)?.last().map_or(1, |last| last + 1);
            let attempt = attempt_name(number);
            let path = run.join(&attempt);
            // Making the folder is the claim: of several processes only one succeeds.
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(RunError::io("make the folder", &path, None, error)),
            }
            sync_folder(&run)?;
            match Self::hold(&run, attempt) {
                // A process that resumes took it in between; it is that one's now.
                Err(RunError::InUse { .. }) => {}
                held => return held,
            }
        }
    }

    /// An attempt to go on with: the one named, or the newest; none where the run has none yet.
    ///
    /// # Errors
    /// The attempt named is not there, or another process holds it.
    pub fn open(work_dir: &Path, name: &str, attempt: Option<&str>) -> Result<Option<Self>, RunError> {
        let run = run_path(work_dir, name)?;
        let there: Vec<String> = attempts(&run)?.into_iter().map(attempt_name).collect();
        match attempt {
            Some(attempt) if !there.iter().any(|name| name == attempt) => Err(RunError::NoSuchAttempt {
                folder: run,
                attempt: attempt.to_owned(),
                there,
            }),
            Some(attempt) => Self::hold(&run, attempt.to_owned()).map(Some),
            None => there
                .into_iter()
                .next_back()
                .map(|newest| Self::hold(&run, newest))
                .transpose(),
        }
    }

    fn hold(run: &Path, attempt: String) -> Result<Self, RunError> {
        let path = run.join(&attempt);
        let lock = lock(&path)?;
        for folder in FOLDERS {
            make_folder(&path.join(folder))?;
        }
        point_latest(run, &attempt)?;
        Ok(Self { path, attempt, lock })
    }

    /// The attempt's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The attempt's name, such as `0001`.
    pub fn attempt(&self) -> &str {
        &self.attempt
    }

    /// The pipeline as it ran.
    pub fn resolved(&self) -> PathBuf {
        self.path.join("resolved.yaml")
    }

    /// The plan.
    pub fn plan(&self) -> PathBuf {
        self.path.join("plan.json")
    }

    /// One row a step.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The folder of `step-N.jsonl`.
    pub fn rollouts(&self, purpose: Purpose) -> PathBuf {
        self.path.join(match purpose {
            Purpose::Train => "rollouts/train",
            Purpose::Eval => "rollouts/eval",
        })
    }

    /// The folder of event files.
    pub fn tensorboard(&self) -> PathBuf {
        self.path.join("tensorboard")
    }

    /// When what ran where.
    pub fn trace(&self) -> PathBuf {
        self.path.join("trace.json")
    }

    /// The checkpoints of this attempt.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.path.join("checkpoints"))
    }

    /// Where the model after a step is exported to; made by who exports.
    pub fn export(&self, step: u64) -> PathBuf {
        self.path.join(format!("hf/step-{step}"))
    }

    /// The folder of the workers' logs.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The folder of a model that `init` builds; made by who builds it.
    pub fn model(&self, name: &str) -> PathBuf {
        self.path.join("models").join(name)
    }

    /// Takes away what lies after a checkpoint's step, before the run goes on from there: rows of metrics, points of
    /// TensorBoard, rollouts, exports. None takes away everything of every step. The trace keeps all: it says when
    /// things ran, and they did. Call it before any of those files is opened.
    pub fn cut_back(&self, step: Option<u64>) -> Result<(), RunError> {
        metrics::cut_after(&self.metrics(), step)?;
        tensorboard::cut_after(&self.tensorboard(), step)?;
        for folder in [
            self.rollouts(Purpose::Train),
            self.rollouts(Purpose::Eval),
            self.path.join("hf"),
        ] {
            remove_after(&folder, step)?;
        }
        Ok(())
    }
}

impl Drop for RunFolder {
    /// Closing the file is not enough while a process that is just being started still has it.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Removes files and folders of later steps, and what was being written beside.
fn remove_after(folder: &Path, step: Option<u64>) -> Result<(), RunError> {
    for name in names(folder)? {
        let later = step_of(&name).is_some_and(|of| step.is_none_or(|step| of > step));
        if later || (name.starts_with('.') && name.ends_with(".partial")) {
            let path = folder.join(&name);
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.named("remove", &path)?;
        }
    }
    sync_folder(folder)
}

/// What is in the folder of a run before it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest attempt; none: there is none yet.
    pub newest: Option<String>,
    /// Who holds that, such as `process 17 on host`; none: nobody.
    pub holder: Option<String>,
    /// The step of its newest checkpoint.
    pub checkpoint: Option<u64>,
}

/// Looks at the folder of a run, and changes nothing in it.
pub fn standing(work_dir: &Path, name: &str) -> Result<Standing, RunError> {
    let run = run_path(work_dir, name)?;
    if !run.is_dir() {
        return Ok(Standing::default());
    }
    let Some(newest) = attempts(&run)?.pop().map(attempt_name) else {
        return Ok(Standing::default());
    };
    let attempt = run.join(&newest);
    let path = attempt.join("lock");
    // Shared, and for a moment: who looks at the same time does not look like a run.
    let is_held = File::open(&path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)));
    let holder = is_held.then(|| match fs::read_to_string(&path).unwrap_or_default().trim() {
        "" => "another process".to_owned(),
        holder => holder.to_owned(),
    });
    let checkpoints = attempt.join("checkpoints");
    let steps = if checkpoints.is_dir() {
        names(&checkpoints)?
    } else {
        Vec::new()
    };
    Ok(Standing {
        checkpoint: steps.iter().filter_map(|name| step_of(name)).max(),
        newest: Some(newest),
        holder,
    })
}

/// The attempt of a run that a process of this machine held last, which may have ended since.
pub fn held_by(work_dir: &Path, name: &str, process: u32) -> Result<Option<PathBuf>, RunError> {
    let run = run_path(work_dir, name)?;
    let attempts = attempts(&run)?.into_iter().rev();
    let mut paths = attempts.map(|number| run.join(attempt_name(number)));
    // Ids of processes come again: the newest.
    Ok(paths.find(|path| fs::read_to_string(path.join("lock")).is_ok_and(|text| text == holder(process))))
}

fn run_path(work_dir: &Path, name: &str) -> Result<PathBuf, RunError> {
    let mut components = Path::new(name).components();
    let one = matches!((components.next(), components.next()), (Some(Component::Normal(part)), None) if part == name);
    if !one || name.starts_with('.') || name.contains('\0') {
        return Err(RunError::BadName { name: name.to_owned() });
    }
    Ok(work_dir.join(name))
}

fn attempt_name(number: u64) -> String {
    format!("{number:04}")
}

/// Numbers of the attempts there are, ascending.
fn attempts(run: &Path) -> Result<Vec<u64>, RunError> {
    let mut numbers = taken(run)?;
    numbers.retain(|number| run.join(attempt_name(*number)).is_dir());
    Ok(numbers)
}

/// Numbers whose names are taken, by attempts or by anything else, ascending.
fn taken(run: &Path) -> Result<Vec<u64>, RunError> {
    let numbers = names(run)?
        .into_iter()
        .filter_map(|name| name.parse().ok().filter(|number| attempt_name(*number) == name));
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn lock(folder: &Path) -> Result<File, RunError> {
    let path = folder.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .named("open the lock", &path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let holder = Some(holder.trim().to_owned()).filter(|holder| !holder.is_empty());
            return Err(RunError::InUse {
                folder: folder.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(error)) => return Err(RunError::io("lock", &path, None, error)),
    }
    let holder = holder(process::id());
    file.set_len(0)
        .and_then(|()| file.write_all(holder.as_bytes()))
        .named_write(&path, holder.len())?;
    Ok(file)
}

/// A process of this machine, for those who find the folder in use; on a shared file system they may sit elsewhere.
fn holder(process: u32) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => format!("process {process}\n"),
        host => format!("process {process} on {host}\n"),
    }
}

/// Lets `latest` point at the newest attempt, also when several processes make attempts at once.
fn point_latest(run: &Path, held: &str) -> Result<(), RunError> {
    let latest = run.join("latest");
    let mut pointed = None;
    loop {
        let newest = attempts(run)?.last().copied();
        if newest == pointed {
            return sync_folder(run);
        }
        if let Some(number) = newest {
            // No other process has this name: the attempt is held.
            let beside = run.join(format!(".latest.{held}.partial"));
            let _ = fs::remove_file(&beside);
            symlink(attempt_name(number), &beside)
                .and_then(|()| fs::rename(&beside, &latest))
                .named("point the link", &latest)?;
        }
        pointed = newest;
    }
}

#[cfg(test)]
mod tests;
