//! Runs that are broken off, and resumed.

use libc::{SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM};

use crate::harness::{LONG, Place, Record, Running, send, unbroken};

/// Every kind of phase once, where it matters most.
const PHASES: [&str; 10] = [
    "step 0: warm-up",
    "step 0: evaluation",
    "step 1: generation",
    "step 1: training",
    "step 2: checkpoint",
    "step 3: weight sync",
    "step 4: evaluation",
    "step 4: checkpoint",
    "step 6: export",
    "step 6: checkpoint",
];

/// Resumes to the end: everything is as if there had been no break.
#[track_caller]
fn resumes_to(place: &Place, arguments: &[&str], whole: &Record) {
    place.run(&[arguments, &["--resume"]].concat()).expect(0);
    Record::of(&place.attempt()).assert_is(whole);
}

#[test]
fn a_driver_that_is_killed_in_any_phase_goes_on_as_if_it_never_was() {
    let whole = unbroken(&[]);
    let mut ends = Vec::new();
    for phase in PHASES {
        let place = Place::new();
        let mut run = place.start(&[]);
        run.until(phase);
        ends.push(run.kill().status.code());
        resumes_to(&place, &[], &whole);
    }
    // The last phases are short: a kill may come too late there, never everywhere.
    assert!(ends[..5].iter().all(Option::is_none), "{ends:?}");
}

#[test]
fn a_driver_that_is_killed_again_and_again_comes_to_the_same_end() {
    let whole = unbroken(&LONG);
    let place = Place::new();
    for phase in [
        "warm-up",
        "step 1: training",
        "step 10: checkpoint",
        "step 20: generation",
        "step 30: evaluation",
    ] {
        let mut run = place.start(&[&LONG[..], &["--resume"]].concat());
        run.until(phase);
        run.kill();
    }
    resumes_to(&place, &LONG, &whole);
    // A killed driver could not remove the folder of its socket; the next one has.
    place.assert_cleared();
}

/// A run whose worker stands still in the middle of a step, so that what comes next comes in that step.
fn held(place: &Place) -> (Running, u32) {
    let mut run = place.start(&LONG);
    run.until("step 3: generation");
    let worker = run.worker();
    send(worker, SIGSTOP);
    (run, worker)
}

#[test]
fn an_interrupt_ends_the_run_after_the_step_with_a_checkpoint() {
    let whole = unbroken(&LONG);
    for signal in [SIGINT, SIGTERM] {
        let place = Place::new();
        let (mut run, worker) = held(&place);
        run.signal(signal);
        run.until("stopping after this step, with a checkpoint; Ctrl-C again stops at once");
        send(worker, SIGCONT);
        let ended = run.end().expect(130).says(&["of 40; `--resume` goes on from here"]);
        let step = ended
            .text
            .rsplit_once("stopped after step ")
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap();
        assert!(
            place
                .attempt()
                .join(format!("checkpoints/step-{step}/manifest.json"))
                .is_file()
        );
        assert!(!place.attempt().join(format!("hf/step-{step}")).exists());
        place.assert_cleared();
        resumes_to(&place, &LONG, &whole);
    }
}

#[test]
fn a_second_interrupt_ends_the_run_at_once() {
    let whole = unbroken(&LONG);
    for signals in [[SIGINT, SIGINT], [SIGTERM, SIGINT], [SIGINT, SIGTERM]] {
        let place = Place::new();
        // The worker stays as it is: the run must not wait for it.
        let (mut run, _) = held(&place);
        run.signal(signals[0]);
        run.until("stopping after this step");
        run.signal(signals[1]);
        run.end()
            .expect(130)
            .says(&["stopped at once", "`--resume` goes on after step"]);
        place.assert_cleared();
        resumes_to(&place, &LONG, &whole);
    }
}

#[test]
fn an_interrupt_before_the_first_step_keeps_what_was_learnt_from_examples() {
    let long = ["--set", "nodes.warm_up.epochs=150"];
    let whole = unbroken(&long);
    let place = Place::new();
    let mut run = place.start(&long);
    run.until("step 0: warm-up");
    let worker = run.worker();
    send(worker, SIGSTOP);
    run.signal(SIGINT);
    run.until("stopping after this step");
    send(worker, SIGCONT);
    run.end().expect(130).says(&["stopped after step 0 of 6"]);
    assert!(place.attempt().join("checkpoints/step-0").is_dir());
    let resumed = place.run(&[&long[..], &["--resume"]].concat()).expect(0);
    assert!(!resumed.text.contains("warm-up"), "{}", resumed.text);
    Record::of(&place.attempt()).assert_is(&whole);
}

#[test]
fn so_many_steps_write_a_checkpoint_and_an_export_and_change_nothing() {
    let whole = unbroken(&[]);
    let place = Place::new();
    place
        .run(&["--steps", "1"])
        .expect(0)
        .says(&["stopped after step 1 of 6"]);
    let attempt = place.attempt();
    for made in [
        "checkpoints/step-1/manifest.json",
        "hf/step-1/model.safetensors",
        "hf/step-1/tokenizer.json",
    ] {
        assert!(attempt.join(made).is_file(), "{made}");
    }
    assert!(
        !attempt.join("rollouts/eval/step-1.jsonl").exists(),
        "an evaluation was forced"
    );
    // The steps are counted from where this process begins.
    place
        .run(&["--resume", "--steps", "2"])
        .expect(0)
        .says(&["stopped after step 3 of 6"]);
    place.run(&["--resume"]).expect(0);
    let mut broken = Record::of(&attempt);
    broken
        .0
        .retain(|name, _| !name.starts_with("hf/step-1/") && !name.starts_with("hf/step-3/"));
    broken.assert_is(&whole);
}

#[test]
fn i25c_an_export_of_every_architecture_is_a_model_to_go_on_with() {
    for (architecture, dtype, stored) in [("qwen2", "float32", "F32"), ("qwen3", "bfloat16", "BF16")] {
        let place = Place::new();
        let architecture = format!("models.tiny.init.architecture={architecture}");
        let dtype = format!("run.hf_export.dtype={dtype}");
        let arguments = ["--set", &architecture, "--set", &dtype, "--set", "run.total_steps=1"];
        let more = [
            "--set",
            "run.hf_export.every_steps=1",
            "--set",
            "run.checkpoint=null",
            "--set",
            "nodes.evaluator.every_steps=1",
        ];
        place.run(&[&arguments[..], &more].concat()).expect(0);
        let export = place.attempt().join("hf/step-1");
        assert_eq!(rlpipe_model::check_folder(&export), []);
        let header = rlpipe_model::read_header(&export.join("model.safetensors")).unwrap();
        assert!(header.values().all(|entry| entry.dtype == stored), "{header:?}");
        let config = std::fs::read_to_string(export.join("config.json")).unwrap();
        assert!(
            config.contains(if stored == "F32" { "float32" } else { "bfloat16" }),
            "{config}"
        );
        let path = format!("models.tiny.path={}", export.display());
        let next = ["--set", &path, "--set", "models.tiny.init=null", "--set", "name=next"];
        place.run(&[&next[..], &arguments[2..], &more].concat()).expect(0);
        assert!(
            place
                .path()
                .join("runs/next/0001/hf/step-1/model.safetensors")
                .is_file()
        );
    }
}

#[test]
fn a_dead_worker_ends_the_run_and_is_named() {
    let whole = unbroken(&LONG);
    for phase in [
        "step 0: warm-up",
        "step 3: generation",
        "step 4: training",
        "step 4: checkpoint",
    ] {
        let place = Place::new();
        let mut run = place.start(&LONG);
        run.until(phase);
        let worker = run.worker();
        send(worker, SIGKILL);
        let ended = run.end().expect(1).says(&[
            "worker 0 of pool `local`",
            &format!("its process {worker} was killed by signal 9 (SIGKILL)"),
            "logs/worker-0.log",
            "loaded model=\"tiny\"",
            "`--resume`",
        ]);
        assert_eq!(ended.text.matches("was killed by").count(), 1, "{}", ended.text);
        place.assert_cleared();
        resumes_to(&place, &LONG, &whole);
    }
}

#[test]
fn a_worker_that_stands_still_does_not_outlive_its_driver() {
    let place = Place::new();
    let (run, _) = held(&place);
    run.kill();
    resumes_to(&place, &LONG, &unbroken(&LONG));
}
