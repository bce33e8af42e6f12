//! `rlpipe test`, the program itself, on the pipelines that the project comes with and on tests with every kind of end.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn pipelines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines")
}

fn rlpipe() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rlpipe"));
    for variable in ["MODEL_PATH", "DATA_PATH", "EVAL_DATA_PATH", "WORK_DIR", "RLPIPE_WORKER"] {
        command.env_remove(variable);
    }
    command
}

/// The exit code and all that was said.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

/// Runs tests that are laid over the quickstart, of which those alone are run that `names` names.
fn tested_in(folder: &Path, tests: &str, more: &[&str]) -> (Option<i32>, String) {
    std::fs::write(folder.join("tests.yaml"), tests).unwrap();
    let mut command = rlpipe();
    command
        .arg("test")
        .arg(pipelines().join("quickstart.yaml"))
        .arg("tests.yaml")
        .args(more);
    said(&command.current_dir(folder).output().unwrap())
}

fn tested(tests: &str, more: &[&str]) -> (Option<i32>, String) {
    tested_in(tempfile::tempdir().unwrap().path(), tests, more)
}

/// The one test `it`, with a judger of that settings.
fn judged(judger: &str, feed: &str, expect: &str) -> (Option<i32>, String) {
    let tests = format!("nodes:\n  scored: {judger}\ntests:\n  it:\n    feed: {feed}\n    expect: {expect}\n");
    tested(&tests, &["--", "it"])
}

const SUM: &str = r#"{ scored: { groups: [{ prompt: "1+1=", ground_truth: "2", responses: ["2", "3"] }] } }"#;

#[test]
fn shipped_pipelines_pass_their_tests_without_model_and_worker() {
    let folder = tempfile::tempdir().unwrap();
    for (file, tests) in [
        ("quickstart.yaml", 3),
        ("quickstart.toml", 3),
        ("custom-reward.yaml", 1),
    ] {
        let mut command = rlpipe();
        command
            .arg("test")
            .arg(pipelines().join(file))
            .current_dir(folder.path());
        let (code, text) = said(&command.output().unwrap());
        assert_eq!(code, Some(0), "{file}:\n{text}");
        assert!(
            text.ends_with(&format!("\n{tests} passed, 0 failed\n")),
            "{file}:\n{text}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_differs_is_shown_at_the_expectation() {
    let tests = "tests:\n  it:\n    feed: { scored: { groups: [{ prompt: \"1+1=\", ground_truth: \"2\", responses: [\"2\", \"3\"] }] } }\n    expect:\n      scored:\n        groups:\n          - { rewards: [1, 1] }\n";
    let wanted = "FAILED  it\n  tests.yaml:7:15: `rewards` of group 0 of `scored` are others, for \"1+1=\"\n           expected  got\n      \"2\"  1         1\n    > \"3\"  1         0\n\n0 passed, 1 failed\n";
    assert_eq!(tested(tests, &["--", "it"]), (Some(1), wanted.to_owned()));
    let (code, text) = tested(tests, &["--format", "json", "--", "it"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(
        (&found["passed"], &found["tests"][0]["nodes"]),
        (&json!(false), &json!(["scored"]))
    );
    let failure = &found["tests"][0]["failures"][0];
    assert_eq!((&failure["file"], &failure["line"]), (&json!("tests.yaml"), &json!(7)));
    assert_eq!(
        failure["rows"][1],
        json!({ "of": "\"3\"", "expected": "1", "got": "0", "differs": true })
    );
}

/// Not any, but all of what comes out must be as expected, and no more may come.
#[test]
fn every_group_and_every_response_counts() {
    let judger = "{ judge: number }";
    for (expect, says) in [
        (
            "{ scored: { groups: [] } }",
            "0 groups are expected of `scored`, and 1 came",
        ),
        (
            "{ scored: { groups: [{}, {}] } }",
            "2 groups are expected of `scored`, and 1 came",
        ),
        (
            "{ scored: { groups: [{ rewards: [1] }] } }",
            "1 `rewards` are expected of group 0 of `scored`, and it has 2",
        ),
        (
            "{ scored: { groups: [{ rewards: [1, 0], parsed: [\"2\", null] }] } }",
            "`parsed` of group 0",
        ),
        (
            "{ scored: { groups: [{ rewards: [1, null] }] } }",
            "`rewards` of group 0",
        ),
        ("{ scored: { groups: [{ prompt: \"1+2=\" }] } }", "of another prompt"),
        (
            "{ scored: { groups: [{}], metrics: { reward/mean: 0.4 } } }",
            "`reward/mean` of `scored` is another",
        ),
        (
            "{ scored: { metrics: { reward/meen: 0.5 } } }",
            "did you mean `reward/mean`?",
        ),
        ("{ scored: { error: ouch } }", "was expected to fail, and did not"),
        (
            "{ varied: { dropped: [{}] } }",
            "1 group is expected to be dropped by `varied`, and 0 were",
        ),
        (
            "{ advantages: { batch: [{}] } }",
            "`buffer` got 1 group, and gives a step of 32",
        ),
    ] {
        let (code, text) = judged(judger, SUM, expect);
        assert_eq!(code, Some(1), "{expect}:\n{text}");
        assert!(text.contains(says), "{expect}:\n{text}");
    }
    let (code, text) = judged(
        judger,
        SUM,
        "{ scored: { groups: [{ rewards: [1, 0] }] }, varied: { dropped: [] } }",
    );
    assert_eq!(code, Some(0), "{text}");
}

/// Golden: (1 - 1/4) and (0 - 1/4) over the unbiased standard deviation of 1, 0, 0, 0, which is 1/2.
#[test]
fn advantages_are_those_of_the_formula() {
    let feed = "{ advantages: { batch: [{ responses: [a, b, c, d], rewards: [1, 0, 0, 0] }] } }";
    let wanted = |of: &str| format!("{{ advantages: {{ batch: [{{ advantages: [{of}] }}] }} }}");
    let (code, text) = tested(
        &format!(
            "tests:\n  it:\n    tolerance: 1e-4\n    feed: {feed}\n    expect: {}\n",
            wanted("1.5, -0.5, -0.5, -0.5")
        ),
        &["--", "it"],
    );
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = tested(
        &format!(
            "tests:\n  it:\n    tolerance: 1e-4\n    feed: {feed}\n    expect: {}\n",
            wanted("1.501, -0.5, -0.5, -0.5")
        ),
        &["--", "it"],
    );
    assert_eq!(code, Some(1), "{text}");
}

/// A program that errs, in each of the ways in which a judger can take it.
#[test]
fn programs_are_really_started_and_their_errors_are_the_judgers() {
    let folder = tempfile::tempdir().unwrap();
    let script = "import json, sys\nfor line in sys.stdin:\n    message = json.loads(line)\n    answer = {'type': 'ready'}\n    if message['type'] == 'score':\n        score = lambda sample: {'error': 'no number'} if sample['response'] == 'x' else {'reward': 0.5, 'parts': {'form': 2}}\n        answer = {'type': 'scores', 'id': message['id'], 'scores': [score(sample) for sample in message['samples']]}\n    print(json.dumps(answer), flush=True)\n";
    std::fs::write(folder.path().join("judge.py"), script).unwrap();
    let with = |on_error: &str, expect: &str| {
        let tests = format!(
            "nodes:\n  scored:\n    judge: {{ command: {{ run: [python3, ./judge.py] }} }}\n    on_error: {on_error}\ntests:\n  it:\n    feed: {{ scored: {{ groups: [{{ ground_truth: \"2\", responses: [\"2\", x] }}] }} }}\n    expect: {expect}\n"
        );
        tested_in(folder.path(), &tests, &["--", "it"])
    };
    let right = [
        ("fail", "{ scored: { error: no number } }"),
        (
            "drop_group",
            "{ scored: { groups: [], dropped: [{ reason: no number, statuses: [failed, failed] }] } }",
        ),
        (
            "abstain",
            "{ scored: { groups: [{ rewards: [0.5, null], errors: [null, no number] }] } }",
        ),
    ];
    for (on_error, expect) in right {
        let (code, text) = with(on_error, expect);
        assert_eq!(code, Some(0), "{on_error}:\n{text}");
    }
    let (code, text) = with("fail", "{ scored: { error: another } }");
    assert!(code == Some(1) && text.contains("failed with another error"), "{text}");
    let (code, text) = with("fail", "{ varied: { groups: [{}] } }");
    assert!(
        code == Some(1) && text.contains("what is expected of `varied` never came"),
        "{text}"
    );
    let (code, text) = with("abstain", "{ scored: { groups: [{ parts: [{ form: 2 }, {}] }] } }");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = with("abstain", "{ scored: { groups: [{ parts: [{ form: 3 }, {}] }] } }");
    assert!(code == Some(1) && text.contains("form: 2"), "{text}");
}

fn line(group: u64, response: &str, reward: Value, status: &str) -> String {
    json!({
        "group_id": group, "rollout_id": format!("{group}/0"), "prompt": [{ "role": "user", "content": "1+1=" }],
        "prompt_ids": [1], "response": response, "response_ids": [2, 3], "logprobs": [-0.5, null], "mask": [true, true],
        "policy_version": [{ "version": 0, "tokens": 2 }], "reward": reward, "parsed": response, "advantage": null,
        "status": status, "finish_reason": "stop", "data_source": "", "ground_truth": "2", "sampler": "prompts",
    })
    .to_string()
}

#[test]
fn rollouts_of_a_run_are_judged_again() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        line(0, "2", json!(1.0), "completed"),
        line(0, "3", json!(0.0), "completed"),
        line(1, "2", json!(0.0), "filtered"),
    ];
    std::fs::write(folder.path().join("step-1.jsonl"), lines.join("\n")).unwrap();
    let with = |feed: &str, expect: &str| {
        let tests = format!(
            "tests:\n  it:\n    feed: {{ scored: {{ rollouts: step-1.jsonl{feed} }} }}\n    expect: {expect}\n"
        );
        tested_in(folder.path(), &tests, &["--", "it"])
    };
    let (code, text) = with("", "{ scored: { same_rewards: true } }");
    assert!(
        code == Some(1) && text.contains("1 of 3 responses have another reward"),
        "{text}"
    );
    let (code, text) = with(
        ", limit: 1",
        "{ scored: { same_rewards: true, groups: [{ rewards: [1, 0] }] } }",
    );
    assert_eq!(code, Some(0), "{text}");
    let expect = "{ scored: { same_rewards: false, metrics: { reward/mean: 0.6666667, response_len/mean: 2 } } }";
    let (code, text) = with("", expect);
    assert_eq!(code, Some(0), "{text}");
    std::fs::write(folder.path().join("step-1.jsonl"), "{}\n").unwrap();
    let (code, text) = with("", "{ scored: { same_rewards: true } }");
    assert!(code == Some(78) && text.contains("error[RL1031]: line 1 of"), "{text}");
}

/// Faults of tests are told with their place, and nothing runs.
#[test]
fn faulty_tests_are_told_and_not_run() {
    for (tests, says) in [
        (
            "tests:\n  it: { feed: { scred: { groups: [] } }, expect: { scored: { groups: [] } } }\n",
            "error[RL0310]",
        ),
        ("tests:\n  it: { feed: {}, expect: {} }\n", "error[RL0209]"),
        (
            "tests:\n  it: { feed: { scored: { groups: [{ response: [a] }] } }, expect: { scored: { groups: [] } } }\n",
            "error[RL020",
        ),
        ("tests: [1]\n", "error[RL0204]"),
        ("tests:\n  it: 3\n", "error[RL0204]"),
        (
            "tests:\n  it: { feed: { trainer: { batch: [] } }, expect: { trainer: { metrics: { loss: 1 } } } }\n",
            "error[RL0321]",
        ),
        (
            "tests:\n  it: { feed: { scored: { groups: [] } }, expect: { marks: { groups: [] } } }\n",
            "error[RL0322]",
        ),
        (
            "tests:\n  it: { settings: { scored: { judge: nunber } }, feed: { scored: { groups: [] } }, expect: { scored: { groups: [] } } }\n",
            "did you mean `number`?",
        ),
    ] {
        let (code, text) = tested(tests, &[]);
        assert_eq!(code, Some(78), "{tests}\n{text}");
        assert!(text.contains(says) && text.contains("tests.yaml:"), "{tests}\n{text}");
    }
    let (code, text) = tested("tests:\n  it: { feed: {}, expect: {} }\n", &["--format", "json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &found["passed"], &found["faults"][0]["code"]),
        (Some(78), &json!(false), &json!("RL0209"))
    );
}

#[test]
fn a_name_that_is_no_test_and_a_file_without_tests() {
    let (code, text) = tested("name: small\n", &["--", "the_last_number_count"]);
    assert!(
        code == Some(78) && text.contains("did you mean `the_last_number_counts`?"),
        "{text}"
    );
    let output = rlpipe()
        .arg("test")
        .arg(pipelines().join("sft-then-grpo.yaml"))
        .output()
        .unwrap();
    let (code, text) = said(&output);
    assert!(code == Some(78) && text.contains("there are no tests"), "{text}");
}
