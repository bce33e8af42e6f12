//! Models of a hub, from a cache that has them: no connection is ever opened.

use std::fs;
use std::path::Path;

use crate::harness::{Place, Record, Running};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "89abcdef0123456789abcdef0123456789abcdef";
const INIT: &str = "init: { architecture: llama, hidden_size: 32, layers: 2, heads: 2, intermediate_size: 64, tokenizer: { \
                    characters: \"0123456789+= \" } }";
/// Where nothing listens.
const NOWHERE: &str = "http://127.0.0.1:1";

/// The small pipeline with a model of a hub, and a cache that has it in two commits.
fn place() -> Place {
    let exported = Place::new();
    exported.run(&["--steps", "1"]).expect(0);
    let place = Place::with_own_files(&[(INIT, "hub: { repository: org/tiny }")]);
    for commit in [COMMIT, OTHER] {
        let snapshot = repository(&place).join("snapshots").join(commit);
        fs::create_dir_all(&snapshot).unwrap();
        for entry in fs::read_dir(exported.attempt().join("hf/step-1")).unwrap().flatten() {
            fs::copy(entry.path(), snapshot.join(entry.file_name())).unwrap();
        }
    }
    refer(&place, COMMIT);
    place
}

fn repository(place: &Place) -> std::path::PathBuf {
    place.path().join("hub/models--org--tiny")
}

/// Lets `main` stand for a commit.
fn refer(place: &Place, commit: &str) {
    let refs = repository(place).join("refs");
    fs::create_dir_all(&refs).unwrap();
    fs::write(refs.join("main"), commit).unwrap();
}

fn with_cache(place: &Place, mut command: std::process::Command) -> Running {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HF_")) {
        command.env_remove(name);
    }
    command
        .env("HF_HUB_CACHE", place.path().join("hub"))
        .env("HF_ENDPOINT", NOWHERE);
    Running::start(command)
}

fn download(place: &Place, arguments: &[&str]) -> Running {
    let mut command = place.rlpipe();
    command
        .arg("download")
        .arg(place.path().join("small.yaml"))
        .args(arguments);
    with_cache(place, command)
}

fn plan(attempt: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(attempt.join("plan.json")).unwrap()).unwrap()
}

#[test]
fn a_run_knows_its_commit_and_goes_on_with_no_other() {
    let place = place();
    let run = |arguments: &[&str]| with_cache(&place, place.command(arguments)).end();
    run(&["--steps", "2"]).expect(0);
    assert_eq!(
        plan(&place.attempt())["models"]["tiny"]["hub"],
        serde_json::json!({ "repository": "org/tiny", "revision": COMMIT })
    );
    refer(&place, OTHER);
    run(&["--resume"])
        .expect(1)
        .says(&["cannot resume", "models.tiny.hub.revision", COMMIT, OTHER]);
    run(&["--resume", "--set", &format!("models.tiny.hub.revision={COMMIT}")]).expect(0);
    let resumed = Record::of(&place.attempt());
    // The resolved pipeline names the commit, too: it can be run again as it is.
    let resolved = fs::read_to_string(place.attempt().join("resolved.yaml")).unwrap();
    assert!(resolved.contains(COMMIT), "{resolved}");
    assert_eq!(resumed.rows().last().unwrap()["step"], 6);
}

#[test]
fn a_model_that_is_here_needs_no_hub() {
    let place = place();
    download(&place, &[])
        .end()
        .expect(0)
        .says(&["`org/tiny`", COMMIT, "is here already"]);
    download(&place, &["--update"]).end().expect(1).says(&[
        "the model `tiny`",
        "cannot reach the hub `http://127.0.0.1:1`",
        "refused",
    ]);
}

#[test]
fn a_model_that_is_not_here_is_said_before_anything_starts() {
    let place = place();
    fs::remove_file(repository(&place).join("snapshots").join(COMMIT).join("tokenizer.json")).unwrap();
    with_cache(&place, place.command(&[])).end().expect(78).says(&[
        "error[RL1103]",
        "`tokenizer.json`",
        "`rlpipe download`",
    ]);
    refer(&place, &"f".repeat(40));
    with_cache(&place, place.command(&[])).end().expect(78).says(&[
        "error[RL1107]",
        "`org/tiny@main`",
        "`rlpipe download`",
    ]);
    assert!(!place.path().join("runs").exists());
    let mut command = place.rlpipe();
    command
        .arg("download")
        .arg(place.path().join("small.yaml"))
        .env("HF_HUB_OFFLINE", "1");
    let mut offline = command;
    offline.env("HF_HUB_CACHE", place.path().join("hub"));
    Running::start(offline)
        .end()
        .expect(1)
        .says(&["`HF_HUB_OFFLINE` forbids"]);
}
