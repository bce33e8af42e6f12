//! The real `rlpipe-worker`, over the real protocol on a unix socket.
#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use common::{adamw, cpu, generate, init_folder, load_command, policy_loss, sampling, sequence, train_pack};
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1::driver_server::{Driver, DriverServer};
use rlpipe_wire::v1::from_worker::Event;
use rlpipe_wire::v1::to_worker::Command;
use rlpipe_wire::{MESSAGE_LIMIT_BYTES, TOKEN_KEY, v1};
use tokio::net::UnixListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

const LIMIT: Duration = Duration::from_secs(60);

struct Attendance {
    arrivals: UnboundedSender<Attended>,
}

struct Attended {
    commands: UnboundedSender<Result<v1::ToWorker, Status>>,
    events: Streaming<v1::FromWorker>,
    token: String,
}

#[tonic::async_trait]
impl Driver for Attendance {
    type AttendStream = Pin<Box<dyn Stream<Item = Result<v1::ToWorker, Status>> + Send>>;

    async fn attend(
        &self,
        request: Request<Streaming<v1::FromWorker>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        let token = request.metadata().get(TOKEN_KEY).unwrap().to_str().unwrap().to_owned();
        let (commands, outgoing) = unbounded_channel();
        self.arrivals
            .send(Attended {
                commands,
                events: request.into_inner(),
                token,
            })
            .unwrap();
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(outgoing))))
    }
}

/// A driver with one worker; the worker is killed when this is dropped.
struct Session {
    worker: Child,
    attended: Attended,
    server: tokio::task::JoinHandle<()>,
    next_id: u64,
    hello: v1::Hello,
    _folder: tempfile::TempDir,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.worker.kill();
        let _ = self.worker.wait();
    }
}

impl Session {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("driver.sock");
        let (arrivals, mut arrived): (_, UnboundedReceiver<Attended>) = unbounded_channel();
        let listener = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let service = DriverServer::new(Attendance { arrivals }).max_decoding_message_size(MESSAGE_LIMIT_BYTES);
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(listener);
        let server = tokio::spawn(async move { serving.await.unwrap() });
        let worker = Process::new(env!("CARGO_BIN_EXE_rlpipe-worker"))
            .arg(format!("unix:{}", socket.display()))
            .env("RLPIPE_TOKEN", "open sesame")
            .env("RLPIPE_ACCELERATOR", "cpu")
            .env("OMP_NUM_THREADS", "2")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut attended = tokio::time::timeout(LIMIT, arrived.recv()).await.unwrap().unwrap();
        let first = attended.events.next().await.unwrap().unwrap();
        let Some(Event::Hello(hello)) = first.event else {
            panic!("{first:?}")
        };
        Self {
            worker,
            attended,
            server,
            next_id: 1,
            hello,
            _folder: folder,
        }
    }

    fn send(&mut self, command: Command) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.attended
            .commands
            .send(Ok(v1::ToWorker {
                id,
                command: Some(command),
            }))
            .unwrap();
        id
    }

    async fn event(&mut self) -> (u64, Event) {
        let event = tokio::time::timeout(LIMIT, self.attended.events.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        (event.id, event.event.unwrap())
    }

    async fn ask(&mut self, command: Command) -> Event {
        let id = self.send(command);
        let (answered, event) = self.event().await;
        assert_eq!(answered, id);
        event
    }

    async fn ends(&mut self) -> std::process::ExitStatus {
        for _ in 0..600 {
            if let Some(status) = self.worker.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the worker lives on");
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_from_load_to_shutdown() {
    let (model, saved) = (init_folder(true), tempfile::tempdir().unwrap());
    let load = load_command(model.path(), "float32", Some(3));
    let mut session = Session::start().await;
    assert_eq!(
        (session.hello.device.as_str(), session.attended.token.as_str()),
        ("cpu", "open sesame")
    );
    assert_eq!(session.hello.process_id, session.worker.id());

    let Event::Loaded(loaded) = session.ask(Command::Load(load.clone())).await else {
        panic!()
    };
    assert_eq!(
        (loaded.vocabulary, loaded.slots, loaded.dtype.as_str()),
        (20, 8, "float32")
    );

    // Two groups at once and one that cannot be: each is answered under its own id.
    let first = session.send(Command::Generate(generate(&[2, 3], &[1, 2, 3], sampling(5))));
    let bad = session.send(Command::Generate(generate(&[99], &[1], sampling(5))));
    let second = session.send(Command::Generate(generate(&[4], &[4; 20], sampling(3))));
    let mut answers = std::collections::BTreeMap::new();
    for _ in 0..3 {
        let (id, event) = session.event().await;
        answers.insert(id, event);
    }
    let Event::Failed(failed) = &answers[&bad] else {
        panic!("{answers:?}")
    };
    assert!(
        failed.message.contains("token id 99 is outside the vocabulary of 20"),
        "{}",
        failed.message
    );
    let Event::Generated(generated) = &answers[&first] else {
        panic!()
    };
    assert_eq!(generated.samples.len(), 3);
    let Event::Generated(generated) = &answers[&second] else {
        panic!()
    };
    assert_eq!(generated.samples.len(), 20);
    // One seed, one sample, whatever slot it had.
    assert!(generated.samples.iter().all(|sample| *sample == generated.samples[0]));

    // Training over the wire is training in this process.
    let mut twin = Policy::load(&load, &cpu()).unwrap();
    let optimizer = Command::StartTraining(v1::StartTraining {
        model: "tiny".into(),
        optimizer: Some(adamw()),
    });
    assert_eq!(session.ask(optimizer).await, Event::Done(v1::Done {}));
    twin.start_training(adamw()).unwrap();
    let pack = train_pack(&[sequence(1, 3, 9), sequence(2, 2, 5)], policy_loss(v1::Kl::K3), 14.0);
    let trained = session.ask(Command::TrainPack(pack.clone())).await;
    assert_eq!(trained, Event::PackTrained(twin.train_pack(&pack).unwrap()));
    let step = v1::OptimizerStep {
        model: "tiny".into(),
        learning_rate: 1e-3,
    };
    let stepped = session.ask(Command::OptimizerStep(step)).await;
    assert_eq!(stepped, Event::OptimizerStepped(twin.optimizer_step(1e-3).unwrap()));
    let set = Command::SetVersion(v1::SetVersion {
        model: "tiny".into(),
        version: 1,
    });
    assert_eq!(session.ask(set).await, Event::Done(v1::Done {}));
    assert_eq!(
        session.ask(Command::Freeze(v1::Freeze { model: "tiny".into() })).await,
        Event::Done(v1::Done {})
    );

    let Event::MemoryPeak(peak) = session.ask(Command::Memory(v1::Memory {})).await else {
        panic!()
    };
    // The program itself takes more than this, and a model of a few thousand parameters far less than that.
    assert!((50 << 20..4 << 30).contains(&peak.host_bytes), "{peak:?}");
    assert_eq!(peak.accelerator_bytes, 0);

    let Event::Saved(files) = session
        .ask(Command::Save(v1::Save {
            folder: text(saved.path()),
        }))
        .await
    else {
        panic!()
    };
    let names: Vec<&str> = files.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "tiny.weights.safetensors",
            "tiny.means.safetensors",
            "tiny.squares.safetensors",
            "tiny.frozen.safetensors",
            "worker.json"
        ]
    );

    let logprobs = Command::LogProbs(v1::LogProbs {
        model: "tiny".into(),
        frozen: true,
        pack: pack.pack.clone(),
        logprob_chunk_tokens: 4,
    });
    let before = session.ask(logprobs.clone()).await;
    assert_eq!(
        session.ask(Command::Shutdown(v1::Shutdown {})).await,
        Event::Done(v1::Done {})
    );
    assert_eq!(session.ends().await.code(), Some(0));

    // A new process goes on where the old one was.
    let mut session = Session::start().await;
    let Event::Failed(failed) = session.ask(logprobs.clone()).await else {
        panic!()
    };
    assert!(failed.message.contains("`tiny` is not loaded"));
    session.ask(Command::Load(load)).await;
    let restored = session
        .ask(Command::Restore(v1::Restore {
            folder: text(saved.path()),
        }))
        .await;
    assert_eq!(restored, Event::Done(v1::Done {}));
    assert_eq!(session.ask(logprobs).await, before);
    let generated = session
        .ask(Command::Generate(generate(&[2, 3], &[1], sampling(5))))
        .await;
    let Event::Generated(generated) = generated else {
        panic!()
    };
    assert_eq!(generated.samples[0].policy_version[0], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn abort_answers_with_what_there_is_and_others_wait() {
    let model = init_folder(true);
    let mut session = Session::start().await;
    session
        .ask(Command::Load(load_command(model.path(), "float32", Some(3))))
        .await;
    let mut long = generate(&[2], &(0..400).collect::<Vec<u64>>(), sampling(39));
    long.stop_ids.clear();
    let generating = session.send(Command::Generate(long));
    let freeze = session.send(Command::Freeze(v1::Freeze { model: "tiny".into() }));
    let behind = session.send(Command::Generate(generate(&[2], &[7], sampling(2))));
    let abort = session.send(Command::Abort(v1::Abort {
        ids: vec![generating, behind, 12345],
    }));
    let mut order = Vec::new();
    for _ in 0..4 {
        let (id, event) = session.event().await;
        if let Event::Generated(generated) = event {
            let aborted = |sample: &v1::Sample| sample.finish_reason() == v1::FinishReason::Aborted;
            assert!(generated.samples.iter().any(aborted));
        }
        order.push(id);
    }
    assert_eq!(order, [generating, behind, abort, freeze]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_driver_ends_the_worker_even_while_it_computes() {
    let model = init_folder(true);
    let mut session = Session::start().await;
    session
        .ask(Command::Load(load_command(model.path(), "float32", Some(3))))
        .await;
    session.send(Command::Generate(generate(
        &[2],
        &(0..200_000).collect::<Vec<u64>>(),
        sampling(39),
    )));
    tokio::time::sleep(Duration::from_millis(200)).await;
    // An end in order, without Shutdown.
    let (replacement, _) = unbounded_channel();
    session.attended.commands = replacement;
    assert_eq!(session.ends().await.code(), Some(0));

    let mut session = Session::start().await;
    session.server.abort();
    let (commands, _) = unbounded_channel();
    session
        .attended
        .commands
        .send(Err(Status::internal("the driver broke")))
        .unwrap();
    session.attended.commands = commands;
    assert_eq!(session.ends().await.code(), Some(1));
}

#[test]
fn a_killed_driver_ends_the_worker() {
    // `sh` stands for the driver; the socket stays open and silent, so that only the parent's death can be noticed.
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("silent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let script = format!(
        "{} unix:{} & echo $!; wait",
        env!("CARGO_BIN_EXE_rlpipe-worker"),
        socket.display()
    );
    let mut driver = Process::new("sh")
        .args(["-c", &script])
        .env("RLPIPE_TOKEN", "t")
        .env("RLPIPE_ACCELERATOR", "cpu")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(driver.stdout.take().unwrap()), &mut line).unwrap();
    let worker = format!("/proc/{}/status", line.trim());
    let runs = || std::fs::read_to_string(&worker).is_ok_and(|status| !status.contains("State:\tZ"));
    let _connection = listener.accept().unwrap();
    assert!(runs());
    driver.kill().unwrap();
    assert_eq!(driver.wait().unwrap().signal(), Some(9));
    for _ in 0..100 {
        if !runs() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the worker outlived its driver");
}
