//! `checkpoints/step-N/`: everything needed to go on from the end of a step.
//!
//! A checkpoint is written in `.step-N.partial`: first the workers' files, then `state.json`, then `manifest.json`; all
//! is synced, and only then does the folder get its name. What a killed process leaves is a partial folder, which is
//! removed, or a whole checkpoint.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use rlpipe_core::services::SavedFile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::disk::{make_folder, names, step_of, sync_folder, write_atomic};
use super::errors::{Named, RunError};
use crate::hash::{hex, sha256};

const FORMAT: u32 = 1;
const STATE: &str = "state.json";
const MANIFEST: &str = "manifest.json";

/// What must be the same for a run to go on as if it had never stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Hash of the plan without what may change.
    pub plan_hash: String,
    /// Hashes of what was read, by what it is: "data of `prompts`", "tokenizer of `policy`".
    pub fingerprints: BTreeMap<String, String>,
    /// Thread settings, by pool and variable, such as `local.OMP_NUM_THREADS`.
    pub threads: BTreeMap<String, String>,
    /// Versions of programs and libraries, and the devices. A change is told, not refused.
    pub versions: BTreeMap<String, String>,
}

/// What a checkpoint says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// How the folder is laid out; this version writes 1.
    pub format: u32,
    /// The last step that is in it.
    pub step: u64,
    /// The run it belongs to.
    pub identity: Identity,
    /// Every other file of the folder.
    pub files: Vec<SavedFile>,
}

/// `manifest.json`: the manifest and its own hash.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    /// SHA-256 of the manifest as compact JSON.
    sha256: String,
}

/// A checkpoint that was read and found whole.
#[derive(Debug)]
pub struct Checkpoint<State> {
    /// The folder that workers restore from.
    pub folder: PathBuf,
    /// What it says of itself.
    pub manifest: Manifest,
    /// The driver's state.
    pub state: State,
}

/// The folder of an attempt's checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
}

impl Checkpoints {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Steps that have a checkpoint, ascending.
    pub fn steps(&self) -> Result<Vec<u64>, RunError> {
        let mut steps: Vec<u64> = names(&self.folder)?
            .iter()
            .filter_map(|name| step_of(name).filter(|&step| *name == folder_name(step)))
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// An empty folder for a step's checkpoint.
    ///
    /// # Errors
    /// The step has a checkpoint.
    pub fn begin(&self, step: u64) -> Result<Partial, RunError> {
        make_folder(&self.folder)?;
        self.remove_partials()?;
        let target = self.folder.join(folder_name(step));
        if target.exists() {
            return Err(RunError::CheckpointExists { folder: target });
        }
        let path = self.partial(step);
        fs::create_dir(&path).named("make the folder", &path)?;
        Ok(Partial {
            checkpoints: self.clone(),
            step,
            path,
            target,
        })
    }

    /// The newest checkpoint, with every file checked against its size and hash; none where there is none. Partial
    /// folders are removed.
    ///
    /// # Errors
    /// The newest one is damaged: it is never passed over in silence.
    pub fn newest<State: DeserializeOwned>(&self) -> Result<Option<Checkpoint<State>>, RunError> {
        self.remove_partials()?;
        let Some(&step) = self.steps()?.last() else {
            return Ok(None);
        };
        let folder = self.folder.join(folder_name(step));
        let manifest = read_manifest(&folder, step)?;
        for file in &manifest.files {
            verify(&folder, file)?;
        }
        let path = folder.join(STATE);
        let state = fs::read(&path).named("read", &path)?;
        let state = serde_json::from_slice(&state)
            .map_err(|error| damaged(&folder, STATE, format!("does not fit this version of rlpipe: {error}")))?;
        Ok(Some(Checkpoint {
            folder,
            manifest,
            state,
        }))
    }

    fn partial(&self, step: u64) -> PathBuf {
        self.folder.join(format!(".{}.partial", folder_name(step)))
    }

    fn remove_partials(&self) -> Result<(), RunError> {
        for name in names(&self.folder)? {
            if name.starts_with('.') && name.ends_with(".partial") {
                let path = self.folder.join(name);
                fs::remove_dir_all(&path).named("remove", &path)?;
            }
        }
        Ok(())
    }

    fn prune(&self, keep: usize) -> Result<(), RunError> {
        let steps = self.steps()?;
        for &step in &steps[..steps.len().saturating_sub(keep.max(1))] {
            // Renamed first: a checkpoint that is removed by half must not look like one.
            let (path, partial) = (self.folder.join(folder_name(step)), self.partial(step));
            fs::rename(&path, &partial)
                .and_then(|()| fs::remove_dir_all(&partial))
                .named("remove", &path)?;
        }
        sync_folder(&self.folder)
    }
}

/// A checkpoint being written.
#[derive(Debug)]
pub struct Partial {
    checkpoints: Checkpoints,
    step: u64,
    path: PathBuf,
    target: PathBuf,
}

impl Partial {
    /// The folder that workers save into.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it a checkpoint: writes the state and the manifest, syncs, gives the folder its name, and removes all but
    /// the `keep` newest (at least this one). `files` are those that the workers wrote and synced.
    ///
    /// # Errors
    /// A file is not there in the size reported, the state would not read back (a number that is not finite), or the
    /// system refuses; older checkpoints are untouched then.
    pub fn commit<State: Serialize + DeserializeOwned>(
        self,
        state: &State,
        mut files: Vec<SavedFile>,
        identity: &Identity,
        keep: usize,
    ) -> Result<PathBuf, RunError> {
        for file in &files {
            self.check(file)?;
        }
        let bytes = serde_json::to_vec(state).map_err(|error| self.incomplete(STATE, error.to_string()))?;
        serde_json::from_slice::<State>(&bytes)
            .map_err(|error| self.incomplete(STATE, format!("would not read back: {error}")))?;
        write_atomic(&self.path.join(STATE), &bytes)?;
        files.push(SavedFile {
            name: STATE.to_owned(),
            bytes: bytes.len() as u64,
            sha256: sha256(&bytes),
        });
        let manifest = Manifest {
            format: FORMAT,
            step: self.step,
            identity: identity.clone(),
            files,
        };
        let sealed = Sealed {
            sha256: seal(&manifest),
            manifest,
        };
        let bytes = serde_json::to_vec_pretty(&sealed).map_err(|error| self.incomplete(MANIFEST, error.to_string()))?;
        write_atomic(&self.path.join(MANIFEST), &bytes)?;
        fs::rename(&self.path, &self.target).named("name the checkpoint", &self.target)?;
        sync_folder(&self.checkpoints.folder)?;
        self.checkpoints.prune(keep)?;
        Ok(self.target)
    }

    /// The file is in the folder, in the size reported, and durable with the folders it lies in.
    fn check(&self, file: &SavedFile) -> Result<(), RunError> {
        let own = [STATE, MANIFEST].contains(&file.name.as_str());
        if own
            || !Path::new(&file.name)
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(self.incomplete(&file.name, "is not a name for a worker's file".to_owned()));
        }
        let path = self.path.join(&file.name);
        let handle = File::open(&path).named("open", &path)?;
        let bytes = handle.metadata().named("open", &path)?.len();
        if bytes != file.bytes {
            return Err(self.incomplete(
                &file.name,
                format!("has {bytes} bytes, but {} were reported", file.bytes),
            ));
        }
        handle.sync_all().named("sync", &path)?;
        for folder in path.ancestors().skip(1).take_while(|folder| *folder != self.path) {
            sync_folder(folder)?;
        }
        Ok(())
    }

    fn incomplete(&self, file: &str, reason: String) -> RunError {
        RunError::IncompleteCheckpoint {
            folder: self.target.clone(),
            file: file.to_owned(),
            reason,
        }
    }
}

/// Whether a run may go on from a checkpoint. Returns what changed that is told but not refused.
///
/// # Errors
/// The plan, the data or the thread settings are others.
pub fn compatible(manifest: &Manifest, now: &Identity) -> Result<Vec<String>, RunError> {
    let before = &manifest.identity;
    if before.plan_hash != now.plan_hash {
        return Err(RunError::Changed {
            what: "the plan's hash".to_owned(),
            before: Some(before.plan_hash.clone()),
            now: Some(now.plan_hash.clone()),
        });
    }
    let changed = |what: fn(&str) -> String, before: &BTreeMap<String, String>, now: &BTreeMap<String, String>| {
        match all_differences(before, now).next() {
            Some((key, before, now)) => Err(RunError::Changed {
                what: what(&key),
                before,
                now,
            }),
            None => Ok(()),
        }
    };
    let fingerprint = |key: &str| format!("the fingerprint of the {key}");
    changed(fingerprint, &before.fingerprints, &now.fingerprints)?;
    changed(
        |key| format!("the thread setting `{key}`"),
        &before.threads,
        &now.threads,
    )?;
    Ok(all_differences(&before.versions, &now.versions)
        .map(|(key, before, now)| {
            let text = |value: Option<String>| value.unwrap_or_else(|| "not there".to_owned());
            format!(
                "`{key}` was {} at the checkpoint and is {} now: results may differ",
                text(before),
                text(now)
            )
        })
        .collect())
}

type Difference = (String, Option<String>, Option<String>);

fn all_differences<'a>(
    before: &'a BTreeMap<String, String>,
    now: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = Difference> + 'a {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    keys.into_iter()
        .map(|key| (key.clone(), before.get(key).cloned(), now.get(key).cloned()))
        .filter(|(_, before, now)| before != now)
}

fn folder_name(step: u64) -> String {
    format!("step-{step}")
}

fn read_manifest(folder: &Path, step: u64) -> Result<Manifest, RunError> {
    let path = folder.join(MANIFEST);
    let bytes = match super::disk::read_if_there(&path)? {
        Some(bytes) => bytes,
        None => return Err(damaged(folder, MANIFEST, "is missing".to_owned())),
    };
    let sealed: Sealed = serde_json::from_slice(&bytes)
        .map_err(|error| damaged(folder, MANIFEST, format!("cannot be read: {error}")))?;
    let manifest = sealed.manifest;
    if seal(&manifest) != sealed.sha256 {
        return Err(damaged(folder, MANIFEST, "is not what was written".to_owned()));
    }
    if manifest.format != FORMAT {
        let reason = format!(
            "has format {}, and this version of rlpipe reads {FORMAT}",
            manifest.format
        );
        return Err(damaged(folder, MANIFEST, reason));
    }
    if manifest.step != step {
        return Err(damaged(folder, MANIFEST, format!("is that of step {}", manifest.step)));
    }
    if !manifest.files.iter().any(|file| file.name == STATE) {
        return Err(damaged(folder, MANIFEST, format!("does not list `{STATE}`")));
    }
    Ok(manifest)
}

fn verify(folder: &Path, file: &SavedFile) -> Result<(), RunError> {
    let path = folder.join(&file.name);
    let mut handle = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(damaged(folder, &file.name, "is missing".to_owned()));
        }
        handle => handle.named("open", &path)?,
    };
    let bytes = handle.metadata().named("open", &path)?.len();
    if bytes != file.bytes {
        return Err(damaged(
            folder,
            &file.name,
            format!("has {bytes} bytes, but {} were written", file.bytes),
        ));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match handle.read(&mut buffer).named("read", &path)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    if hex(&hash.finalize()) == file.sha256 {
        Ok(())
    } else {
        Err(damaged(
            folder,
            &file.name,
            "is not what was written (its SHA-256 differs)".to_owned(),
        ))
    }
}

fn damaged(folder: &Path, file: &str, reason: String) -> RunError {
    RunError::DamagedCheckpoint {
        folder: folder.to_owned(),
        file: file.to_owned(),
        reason,
    }
}

fn seal(manifest: &Manifest) -> String {
    // A manifest holds strings and whole numbers only, which always serialize.
    sha256(&serde_json::to_vec(manifest).unwrap_or_default())
}

#[cfg(test)]
mod tests;
