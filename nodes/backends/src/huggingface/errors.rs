//! What can go wrong with a download, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a model was not downloaded. Nothing of it says a token.
#[derive(Debug, Error)]
pub enum DownloadError {
    /// No connection came about, or none that answers.
    #[error(
        "cannot reach the hub `{endpoint}`: {reason}; check the network, `HF_ENDPOINT` and proxy settings, or copy the \
         model's folder from the cache of a machine that has it"
    )]
    Unreachable {
        /// The hub.
        endpoint: String,
        /// What the connection says.
        reason: String,
    },
    /// No such repository, for this token at least: hubs do not tell private from absent.
    #[error(
        "the hub `{endpoint}` has no repository `{repository}` that {whom} may read; check its name, and for a private \
         one set `HF_TOKEN` to a token of an account that may read it", whom = if *with_token { "this token" } else { "anyone" }
    )]
    NoRepository {
        /// The hub.
        endpoint: String,
        /// The repository.
        repository: String,
        /// Whether a token was shown.
        with_token: bool,
    },
    /// No such branch, tag or commit.
    #[error("the repository `{repository}` has no branch, tag or commit `{revision}`; its page `{page}` lists them")]
    NoRevision {
        /// The repository.
        repository: String,
        /// What was asked for.
        revision: String,
        /// Where a person sees them.
        page: String,
    },
    /// Its terms must be accepted first.
    #[error(
        "the repository `{repository}` is gated: accept its terms at `{page}`, then {}",
        if *with_token {
            "try again with `HF_TOKEN` a token of the account that has accepted them and may read gated repositories"
        } else {
            "set `HF_TOKEN` to a token of that account"
        }
    )]
    Gated {
        /// The repository.
        repository: String,
        /// Where its terms are.
        page: String,
        /// Whether a token was shown.
        with_token: bool,
    },
    /// The token is wrong or has expired.
    #[error(
        "the hub `{endpoint}` does not accept the token in `HF_TOKEN`; make a new one, or unset it for public models"
    )]
    BadToken {
        /// The hub.
        endpoint: String,
    },
    /// The token must not travel where others can read it.
    #[error("`HF_TOKEN` would cross the network unencrypted to `{endpoint}`; use an `https` endpoint, or unset it")]
    OpenToken {
        /// The hub.
        endpoint: String,
    },
    /// Some other refusal.
    #[error("the hub answers {status} to `{url}`{said}; {advice}")]
    Status {
        /// The code and its name.
        status: String,
        /// What was asked for.
        url: String,
        /// What the hub said of it, with a colon, or nothing.
        said: String,
        /// What to do.
        advice: &'static str,
    },
    /// It answers, but not as a hub does.
    #[error("what `{url}` answers cannot be used: {reason}; check `HF_ENDPOINT`: it must be a Hugging Face hub")]
    Answer {
        /// What was asked for.
        url: String,
        /// Why not.
        reason: String,
    },
    /// The repository has no weights of a form that can be read.
    #[error(
        "the repository `{repository}` has no weights as safetensors (`model.safetensors`, or an index and its files); \
         choose a revision or a conversion of it that has"
    )]
    NoWeights {
        /// The repository.
        repository: String,
    },
    /// The connection broke, and did not come back.
    #[error(
        "the connection broke after {done_bytes} of {size_bytes} bytes of `{file}`: {reason}; the same command goes on \
         from there"
    )]
    Broken {
        /// The file.
        file: String,
        /// What is here of it.
        done_bytes: u64,
        /// What it has.
        size_bytes: u64,
        /// What the connection says.
        reason: String,
    },
    /// Its content is not what the hub promised.
    #[error(
        "`{file}` is not what the hub says it is: {found} instead of {wanted}; what came was deleted. The same command \
         fetches it anew; if that ends alike, a proxy or the endpoint changes what it passes on"
    )]
    Checksum {
        /// The file.
        file: String,
        /// The hash of what came.
        found: String,
        /// The hash that was promised.
        wanted: String,
    },
    /// Another process is at it.
    #[error("another process is downloading `{file}` into `{}`; wait for it, then try again", folder.display())]
    Busy {
        /// The file.
        file: String,
        /// The repository's folder in the cache.
        folder: PathBuf,
    },
    /// The disk is full.
    #[error(
        "the disk of `{}` is full: `{file}` needs {missing_bytes} bytes more; free some, or set `HF_HUB_CACHE` to a folder on \
         another disk. The same command goes on from here", folder.display()
    )]
    Full {
        /// The repository's folder in the cache.
        folder: PathBuf,
        /// The file.
        file: String,
        /// What is missing of it.
        missing_bytes: u64,
    },
    /// The cache cannot be written.
    #[error("cannot {action} `{}`: {source}; `HF_HUB_CACHE` names another cache", path.display())]
    Cache {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// An error of the cache's files, with what was tried.
pub(super) fn cache<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DownloadError + 'a {
    move |source| DownloadError::Cache {
        action,
        path: path.to_owned(),
        source,
    }
}

/// What a connection says, down to the cause, without addresses: those that a hub redirects to are signed.
pub(super) fn reason_of(error: reqwest::Error) -> String {
    let timeout = error.is_timeout();
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    if timeout && !text.contains("timed out") {
        text.push_str(": timed out");
    }
    text
}
