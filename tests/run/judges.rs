//! Whole runs that are judged by a program.

use serde_json::Value;

use crate::harness::{Place, Record, unbroken};

/// The judge `number`, as a program. Of samples with a certain seed it makes what `FAULT` says.
const SCRIPT: &str = r#"
import json, os, re, signal, sys

def score(sample):
    if sample["seed"] % 16 == 1:
        FAULT
    numbers = re.findall("-?[0-9]+", sample["response"])
    right = numbers[-1:] == [sample["ground_truth"]]
    return {"reward": float(right), "parsed": numbers[-1] if numbers else None, "parts": {"digits": len(sample["response"])}}

for line in sys.stdin:
    message = json.loads(line)
    answer = {"type": "ready"}
    if message["type"] == "score":
        answer = {"type": "scores", "id": message["id"], "scores": [score(sample) for sample in message["samples"]]}
    print(json.dumps(answer), flush=True)
"#;

/// The small pipeline with its training judged by the script.
fn place(fault: &str, on_error: &str) -> Place {
    let node = "scored: { type: judger, inputs: { groups: answers }, judge: number }";
    let judge = "judge: { command: { run: [python3, ./judge.py], samples_per_message: 6 } }";
    let own = format!("scored: {{ type: judger, inputs: {{ groups: answers }}, {judge}, on_error: {on_error} }}");
    let place = Place::with_own_files(&[(node, own.as_str())]);
    let once = place.path().join("once");
    let script = SCRIPT
        .replace("FAULT", fault)
        .replace("ONCE", &format!("{:?}", once.display().to_string()));
    std::fs::write(place.path().join("judge.py"), script).unwrap();
    place
}

fn sum(record: &Record, name: &str) -> f64 {
    record.rows().iter().filter_map(|row| row[name].as_f64()).sum()
}

/// What it trained on, by rollout: all that does not say how it was judged.
fn trained(record: &Record) -> Vec<(Value, Value, Value)> {
    let of = |step: u64| record.lines(&format!("rollouts/train/step-{step}.jsonl"));
    let lines = (1..=6).flat_map(of);
    lines
        .map(|line| {
            (
                line["response_ids"].clone(),
                line["reward"].clone(),
                line["advantage"].clone(),
            )
        })
        .collect()
}

#[test]
fn a_judge_that_dies_once_changes_nothing() {
    let fault = "if not os.path.exists(ONCE):\n            open(ONCE, 'w').close()\n            os.kill(os.getpid(), signal.SIGSEGV)";
    let place = place(fault, "fail");
    let ended = place
        .run(&[])
        .expect(0)
        .says(&["is started again", "SIGSEGV", "judged again, one by one"]);
    assert_eq!(ended.text.matches("is started again").count(), 1);
    let record = Record::of(&place.attempt());
    assert_eq!(trained(&record), trained(&unbroken(&[])), "as the built-in judge");
    assert!(record.rows()[1]["reward/parts/digits/mean"].as_f64().unwrap() > 0.0);
    place.assert_cleared();
}

#[test]
fn i10_an_error_ends_the_run_and_is_named() {
    let place = place("return {\"error\": \"ValueError: odd\"}", "fail");
    place
        .run(&[])
        .expect(1)
        .says(&["`scored`: response ", " of the data: it says: ValueError: odd"]);
    place.assert_cleared();
}

#[test]
fn i10_an_error_drops_its_group_which_is_counted() {
    let place = place("return {\"error\": \"ValueError: odd\"}", "drop_group");
    place.run(&[]).expect(0);
    let record = Record::of(&place.attempt());
    assert!(sum(&record, "groups/failed") > 0.0);
    assert_eq!(
        (sum(&record, "response/unjudged"), sum(&record, "response/abstained")),
        (0.0, 0.0)
    );
}

#[test]
fn i16_what_cannot_be_judged_or_is_abstained_from_is_counted_apart_and_not_trained() {
    for (fault, counted, other) in [
        (
            "return {\"error\": \"ValueError: odd\"}",
            "response/unjudged",
            "response/abstained",
        ),
        ("return {\"reward\": None}", "response/abstained", "response/unjudged"),
    ] {
        let place = place(fault, "abstain");
        place.run(&[]).expect(0);
        let record = Record::of(&place.attempt());
        assert!(sum(&record, counted) > 0.0 && sum(&record, other) == 0.0);
        let lines = (1..=6).flat_map(|step| record.lines(&format!("rollouts/train/step-{step}.jsonl")));
        let without: Vec<Value> = lines.filter(|line| line["reward"].is_null()).collect();
        assert!(without.iter().all(|line| line["advantage"].is_null()), "{without:?}");
        let said = without.iter().filter(|line| line["judge_error"].is_string()).count();
        assert_eq!(
            said,
            if counted == "response/unjudged" {
                without.len()
            } else {
                0
            }
        );
    }
}

#[test]
fn i14_a_judge_that_cannot_start_is_found_before_anything_runs() {
    let place = place("pass", "fail");
    std::fs::write(place.path().join("judge.py"), "import a_module_that_is_not_there\n").unwrap();
    place
        .run(&[])
        .expect(78)
        .says(&["RL1122", "No module named 'a_module_that_is_not_there'"]);
    assert!(!place.attempt().exists());
}

#[test]
fn a_judge_goes_with_a_driver_that_is_killed() {
    let fault = "open(ONCE, 'w').write(str(os.getpid()) + '\\n')\n        signal.pause()";
    let place = place(fault, "fail");
    let running = place.start(&[]);
    let noted = place.path().join("once");
    let judge = loop {
        let text = std::fs::read_to_string(&noted).unwrap_or_default();
        if text.ends_with('\n') {
            break text.trim().parse::<u32>().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    running.kill();
    while crate::harness::runs(judge) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
