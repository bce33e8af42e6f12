//! Models from a Hugging Face hub, into the Hugging Face cache. The only place that opens a connection to elsewhere.
//!
//! A file is written beside, checked against the hash that the hub names, and only then gets its place; the revision is
//! remembered last. So what is in the cache is whole, and a download that ended early goes on where it stopped.

mod cache;
mod errors;
mod hash;
mod hub;

use std::path::PathBuf;

use cache::{Entry, RepositoryFolder};
pub use errors::DownloadError;
use hub::{Connection, Received};

/// The index of weights in several files.
const INDEX: &str = "model.safetensors.index.json";
/// Weights in one file.
const WEIGHTS: &str = "model.safetensors";

/// A model to download.
#[derive(Clone)]
pub struct Download {
    /// The hub, such as `https://huggingface.co`.
    pub endpoint: String,
    /// Shown to the hub, and to nobody else.
    pub token: Option<String>,
    /// `ORG/NAME`.
    pub repository: String,
    /// A branch, tag or commit.
    pub revision: String,
    /// The repository's folder in the cache: `models--ORG--NAME`.
    pub folder: PathBuf,
}

/// What a download did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// What the revision stands for.
    pub commit: String,
    /// What was fetched; what was here already is not counted.
    pub bytes: u64,
}

/// Is told how far a file is: its name, bytes that are here, bytes that it has.
pub type Report<'a> = &'a (dyn Fn(&str, u64, u64) + Send + Sync);

/// Asks the hub for a model, and fetches nothing of it: the commit that the revision stands for.
///
/// # Errors
/// See `DownloadError`.
pub async fn ask(request: &Download) -> Result<String, DownloadError> {
    Ok(Connection::new(request)?.listing().await?.commit)
}

/// Fetches the files that a model needs: config, tokenizer, chat template and weights as safetensors.
///
/// # Errors
/// See `DownloadError`. What came whole stays in the cache, under its hash.
pub async fn download(request: &Download, report: Report<'_>) -> Result<Downloaded, DownloadError> {
    let connection = Connection::new(request)?;
    let listing = connection.listing().await?;
    let folder = RepositoryFolder {
        path: request.folder.clone(),
    };
    let mut bytes = 0;
    // Weights come last: a snapshot that has them has everything.
    for entry in listing.entries.iter().filter(|entry| is_text(&entry.name)) {
        bytes += fetch(&connection, &folder, &listing.commit, entry, report).await?;
    }
    for entry in weights(&listing.entries, &folder, &listing.commit, request)? {
        bytes += fetch(&connection, &folder, &listing.commit, entry, report).await?;
    }
    if request.revision != listing.commit {
        folder.refer(&request.revision, &listing.commit)?;
    }
    Ok(Downloaded {
        commit: listing.commit,
        bytes,
    })
}

/// Whether a file is one of the small ones that a model needs.
fn is_text(name: &str) -> bool {
    [
        "config.json",
        "generation_config.json",
        "special_tokens_map.json",
        INDEX,
    ]
    .contains(&name)
        || name.starts_with("tokenizer")
        || name.starts_with("chat_template")
}

/// The files with weights: the one, else those that the index names.
fn weights<'a>(
    entries: &'a [Entry],
    folder: &RepositoryFolder,
    commit: &str,
    request: &Download,
) -> Result<Vec<&'a Entry>, DownloadError> {
    let find = |name: &str| entries.iter().find(|entry| entry.name == name);
    if let Some(whole) = find(WEIGHTS) {
        return Ok(vec![whole]);
    }
    let none = || DownloadError::NoWeights {
        repository: request.repository.clone(),
    };
    find(INDEX).ok_or_else(none)?;
    let path = folder.path.join("snapshots").join(commit).join(INDEX);
    let text = std::fs::read(&path).map_err(errors::cache("read", &path))?;
    let index: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let named = index["weight_map"].as_object().ok_or_else(none)?;
    let mut files: Vec<&str> = named.values().filter_map(serde_json::Value::as_str).collect();
    files.sort_unstable();
    files.dedup();
    files.into_iter().map(|file| find(file).ok_or_else(none)).collect()
}

/// Gets one file into the snapshot; how many bytes had to be fetched.
async fn fetch(
    connection: &Connection<'_>,
    folder: &RepositoryFolder,
    commit: &str,
    entry: &Entry,
    report: Report<'_>,
) -> Result<u64, DownloadError> {
    let mut fetched = 0;
    if !folder.has(entry) {
        let mut partial = folder.open(entry)?;
        while partial.done_bytes < entry.size_bytes {
            let before = partial.done_bytes;
            let received = connection.receive(commit, entry, &mut partial, report).await?;
            fetched += partial.done_bytes.saturating_sub(before);
            match received {
                Received::Whole => {}
                // As long as something comes, it is worth going on.
                Received::Broken(_) if partial.done_bytes > before => {}
                Received::Broken(reason) => {
                    return Err(DownloadError::Broken {
                        file: entry.name.clone(),
                        done_bytes: partial.done_bytes,
                        size_bytes: entry.size_bytes,
                        reason,
                    });
                }
            }
        }
        folder.finish(partial, entry)?;
    }
    report(&entry.name, entry.size_bytes, entry.size_bytes);
    folder.link(commit, entry)?;
    Ok(fetched)
}
