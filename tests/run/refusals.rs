//! Runs that cannot go on, or must not: the exit code, what is said, and the way out.

use libc::{SIGCONT, SIGSTOP};

use crate::harness::{LONG, Place, Record, Running, pipeline, send, unbroken};

/// Numbers of blocks of 512 bytes, and the file that does not fit any more.
const LIMITS: [(u32, &str); 4] = [
    (4, "resolved.yaml"),
    (16, "plan.json"),
    (100, "checkpoints/.step-2.partial/tiny.weights.safetensors"),
    (168, "checkpoints/.step-2.partial/tiny.weights.safetensors"),
];

#[test]
fn a_file_that_may_not_grow_ends_the_run_and_spoils_nothing() {
    let whole = unbroken(&[]);
    for (blocks, file) in LIMITS {
        let place = Place::new();
        place.limited(blocks, &[]).expect(1).says(&[
            file,
            "File too large",
            "raise the limit (`ulimit -f`)",
            "--resume",
        ]);
        assert!(!place.attempt().join("checkpoints/step-2").exists());
        place.assert_cleared();
        place.run(&["--resume"]).expect(0);
        Record::of(&place.attempt()).assert_is(&whole);
    }
}

/// A file that grows with every step: the plan fits, the metrics do not in the end.
#[test]
fn metrics_that_grow_too_large_end_the_run_with_whole_rows() {
    let settings = ["run.total_steps=20", "run.hf_export=null", "nodes.varied.max_refill=0"];
    let longer = settings.map(|setting| ["--set", setting]).concat();
    let whole = unbroken(&longer);
    let place = Place::new();
    place.run(&[&longer[..], &["--steps", "2"]].concat()).expect(0);
    let blocks = u32::try_from(place.attempt().join("plan.json").metadata().unwrap().len() / 512 + 1).unwrap();
    let bare = [&longer[..], &["--resume", "--set", "run.checkpoint=null"]].concat();
    place.limited(blocks, &bare).expect(1).says(&[
        "metrics.jsonl",
        "the file would be larger than is allowed here",
        "raise the limit (`ulimit -f`)",
        "`--resume` goes on after step 2",
    ]);
    let rows = Record::of(&place.attempt()).rows().len();
    assert!((4..20).contains(&rows), "{rows} rows");
    place.run(&[&longer[..], &["--resume"]].concat()).expect(0);
    let mut broken = Record::of(&place.attempt());
    broken.0.retain(|name, _| !name.starts_with("hf/"));
    broken.assert_is(&whole);
}

#[test]
fn a_folder_in_use_is_refused_and_another_attempt_is_not() {
    let whole = unbroken(&LONG);
    let place = Place::new();
    let mut run = place.start(&LONG);
    run.until("step 1: generation");
    let worker = run.worker();
    send(worker, SIGSTOP);
    let holder = format!("in use by process {}", run.id());
    let refused = place.run(&[&LONG[..], &["--resume"]].concat()).expect(1);
    refused.says(&[&holder, "runs/small/0001", "wait until that run ends"]);
    place.run(&LONG).expect(0);
    send(worker, SIGCONT);
    run.end().expect(0);
    for attempt in ["0001", "0002"] {
        Record::of(&place.path().join("runs/small").join(attempt)).assert_is(&whole);
    }
}

#[test]
fn two_runs_that_start_at_once_have_an_attempt_each() {
    let whole = unbroken(&[]);
    let place = Place::new();
    let both = [place.start(&[]), place.start(&[])];
    for run in both {
        run.end().expect(0);
    }
    for attempt in ["0001", "0002"] {
        Record::of(&place.path().join("runs/small").join(attempt)).assert_is(&whole);
    }
}

#[test]
fn a_resume_with_another_setting_is_refused_before_anything_starts() {
    let place = Place::new();
    place.run(&["--steps", "2"]).expect(0);
    let before = Record::of(&place.attempt());
    for (setting, said) in [
        (
            "nodes.trainer.optimizer.adamw.lr=2e-3",
            "nodes.trainer.optimizer.adamw.lr: 0.001 before, 0.002 now",
        ),
        (
            "nodes.buffer.prompts_per_step=5",
            "nodes.buffer.prompts_per_step: 4 before, 5 now",
        ),
        ("run.seed=8", "run.seed: 7 before, 8 now"),
        (
            "pools.local.cpus_per_worker=2",
            "pools.local.cpus_per_worker: 1 before, 2 now",
        ),
    ] {
        let ended = place.run(&["--resume", "--set", setting]).expect(1).says(&[
            "cannot resume",
            said,
            "start a new attempt without `--resume`",
            "what may change",
        ]);
        assert!(
            !ended.text.contains("parameters"),
            "a worker was started: {}",
            ended.text
        );
    }
    let fewer = [
        "--resume",
        "--set",
        "run.total_steps=1",
        "--set",
        "run.checkpoint=null",
        "--set",
        "run.hf_export=null",
    ];
    place
        .run(&fewer)
        .expect(1)
        .says(&["its last checkpoint is after step 2", "make it at least 2"]);
    Record::of(&place.attempt()).assert_is(&before);
}

#[test]
fn what_may_change_may_change() {
    let place = Place::new();
    place.run(&["--steps", "2"]).expect(0);
    let longer = [
        "--resume",
        "--set",
        "run.total_steps=8",
        "--set",
        "run.checkpoint={ every_steps: 4, keep: 1 }",
    ];
    place
        .run(&[&longer[..], &["--set", "run.hf_export.every_steps=4"]].concat())
        .expect(0);
    let attempt = place.attempt();
    assert_eq!(Record::of(&attempt).rows().len(), 9);
    for made in ["checkpoints/step-8", "hf/step-4", "hf/step-8"] {
        assert!(attempt.join(made).is_dir(), "{made}");
    }
    assert!(!attempt.join("checkpoints/step-4").exists(), "only one is kept");
    // Finished at 8, it has nothing to do for 8 or fewer steps.
    let again = place
        .run(&[&longer[..], &["--set", "run.hf_export=null"]].concat())
        .expect(0)
        .says(&["nothing to do"]);
    assert!(
        !again.text.contains("parameters"),
        "a worker was started: {}",
        again.text
    );
    place
        .run(&["--resume"])
        .expect(0)
        .says(&["nothing to do", "runs/small/0001", "finished, at step 8"]);
}

#[test]
fn a_finished_run_without_a_checkpoint_is_not_done_over() {
    let place = Place::new();
    let bare = ["--set", "run.checkpoint=null", "--set", "run.hf_export=null"];
    let before = place.record(&[&bare[..], &["--set", "run.total_steps=2"]].concat());
    place.run(&[&bare[..], &["--resume"]].concat()).expect(1).says(&[
        "finished, at step 2",
        "no checkpoint",
        "new attempt",
    ]);
    Record::of(&place.attempt()).assert_is(&before);
}

#[test]
fn i25_a_resume_with_other_data_is_refused_with_both_hashes() {
    let place = Place::with_own_files(&[]);
    place.run(&["--steps", "1"]).expect(0);
    let path = place.path().join("data/sums.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"1+2=\"", "\"2+1=\"", 1)).unwrap();
    let ended = place
        .run(&["--resume"])
        .expect(1)
        .says(&["cannot resume", "the data of `prompts`", "put it back"]);
    let hashes = ended
        .text
        .split('`')
        .filter(|part| part.len() >= 16 && part.chars().all(|c| c.is_ascii_hexdigit()));
    assert_eq!(hashes.count(), 2, "{}", ended.text);
    std::fs::write(&path, text).unwrap();
    place.run(&["--resume"]).expect(0);
}

#[test]
fn a_resume_with_another_configuration_of_the_model_is_refused() {
    const INIT: &str = "init: { architecture: llama, hidden_size: 32, layers: 2, heads: 2, intermediate_size: 64, \
                        tokenizer: { characters: \"0123456789+= \" } }";
    let exported = Place::new();
    exported.run(&["--steps", "1"]).expect(0);
    let place = Place::with_own_files(&[(INIT, "path: model")]);
    let model = place.path().join("model");
    std::fs::create_dir(&model).unwrap();
    for entry in std::fs::read_dir(exported.attempt().join("hf/step-1"))
        .unwrap()
        .flatten()
    {
        std::fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
    }
    place.run(&["--steps", "1"]).expect(0);
    let path = model.join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut configuration: serde_json::Value = serde_json::from_str(&text).unwrap();
    configuration["rms_norm_eps"] = 1e-3.into();
    std::fs::write(&path, configuration.to_string()).unwrap();
    place
        .run(&["--resume"])
        .expect(1)
        .says(&["cannot resume", "the configuration of `tiny`", "put it back"]);
    std::fs::write(&path, text).unwrap();
    place.run(&["--resume"]).expect(0).says(&["going on after step 1"]);
}

#[test]
fn a_damaged_checkpoint_is_refused_and_named() {
    let whole = unbroken(&[]);
    let place = Place::new();
    place.run(&["--steps", "4"]).expect(0);
    let newest = place.attempt().join("checkpoints/step-4");
    for file in ["tiny.weights.safetensors", "state.json", "manifest.json", "worker.json"] {
        let path = newest.join(file);
        let bytes = std::fs::read(&path).unwrap();
        let mut damaged = bytes.clone();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&path, damaged).unwrap();
        place
            .run(&["--resume"])
            .expect(1)
            .says(&["checkpoints/step-4` is damaged", file, "delete that folder"]);
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::remove_file(newest.join("tiny.means.safetensors")).unwrap();
    place
        .run(&["--resume"])
        .expect(1)
        .says(&["`tiny.means.safetensors` is missing", "delete that folder"]);
    std::fs::remove_dir_all(&newest).unwrap();
    place.run(&["--resume"]).expect(0).says(&["going on after step 2"]);
    Record::of(&place.attempt()).assert_is(&whole);
}

#[test]
fn a_step_that_stays_short_of_groups_ends_the_run_with_the_reasons() {
    let place = Place::new();
    // A model that has learnt next to nothing is hardly ever right.
    let hard = [
        "--set",
        "nodes.warm_up.epochs=1",
        "--set",
        "nodes.warm_up.optimizer.adamw.lr=1e-9",
    ];
    let fails = [&hard[..], &["--set", "nodes.varied.when_exhausted=fail"]].concat();
    place.run(&fails).expect(1).says(&[
        "step 1 is ",
        " short after 4 rounds of asking again",
        ": all rewards are 0",
        "raise `max_refill`, set `when_exhausted: fill`",
    ]);
    place.assert_cleared();
    // The same with `fill`: groups that were kept back are trained, and counted.
    let filled = unbroken(&[&hard[..], &["--steps", "1"]].concat());
    assert!(filled.rows()[1]["groups/filled"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_worker_that_cannot_start_is_named() {
    let place = Place::new();
    let mut command = place.command(&[]);
    command.env("RLPIPE_WORKER", "/bin/false");
    let ended = Running::start(command).end().expect(1);
    ended.says(&[
        "worker 0 of pool `local`, program `/bin/false`, did not start",
        "exit code 1",
        "logs/worker-0.log",
    ]);
    let mut command = place.command(&[]);
    command.env("RLPIPE_WORKER", place.path());
    Running::start(command)
        .end()
        .expect(78)
        .says(&["RLPIPE_WORKER", "is not a file"]);
}

#[test]
fn places_that_cannot_be_are_refused_with_a_way_out() {
    let place = Place::new();
    std::fs::write(place.path().join("runs"), "").unwrap();
    place.run(&[]).expect(78).says(&[
        "runs` is no folder",
        "run folders cannot be made here",
        "names another folder",
    ]);

    let place = Place::new();
    let long = format!("name={}", "n".repeat(300));
    place
        .run(&["--set", &long])
        .expect(1)
        .says(&["File name too long", "choose another `name`"]);
    let deep = place.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let mut command = place.command(&[]);
    command.env("TMPDIR", &deep);
    Running::start(command)
        .end()
        .expect(1)
        .says(&["at most 107", "set TMPDIR"]);
    assert!(std::fs::read_dir(&deep).unwrap().next().is_none());

    let beyond = place.path().join("größer ✓ \"'");
    let mut command = place.rlpipe();
    command
        .arg("run")
        .arg(pipeline())
        .arg("--work-dir")
        .arg(&beyond)
        .args(["--steps", "1"]);
    Running::start(command)
        .end()
        .expect(0)
        .says(&["größer ✓ \"'/small/0001"]);
}
