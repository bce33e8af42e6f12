//! Judging by real processes, which misbehave in every way that is known.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rlpipe_backends::{CommandPool, PoolSettings, try_command};
use rlpipe_core::data::FinishReason;
use rlpipe_core::plugin::Sample;
use rlpipe_core::services::{CommandJudge, JudgeCommand};
use serde_json::json;
use tempfile::TempDir;

/// Longer than any of these processes takes to answer.
const PATIENT: Duration = Duration::from_secs(600);
/// As short as can be: what hangs is late, however fast the machine is.
const HASTY: Duration = Duration::from_millis(50);

/// A folder that the judge takes notes in, with its logs.
struct Place {
    folder: TempDir,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            notices: Arc::default(),
        }
    }

    /// The judge of `support/judge.py`.
    fn command(&self, start: &str) -> JudgeCommand {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/judge.py");
        let config = json!({ "folder": self.folder.path(), "start": start });
        JudgeCommand {
            keys: vec!["judge".to_owned(), "command".to_owned()],
            run: vec!["python3".to_owned(), script.to_str().unwrap().to_owned()],
            config: config.as_object().unwrap().clone(),
            samples_per_message: 32,
            timeout: PATIENT,
            start_timeout: PATIENT,
            max_restarts: 3,
            environment: Vec::new(),
        }
    }

    fn pool(&self, command: &JudgeCommand, processes: u32) -> CommandPool {
        let notices = self.notices.clone();
        let settings = PoolSettings {
            node: "scored".to_owned(),
            processes,
            seed: 7,
            logs: self.folder.path().to_owned(),
            notice: Arc::new(move |text| notices.lock().unwrap().push(text.to_owned())),
        };
        CommandPool::start(command, &settings).unwrap()
    }

    fn noted(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn notices(&self) -> Vec<String> {
        self.notices.lock().unwrap().clone()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("judge-scored-0.log")).unwrap()
    }
}

fn samples(responses: &[&str]) -> Vec<Sample> {
    let sample = |response: &&str| Sample {
        prompt: Vec::new(),
        response: (*response).to_owned(),
        ground_truth: None,
        data_source: String::new(),
        columns: serde_json::Map::new(),
        finish_reason: FinishReason::Stop,
        step: 1,
        total_steps: 2,
        seed: 3,
    };
    responses.iter().map(sample).collect()
}

/// Rewards, or what was said instead.
async fn rewards(pool: &CommandPool, responses: &[&str]) -> Vec<Result<Option<f64>, String>> {
    let scores = pool.score(samples(responses)).await.unwrap();
    scores
        .into_iter()
        .map(|score| score.map(|score| score.reward))
        .collect()
}

/// Of one group: the rewards of all but the guilty one are as if it were not there, and that one is named.
async fn only_the_guilty(guilty: &str, said: &[&str]) -> Place {
    let place = Place::new();
    let pool = place.pool(&place.command(""), 1);
    let found = rewards(&pool, &["a", guilty, "ccc"]).await;
    assert_eq!((&found[0], &found[2]), (&Ok(Some(1.0)), &Ok(Some(3.0))), "{found:?}");
    let error = found[1].as_ref().unwrap_err();
    for part in said {
        assert!(error.contains(part), "{error}");
    }
    pool.shutdown().await;
    place
}

#[tokio::test]
async fn a_judge_is_asked_and_ends_with_its_input() {
    let place = Place::new();
    let pool = place.pool(&place.command(""), 1);
    let scores = pool.score(samples(&["a b", "null", ""])).await.unwrap();
    let rewards: Vec<_> = scores.iter().map(|score| score.as_ref().unwrap().reward).collect();
    assert_eq!(rewards, [Some(3.0), None, Some(0.0)]);
    assert_eq!(scores[0].as_ref().unwrap().parts["words"], 2.0);
    pool.shutdown().await;
    assert_eq!(place.noted("ends"), place.noted("starts"), "it ended by itself");
    assert_eq!(place.notices(), [] as [&str; 0]);
    let late = pool.score(samples(&["a"])).await.unwrap_err().to_string();
    assert!(late.contains("shut down"), "{late}");
}

#[tokio::test]
async fn groups_go_together_and_large_ones_in_pieces() {
    let place = Place::new();
    let command = JudgeCommand {
        samples_per_message: 4,
        ..place.command("")
    };
    let pool = place.pool(&command, 1);
    let groups = [&["1", "1"][..], &["22", "22"], &["333"], &["4"; 9], &["55", "55", "55"]];
    let asked = groups.map(|group| rewards(&pool, group));
    let [a, b, c, d, e] = asked;
    let found = tokio::join!(a, b, c, d, e);
    for (group, found) in groups.iter().zip([found.0, found.1, found.2, found.3, found.4]) {
        let wanted: Vec<_> = group.iter().map(|response| Ok(Some(response.len() as f64))).collect();
        assert_eq!(found, wanted);
    }
    let messages: Vec<Vec<String>> = place
        .noted("messages")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(messages.iter().all(|message| message.len() <= 4), "{messages:?}");
    assert!(messages.len() < 9, "groups that wait are merged: {messages:?}");
    assert_eq!(messages.iter().map(Vec::len).sum::<usize>(), 17);
}

#[tokio::test]
async fn several_processes_judge() {
    let place = Place::new();
    let command = JudgeCommand {
        samples_per_message: 1,
        ..place.command("")
    };
    let pool = place.pool(&command, 3);
    let responses: Vec<String> = (0..40).map(|length| "x".repeat(length)).collect();
    let responses: Vec<&str> = responses.iter().map(String::as_str).collect();
    let wanted: Vec<_> = (0..40).map(|length| Ok(Some(f64::from(length)))).collect();
    assert_eq!(rewards(&pool, &responses).await, wanted);
    pool.shutdown().await;
    assert_eq!(place.noted("ends").len(), 3);
}

#[tokio::test]
async fn i12_a_judge_that_hangs_is_killed_and_the_sample_named() {
    let place = Place::new();
    let command = JudgeCommand {
        timeout: HASTY,
        ..place.command("")
    };
    let pool = place.pool(&command, 1);
    let found = rewards(&pool, &["hang"]).await;
    let error = found[0].as_ref().unwrap_err();
    assert!(
        error.starts_with("it did not answer within 50ms (`timeout`)"),
        "{error}"
    );
    assert_eq!(place.noted("messages").len(), 2, "once with others, once alone");
}

/// The time is one that only a machine at a standstill would not keep.
#[tokio::test]
async fn i12_the_others_of_a_message_that_hangs_are_judged() {
    let place = Place::new();
    let command = JudgeCommand {
        timeout: Duration::from_secs(4),
        ..place.command("")
    };
    let pool = place.pool(&command, 1);
    let found = rewards(&pool, &["a", "hang", "ccc"]).await;
    assert_eq!((&found[0], &found[2]), (&Ok(Some(1.0)), &Ok(Some(3.0))));
    assert!(found[1].as_ref().unwrap_err().contains("within 4s"));
    let notices = place.notices();
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(
        notices[0].contains("is started again; 3 samples judged again, one by one"),
        "{notices:?}"
    );
}

#[tokio::test]
async fn a_judge_that_dies_is_started_again_and_the_sample_named() {
    let place = only_the_guilty("die", &["its process was killed by signal 11 (SIGSEGV)"]).await;
    assert_eq!(
        place.noted("starts").len(),
        3,
        "at first, for the others, and after the guilty one"
    );
    only_the_guilty(
        "exit",
        &["its process ended with exit code 1", "standard error:\n  cannot go on"],
    )
    .await;
}

#[tokio::test]
async fn a_death_that_does_not_repeat_is_nobodys_fault() {
    let place = Place::new();
    let pool = place.pool(&place.command(""), 1);
    assert_eq!(rewards(&pool, &["a", "once"]).await, [Ok(Some(1.0)), Ok(Some(4.0))]);
    assert_eq!(rewards(&pool, &["b"]).await, [Ok(Some(1.0))]);
    assert_eq!(place.notices().len(), 1);
}

#[tokio::test]
async fn i15_a_wrong_number_of_scores_is_named_and_nothing_is_spread_over_the_rest() {
    for (word, said) in [
        ("short", "it gave 1 score for 3 samples"),
        ("long", "it gave 6 scores for 3 samples"),
    ] {
        let place = Place::new();
        let pool = place.pool(&place.command(""), 1);
        let found = rewards(&pool, &["a", word, "ccc"]).await;
        assert!(
            found.iter().all(|found| found.as_ref().unwrap_err().starts_with(said)),
            "{found:?}"
        );
        assert_eq!(rewards(&pool, &["a"]).await, [Ok(Some(1.0))]);
        assert_eq!(place.noted("starts").len(), 1, "who speaks when is still clear");
    }
}

#[tokio::test]
async fn text_among_the_messages_is_shown() {
    only_the_guilty(
        "text",
        &["it wrote `a stray line`", "standard output is for messages alone"],
    )
    .await;
    only_the_guilty("nan", &["JSON has no `NaN`"]).await;
    only_the_guilty("id", &["answered `score` 2 with the id `3`"]).await;
    only_the_guilty("closed", &["it closed its standard output, and its process runs on"]).await;
    only_the_guilty("endless", &["it wrote more than 64 MiB without ending the line"]).await;
}

#[tokio::test]
async fn i10_what_one_sample_raises_is_its_error_and_no_reward() {
    let place = only_the_guilty("raise", &["it says: ValueError: no"]).await;
    assert_eq!(place.noted("starts").len(), 1);
    only_the_guilty("wrong", &["it gave the reward `\"x\"`, which is not a number"]).await;
}

#[tokio::test]
async fn a_flood_of_standard_error_neither_blocks_nor_fills_the_disk() {
    let place = Place::new();
    let pool = place.pool(&place.command(""), 1);
    assert_eq!(rewards(&pool, &["flood"]).await, [Ok(Some(5.0))]);
    let found = rewards(&pool, &["flood exit"]).await;
    pool.shutdown().await;
    assert!(found[0].is_err());
    let log = place.log();
    assert!(log.starts_with("line 0 of a flood"));
    assert!(log.len() < (1 << 20) + 1000, "{}", log.len());
    assert!(log.contains(" more bytes of this process were not kept\n"));

    let place = Place::new();
    let pool = place.pool(&place.command(""), 1);
    let found = rewards(&pool, &["exit flood"]).await;
    let error = found[0].as_ref().unwrap_err();
    assert!(error.contains("cannot go on"), "{error}");
}

#[tokio::test]
async fn a_judge_that_is_slow_to_start_is_given_up() {
    let place = Place::new();
    let command = JudgeCommand {
        start_timeout: HASTY,
        max_restarts: 1,
        ..place.command("hang")
    };
    let pool = place.pool(&command, 1);
    let error = pool.score(samples(&["a"])).await.unwrap_err().to_string();
    for part in [
        "`scored`: the program `python3 ",
        "is of no use after 2 failures in a row",
        "within 50ms (`start_timeout`)",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_judge_that_never_starts_ends_the_run_and_says_why() {
    for (mode, said) in [
        (
            "die",
            "its process ended with exit code 1; the end of its standard error:\n  no module named reward",
        ),
        (
            "text",
            "it wrote `loading the model` where the message `ready` was awaited",
        ),
        ("leave", "its process ended with exit code 0"),
        ("idle_text", "it wrote `are you there?`"),
    ] {
        let place = Place::new();
        let pool = place.pool(&place.command(mode), 1);
        let error = loop {
            // A process that leaves by itself may have been asked something before; it is of no use soon.
            match pool.score(samples(&["a"])).await {
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains(said) && error.contains("(`max_restarts: 3`)"), "{error}");
        // A process that was ready is started once more for the sample that it was asked about, which does not count.
        let starts = place.noted("starts").len();
        assert!((4..=7).contains(&starts), "{mode}: {starts}");
        let again = pool.score(samples(&["a"])).await.unwrap_err().to_string();
        assert_eq!(again, error);
    }
}

#[tokio::test]
async fn failures_in_a_row_without_an_answer_end_the_run() {
    let place = Place::new();
    let command = JudgeCommand {
        max_restarts: 2,
        ..place.command("")
    };
    let pool = place.pool(&command, 1);
    for _ in 0..2 {
        assert!(rewards(&pool, &["die"]).await[0].is_err());
    }
    let error = pool.score(samples(&["die"])).await.unwrap_err().to_string();
    assert!(error.contains("after 3 failures in a row"), "{error}");
    assert_eq!(
        place.noted("starts").len(),
        5,
        "of each of the first two, once more alone"
    );
}

#[tokio::test]
async fn one_bad_group_does_not_end_the_run_whether_it_comes_whole_or_in_pieces() {
    for samples_per_message in [32, 2, 1] {
        let place = Place::new();
        let command = JudgeCommand {
            samples_per_message,
            max_restarts: 1,
            ..place.command("")
        };
        let pool = place.pool(&command, 1);
        let found = rewards(&pool, &["die"; 5]).await;
        assert!(
            found
                .iter()
                .all(|found| found.as_ref().unwrap_err().contains("SIGSEGV")),
            "{found:?}"
        );
        assert_eq!(rewards(&pool, &["a", "bb"]).await, [Ok(Some(1.0)), Ok(Some(2.0))]);
        pool.shutdown().await;
    }
}

#[tokio::test]
async fn a_program_that_is_missing_or_not_executable_is_named_at_once() {
    let place = Place::new();
    let script = place.folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    for (program, said) in [
        ("/nowhere/judge", "No such file"),
        (script.to_str().unwrap(), "Permission denied"),
        ("no-such-program", "No such file"),
    ] {
        let command = JudgeCommand {
            run: vec![program.to_owned()],
            ..place.command("")
        };
        let pool = place.pool(&command, 1);
        let error = pool.score(samples(&["a"])).await.unwrap_err().to_string();
        assert!(
            error.contains("is of no use: it cannot be started") && error.contains(said),
            "{error}"
        );
    }
}

#[tokio::test]
async fn what_a_judge_started_itself_goes_with_it() {
    let place = only_the_guilty("child", &["SIGKILL"]).await;
    for child in place.noted("child") {
        // Killed with the group of the one that started it; someone has to wait for it, which takes a moment.
        while is_running(&child) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Running, and not a zombie that nobody has waited for.
fn is_running(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_judge_is_given_the_variables_that_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("judge.sh");
    std::fs::write(
        &script,
        "read -r line\necho \"{\\\"type\\\": \\\"ready\\\", \\\"name\\\": \\\"$CARGO_PKG_NAME-$CARGO_MANIFEST_DIR\\\"}\"\ncat >/dev/null\n",
    )
    .unwrap();
    let place = Place::new();
    let command = JudgeCommand {
        run: vec!["sh".to_owned(), script.to_str().unwrap().to_owned()],
        environment: vec!["CARGO_PKG_NAME".to_owned()],
        ..place.command("")
    };
    let tried = try_command(&command, "scored", 7, None).await;
    assert_eq!(tried.failure, None);
    assert_eq!(tried.ready.unwrap().name, "rlpipe-backends-");
}

#[tokio::test]
async fn i14_a_dry_call_is_a_call_as_in_a_run() {
    let place = Place::new();
    let sample = samples(&["four"]).pop();
    let tried = try_command(&place.command(""), "scored", 7, sample).await;
    assert_eq!(tried.ready.unwrap().name, "faulty");
    assert_eq!(tried.score.unwrap().unwrap().reward, Some(4.0));
    assert_eq!((tried.failure, place.noted("ends").len()), (None, 1));

    let tried = try_command(&place.command("die"), "scored", 7, None).await;
    assert!(tried.ready.is_none() && tried.failure.unwrap().contains("no module named reward"));

    let tried = try_command(&place.command(""), "scored", 7, samples(&["exit"]).pop()).await;
    assert!(tried.ready.is_some() && tried.failure.unwrap().contains("cannot go on"));

    let tried = try_command(&place.command(""), "scored", 7, samples(&["raise"]).pop()).await;
    assert_eq!(tried.score.unwrap().unwrap_err(), "it says: ValueError: no");
}

#[test]
fn the_samples_in_python_pass_their_own_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/python");
    let tested = std::process::Command::new("python3")
        .args(["-B", "-m", "unittest", "test_plugin"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
}
