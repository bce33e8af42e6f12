//! Exit codes, and output that nobody reads.

use std::process::{Command, Stdio};

use crate::harness::{Place, Record, Running, pipeline, unbroken};

fn verb(place: &Place, arguments: &[&str]) -> Running {
    let mut command = place.rlpipe();
    command.args(arguments);
    Running::start(command)
}

#[test]
fn each_end_has_its_exit_code() {
    let place = Place::new();
    let file = pipeline();
    let file = file.to_str().unwrap();
    verb(&place, &["validate", file]).end().expect(0);
    let faulty = ["--set", "nodes.buffer.prompts_per_step=none"];
    verb(&place, &[&["validate", file], &faulty[..]].concat())
        .end()
        .expect(78)
        .says(&["error[RL02"]);
    place.run(&faulty).expect(78).says(&["error[RL02"]);
    place
        .run(&["--set", "nodes.prompts.dataset.path=absent.jsonl"])
        .expect(78)
        .says(&["absent.jsonl"]);
    assert!(!place.path().join("runs").exists(), "a faulty pipeline left something");
    for usage in [
        &["run"][..],
        &["walk"],
        &["run", file, "--absent"],
        &["run", file, "--attempt", "0001"],
        &["run", file, "--steps", "few"],
        &[],
    ] {
        verb(&place, usage).end().expect(2);
    }
    place
        .run(&["--resume", "--attempt", "0009"])
        .expect(1)
        .says(&["no attempt `0009`", "it has: none"]);
    assert!(
        verb(&place, &["kinds", "trainer"])
            .end()
            .expect(0)
            .output
            .contains("trainer")
    );
}

#[test]
fn a_dry_run_shows_the_plan_and_starts_nothing() {
    let place = Place::new();
    let ended = place.run(&["--dry-run"]).expect(0);
    assert!(
        ended.output.contains("trainer") && ended.output.contains("local"),
        "{}",
        ended.output
    );
    assert!(!place.path().join("runs").exists());
    place.assert_cleared();
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    for arguments in [&["kinds"][..], &["schema"], &["explain", "RL0401"], &["plan"]] {
        let mut command = place.rlpipe();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        if arguments == ["plan"] {
            command.arg(pipeline());
        }
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(
            (ended.status.code(), &*ended.stderr),
            (Some(0), &b""[..]),
            "{arguments:?}"
        );
    }
}

#[test]
fn streams_that_are_closed_or_full_do_not_matter() {
    let whole = unbroken(&[]);
    for redirection in ["2>&-", "0<&-", "0<&- 1>&- 2>&-", "2>/dev/full"] {
        let place = Place::new();
        let run = place.command(&[]);
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("exec \"$0\" \"$@\" {redirection}"))
            .arg(run.get_program())
            .args(run.get_args());
        for (name, value) in run.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Running::start(command).end().expect(0);
        Record::of(&place.attempt()).assert_is(&whole);
    }
}
