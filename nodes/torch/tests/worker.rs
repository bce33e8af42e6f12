//! Commands at the torch thread: what fails is answered under its own id, and the worker lives on.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::fs;

use common::{adamw, cpu, generate, golden, init_folder, load_command, policy_loss, sampling, sequence, train_pack};
use rlpipe_torch::policy::Policy;
use rlpipe_torch::worker::Worker;
use rlpipe_wire::v1;
use rlpipe_wire::v1::from_worker::Event;
use rlpipe_wire::v1::to_worker::Command;

/// Runs commands with ids from 1 on until nothing waits or generates.
fn run(worker: &mut Worker, commands: Vec<Command>) -> BTreeMap<u64, Event> {
    let numbered = (1..).zip(commands).map(|(id, command)| v1::ToWorker {
        id,
        command: Some(command),
    });
    let (mut waiting, mut answers): (VecDeque<_>, _) = (numbered.collect(), Vec::new());
    while !waiting.is_empty() || worker.is_generating() {
        assert!(worker.turn(&mut waiting, &mut answers).is_continue());
    }
    let count = answers.len();
    let event = |answer: v1::FromWorker| (answer.id, answer.event.unwrap());
    let answers: BTreeMap<u64, Event> = answers.into_iter().map(event).collect();
    assert_eq!(answers.len(), count, "an id was answered twice");
    answers
}

fn message(event: &Event) -> &str {
    match event {
        Event::Failed(failed) => &failed.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_model_that_diverged_fails_its_requests_only() {
    let folder = tempfile::tempdir().unwrap();
    let policy = Policy::load(&load_command(&golden("tied"), "float32", None), &cpu()).unwrap();
    let _ = policy.weights[1].detach().fill_(f64::NAN);
    policy.export(folder.path(), "source").unwrap();
    fs::copy(golden("tied/config.json"), folder.path().join("config.json")).unwrap();
    let good = init_folder(true);
    let broken = v1::Load {
        model: "broken".into(),
        ..load_command(folder.path(), "float32", None)
    };
    let mut worker = Worker::new(cpu());
    let on_broken = |seeds: &[u64]| v1::Generate {
        model: "broken".into(),
        ..generate(&[2], seeds, sampling(4))
    };
    let answers = run(
        &mut worker,
        vec![
            Command::Load(broken),
            Command::Load(load_command(good.path(), "float32", Some(1))),
            Command::Generate(on_broken(&[1, 2])),
            Command::Generate(generate(&[2], &[1], sampling(4))),
            Command::Generate(on_broken(&[3])),
            Command::Freeze(v1::Freeze { model: "tiny".into() }),
        ],
    );
    for id in [3, 5] {
        assert!(message(&answers[&id]).contains("not finite"), "{:?}", answers[&id]);
    }
    assert!(matches!(&answers[&4], Event::Generated(generated) if !generated.samples[0].ids.is_empty()));
    assert_eq!(answers[&6], Event::Done(v1::Done {}));
}

#[test]
fn commands_that_cannot_be_done_are_answered_and_change_nothing() {
    let (folder, empty) = (init_folder(true), tempfile::tempdir().unwrap());
    let load = load_command(folder.path(), "float32", Some(1));
    let with = |change: &dyn Fn(&mut v1::Load)| {
        let mut other = v1::Load {
            model: "other".into(),
            ..load.clone()
        };
        change(&mut other);
        Command::Load(other)
    };
    let engine = |slots, max_context_tokens| {
        Some(v1::EngineSpec {
            max_context_tokens,
            slots,
            memory_fraction: 0.5,
            own_weights: false,
        })
    };
    let pack = train_pack(&[sequence(1, 2, 5)], policy_loss(v1::Kl::None), 5.0);
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let cases = [
        (Command::Load(load.clone()), ""),
        (Command::Load(load.clone()), "is loaded already"),
        (with(&|load| load.dtype = "int8".into()), "dtype `int8` is unknown"),
        (with(&|load| load.folder = text(empty.path())), "config.json"),
        (with(&|load| load.init_seed = None), "has neither model.safetensors"),
        (
            with(&|load| load.engine = engine(8, 49)),
            "`max_context_tokens` is 49, but the model reads 2 to 48",
        ),
        (with(&|load| load.engine = engine(u32::MAX, 40)), "torch: "),
        (Command::TrainPack(pack.clone()), "send StartTraining first"),
        (
            Command::OptimizerStep(v1::OptimizerStep {
                model: "tiny".into(),
                learning_rate: 0.1,
            }),
            "send StartTraining",
        ),
        (
            Command::StartTraining(v1::StartTraining {
                model: "tiny".into(),
                optimizer: None,
            }),
            "without an optimizer",
        ),
        (
            Command::Freeze(v1::Freeze { model: "none".into() }),
            "model `none` is not loaded; loaded are: `tiny`",
        ),
        (
            Command::Restore(v1::Restore {
                folder: text(empty.path()),
            }),
            "worker.json",
        ),
        (
            Command::Save(v1::Save {
                folder: "/nowhere".into(),
            }),
            "cannot write `/nowhere",
        ),
        (
            Command::Export(v1::Export {
                model: "tiny".into(),
                folder: "/nowhere".into(),
                dtype: "source".into(),
            }),
            "cannot write `/nowhere",
        ),
        (
            Command::StartTraining(v1::StartTraining {
                model: "tiny".into(),
                optimizer: Some(adamw()),
            }),
            "",
        ),
        (Command::TrainPack(pack), ""),
    ];
    let mut worker = Worker::new(cpu());
    let answers = run(&mut worker, cases.iter().map(|(command, _)| command.clone()).collect());
    for ((id, answer), (command, reason)) in answers.iter().zip(&cases) {
        if reason.is_empty() {
            assert!(!matches!(answer, Event::Failed(_)), "{id}: {answer:?}");
        } else {
            assert!(message(answer).contains(reason), "{command:?}: {}", message(answer));
        }
    }
    // One at a time: an answer does not wait for what comes after it.
    let mut waiting = VecDeque::from([1, 2].map(|id| v1::ToWorker { id, command: None }));
    let mut answers = Vec::new();
    assert!(worker.turn(&mut waiting, &mut answers).is_continue());
    assert_eq!((waiting.len(), answers.len()), (1, 1));
    assert!(message(answers[0].event.as_ref().unwrap()).contains("of one version"));
}
