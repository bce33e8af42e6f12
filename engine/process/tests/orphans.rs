//! Whatever dies first, nothing is left.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rlpipe_process::{Exit, Process, Spawner};
use tokio::process::Command;

const FOLDER: &str = "RLPIPE_TEST_DRIVER_FOLDER";

/// A program that starts another, which has no input to end with.
async fn start(spawner: &Spawner, folder: &Path) -> Process {
    let note = folder.join("child");
    let script = format!("sleep 1000 </dev/null & echo $! > {}; wait", note.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::null());
    spawner.spawn(command).await.unwrap()
}

/// Waits until something is so; the test's time limit is the end of patience.
async fn until<T>(mut probe: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = probe() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn noted(folder: &Path, name: &str) -> String {
    until(|| {
        std::fs::read_to_string(folder.join(name))
            .ok()
            .filter(|text| text.ends_with('\n'))
    })
    .await
    .trim()
    .to_owned()
}

/// Running, and not a zombie that nobody has waited for.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn what_a_program_started_goes_with_it() {
    for kill in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let spawner = Spawner::guarded().unwrap();
        let mut process = start(&spawner, folder.path()).await;
        let child = noted(folder.path(), "child").await;
        assert!(runs(&child));
        if kill {
            process.kill();
            assert_eq!(process.wait().await.signal, Some(libc::SIGKILL));
        } else {
            drop(process);
        }
        until(|| (!runs(&child)).then_some(())).await;
    }
}

#[tokio::test]
async fn what_a_program_left_behind_goes_when_it_is_dropped() {
    for spawner in [Spawner::new().unwrap(), Spawner::guarded().unwrap()] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "sleep 7781 & echo $! > {}; exit 0",
            folder.path().join("child").display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::null());
        let mut process = spawner.spawn(command).await.unwrap();
        assert_eq!(process.wait().await.to_string(), "ended with exit code 0");
        let child = noted(folder.path(), "child").await;
        assert!(runs(&child));
        drop(process);
        until(|| (!runs(&child)).then_some(())).await;
    }
}

#[tokio::test]
async fn an_end_is_told_in_words() {
    let spawner = Spawner::new().unwrap();
    for (script, words) in [
        ("exit 7", "ended with exit code 7"),
        ("kill -SEGV $$", "was killed by signal 11 (SIGSEGV)"),
        ("kill -40 $$", "was killed by signal 40"),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let exit = spawner.spawn(command).await.unwrap().wait().await;
        assert_eq!(exit.to_string(), words);
    }
    assert!(Exit::UNKNOWN.to_string().contains("does not say why"));
    let missing = spawner.spawn(Command::new("/nowhere/program")).await.unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

/// Not a test by itself: the driver of the next one, in a process of its own.
#[tokio::test]
async fn a_driver_to_kill() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let spawner = Spawner::guarded().unwrap();
    // One that has ended is forgotten by then.
    let mut ended = Command::new("true");
    ended.stdin(Stdio::null());
    spawner.spawn(ended).await.unwrap().wait().await;
    let process = start(&spawner, &folder).await;
    std::fs::write(folder.join("program"), format!("{}\n", process.id())).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_driver_that_is_killed_leaves_neither_its_programs_nor_what_they_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_driver_to_kill"])
        .env(FOLDER, folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let program = noted(folder.path(), "program").await;
    let child = noted(folder.path(), "child").await;
    assert!(runs(&program) && runs(&child));
    driver.kill().await.unwrap();
    until(|| (!runs(&program) && !runs(&child)).then_some(())).await;
}
