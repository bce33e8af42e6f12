//! Downloads from a hub on this machine, over real sockets, into a real cache.
#![cfg(feature = "download")]
#![allow(clippy::unwrap_used)]

mod hub_server;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hub_server::{Fault, HubServer};
use rlpipe_backends::huggingface::{Download, DownloadError, Downloaded, download};
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// 1 MiB and a bit: several chunks.
const WEIGHTS_BYTES: usize = (1 << 20) + 17;
/// By `sha256sum`, of bytes that count up from 0 modulo 251.
const WEIGHTS_SHA256: &str = "f4bf9b8dec6e3e28b2ec33266145d244fe97a6bce1ec054ace053bab67d2ef9a";
/// By `git hash-object`.
const CONFIG_SHA1: &str = "9eddb62b076f586b2186445e7872e5a05f0dfe06";
const CONFIG: &[u8] = b"{\"model_type\": \"llama\"}\n";

fn weights() -> Vec<u8> {
    (0..WEIGHTS_BYTES).map(|index| (index % 251) as u8).collect()
}

/// A hub with one small model, and an empty cache.
struct Scene {
    server: HubServer,
    cache: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let server = HubServer::start("org/tiny", COMMIT).await;
        server.file("config.json", CONFIG, CONFIG_SHA1, false);
        server.file(
            "tokenizer.json",
            b"{}",
            "9e26dfeeb6e641a33dae4961196235bdb965b21b",
            false,
        );
        server.file("model.safetensors", &weights(), WEIGHTS_SHA256, true);
        // None of these is needed.
        for name in [
            "README.md",
            "pytorch_model.bin",
            "consolidated.safetensors",
            "onnx/model.onnx",
        ] {
            server.file(name, b"{}", "9e26dfeeb6e641a33dae4961196235bdb965b21b", false);
        }
        Self {
            server,
            cache: tempfile::tempdir().unwrap(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.cache.path().join("models--org--tiny")
    }

    fn snapshot(&self, file: &str) -> PathBuf {
        self.folder().join("snapshots").join(COMMIT).join(file)
    }

    fn request(&self) -> Download {
        Download {
            endpoint: self.server.endpoint(),
            token: None,
            repository: "org/tiny".to_owned(),
            revision: "main".to_owned(),
            folder: self.folder(),
        }
    }

    async fn download(&self) -> Result<Downloaded, DownloadError> {
        download(&self.request(), &|_, _, _| {}).await
    }
}

/// Files below a folder, and what they hold.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_model_lies_in_the_cache_as_huggingface_hub_lays_it_out() {
    let scene = Scene::new().await;
    let seen = Mutex::new(Vec::new());
    let report = |file: &str, done: u64, size: u64| seen.lock().unwrap().push((file.to_owned(), done, size));
    let downloaded = download(&scene.request(), &report).await.unwrap();
    assert_eq!(
        downloaded,
        Downloaded {
            commit: COMMIT.to_owned(),
            bytes: (CONFIG.len() + 2 + WEIGHTS_BYTES) as u64
        }
    );
    let mut wanted = vec![
        format!("blobs/{CONFIG_SHA1}"),
        "blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b".to_owned(),
        format!("blobs/{WEIGHTS_SHA256}"),
        "refs/main".to_owned(),
        format!("snapshots/{COMMIT}/config.json"),
        format!("snapshots/{COMMIT}/model.safetensors"),
        format!("snapshots/{COMMIT}/tokenizer.json"),
    ];
    wanted.sort();
    assert_eq!(files(&scene.folder()), wanted);
    assert_eq!(fs::read_to_string(scene.folder().join("refs/main")).unwrap(), COMMIT);
    assert_eq!(fs::read(scene.snapshot("model.safetensors")).unwrap(), weights());
    assert_eq!(
        fs::read_link(scene.snapshot("config.json")).unwrap(),
        Path::new("../../blobs").join(CONFIG_SHA1)
    );
    // Weights come last, and what is told of them only grows.
    let seen = seen.into_inner().unwrap();
    let of_weights: Vec<_> = seen.iter().filter(|(file, _, _)| file == "model.safetensors").collect();
    assert_eq!(seen.last(), of_weights.last().copied());
    assert!(of_weights.is_sorted_by_key(|(_, done, _)| *done));
    assert_eq!(of_weights.last().unwrap().1, WEIGHTS_BYTES as u64);
}

#[tokio::test]
async fn what_is_here_is_not_fetched_again() {
    let scene = Scene::new().await;
    scene.download().await.unwrap();
    scene.server.take_requests();
    assert_eq!(scene.download().await.unwrap().bytes, 0);
    let requests = scene.server.take_requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests[0].path.starts_with("/api/models/org/tiny/revision/main"));
}

#[tokio::test]
async fn a_broken_connection_goes_on_where_it_broke() {
    let scene = Scene::new().await;
    scene
        .server
        .fault("model.safetensors", Fault::Cut { after_bytes: 300_000 });
    assert_eq!(
        scene.download().await.unwrap().bytes,
        (CONFIG.len() + 2 + WEIGHTS_BYTES) as u64
    );
    let ranges: Vec<_> = scene.server.ranges_of("model.safetensors");
    assert_eq!(ranges.len(), 2, "{ranges:?}");
    assert_eq!(ranges[0], None);
    assert_eq!(ranges[1].as_deref(), Some("bytes=300000-"));
    assert_eq!(fs::read(scene.snapshot("model.safetensors")).unwrap(), weights());
}

#[tokio::test]
async fn an_ended_download_goes_on_where_it_ended() {
    let scene = Scene::new().await;
    scene
        .server
        .fault("model.safetensors", Fault::Cut { after_bytes: 300_000 });
    scene.server.fault("model.safetensors", Fault::Cut { after_bytes: 0 });
    let error = scene.download().await.unwrap_err();
    assert!(
        matches!(
            error,
            DownloadError::Broken {
                done_bytes: 300_000,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("goes on from there"), "{error}");
    // What is not whole has no place in the snapshot, and the branch stands for nothing yet.
    assert!(!scene.snapshot("model.safetensors").exists() && !scene.folder().join("refs").exists());
    let partial = scene.folder().join(format!("blobs/{WEIGHTS_SHA256}.incomplete"));
    assert_eq!(fs::metadata(&partial).unwrap().len(), 300_000);

    let downloaded = scene.download().await.unwrap();
    assert_eq!(downloaded.bytes, (WEIGHTS_BYTES - 300_000) as u64);
    let ranges = scene.server.ranges_of("model.safetensors");
    assert_eq!(ranges.last().unwrap().as_deref(), Some("bytes=300000-"));
    assert_eq!(fs::read(scene.snapshot("model.safetensors")).unwrap(), weights());
    assert!(!partial.exists());
}

#[tokio::test]
async fn a_hub_without_ranges_starts_over() {
    let scene = Scene::new().await;
    scene
        .server
        .fault("model.safetensors", Fault::Cut { after_bytes: 300_000 });
    scene.server.fault("model.safetensors", Fault::IgnoreRange);
    scene.download().await.unwrap();
    assert_eq!(fs::read(scene.snapshot("model.safetensors")).unwrap(), weights());
}

#[tokio::test]
async fn a_wrong_part_is_not_put_in() {
    let scene = Scene::new().await;
    scene
        .server
        .fault("model.safetensors", Fault::Cut { after_bytes: 300_000 });
    scene.server.fault("model.safetensors", Fault::WrongRange);
    let error = scene.download().await.unwrap_err();
    assert!(error.to_string().contains("another part"), "{error}");
    scene.download().await.unwrap();
    assert_eq!(fs::read(scene.snapshot("model.safetensors")).unwrap(), weights());
}

#[tokio::test]
async fn another_content_is_refused_and_nothing_of_it_stays() {
    for (file, hash) in [("model.safetensors", WEIGHTS_SHA256), ("config.json", CONFIG_SHA1)] {
        let scene = Scene::new().await;
        scene.server.fault(file, Fault::Flip { byte: 7 });
        let error = scene.download().await.unwrap_err();
        assert!(
            matches!(&error, DownloadError::Checksum { wanted, .. } if wanted == hash),
            "{error}"
        );
        assert!(!scene.snapshot(file).exists());
        let blobs = files(&scene.folder().join("blobs"));
        assert!(!blobs.iter().any(|blob| blob.starts_with(hash)), "{blobs:?}");
        // The next attempt starts that file anew.
        scene.download().await.unwrap();
        assert_eq!(scene.server.ranges_of(file), [None, None]);
    }
}

#[tokio::test]
async fn a_part_that_was_damaged_meanwhile_is_found_out() {
    let scene = Scene::new().await;
    fs::create_dir_all(scene.folder().join("blobs")).unwrap();
    let partial = scene.folder().join(format!("blobs/{WEIGHTS_SHA256}.incomplete"));
    fs::write(&partial, vec![255; 1000]).unwrap();
    let error = scene.download().await.unwrap_err();
    assert!(matches!(error, DownloadError::Checksum { .. }), "{error}");
    assert!(!partial.exists());
    // One that is too long cannot be a part of it.
    fs::write(&partial, vec![255; WEIGHTS_BYTES + 1]).unwrap();
    scene.download().await.unwrap();
}

#[tokio::test]
async fn more_than_was_announced_is_refused() {
    let scene = Scene::new().await;
    scene.server.fault("config.json", Fault::Longer);
    let error = scene.download().await.unwrap_err();
    assert!(error.to_string().contains("more than the 24 bytes"), "{error}");
    assert!(!scene.snapshot("config.json").exists());
    scene.download().await.unwrap();
}

#[tokio::test]
async fn refusals_are_named_with_a_way_out() {
    let cases = [
        (
            (401, "GatedRepo", ""),
            "gated: accept its terms at `http://",
            "set `HF_TOKEN`",
        ),
        ((401, "RepoNotFound", ""), "no repository `org/tiny`", "check its name"),
        ((404, "", ""), "no repository `org/tiny`", "check its name"),
        (
            (404, "RevisionNotFound", ""),
            "no branch, tag or commit `main`",
            "lists them",
        ),
        ((429, "", "slow down"), "429 Too Many Requests", "wait some minutes"),
        ((503, "", ""), "503 Service Unavailable", "try again later"),
        ((418, "", ""), "418", "HF_ENDPOINT"),
    ];
    for ((status, code, message), what, way_out) in cases {
        let scene = Scene::new().await;
        scene.server.refuse(status, code, message);
        let error = scene.download().await.unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(way_out), "{error}");
        assert_eq!(files(scene.cache.path()), [""; 0], "nothing was made for {error}");
    }
}

#[tokio::test]
async fn a_gated_model_whose_list_is_public_is_named_too() {
    let scene = Scene::new().await;
    scene.server.fault("config.json", Fault::Gated);
    let error = scene.download().await.unwrap_err();
    assert!(
        matches!(error, DownloadError::Gated { with_token: false, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn the_token_is_shown_to_the_hub_alone() {
    let elsewhere = Scene::new().await;
    let scene = Scene::new().await;
    scene.server.fault(
        "model.safetensors",
        Fault::Redirect {
            to: elsewhere.server.endpoint(),
        },
    );
    let mut request = scene.request();
    request.token = Some("hf_secret".to_owned());
    download(&request, &|_, _, _| {}).await.unwrap();
    let here = scene.server.take_requests();
    assert!(
        here.iter()
            .all(|request| request.header("authorization") == Some("Bearer hf_secret"))
    );
    let there = elsewhere.server.take_requests();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].header("authorization"), None);

    let refusals = [
        (401, "", "Invalid credentials in Authorization header"),
        (403, "GatedRepo", ""),
        (401, "RepoNotFound", ""),
        (403, "", "not you"),
    ];
    for (status, code, message) in refusals {
        scene.server.refuse(status, code, message);
        let error = download(&request, &|_, _, _| {}).await.unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(said.contains("HF_TOKEN") || said.contains("this token"), "{said}");
        assert!(!said.contains("hf_secret"), "{said}");
    }
    request.endpoint = "http://hub.example".to_owned();
    let error = download(&request, &|_, _, _| {}).await.unwrap_err().to_string();
    assert!(error.contains("unencrypted") && !error.contains("hf_secret"), "{error}");
}

#[tokio::test]
async fn a_hub_that_is_not_there_is_named() {
    let scene = Scene::new().await;
    let mut request = scene.request();
    // Nothing listens on a port that was free a moment ago.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    request.endpoint = format!("http://{free}");
    let error = download(&request, &|_, _, _| {}).await.unwrap_err();
    assert!(matches!(error, DownloadError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    for endpoint in ["", "huggingface.co", "ftp://huggingface.co"] {
        request.endpoint = endpoint.to_owned();
        let error = download(&request, &|_, _, _| {}).await.unwrap_err().to_string();
        assert!(error.contains("HF_ENDPOINT"), "{error}");
    }
}

#[tokio::test]
async fn weights_in_several_files_are_those_of_the_index() {
    let scene = Scene::new().await;
    scene.server.remove("model.safetensors");
    let error = scene.download().await.unwrap_err();
    assert!(matches!(error, DownloadError::NoWeights { .. }), "{error}");

    let index =
        br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    scene.server.file(
        "model.safetensors.index.json",
        index,
        "875ba650e96a1dbc4a3e2cb050f5d3304fccb582",
        false,
    );
    scene
        .server
        .file("model-00001-of-00002.safetensors", &weights(), WEIGHTS_SHA256, true);
    let error = scene.download().await.unwrap_err();
    assert!(
        matches!(error, DownloadError::NoWeights { .. }),
        "the second is not there: {error}"
    );

    scene
        .server
        .file("model-00002-of-00002.safetensors", &weights(), WEIGHTS_SHA256, true);
    // Both have one content, which comes once.
    assert_eq!(scene.download().await.unwrap().bytes, WEIGHTS_BYTES as u64);
    for number in [1, 2] {
        let shard = scene.snapshot(&format!("model-0000{number}-of-00002.safetensors"));
        assert_eq!(fs::read(shard).unwrap(), weights());
    }
}

#[tokio::test]
async fn a_revision_with_slashes_and_a_commit_are_found() {
    let scene = Scene::new().await;
    let mut request = scene.request();
    request.revision = "refs/pr/1".to_owned();
    download(&request, &|_, _, _| {}).await.unwrap();
    assert!(
        scene.server.take_requests()[0]
            .path
            .starts_with("/api/models/org/tiny/revision/refs%2Fpr%2F1?")
    );
    assert_eq!(
        fs::read_to_string(scene.folder().join("refs/refs/pr/1")).unwrap(),
        COMMIT
    );
    request.revision = COMMIT.to_owned();
    download(&request, &|_, _, _| {}).await.unwrap();
    assert!(
        !scene.folder().join("refs").join(COMMIT).exists(),
        "a commit needs no reference"
    );
}

#[tokio::test]
async fn names_from_a_hub_cannot_leave_the_cache() {
    let scene = Scene::new().await;
    scene.server.file(
        "tokenizer/../../../../evil.json",
        b"{}",
        "9e26dfeeb6e641a33dae4961196235bdb965b21b",
        false,
    );
    scene.download().await.unwrap();
    assert!(
        !scene
            .server
            .take_requests()
            .iter()
            .any(|request| request.path.contains("evil"))
    );
    scene
        .server
        .file("tokenizer.model", b"{}", "../../../../../../../../tmp/evil", false);
    let error = scene.download().await.unwrap_err().to_string();
    assert!(error.contains("size and hash of `tokenizer.model`"), "{error}");
}

#[tokio::test]
async fn two_downloads_do_not_write_one_file() {
    let scene = Scene::new().await;
    let locks = scene.cache.path().join(".locks/models--org--tiny");
    fs::create_dir_all(&locks).unwrap();
    let lock = fs::File::create(locks.join(format!("{WEIGHTS_SHA256}.lock"))).unwrap();
    lock.lock().unwrap();
    let error = scene.download().await.unwrap_err();
    assert!(matches!(error, DownloadError::Busy { .. }), "{error}");
    drop(lock);
    scene.download().await.unwrap();
}

#[tokio::test]
async fn a_cache_that_cannot_be_made_is_named() {
    let scene = Scene::new().await;
    fs::write(scene.folder(), "a file").unwrap();
    let error = scene.download().await.unwrap_err().to_string();
    assert!(
        error.contains("cannot make the folder") && error.contains("HF_HUB_CACHE"),
        "{error}"
    );
}
