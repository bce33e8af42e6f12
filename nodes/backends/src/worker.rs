//! One worker as the driver sees it: commands go out with an id, each is answered by one event with the same id.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use prost::Message as _;
use rlpipe_core::services::{MemoryPeak, SavedFile, ServiceError};
use rlpipe_wire::MESSAGE_LIMIT_BYTES;
use rlpipe_wire::v1::{self, FromWorker, Hello, ToWorker, from_worker::Event, to_worker::Command};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use crate::busy::{Busy, BusyTimes};
use crate::convert;

/// Commands on their way to a worker.
pub(crate) type Outbound = mpsc::UnboundedSender<Result<ToWorker, Status>>;

/// What a worker is to hold under a model's name.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadRequest {
    /// The model's name in the pipeline.
    pub model: String,
    /// A Hugging Face folder.
    pub folder: PathBuf,
    /// Compute type: `bfloat16`, `float16`, `float32` or `float64`.
    pub dtype: String,
    /// Set: the folder has no weights; they are drawn from this seed.
    pub init_seed: Option<u64>,
    /// Set: it will be asked to generate.
    pub engine: Option<EngineSpec>,
    /// It will be trained: master weights are kept.
    pub trainable: bool,
    /// The bytes that each token stands for, by id; empty where no stop strings will be asked for.
    pub token_bytes: Vec<Vec<u8>>,
}

/// What a worker needs to know to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSpec {
    /// Tokens of prompt and response together.
    pub max_context_tokens: u32,
    /// Rollouts in flight; 0: the worker chooses.
    pub slots: u32,
    /// Of the device's memory, for everything the worker holds.
    pub memory_fraction: f64,
    /// The engine keeps its own copy of the weights, which only a new version renews.
    pub own_weights: bool,
}

/// A model that a worker now holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Its weights, counted.
    pub parameters: u64,
    /// Rows of its embedding.
    pub vocabulary: u32,
    /// Rollouts in flight; 0 without an engine.
    pub slots: u32,
    /// `cpu`, or the card's name.
    pub device: String,
    /// Compute type.
    pub dtype: String,
}

/// What a device can do at best, as its worker measured it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceilings {
    /// Bytes read and written by a copy within its memory.
    pub copy_bytes_per_s: f64,
    /// Multiplications and additions of a product of square matrices in bfloat16.
    pub bfloat16_product_operations_per_s: f64,
    /// The same in float32.
    pub float32_product_operations_per_s: f64,
}

/// A command that a worker has not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCommand {
    /// Its name in the protocol, such as `train_pack`.
    pub name: &'static str,
    /// When it was sent.
    pub since: Instant,
}

/// A handle of one worker; clones are the same worker.
#[derive(Debug, Clone)]
pub struct Worker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hello: Hello,
    pool: OnceLock<String>,
    link: Mutex<Link>,
    closed: watch::Sender<Option<Arc<str>>>,
}

/// Present as long as commands can be answered.
#[derive(Debug)]
struct Link {
    /// None once closed, which ends the stream to the worker.
    outbound: Option<Outbound>,
    last_id: u64,
    pending: HashMap<u64, Pending>,
    times: BusyTimes,
}

#[derive(Debug)]
struct Pending {
    command: PendingCommand,
    reply: oneshot::Sender<Result<Event, ServiceError>>,
}

impl Worker {
    pub(crate) fn new(hello: Hello, outbound: Outbound) -> Self {
        Self(Arc::new(Inner {
            hello,
            pool: OnceLock::new(),
            link: Mutex::new(Link {
                outbound: Some(outbound),
                last_id: 0,
                pending: HashMap::new(),
                times: BusyTimes::default(),
            }),
            closed: watch::channel(None).0,
        }))
    }

    /// Its place among the run's workers, from 0.
    pub fn rank(&self) -> u32 {
        self.0.hello.rank
    }

    /// Its process, as it says itself.
    pub fn process_id(&self) -> u32 {
        self.0.hello.process_id
    }

    /// `cpu`, or the card's name.
    pub fn device(&self) -> &str {
        &self.0.hello.device
    }

    /// The torch that it runs on.
    pub fn torch_version(&self) -> &str {
        &self.0.hello.torch_version
    }

    /// What errors call it: rank and pool.
    pub fn name(&self) -> String {
        match self.0.pool.get() {
            Some(pool) => format!("worker {} of pool `{pool}`", self.rank()),
            None => format!("worker {}", self.rank()),
        }
    }

    pub(crate) fn set_pool(&self, pool: &str) {
        // Asked for again, it stays in the pool it was started for.
        let _ = self.0.pool.set(pool.to_owned());
    }

    /// Reads a model.
    pub async fn load(&self, request: &LoadRequest) -> Result<Loaded, ServiceError> {
        let command = Command::Load(convert::load_to_wire(request)?);
        match self.call(command).await? {
            Event::Loaded(loaded) => Ok(convert::loaded_from_wire(loaded)),
            other => Err(self.mismatch("load", &other)),
        }
    }

    /// Writes everything needed to go on into an existing folder, synced to the disk.
    pub async fn save(&self, folder: &Path) -> Result<Vec<SavedFile>, ServiceError> {
        let command = Command::Save(v1::Save {
            folder: convert::path_to_wire(folder)?,
        });
        match self.call(command).await? {
            Event::Saved(saved) => Ok(convert::saved_from_wire(saved)),
            other => Err(self.mismatch("save", &other)),
        }
    }

    /// Takes up what `save` wrote. The same models must have been loaded.
    pub async fn restore(&self, folder: &Path) -> Result<(), ServiceError> {
        self.call_done(Command::Restore(v1::Restore {
            folder: convert::path_to_wire(folder)?,
        }))
        .await
    }

    /// What it has taken of memory at most.
    pub async fn memory_peak(&self) -> Result<MemoryPeak, ServiceError> {
        match self.call(Command::Memory(v1::Memory {})).await? {
            Event::MemoryPeak(v1::MemoryPeak {
                host_bytes,
                accelerator_bytes,
            }) => Ok(MemoryPeak {
                host_bytes,
                accelerator_bytes,
            }),
            other => Err(self.mismatch("memory", &other)),
        }
    }

    /// What its device can do at best; takes it a second or two.
    pub async fn ceilings(&self) -> Result<Ceilings, ServiceError> {
        match self.call(Command::Ceilings(v1::Ceilings {})).await? {
            Event::Ceilings(v1::DeviceCeilings {
                copy_bytes_per_s,
                bfloat16_product_operations_per_s,
                float32_product_operations_per_s,
            }) => Ok(Ceilings {
                copy_bytes_per_s,
                bfloat16_product_operations_per_s,
                float32_product_operations_per_s,
            }),
            other => Err(self.mismatch("ceilings", &other)),
        }
    }

    /// Asks it to end. Its stream is closed when it has agreed.
    pub async fn shutdown(&self) -> Result<(), ServiceError> {
        self.call_done(Command::Shutdown(v1::Shutdown {})).await?;
        self.close("it was shut down");
        Ok(())
    }

    /// Resolves with the reason when commands can no longer be answered.
    pub async fn closed(&self) -> Arc<str> {
        let mut closed = self.0.closed.subscribe();
        match closed.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(reason)) => reason,
            // The sender lives in `self`.
            Ok(None) | Err(_) => "it is gone".into(),
        }
    }

    /// Ends the stream. Pending and later commands fail with this reason, a clause such as "its process was killed by
    /// signal 9". The first reason stays; after a stream broke there is a moment for a better one to be the first.
    pub fn close(&self, reason: &str) {
        let mut link = self.link();
        if link.outbound.take().is_none() {
            return;
        }
        self.0.closed.send_replace(Some(reason.into()));
        for (_, Pending { command, reply }) in link.pending.drain() {
            let _ = reply.send(Err(self.lost(command.name, reason)));
        }
    }

    /// Commands that wait for an answer, the oldest first.
    pub fn pending(&self) -> Vec<PendingCommand> {
        let mut pending: Vec<_> = self
            .link()
            .pending
            .iter()
            .map(|(id, pending)| (*id, pending.command.clone()))
            .collect();
        pending.sort_unstable_by_key(|(id, _)| *id);
        pending.into_iter().map(|(_, command)| command).collect()
    }

    /// When it was busy, in the order in which that ended, since this was asked last. Commands of one name that overlap
    /// are one time.
    pub fn take_busy(&self) -> Vec<Busy> {
        self.link().times.take()
    }

    /// Sends a command that returns nothing.
    pub(crate) async fn call_done(&self, command: Command) -> Result<(), ServiceError> {
        let name = name_of(&command);
        match self.call(command).await? {
            Event::Done(_) => Ok(()),
            other => Err(self.mismatch(name, &other)),
        }
    }

    /// Sends a command and waits for its answer, however long it takes.
    pub(crate) async fn call(&self, command: Command) -> Result<Event, ServiceError> {
        let name = name_of(&command);
        let (_, answer) = self.send(command)?;
        self.answered(name, answer).await
    }

    /// As `call`, but when the future is dropped the worker is told to abort the command.
    pub(crate) async fn call_or_abort(&self, command: Command) -> Result<Event, ServiceError> {
        let name = name_of(&command);
        let (id, answer) = self.send(command)?;
        let mut guard = AbortOnDrop {
            worker: self,
            id: Some(id),
        };
        let event = self.answered(name, answer).await;
        guard.id = None;
        event
    }

    async fn answered(
        &self,
        name: &'static str,
        answer: oneshot::Receiver<Result<Event, ServiceError>>,
    ) -> Result<Event, ServiceError> {
        match answer.await {
            Ok(Ok(Event::Failed(v1::Failed { message }))) => Err(ServiceError(format!(
                "{} could not do `{name}`: {message}",
                self.name()
            ))),
            Ok(event) => event,
            Err(_) => Err(self.lost(name, "its stream is gone")),
        }
    }

    fn send(&self, command: Command) -> Result<(u64, oneshot::Receiver<Result<Event, ServiceError>>), ServiceError> {
        let name = name_of(&command);
        let mut message = ToWorker {
            id: u64::MAX,
            command: Some(command),
        };
        let bytes = message.encoded_len();
        if bytes > MESSAGE_LIMIT_BYTES {
            return Err(ServiceError(format!(
                "`{name}` for {} has {bytes} bytes and a message holds at most {MESSAGE_LIMIT_BYTES}; \
                 make packs smaller (`max_tokens_per_pack`)",
                self.name()
            )));
        }
        let mut link = self.link();
        let Some(outbound) = link.outbound.clone() else {
            drop(link);
            let reason = self.0.closed.borrow().clone();
            return Err(self.lost(name, reason.as_deref().unwrap_or("its stream is gone")));
        };
        link.last_id += 1;
        message.id = link.last_id;
        let (reply, answer) = oneshot::channel();
        let command = PendingCommand {
            name,
            since: Instant::now(),
        };
        link.times.open(&command);
        link.pending.insert(message.id, Pending { command, reply });
        let id = message.id;
        // A stream that just broke takes nothing; `close` is about to fail what is pending. Sent under the lock, so
        // that ids arrive in order.
        let _ = outbound.send(Ok(message));
        Ok((id, answer))
    }

    /// Takes an event to whoever waits for it. The error says how the worker broke the protocol.
    pub(crate) fn answer(&self, message: FromWorker) -> Result<(), String> {
        let Some(event) = message.event else {
            return Err(format!(
                "it broke the protocol: an answer to command {} without content",
                message.id
            ));
        };
        let answered = {
            let mut link = self.link();
            let answered = link.pending.remove(&message.id);
            answered.inspect(|pending| {
                link.times
                    .close(&pending.command, Duration::from_micros(message.took_us))
            })
        };
        let Some(Pending { reply, .. }) = answered else {
            return Err(format!(
                "it broke the protocol: `{}` for command {}, which awaits no answer",
                event_name(&event),
                message.id
            ));
        };
        // Whoever asked may have stopped waiting.
        let _ = reply.send(Ok(event));
        Ok(())
    }

    pub(crate) fn mismatch(&self, name: &str, event: &Event) -> ServiceError {
        let event = event_name(event);
        ServiceError(format!(
            "{} broke the protocol: it answered `{name}` with `{event}`",
            self.name()
        ))
    }

    fn lost(&self, name: &str, reason: &str) -> ServiceError {
        ServiceError(format!("{} cannot answer `{name}`: {reason}", self.name()))
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.0.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls a command off unless it was answered.
struct AbortOnDrop<'a> {
    worker: &'a Worker,
    id: Option<u64>,
}

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // A closed worker has nothing left to abort; the answer to the abort itself is of no use to anyone.
            let _ = self.worker.send(Command::Abort(v1::Abort { ids: vec![id] }));
        }
    }
}

fn name_of(command: &Command) -> &'static str {
    match command {
        Command::Load(_) => "load",
        Command::Generate(_) => "generate",
        Command::Abort(_) => "abort",
        Command::LogProbs(_) => "log_probs",
        Command::StartTraining(_) => "start_training",
        Command::TrainPack(_) => "train_pack",
        Command::OptimizerStep(_) => "optimizer_step",
        Command::SetVersion(_) => "set_version",
        Command::Freeze(_) => "freeze",
        Command::Save(_) => "save",
        Command::Restore(_) => "restore",
        Command::Export(_) => "export",
        Command::Memory(_) => "memory",
        Command::Ceilings(_) => "ceilings",
        Command::Shutdown(_) => "shutdown",
    }
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Hello(_) => "hello",
        Event::Failed(_) => "failed",
        Event::Done(_) => "done",
        Event::Loaded(_) => "loaded",
        Event::Generated(_) => "generated",
        Event::LogProbs(_) => "log_probs",
        Event::PackTrained(_) => "pack_trained",
        Event::OptimizerStepped(_) => "optimizer_stepped",
        Event::Saved(_) => "saved",
        Event::MemoryPeak(_) => "memory_peak",
        Event::Ceilings(_) => "ceilings",
    }
}
