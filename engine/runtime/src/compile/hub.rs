//! Models of a hub: how a pipeline names them, and where the Hugging Face cache of this machine has them.
//!
//! The cache is the one of `huggingface_hub` and so of transformers: `models--ORG--NAME` has `refs` (the commit of each
//! branch or tag that was asked for), `blobs` (contents, named by their hash) and `snapshots` (a folder a commit, with
//! links to blobs). Nothing here opens a connection.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hexadecimal digits of a commit.
const COMMIT_DIGITS: usize = 40;

/// A model of the Hugging Face hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HubConfig {
    /// Its repository, such as `HuggingFaceTB/SmolLM2-135M-Instruct`.
    #[schemars(example = &"HuggingFaceTB/SmolLM2-135M-Instruct")]
    pub repository: Repository,
    /// A branch, tag or commit. A run goes on only with the commit that it began with.
    #[serde(default)]
    #[schemars(example = &"main")]
    pub revision: Revision,
}

/// A repository's name: `ORG/NAME`, or `NAME` alone for a few old ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, extend("pattern" = "^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?$"))]
pub struct Repository(String);

/// A branch, tag or commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, extend("pattern" = "^[A-Za-z0-9_+@=./-]+$"))]
pub struct Revision(String);

impl Repository {
    /// The name, as the hub has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Repository {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && !part.contains("--")
                && !part.contains("..")
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if name.split('/').count() <= 2 && name.split('/').all(plain) {
            Ok(Self(name))
        } else {
            Err(format!(
                "`{name}` is not a repository of a hub: that is `ORG/NAME`, such as `HuggingFaceTB/SmolLM2-135M-Instruct`"
            ))
        }
    }
}

impl Revision {
    /// The revision, as the hub has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a whole commit, which never changes.
    pub fn is_commit(&self) -> bool {
        self.0.len() == COMMIT_DIGITS && self.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }
}

impl Default for Revision {
    fn default() -> Self {
        Self("main".to_owned())
    }
}

impl TryFrom<String> for Revision {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // It becomes a path below `refs`; git itself allows no part that begins with a dot.
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+@=".contains(c))
        };
        if name.split('/').all(plain) {
            Ok(Self(name))
        } else {
            Err(format!("`{name}` is not a branch, tag or commit, such as `main`"))
        }
    }
}

impl From<Repository> for String {
    fn from(repository: Repository) -> Self {
        repository.0
    }
}

impl From<Revision> for String {
    fn from(revision: Revision) -> Self {
        revision.0
    }
}

impl fmt::Display for HubConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repository.0, self.revision.0)
    }
}

/// The Hugging Face cache of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HubCache {
    folder: PathBuf,
}

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What the revision stands for.
    pub commit: Revision,
    /// Its model folder.
    pub folder: PathBuf,
}

impl HubCache {
    /// A cache in this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Where `huggingface_hub` has it: `HF_HUB_CACHE`, `HF_HOME/hub`, `XDG_CACHE_HOME/huggingface/hub`, or
    /// `~/.cache/huggingface/hub`. Relative paths start at the working folder.
    pub fn of(environment: &dyn Fn(&str) -> Option<String>, working_folder: &Path) -> Self {
        let home = environment("HOME").unwrap_or_default();
        let variable = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let path = |text: String| match text.strip_prefix("~/") {
            Some(below) => Path::new(&home).join(below),
            None => PathBuf::from(text),
        };
        let folder = variable("HF_HUB_CACHE")
            .map(path)
            .or_else(|| variable("HF_HOME").map(|home| path(home).join("hub")))
            .or_else(|| variable("XDG_CACHE_HOME").map(|cache| path(cache).join("huggingface/hub")))
            .unwrap_or_else(|| Path::new(&home).join(".cache/huggingface/hub"));
        Self::at(working_folder.join(folder))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a repository.
    pub fn repository(&self, repository: &Repository) -> PathBuf {
        self.folder.join(format!("models--{}", repository.0.replace('/', "--")))
    }

    /// The model, if it is here; whether it is whole is not looked at.
    pub fn find(&self, model: &HubConfig) -> Option<Snapshot> {
        let repository = self.repository(&model.repository);
        let commit = if model.revision.is_commit() {
            model.revision.clone()
        } else {
            let text = std::fs::read_to_string(repository.join("refs").join(&model.revision.0)).ok()?;
            Some(Revision(text.trim().to_owned())).filter(Revision::is_commit)?
        };
        let folder = repository.join("snapshots").join(&commit.0);
        folder.is_dir().then_some(Snapshot { commit, folder })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn model(repository: &str, revision: &str) -> HubConfig {
        HubConfig {
            repository: repository.to_owned().try_into().unwrap(),
            revision: revision.to_owned().try_into().unwrap(),
        }
    }

    /// The order is that of `huggingface_hub/constants.py`.
    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        let all = [
            ("HOME", "/home/me"),
            ("XDG_CACHE_HOME", "/xdg"),
            ("HF_HOME", "~/hf"),
            ("HF_HUB_CACHE", "caches/hub"),
        ];
        let wanted = [
            "/home/me/.cache/huggingface/hub",
            "/xdg/huggingface/hub",
            "/home/me/hf/hub",
            "/here/caches/hub",
        ];
        for (count, wanted) in (1..).zip(wanted) {
            let environment = |name: &str| {
                let found = all[..count].iter().find(|(known, _)| *known == name);
                // What is set to nothing counts as not set.
                found.map(|(_, value)| (*value).to_owned()).or(Some(String::new()))
            };
            assert_eq!(
                HubCache::of(&environment, Path::new("/here")).folder(),
                Path::new(wanted)
            );
        }
    }

    #[test]
    fn a_revision_leads_to_its_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let cache = HubCache::at(folder.path());
        let repository = folder.path().join("models--org--name");
        let snapshot = repository.join("snapshots").join(COMMIT);
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(repository.join("refs/refs/pr")).unwrap();
        fs::write(repository.join("refs/main"), COMMIT).unwrap();
        fs::write(repository.join("refs/refs/pr/1"), format!("{COMMIT}\n")).unwrap();
        fs::write(repository.join("refs/gone"), "f".repeat(40)).unwrap();
        fs::write(repository.join("refs/strange"), "../../../etc").unwrap();
        for revision in ["main", "refs/pr/1", COMMIT] {
            let found = cache.find(&model("org/name", revision)).unwrap();
            assert_eq!((found.commit.as_str(), &found.folder), (COMMIT, &snapshot));
        }
        for revision in ["gone", "strange", "v1", &"e".repeat(40)] {
            assert_eq!(cache.find(&model("org/name", revision)), None);
        }
        assert_eq!(cache.find(&model("gpt2", "main")), None);
    }

    #[test]
    fn names_cannot_leave_the_cache() {
        for name in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "..",
            "a/..",
            "a/b..c",
            "a--b",
            "a/b c",
            "-a",
            "https://x",
        ] {
            assert!(Repository::try_from(name.to_owned()).is_err(), "{name}");
        }
        for name in [
            "", "/main", "main/", "a//b", "..", "a/../b", ".git", "a b", "a?b", "a%2e",
        ] {
            assert!(Revision::try_from(name.to_owned()).is_err(), "{name}");
        }
        for name in ["gpt2", "Qwen/Qwen2.5-0.5B", "a/b_c"] {
            assert_eq!(Repository::try_from(name.to_owned()).unwrap().as_str(), name);
        }
    }
}
