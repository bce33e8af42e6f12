//! What is asked of a hub: what a revision has, and the content of a file.

use std::io;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_RANGE, HeaderValue, RANGE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;

use super::cache::{Entry, Partial};
use super::errors::{DownloadError, reason_of};
use super::hash::{Checksum, is_hexadecimal};
use super::{Download, Report};

/// A hub that does not even take the connection in this time is not there.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// A connection on which nothing comes for so long is broken.
const SILENCE: Duration = Duration::from_secs(60);
/// Hexadecimal digits of a commit.
const COMMIT_DIGITS: usize = 40;
/// What a hub calls a refusal.
const CODE: &str = "x-error-code";
/// What a hub says of a refusal.
const MESSAGE: &str = "x-error-message";
/// More of what a hub says is not shown.
const SHOWN_CHARACTERS: usize = 200;

/// A hub, as one download asks it.
pub(super) struct Connection<'a> {
    request: &'a Download,
    endpoint: Url,
    token: Option<HeaderValue>,
    client: Client,
}

/// What a revision has.
pub(super) struct Listing {
    /// What the revision stands for.
    pub commit: String,
    /// Its files, without those in folders, of which a model needs none.
    pub entries: Vec<Entry>,
}

/// How a connection ended.
pub(super) enum Received {
    /// Everything is here.
    Whole,
    /// It broke, which is worth another try.
    Broken(String),
}

/// `GET /api/models/ORG/NAME/revision/REVISION?blobs=true`.
#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: Option<u64>,
}

impl<'a> Connection<'a> {
    /// Opens nothing yet.
    pub fn new(request: &'a Download) -> Result<Self, DownloadError> {
        let unusable = |reason: String| DownloadError::Answer {
            url: request.endpoint.clone(),
            reason,
        };
        let endpoint = Url::parse(&request.endpoint).map_err(|error| unusable(error.to_string()))?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host_str().is_none() {
            return Err(unusable("it is not an `https` address".to_owned()));
        }
        let here = is_this_machine(&endpoint);
        let token = match &request.token {
            None => None,
            Some(_) if endpoint.scheme() != "https" && !here => {
                return Err(DownloadError::OpenToken {
                    endpoint: request.endpoint.clone(),
                });
            }
            Some(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
                    DownloadError::BadToken {
                        endpoint: request.endpoint.clone(),
                    }
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        // Where the process has chosen one already, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .user_agent(concat!("rlpipe/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENCE);
        if here {
            // A proxy would look for it on its own machine.
            client = client.no_proxy();
        }
        Ok(Self {
            request,
            endpoint,
            token,
            client: client.build().map_err(|error| unusable(reason_of(error)))?,
        })
    }

    /// What the revision has.
    pub async fn listing(&self) -> Result<Listing, DownloadError> {
        let mut url = self.url(&["api", "models"], &["revision", &self.request.revision]);
        url.set_query(Some("blobs=true"));
        let response = self.send(self.client.get(url.clone())).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refusal(response, &url));
        }
        let unusable = |reason: String| DownloadError::Answer {
            url: url.to_string(),
            reason,
        };
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        let info: ModelInfo = serde_json::from_slice(&body).map_err(|error| unusable(error.to_string()))?;
        if !is_hexadecimal(&info.sha, COMMIT_DIGITS) {
            return Err(unusable(format!("`{}` is not a commit", info.sha)));
        }
        let top = info.siblings.into_iter().filter(|file| is_plain(&file.rfilename));
        let entries = top.map(|file| {
            let name = file.rfilename.clone();
            entry(file).ok_or_else(|| unusable(format!("it does not say size and hash of `{name}`")))
        });
        Ok(Listing {
            commit: info.sha,
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// Receives what is not here of a file, as far as it comes.
    pub async fn receive(
        &self,
        commit: &str,
        entry: &Entry,
        partial: &mut Partial,
        report: Report<'_>,
    ) -> Result<Received, DownloadError> {
        let url = self.url(&[], &["resolve", commit, &entry.name]);
        let mut request = self.client.get(url.clone());
        if partial.done_bytes > 0 {
            request = request.header(RANGE, format!("bytes={}-", partial.done_bytes));
        }
        let mut response = self.send(request).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response, partial.done_bytes) => {}
            // It may not know of ranges.
            StatusCode::OK => partial.restart(entry)?,
            StatusCode::PARTIAL_CONTENT => {
                return Err(DownloadError::Answer {
                    url: url.to_string(),
                    reason: format!("it sends another part than that from byte {} on", partial.done_bytes),
                });
            }
            _ => return Err(self.refusal(response, &url)),
        }
        report(&entry.name, partial.done_bytes, entry.size_bytes);
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    let fits = entry.size_bytes - partial.done_bytes;
                    if chunk.len() as u64 > fits {
                        partial.restart(entry)?;
                        return Err(DownloadError::Answer {
                            url: url.to_string(),
                            reason: format!("it sends more than the {} bytes that it announced", entry.size_bytes),
                        });
                    }
                    self.append(partial, &chunk, entry)?;
                    report(&entry.name, partial.done_bytes, entry.size_bytes);
                }
                Ok(None) if partial.done_bytes == entry.size_bytes => return Ok(Received::Whole),
                Ok(None) => return Ok(Received::Broken("it ended early".to_owned())),
                Err(error) => return Ok(Received::Broken(reason_of(error))),
            }
        }
    }

    fn append(&self, partial: &mut Partial, chunk: &[u8], entry: &Entry) -> Result<(), DownloadError> {
        partial.append(chunk).map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DownloadError::Full {
                folder: self.request.folder.clone(),
                file: entry.name.clone(),
                missing_bytes: entry.size_bytes - partial.done_bytes,
            },
            _ => super::errors::cache("write", partial.path())(source),
        })
    }

    /// An address below the repository's: `before`, its name, `after`. Slashes within a part are no borders.
    fn url(&self, before: &[&str], after: &[&str]) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty();
            path.extend(before);
            path.extend(self.request.repository.split('/'));
            path.extend(after);
        }
        url
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<Response, DownloadError> {
        // On the way to another host, as that of large files, it is taken off.
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        request.send().await.map_err(|error| self.unreachable(error))
    }

    fn unreachable(&self, error: reqwest::Error) -> DownloadError {
        DownloadError::Unreachable {
            endpoint: self.request.endpoint.clone(),
            reason: reason_of(error),
        }
    }

    /// What an answer other than the wanted one means.
    fn refusal(&self, response: Response, url: &Url) -> DownloadError {
        let header = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let (status, code, message) = (response.status(), header(CODE), header(MESSAGE));
        let with_token = self.token.is_some();
        let repository = self.request.repository.clone();
        let page = self.url(&[], &[]).to_string();
        let endpoint = self.request.endpoint.clone();
        let unauthorized = status == StatusCode::UNAUTHORIZED;
        match code.as_str() {
            _ if with_token && unauthorized && message.contains("Invalid credentials") => {
                DownloadError::BadToken { endpoint }
            }
            "GatedRepo" => DownloadError::Gated {
                repository,
                page,
                with_token,
            },
            "RevisionNotFound" => DownloadError::NoRevision {
                repository,
                revision: self.request.revision.clone(),
                page,
            },
            "RepoNotFound" => DownloadError::NoRepository {
                endpoint,
                repository,
                with_token,
            },
            "" if unauthorized || status == StatusCode::NOT_FOUND => DownloadError::NoRepository {
                endpoint,
                repository,
                with_token,
            },
            _ => DownloadError::Status {
                status: status.to_string(),
                url: url.to_string(),
                said: match message.as_str() {
                    "" => String::new(),
                    said => format!(": {}", said.chars().take(SHOWN_CHARACTERS).collect::<String>()),
                },
                advice: match status {
                    StatusCode::FORBIDDEN => "the account of `HF_TOKEN` may not read it",
                    StatusCode::TOO_MANY_REQUESTS => "wait some minutes; with `HF_TOKEN` set a hub allows more",
                    status if status.is_server_error() => "try again later: the hub has a fault",
                    _ => "check `HF_ENDPOINT`: it must be a Hugging Face hub",
                },
            },
        }
    }
}

/// Whether a file lies at the top of the repository and has a plain name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

fn entry(file: Sibling) -> Option<Entry> {
    let (checksum, size_bytes) = match &file.lfs {
        Some(lfs) => (Checksum::sha256(&lfs.sha256)?, lfs.size.or(file.size)?),
        None => (Checksum::git_blob(file.blob_id.as_deref()?)?, file.size?),
    };
    Some(Entry {
        name: file.rfilename,
        size_bytes,
        checksum,
    })
}

/// Whether a part begins at this byte: `Content-Range: bytes 100-199/200`.
fn starts_at(response: &Response, byte: u64) -> bool {
    let range = response
        .headers()
        .get(CONTENT_RANGE)
        .and_then(|range| range.to_str().ok());
    range
        .and_then(|range| range.strip_prefix("bytes "))
        .and_then(|range| range.split('-').next()?.parse::<u64>().ok())
        == Some(byte)
}

fn is_this_machine(url: &Url) -> bool {
    matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::cache::tests::on_a_full_disk;
    use super::*;

    #[test]
    fn a_full_disk_is_named() {
        let request = Download {
            endpoint: "https://hub.example".to_owned(),
            token: None,
            repository: "org/tiny".to_owned(),
            revision: "main".to_owned(),
            folder: "/caches/models--org--tiny".into(),
        };
        let entry = Entry {
            name: "model.safetensors".to_owned(),
            size_bytes: 1000,
            checksum: Checksum::sha256(&"0".repeat(64)).unwrap(),
        };
        let mut partial = on_a_full_disk(&entry);
        let connection = Connection::new(&request).unwrap();
        let error = connection.append(&mut partial, b"{}", &entry).unwrap_err().to_string();
        for part in [
            "disk of `/caches/models--org--tiny`",
            "`model.safetensors` needs 1000 bytes more",
            "HF_HUB_CACHE",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(partial.done_bytes, 0);
    }
}
