//! The driver's end of a worker's stream: who is let in, which answer goes to whom, and what happens when it breaks.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::time::Duration;

use rlpipe_backends::{Ceilings, EngineSpec, Hub, LoadRequest, Loaded, TorchEngine, TorchLearner, Worker};
use rlpipe_core::data::{Sampling, Sequence};
use rlpipe_core::services::{Engine as _, GenerateRequest, Learner as _, Sample, ServiceError, Weights};
use rlpipe_wire::v1::{self, FromWorker, from_worker::Event, to_worker::Command};
use support::{PATIENCE, computed, connected, dial_with, hello, tokens_of};
use tokio::task::JoinSet;
use tonic::Code;

fn request(seeds: Vec<u64>) -> GenerateRequest {
    let sampling = Sampling {
        max_new_tokens: 5,
        min_new_tokens: 1,
        temperature: 0.5,
        top_p: 0.9,
        top_k: 40,
        min_p: 0.0,
    };
    GenerateRequest {
        prompt_ids: vec![7, 8, 9],
        seeds,
        stop_ids: vec![2],
        stop_strings: vec![],
        sampling,
    }
}

fn engine(worker: &Worker) -> TorchEngine {
    TorchEngine::new(worker.clone(), "policy")
}

async fn generate(worker: &Worker, seeds: Vec<u64>) -> Result<Vec<Sample>, ServiceError> {
    engine(worker).generate(request(seeds)).await
}

#[tokio::test]
async fn a_wrong_or_missing_token_is_refused() {
    let hub = Hub::listen().await.unwrap();
    let almost = hub.token()[1..].to_owned();
    for token in [None, Some("wrong"), Some(almost.as_str())] {
        let status = dial_with(hub.endpoint(), token, hello(0)).await.err().unwrap();
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    let error = hub
        .worker(0, "gpu", Duration::from_millis(20))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("worker 0 of pool `gpu` did not report within 0.02 s"),
        "{error}"
    );
}

#[tokio::test]
async fn a_second_worker_of_a_rank_and_one_without_hello_are_refused() {
    let (hub, worker, first) = connected().await;
    let mut second = dial_with(hub.endpoint(), Some(hub.token()), hello(0)).await.unwrap();
    assert_eq!(second.commands.message().await.unwrap_err().code(), Code::AlreadyExists);
    let rude = FromWorker {
        id: 0,
        event: Some(Event::Done(v1::Done {})),
        took_us: 0,
    };
    let mut rude = dial_with(hub.endpoint(), Some(hub.token()), rude).await.unwrap();
    assert_eq!(rude.commands.message().await.unwrap_err().code(), Code::InvalidArgument);

    let _serving = first.serve();
    assert_eq!(generate(&worker, vec![1]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_commands_of_a_workers_life_cross_whole() {
    let (_hub, worker, dialed) = connected().await;
    let serving = dialed.serve();
    assert_eq!((worker.rank(), worker.process_id(), worker.device()), (0, 77, "cpu"));
    assert_eq!(
        (worker.torch_version(), worker.name().as_str()),
        ("2.11.0", "worker 0 of pool `gpu`")
    );

    let engine = EngineSpec {
        max_context_tokens: 64,
        slots: 9,
        memory_fraction: 0.5,
        own_weights: true,
    };
    let load = LoadRequest {
        model: "tiny".to_owned(),
        folder: "/models/tiny".into(),
        dtype: "float32".to_owned(),
        init_seed: Some(0),
        engine: Some(engine),
        trainable: true,
        token_bytes: vec![vec![], b" a".to_vec()],
    };
    let expected = Loaded {
        parameters: 1 << 40,
        vocabulary: 1000,
        slots: 9,
        device: "cpu".into(),
        dtype: "float32".into(),
    };
    assert_eq!(worker.load(&load).await.unwrap(), expected);
    let peak = worker.memory_peak().await.unwrap();
    assert_eq!((peak.host_bytes, peak.accelerator_bytes), (5 << 30, 7 << 30));
    let ceilings = Ceilings {
        copy_bytes_per_s: 2.0,
        bfloat16_product_operations_per_s: 3.0,
        float32_product_operations_per_s: 5.0,
    };
    assert_eq!(worker.ceilings().await.unwrap(), ceilings);
    let files = worker.save("/run/step-1".as_ref()).await.unwrap();
    assert_eq!(
        (files[0].name.as_str(), files[0].bytes, files[0].sha256.as_str()),
        ("11.safetensors", 12, "ab")
    );
    worker.restore("/run/step-1".as_ref()).await.unwrap();
    worker.shutdown().await.unwrap();

    let engine = v1::EngineSpec {
        max_context_tokens: 64,
        slots: 9,
        memory_fraction: 0.5,
        own_weights: true,
    };
    let load = v1::Load {
        model: "tiny".to_owned(),
        folder: "/models/tiny".to_owned(),
        dtype: "float32".to_owned(),
        init_seed: Some(0),
        engine: Some(engine),
        trainable: true,
        token_bytes: vec![vec![], b" a".to_vec()],
    };
    let folder = || "/run/step-1".to_owned();
    let asked = [
        Command::Load(load),
        Command::Memory(v1::Memory {}),
        Command::Ceilings(v1::Ceilings {}),
        Command::Save(v1::Save { folder: folder() }),
        Command::Restore(v1::Restore { folder: folder() }),
        Command::Shutdown(v1::Shutdown {}),
    ];
    // The stream to the worker ends with the shutdown.
    assert_eq!(serving.await.unwrap(), asked);
    let error = worker.restore("/run/step-1".as_ref()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "worker 0 of pool `gpu` cannot answer `restore`: it was shut down"
    );
}

#[tokio::test]
async fn answers_find_who_asked_in_any_order() {
    let (_hub, worker, mut dialed) = connected().await;
    let mut asking = JoinSet::new();
    for seed in 0..20 {
        let worker = worker.clone();
        asking.spawn(async move { (seed, generate(&worker, vec![seed, seed + 100]).await.unwrap()) });
    }
    let mut asked = Vec::new();
    while asked.len() < 20 {
        asked.push(dialed.next().await);
    }
    assert!(asked.is_sorted_by_key(|(id, _)| *id));
    let pending = worker.pending();
    assert_eq!(pending.len(), 20);
    assert!(pending.iter().all(|command| command.name == "generate") && pending.is_sorted_by_key(|one| one.since));
    for (id, command) in asked.iter().rev() {
        dialed.answer(*id, computed(command));
    }
    for (seed, samples) in asking.join_all().await {
        let ids: Vec<_> = samples.iter().map(|sample| sample.ids.clone()).collect();
        assert_eq!(ids, [tokens_of(seed, 5), tokens_of(seed + 100, 5)]);
    }
    assert!(worker.pending().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_at_once() {
    let (_hub, worker, dialed) = connected().await;
    let _serving = dialed.serve();
    let mut asking = JoinSet::new();
    for seed in 0..2000 {
        let worker = worker.clone();
        asking.spawn(async move { (seed, generate(&worker, vec![seed; 4]).await.unwrap()) });
    }
    let answers = asking.join_all().await;
    assert_eq!(answers.len(), 2000);
    for (seed, samples) in answers {
        assert!(samples.len() == 4 && samples.iter().all(|sample| sample.ids == tokens_of(seed, 5)));
    }
}

#[tokio::test]
async fn a_failed_command_says_who_what_and_why_and_the_worker_goes_on() {
    let (_hub, worker, mut dialed) = connected().await;
    let (error, ()) = tokio::join!(generate(&worker, vec![1]), async {
        let (id, _) = dialed.next().await;
        dialed.answer(
            id,
            Event::Failed(v1::Failed {
                message: "the context is 4 tokens".to_owned(),
            }),
        );
    });
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "worker 0 of pool `gpu` could not do `generate`: the context is 4 tokens"
    );
    let _serving = dialed.serve();
    engine(&worker).set_version(2).await.unwrap();
}

#[tokio::test]
async fn a_dropped_request_is_aborted_and_an_answered_one_is_not() {
    let (_hub, worker, mut dialed) = connected().await;
    let task = tokio::spawn({
        let worker = worker.clone();
        async move { generate(&worker, vec![1]).await }
    });
    let (dropped, command) = dialed.next().await;
    task.abort();
    let (abort, called_off) = dialed.next().await;
    assert_eq!(called_off, Command::Abort(v1::Abort { ids: vec![dropped] }));
    // What the worker owes stays visible until it has answered.
    let names: Vec<_> = worker.pending().iter().map(|command| command.name).collect();
    assert_eq!(names, ["generate", "abort"]);
    dialed.answer(dropped, computed(&command));
    dialed.answer(abort, Event::Done(v1::Done {}));

    let serving = dialed.serve();
    generate(&worker, vec![2]).await.unwrap();
    assert!(worker.pending().is_empty());
    worker.shutdown().await.unwrap();
    let asked = serving.await.unwrap();
    assert!(
        matches!(asked.as_slice(), [Command::Generate(_), Command::Shutdown(_)]),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_broken_stream_fails_what_waits_and_what_comes_later() {
    let (_hub, worker, mut dialed) = connected().await;
    let asking = tokio::spawn({
        let worker = worker.clone();
        async move { tokio::join!(generate(&worker, vec![1]), worker.save("/f".as_ref())) }
    });
    dialed.next().await;
    dialed.next().await;
    drop(dialed);
    let (generated, saved) = asking.await.unwrap();
    let reason = worker.closed().await;
    assert!(
        reason.starts_with("it ended its stream") || reason.starts_with("its stream broke"),
        "{reason}"
    );
    let expected = |name| format!("worker 0 of pool `gpu` cannot answer `{name}`: {reason}");
    assert_eq!(generated.unwrap_err().to_string(), expected("generate"));
    assert_eq!(saved.unwrap_err().to_string(), expected("save"));
    let later = TorchLearner::new(worker.clone(), "policy").freeze().await;
    assert_eq!(later.unwrap_err().to_string(), expected("freeze"));
    assert!(worker.pending().is_empty());
}

#[tokio::test]
async fn the_processs_end_explains_a_broken_stream() {
    let (_hub, worker, mut dialed) = connected().await;
    let asking = tokio::spawn({
        let worker = worker.clone();
        async move { generate(&worker, vec![1]).await }
    });
    dialed.next().await;
    drop(dialed);
    worker.close("its process 9 was killed by signal 9 (SIGKILL)");
    worker.close("something later");
    let error = asking.await.unwrap().unwrap_err().to_string();
    let expected = "worker 0 of pool `gpu` cannot answer `generate`: its process 9 was killed by signal 9 (SIGKILL)";
    assert_eq!(error, expected);
    assert_eq!(
        &*worker.closed().await,
        "its process 9 was killed by signal 9 (SIGKILL)"
    );
}

#[tokio::test]
async fn a_hub_that_is_dropped_ends_the_streams_of_its_workers() {
    let (hub, worker, dialed) = connected().await;
    let serving = dialed.serve();
    let endpoint = hub.endpoint().to_owned();
    drop(hub);
    assert!(serving.await.unwrap().is_empty());
    assert_eq!(&*worker.closed().await, "the run is over");
    assert!(!std::path::Path::new(endpoint.strip_prefix("unix:").unwrap()).exists());
}

#[tokio::test]
async fn a_worker_that_breaks_the_protocol_is_cut_off() {
    let (_hub, worker, dialed) = connected().await;
    dialed.answer(5, Event::Done(v1::Done {}));
    let reason = worker.closed().await;
    assert_eq!(
        &*reason,
        "it broke the protocol: `done` for command 5, which awaits no answer"
    );

    let (_hub, worker, mut dialed) = connected().await;
    let (error, ()) = tokio::join!(generate(&worker, vec![1]), async {
        let (id, _) = dialed.next().await;
        dialed.answer(id, Event::Done(v1::Done {}));
    });
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "worker 0 of pool `gpu` broke the protocol: it answered `generate` with `done`"
    );
}

#[tokio::test]
async fn what_a_message_cannot_hold_is_refused_before_it_is_sent() {
    let (_hub, worker, dialed) = connected().await;
    let _serving = dialed.serve();
    let learner = TorchLearner::new(worker, "policy");
    let pack = |tokens| {
        vec![Sequence {
            ids: vec![u32::MAX; tokens],
            prompt_tokens: 1,
            ..Sequence::default()
        }]
    };
    let error = learner
        .logprobs(Weights::Current, &pack(14 << 20), 512)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("at most 67108864") && error.contains("`max_tokens_per_pack`"),
        "{error}"
    );
    // One far above the transport's usual limit of 4 MiB passes, both ways.
    let logprobs = learner.logprobs(Weights::Current, &pack(2 << 20), 512).await.unwrap();
    assert_eq!(logprobs[0].len(), (2 << 20) - 1);
}

#[tokio::test]
async fn a_worker_is_found_whenever_it_comes() {
    let hub = Hub::listen().await.unwrap();
    let (worker, dialed) = tokio::join!(hub.worker(4, "second", PATIENCE), async {
        tokio::task::yield_now().await;
        dial_with(hub.endpoint(), Some(hub.token()), hello(4)).await.unwrap()
    });
    assert_eq!(worker.unwrap().name(), "worker 4 of pool `second`");
    drop(dialed);
}

#[tokio::test]
async fn commands_that_wait_for_each_other_are_one_busy_time_and_were_worked_on_in_turn() {
    let (_hub, worker, mut dialed) = connected().await;
    let learner = TorchLearner::new(worker.clone(), "policy");
    let pack = [Sequence {
        ids: vec![1, 2],
        prompt_tokens: 1,
        mask: vec![true],
        ..Sequence::default()
    }];
    let answering = async {
        let (first, second) = (dialed.next().await, dialed.next().await);
        // Longer than since it was asked: that is cut off.
        dialed.answer_after(first.0, computed(&first.1), u64::MAX);
        dialed.answer_after(second.0, computed(&second.1), 1);
        let third = dialed.next().await;
        dialed.answer(third.0, computed(&third.1));
    };
    let asking = async {
        let ask = || learner.logprobs(Weights::Current, &pack, 1);
        let (first, second) = tokio::join!(ask(), ask());
        first.unwrap();
        second.unwrap();
        generate(&worker, vec![1]).await.unwrap();
    };
    tokio::join!(answering, asking);
    let [both, generated] = <[_; 2]>::try_from(worker.take_busy()).unwrap();
    assert_eq!((both.name, generated.name), ("log_probs", "generate"));
    let [first, second] = <[_; 2]>::try_from(both.worked).unwrap();
    assert_eq!(first.start, both.since);
    assert!(first.end <= second.start && second.end == both.until);
    assert!(second.end - second.start <= Duration::from_micros(1));
    assert!(generated.worked.is_empty());
}
