//! Runs that are broken off, and resumed.

use libc::{SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM};

use crate::harness::{Place, Record, Running, runs, send, unbroken};

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
fn resumes_to(place: &Place, whole: &Record) {
    place.run(&["--resume"]).expect(0);
    Record::of(&place.attempt()).assert_is(whole);
}

#[test]
fn a_driver_that_is_killed_in_any_phase_goes_on_as_if_it_never_was() {
    let whole = unbroken(&[]);
    for phase in PHASES {
        let place = Place::new();
        let mut run = place.start(&[]);
        run.until(phase);
        let worker = run.worker();
        run.signal(SIGKILL);
        let ended = run.end();
        assert_eq!(ended.status.code(), None, "{phase}: {}", ended.text);
        assert!(!runs(worker));
        resumes_to(&place, &whole);
    }
}

#[test]
fn a_driver_that_is_killed_again_and_again_comes_to_the_same_end() {
    let whole = unbroken(&[]);
    let place = Place::new();
    for phase in [
        "warm-up",
        "step 1: training",
        "step 2: checkpoint",
        "step 3: generation",
        "step 5: training",
    ] {
        let mut run = place.start(&["--resume"]);
        run.until(phase);
        run.worker();
        run.signal(SIGKILL);
        run.end();
    }
    resumes_to(&place, &whole);
}

/// A run whose worker stands still in a step's generation, so that what comes next comes in that step.
fn held(place: &Place) -> (Running, u32) {
    let mut run = place.start(&[]);
    run.until("step 3: generation");
    let worker = run.worker();
    send(worker, SIGSTOP);
    (run, worker)
}

#[test]
fn an_interrupt_ends_the_run_after_the_step_with_a_checkpoint() {
    let whole = unbroken(&[]);
    for signal in [SIGINT, SIGTERM] {
        let place = Place::new();
        let (mut run, worker) = held(&place);
        run.signal(signal);
        run.until("stopping after this step, with a checkpoint; Ctrl-C again stops at once");
        send(worker, SIGCONT);
        run.end()
            .expect(130)
            .says(&["stopped after step 3 of 6; `--resume` goes on from here"]);
        assert!(place.attempt().join("checkpoints/step-3/manifest.json").is_file());
        assert!(!place.attempt().join("hf/step-3").exists());
        place.assert_cleared();
        resumes_to(&place, &whole);
    }
}

#[test]
fn a_second_interrupt_ends_the_run_at_once() {
    let whole = unbroken(&[]);
    for signals in [[SIGINT, SIGINT], [SIGTERM, SIGINT], [SIGINT, SIGTERM]] {
        let place = Place::new();
        // The worker stays as it is: the run must not wait for it.
        let (mut run, _) = held(&place);
        run.signal(signals[0]);
        run.until("stopping after this step");
        run.signal(signals[1]);
        run.end()
            .expect(130)
            .says(&["stopped at once", "`--resume` goes on from there"]);
        place.assert_cleared();
        resumes_to(&place, &whole);
    }
}

#[test]
fn an_interrupt_before_the_first_step_keeps_what_was_learnt_from_examples() {
    let whole = unbroken(&[]);
    let place = Place::new();
    let mut run = place.start(&[]);
    run.until("step 0: warm-up");
    let worker = run.worker();
    send(worker, SIGSTOP);
    run.signal(SIGINT);
    run.until("stopping after this step");
    send(worker, SIGCONT);
    run.end().expect(130).says(&["stopped after step 0 of 6"]);
    assert!(place.attempt().join("checkpoints/step-0").is_dir());
    let resumed = place.run(&["--resume"]).expect(0);
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
fn a_dead_worker_ends_the_run_and_is_named() {
    let whole = unbroken(&[]);
    for phase in [
        "step 0: warm-up",
        "step 3: generation",
        "step 4: training",
        "step 4: checkpoint",
    ] {
        let place = Place::new();
        let mut run = place.start(&[]);
        run.until(phase);
        let worker = run.worker();
        send(worker, SIGKILL);
        let ended = run.end().expect(1).says(&[
            "worker 0 of pool `local`",
            &format!("its process {worker} was killed by signal 9 (SIGKILL)"),
            "logs/worker-0.log",
            "loaded model=\"tiny\"",
            "--resume",
        ]);
        assert_eq!(ended.text.matches("was killed by").count(), 1, "{}", ended.text);
        place.assert_cleared();
        resumes_to(&place, &whole);
    }
}
