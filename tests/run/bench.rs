//! `rlpipe bench` with a real worker: what is counted, and the shape of the JSON. No time is held against a clock.

use libc::{SIGINT, SIGSTOP, SIGTERM};
use serde_json::{Value, json};

use crate::harness::{Ended, Place, Running, pipeline, send};

fn bench(place: &Place, arguments: &[&str]) -> Ended {
    let mut command = place.rlpipe();
    command.arg("bench").args(arguments);
    Running::start(command).end()
}

const TINY: [&str; 8] = [
    "--shape",
    "tiny",
    "--accelerator",
    "cpu",
    "--threads",
    "1",
    "--runs",
    "2",
];

/// What a benchmark of the tiny shape prints and writes, which must be the same.
fn measured(arguments: &[&str]) -> Value {
    let place = Place::new();
    let file = place.path().join("results.json");
    let written = ["--format", "json", "--output", file.to_str().unwrap()];
    let ended = bench(&place, &[arguments, &TINY, &written].concat()).expect(0);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(ended.output, text);
    place.assert_cleared();
    serde_json::from_str(&text).unwrap()
}

/// Names as they are, numbers as zeros, versions blank.
fn shape(value: &Value) -> Value {
    match value {
        Value::Number(_) => json!(0),
        Value::Array(values) => values.iter().map(shape).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match name.as_str() {
                "version" | "torch" => (name.clone(), json!("")),
                _ => (name.clone(), shape(value)),
            })
            .collect(),
        other => other.clone(),
    }
}

fn spread() -> Value {
    json!({ "runs": 0, "median": 0, "min": 0, "lower_quartile": 0, "upper_quartile": 0, "max": 0 })
}

fn timed(name: &str) -> Value {
    json!({
        "name": name, "seconds": spread(), "warm_up_s": 0,
        "done": { "unit": "tokens", "amount": 0, "per_second": spread() },
        "achieved": {
            "bytes": 0, "operations": 0, "bytes_per_s": 0, "operations_per_s": 0, "share_of_copy": 0,
            "share_of_product": 0, "least_s": 0,
        },
    })
}

/// Every rate is the amount over the time, and nothing took no time.
fn assert_sane(one: &Value) {
    let number = |path: &str| one.pointer(path).and_then(Value::as_f64).unwrap();
    assert_eq!(number("/seconds/runs"), 2.0);
    let order =
        ["min", "lower_quartile", "median", "upper_quartile", "max"].map(|name| number(&format!("/seconds/{name}")));
    assert!(order[0] > 0.0 && order.is_sorted(), "{order:?}");
    let fastest = number("/done/amount") / order[0];
    assert!((number("/done/per_second/max") / fastest - 1.0).abs() < 1e-9);
    assert!(number("/achieved/share_of_copy") > 0.0 && number("/achieved/least_s") > 0.0);
}

#[test]
fn generation_counts_what_came_back_and_shares_prompts() {
    let found = measured(&[
        "generate",
        "--prompts",
        "3",
        "--prompt-tokens",
        "5",
        "--new-tokens",
        "7",
        "--samples",
        "4",
        "--shared",
        "--slots",
        "4",
        "--date",
        "today",
    ]);
    let expected = json!({
        "bench": "generate", "program": { "name": "rlpipe", "version": "" }, "device": "cpu", "versions": { "torch": "" },
        "threads": 0,
        "model": { "name": "tiny", "weights": "random", "parameters": 0, "dtype": "float32" },
        "settings": {
            "prompts": 0, "prompt_tokens": 0, "new_tokens": 0, "samples": 0, "slots": 0, "temperature": 0, "top_p": 0,
            "top_k": 0, "min_p": 0,
        },
        "measured": [timed("shared prompts"), timed("separate prompts")],
        "ratios": { "separate prompts over shared prompts": 0 },
        "ceilings": {
            "copy_bytes_per_s": 0, "bfloat16_product_operations_per_s": 0, "float32_product_operations_per_s": 0,
        },
        "notes": [], "date": "today",
    });
    assert_eq!(shape(&found), expected);
    assert_eq!(found["settings"]["slots"], 4);
    assert_eq!(found["threads"], 1);
    for one in found["measured"].as_array().unwrap() {
        assert_eq!(one["done"]["amount"], 84.0);
        assert_sane(one);
    }
    // Of the tiny shape: 98,304 weights in the trunk, 32,768 in the head, attention 4 64 2 over what is seen.
    let decoded = 12 * 6;
    let seen = 3 * 15 + 12 * (66 - 15);
    let operations = 2 * 98_304 * (3 * 5 + decoded) + 2 * 32_768 * (3 + decoded) + 512 * seen;
    assert_eq!(found["measured"][0]["achieved"]["operations"], operations);
}

#[test]
fn training_counts_the_tokens_of_all_packs() {
    let found = measured(&[
        "train",
        "--sequences",
        "5",
        "--tokens",
        "12",
        "--prompt-tokens",
        "4",
        "--pack-tokens",
        "30",
        "--dtype",
        "bfloat16",
        "--activations",
        "recompute_gated",
    ]);
    let names = ["train", "forward and backward", "optimizer step"];
    assert_eq!(shape(&found["measured"]), Value::from_iter(names.map(timed)));
    assert_eq!(found["settings"]["packs"], 3);
    assert_eq!(found["settings"]["activations"], "recompute_gated");
    assert_eq!(found["model"]["dtype"], "bfloat16");
    assert_eq!(found.get("date"), None);
    for one in found["measured"].as_array().unwrap() {
        assert_eq!(one["done"]["amount"], 60.0);
        assert_sane(one);
    }
}

#[test]
fn a_step_is_taken_apart_and_its_run_is_kept_where_that_is_asked_for() {
    let place = Place::new();
    let (file, runs) = (pipeline(), place.path().join("kept"));
    let arguments = ["step", file.to_str().unwrap(), "--steps", "3"];
    let ended = bench(&place, &[&arguments[..], &["--format", "json"]].concat()).expect(0);
    place.assert_cleared();
    let found: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(found["device"], "cpu");
    let measured = found["measured"].as_array().unwrap();
    let names: Vec<&str> = measured.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names[0], "step");
    for name in [
        "rollout",
        "judge",
        "train",
        "sync",
        "eval",
        "driver",
        "rollout_driver",
        "train_driver",
        "write",
    ] {
        let one = measured.iter().find(|one| one["name"] == name).unwrap();
        assert!(one["share"].as_f64().is_some_and(|share| share >= 0.0), "{name}");
        assert_eq!(one["done"].is_object(), ["rollout", "train"].contains(&name), "{name}");
    }
    assert_eq!(measured[0]["seconds"]["runs"], 2);
    let kept = ["--work-dir", runs.to_str().unwrap()];
    let ended = bench(&place, &[&arguments[..], &kept].concat()).expect(0);
    assert!(ended.output.contains("small.yaml, steps 3"), "{}", ended.output);
    let path = runs.join("small/0001/trace.json");
    assert!(ended.output.contains(&*path.to_string_lossy()), "{}", ended.output);
    let trace: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    // Commands lie within the turn in which they were sent; microseconds are cut off.
    let times = |name: &str| {
        let spans = trace
            .iter()
            .filter(|event| event["name"] == name && event["args"]["step"] == 2);
        spans
            .map(|span| (span["ts"].as_u64().unwrap(), span["dur"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    for (outer, inner) in [
        ("produce (rollout)", "generate"),
        ("train (train)", "train_pack"),
        ("train (train)", "optimizer_step"),
        ("sync", "set_version"),
    ] {
        let (outer, inner) = (times(outer), times(inner));
        let (start, duration) = outer[0];
        assert!(
            inner
                .iter()
                .any(|(from, lasted)| *from + 50 >= start && from + lasted <= start + duration + 50),
            "{outer:?} {inner:?}"
        );
    }
    // One after the other, though two are on the way; microseconds are cut off here too.
    let packs = times("train_pack");
    assert!(packs.len() > 1, "{packs:?}");
    let in_turn = |pair: &[(u64, u64)]| pair[0].0 + pair[0].1 <= pair[1].0 + 1;
    assert!(packs.windows(2).all(in_turn), "{packs:?}");
    assert!(!times("at work").is_empty() && !times("write").is_empty());
}

/// Whose worker stands still, so that nothing ends by itself.
fn held(place: &Place, arguments: &[&str]) -> Running {
    let mut command = place.rlpipe();
    command.arg("bench").args(arguments);
    let mut bench = Running::start(command);
    send(bench.until_below("rlpipe-worker"), SIGSTOP);
    bench
}

#[test]
fn an_interrupt_leaves_no_process_and_no_folder() {
    let file = pipeline();
    let step = ["step", file.to_str().unwrap(), "--steps", "1000000"];
    let generate = [&["generate", "--new-tokens", "1000"][..], &TINY].concat();
    for (arguments, signal) in [
        (&step[..], SIGTERM),
        (&step[..], SIGINT),
        (&generate, SIGTERM),
        (&generate, SIGINT),
    ] {
        let place = Place::new();
        let bench = held(&place, arguments);
        bench.signal(signal);
        bench.end().expect(130);
        place.assert_cleared();
    }
}

#[test]
fn a_kill_leaves_no_process() {
    let (place, file) = (Place::new(), pipeline());
    held(&place, &["step", file.to_str().unwrap(), "--steps", "1000000"]).kill();
}

#[test]
fn the_run_is_found_wherever_it_is() {
    let (place, file) = (Place::new(), pipeline());
    let runs = place.path().join("a, in b");
    let arguments = [
        "step",
        file.to_str().unwrap(),
        "--steps",
        "1",
        "--work-dir",
        runs.to_str().unwrap(),
    ];
    for attempt in ["0001", "0002"] {
        let ended = bench(&place, &arguments).expect(0);
        let trace = runs.join("small").join(attempt).join("trace.json");
        assert!(ended.output.contains(&*trace.to_string_lossy()), "{}", ended.output);
    }
}

#[test]
fn what_cannot_be_measured_is_said_with_what_to_do() {
    let place = Place::new();
    for (arguments, parts) in [
        (
            &["generate", "--model", "absent"][..],
            &["`absent`", "No such file"][..],
        ),
        (
            &["generate", "--shape", "tiny", "--prompt-tokens", "2048"],
            &["`max_context_tokens` is 2080", "2 to 2048 positions"],
        ),
        (
            &[
                "generate",
                "--shape",
                "tiny",
                "--prompts",
                "4000000000",
                "--samples",
                "4000000000",
                "--shared",
            ],
            &[
                "16000000000000000000 sequences of",
                "this machine has",
                "give fewer `--prompts` or `--samples`",
            ],
        ),
        (
            &[
                "train",
                "--shape",
                "tiny",
                "--sequences",
                "4000000000",
                "--tokens",
                "4000000000",
                "--pack-tokens",
                "4000000000",
            ],
            &[
                "16000000000000000000 tokens in all",
                "give fewer `--sequences` or `--tokens`",
            ],
        ),
        // More than a process can address, so that no system grants it, however much it promises.
        (
            &[
                "generate",
                "--shape",
                "tiny",
                "--accelerator",
                "cpu",
                "--prompt-tokens",
                "2000",
                "--slots",
                "4000000000",
            ],
            &[
                "can't allocate memory",
                "with `--slots 4000000000`; with fewer, less is held",
            ],
        ),
    ] {
        bench(&place, arguments).expect(1).says(parts);
    }
    for (arguments, parts) in [
        (&["generate", "--shared"][..], &["give `--samples` above 1"][..]),
        (&["generate", "--top-p", "0"], &["--top-p", "above 0 and at most 1"]),
        (&["generate", "--temperature", "NaN"], &["a number of at least 0"]),
        (&["generate", "--min-p", "1"], &["at least 0 and below 1"]),
        (&["generate", "--runs", "0"], &["--runs"]),
        (&["generate", "--threads", "100000"], &["--threads"]),
        (
            &["train", "--tokens", "8"],
            &["`--prompt-tokens 96` leaves nothing to train", "give fewer"],
        ),
        (
            &["train", "--tokens", "128", "--pack-tokens", "127"],
            &["has no room for a sequence", "give more"],
        ),
        (&["generate", "--output", "."], &["is a folder", "name a file"]),
        (
            &["generate", "--output", "absent/x.json"],
            &["in a folder that is not there"],
        ),
    ] {
        bench(&place, arguments).expect(2).says(parts);
    }
    // As the verb itself ends; a name may begin with a dash.
    for (arguments, parts) in [
        (
            &["validate", "absent.yaml"][..],
            &["the pipeline has faults", "absent.yaml"][..],
        ),
        (&["step", "--", "-absent.yaml"], &["the run failed", "-absent.yaml"]),
    ] {
        bench(&place, arguments).expect(78).says(parts);
    }
    place.assert_cleared();
    // What was there stays when a folder cannot be written into.
    let file = pipeline();
    let nowhere = [
        "validate",
        file.to_str().unwrap(),
        "--runs",
        "1",
        "--output",
        "/proc/x.json",
    ];
    bench(&place, &nowhere)
        .expect(1)
        .says(&["cannot write the results to `/proc/x.json`"]);
    let ended = bench(&place, &nowhere[..4]).expect(0);
    assert!(
        ended.output.contains("validate") && ended.output.contains("median"),
        "{}",
        ended.output
    );
}
