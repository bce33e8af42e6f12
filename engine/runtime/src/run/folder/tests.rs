#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::{env, thread};

use rlpipe_core::data::Metrics;

use super::*;
use crate::run::disk::write_atomic;
use crate::run::{EventFile, MetricsFile, write_rollouts};

/// Tells a test of this binary that it is the child, and in which folder.
const CHILD_FOLDER: &str = "RUN_FOLDER_TEST_CHILD";

/// This test binary again, as another process that runs one test.
fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([
        "--exact",
        &format!("run::folder::tests::{test}"),
        "--ignored",
        "--nocapture",
    ]);
    command
        .env(CHILD_FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

#[test]
fn attempts_are_numbered_and_latest_points_at_the_newest() {
    let work_dir = tempfile::tempdir().unwrap();
    let first = RunFolder::create(work_dir.path(), "sums").unwrap();
    let second = RunFolder::create(work_dir.path(), "sums").unwrap();
    assert_eq!((first.attempt(), second.attempt()), ("0001", "0002"));
    let latest = work_dir.path().join("sums/latest");
    assert_eq!(fs::read_link(&latest).unwrap(), Path::new("0002"));
    drop((first, second));

    fs::create_dir(work_dir.path().join("sums/9999")).unwrap();
    fs::create_dir(work_dir.path().join("sums/notes")).unwrap();
    fs::create_dir(work_dir.path().join("sums/00020000")).unwrap();
    assert_eq!(RunFolder::create(work_dir.path(), "sums").unwrap().attempt(), "10000");
    assert_eq!(RunFolder::create(work_dir.path(), "sums").unwrap().attempt(), "10001");
    assert_eq!(fs::read_link(&latest).unwrap(), Path::new("10001"));
    assert_eq!(
        RunFolder::open(work_dir.path(), "sums", None)
            .unwrap()
            .unwrap()
            .attempt(),
        "10001"
    );
}

#[test]
fn a_file_with_the_name_of_an_attempt_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("run")).unwrap();
    fs::write(folder.path().join("run/0001"), "").unwrap();
    let made = RunFolder::create(folder.path(), "run").unwrap();
    assert_eq!(made.attempt(), "0002");
}

#[test]
fn attempts_made_at_once_are_different() {
    let work_dir = tempfile::tempdir().unwrap();
    let made: Vec<RunFolder> = thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| RunFolder::create(work_dir.path(), "sums").unwrap()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut names: Vec<&str> = made.iter().map(RunFolder::attempt).collect();
    names.sort_unstable();
    assert_eq!(names, (1..=16).map(attempt_name).collect::<Vec<_>>());
    assert_eq!(
        fs::read_link(work_dir.path().join("sums/latest")).unwrap(),
        Path::new("0016")
    );
}

#[test]
fn the_newest_or_a_named_attempt_is_opened() {
    let work_dir = tempfile::tempdir().unwrap();
    assert!(RunFolder::open(work_dir.path(), "sums", None).unwrap().is_none());
    for _ in 0..2 {
        RunFolder::create(work_dir.path(), "sums").unwrap();
    }
    assert_eq!(
        RunFolder::open(work_dir.path(), "sums", None)
            .unwrap()
            .unwrap()
            .attempt(),
        "0002"
    );
    assert_eq!(
        RunFolder::open(work_dir.path(), "sums", Some("0001"))
            .unwrap()
            .unwrap()
            .attempt(),
        "0001"
    );
    assert_eq!(
        fs::read_link(work_dir.path().join("sums/latest")).unwrap(),
        Path::new("0002")
    );
    let error = RunFolder::open(work_dir.path(), "sums", Some("3"))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("there is no attempt `3` in `"), "{error}");
    assert!(error.ends_with("it has: 0001, 0002"), "{error}");
}

#[test]
fn names_that_are_no_folder_are_refused() {
    let work_dir = tempfile::tempdir().unwrap();
    for name in ["", ".", "..", "a/b", "/a", "a/", ".a", "a\0b"] {
        let error = RunFolder::create(work_dir.path(), name).unwrap_err();
        assert!(matches!(error, RunError::BadName { .. }), "{name:?}: {error}");
    }
    assert!(names(work_dir.path()).unwrap().is_empty());
}

#[test]
fn a_folder_in_use_is_refused_until_its_process_is_killed() {
    let work_dir = tempfile::tempdir().unwrap();
    let mut holder = child("child_holds_an_attempt", work_dir.path()).spawn().unwrap();
    let output = BufReader::new(holder.stdout.take().unwrap());
    assert!(
        output.lines().any(|line| line.unwrap().contains("held")),
        "the child did not get the folder"
    );

    let error = RunFolder::open(work_dir.path(), "sums", None).unwrap_err().to_string();
    assert!(error.contains("sums/0001` is in use by process "), "{error}");
    assert!(error.contains(&format!(" {}", holder.id())), "{error}");
    assert_eq!(RunFolder::create(work_dir.path(), "sums").unwrap().attempt(), "0002");

    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(
        RunFolder::open(work_dir.path(), "sums", Some("0001"))
            .unwrap()
            .is_some()
    );
}

#[test]
#[ignore = "runs as a child of the test above"]
fn child_holds_an_attempt() {
    let Some(work_dir) = env::var_os(CHILD_FOLDER) else {
        return;
    };
    let _folder = RunFolder::create(Path::new(&work_dir), "sums").unwrap();
    io::stdout().write_all(b"\nheld\n").unwrap();
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_process_started_by_the_holder_does_not_inherit_the_hold() {
    let work_dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(work_dir.path(), "sums").unwrap();
    let mut worker = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(folder);
    assert!(RunFolder::open(work_dir.path(), "sums", None).unwrap().is_some());
    drop(worker.stdin.take());
    worker.wait().unwrap();
}

#[test]
fn a_full_disk_is_an_error_that_leaves_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    let output = child("child_meets_a_file_size_limit", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let rows = MetricsFile::read(&folder.path().join("metrics.jsonl")).unwrap();
    assert!(rows.len() > 10);
}

#[test]
#[ignore = "runs as a child of the test above"]
fn child_meets_a_file_size_limit() {
    let Some(folder) = env::var_os(CHILD_FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    write_atomic(&folder.join("plan.json"), b"old").unwrap();
    let limit = libc::rlimit {
        rlim_cur: 1000,
        rlim_max: 1000,
    };
    // SAFETY: both calls take plain values, and no other thread of this process handles the signal.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let path = folder.join("metrics.jsonl");
    let mut file = MetricsFile::open(&path).unwrap();
    let error = (0..)
        .find_map(|step| file.append(step, &Metrics::default()).err())
        .unwrap();
    assert!(matches!(error, RunError::FileTooLarge { .. }), "{error}");
    assert!(fs::read(&path).unwrap().ends_with(b"}\n"));

    let error = write_atomic(&folder.join("plan.json"), &[0; 2000])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("plan.json` (2000 bytes): the file would be larger than is allowed here"),
        "{error}"
    );
    assert_eq!(fs::read(folder.join("plan.json")).unwrap(), b"old");
    assert_eq!(names(folder).unwrap(), ["metrics.jsonl", "plan.json"]);
}

#[test]
fn a_device_without_space_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    symlink("/dev/full", &path).unwrap();
    let error = MetricsFile::open(&path)
        .unwrap()
        .append(1, &Metrics::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("metrics.jsonl` (11 bytes): the disk is full; free some space"),
        "{error}"
    );
}

#[test]
fn a_cut_back_leaves_nothing_of_later_steps() {
    let work_dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(work_dir.path(), "sums").unwrap();
    let mut metrics = MetricsFile::open(&folder.metrics()).unwrap();
    let mut events = EventFile::create(&folder.tensorboard(), 0.0).unwrap();
    for step in 0..=12 {
        metrics.append(step, &Metrics::default()).unwrap();
        events.append(step, 0.0, &Metrics::default()).unwrap();
        write_rollouts(&folder.rollouts(Purpose::Train), step, None, &[]).unwrap();
        write_rollouts(&folder.rollouts(Purpose::Eval), step, Some("marks"), &[]).unwrap();
        fs::create_dir(folder.export(step)).unwrap();
    }
    fs::write(folder.rollouts(Purpose::Train).join(".step-13.jsonl.partial"), b"{").unwrap();

    folder.cut_back(Some(2)).unwrap();
    assert_eq!(MetricsFile::read(&folder.metrics()).unwrap().len(), 3);
    assert_eq!(
        names(&folder.rollouts(Purpose::Train)).unwrap(),
        ["step-0.jsonl", "step-1.jsonl", "step-2.jsonl"]
    );
    let eval = names(&folder.rollouts(Purpose::Eval)).unwrap();
    assert_eq!(eval, ["step-0.marks.jsonl", "step-1.marks.jsonl", "step-2.marks.jsonl"]);
    assert_eq!(
        names(&folder.path().join("hf")).unwrap(),
        ["step-0", "step-1", "step-2"]
    );

    folder.cut_back(None).unwrap();
    assert!(MetricsFile::read(&folder.metrics()).unwrap().is_empty());
    assert!(names(&folder.rollouts(Purpose::Eval)).unwrap().is_empty());
}
