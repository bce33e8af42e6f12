//! A worker without a model: it speaks the protocol over the real socket and answers with computed values.

use rlpipe_backends::{Hub, Worker};
use rlpipe_wire::v1::{self, FromWorker, Hello, ToWorker, from_worker::Event, to_worker::Command};
use rlpipe_wire::{MESSAGE_LIMIT_BYTES, TOKEN_KEY, v1::driver_client::DriverClient};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};

/// Longer than any test waits.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The worker's end of its stream.
pub struct Dialed {
    pub commands: Streaming<ToWorker>,
    pub events: mpsc::UnboundedSender<FromWorker>,
}

impl Dialed {
    pub async fn next(&mut self) -> (u64, Command) {
        let message = self.commands.message().await.unwrap().unwrap();
        (message.id, message.command.unwrap())
    }

    pub fn answer(&self, id: u64, event: Event) {
        self.answer_after(id, event, 0);
    }

    /// As if the worker had been at it for so many microseconds.
    pub fn answer_after(&self, id: u64, event: Event, took_us: u64) {
        let event = Some(event);
        self.events.send(FromWorker { id, event, took_us }).unwrap();
    }

    /// Answers everything at once until the stream ends; what was asked is given back.
    pub fn serve(mut self) -> JoinHandle<Vec<Command>> {
        tokio::spawn(async move {
            let mut asked = Vec::new();
            while let Ok(Some(message)) = self.commands.message().await {
                let command = message.command.unwrap();
                self.answer(message.id, computed(&command));
                asked.push(command);
            }
            asked
        })
    }
}

/// Dials with a token and a first message.
pub async fn dial_with(endpoint: &str, token: Option<&str>, first: FromWorker) -> Result<Dialed, Status> {
    let channel = Endpoint::from_shared(endpoint.to_owned())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = DriverClient::new(channel)
        .max_decoding_message_size(MESSAGE_LIMIT_BYTES)
        .max_encoding_message_size(MESSAGE_LIMIT_BYTES);
    let (events, outgoing) = mpsc::unbounded_channel();
    events.send(first).unwrap();
    let mut request = Request::new(UnboundedReceiverStream::new(outgoing));
    if let Some(token) = token {
        request.metadata_mut().insert(TOKEN_KEY, token.parse().unwrap());
    }
    let commands = client.attend(request).await?.into_inner();
    Ok(Dialed { commands, events })
}

pub fn hello(rank: u32) -> FromWorker {
    let hello = Hello {
        rank,
        process_id: 77,
        device: "cpu".to_owned(),
        torch_version: "2.11.0".to_owned(),
    };
    FromWorker {
        id: 0,
        event: Some(Event::Hello(hello)),
        took_us: 0,
    }
}

/// A hub and one worker that has said hello.
pub async fn connected() -> (Hub, Worker, Dialed) {
    let hub = Hub::listen().await.unwrap();
    let dialed = dial_with(hub.endpoint(), Some(hub.token()), hello(0)).await.unwrap();
    let worker = hub.worker(0, "gpu", PATIENCE).await.unwrap();
    (hub, worker, dialed)
}

/// The tokens that this worker "generates" for a seed.
pub fn tokens_of(seed: u64, length: u32) -> Vec<u32> {
    (0..u64::from(length))
        .map(|position| ((seed + position) % 1000) as u32)
        .collect()
}

pub fn sample_of(seed: u64, length: u32) -> v1::Sample {
    let ids = tokens_of(seed, length);
    v1::Sample {
        logprobs: ids.iter().map(|&id| -(id as f32) / 8.0).collect(),
        stop_bytes: 0,
        policy_version: vec![3, 1, 4, u64::from(length) - 1],
        finish_reason: v1::FinishReason::Length.into(),
        ids,
    }
}

/// What is answered to a command.
pub fn computed(command: &Command) -> Event {
    match command {
        Command::Load(load) => Event::Loaded(v1::Loaded {
            parameters: 1 << 40,
            vocabulary: 1000,
            slots: load.engine.as_ref().map_or(0, |engine| engine.slots),
            device: "cpu".to_owned(),
            dtype: load.dtype.clone(),
        }),
        Command::Memory(_) => Event::MemoryPeak(v1::MemoryPeak {
            host_bytes: 5 << 30,
            accelerator_bytes: 7 << 30,
        }),
        Command::Ceilings(_) => Event::Ceilings(v1::DeviceCeilings {
            copy_bytes_per_s: 2.0,
            bfloat16_product_operations_per_s: 3.0,
            float32_product_operations_per_s: 5.0,
        }),
        Command::Generate(generate) => {
            let length = generate.sampling.as_ref().unwrap().max_new_tokens;
            let samples = generate.seeds.iter().map(|&seed| sample_of(seed, length)).collect();
            Event::Generated(v1::Generated { samples })
        }
        Command::LogProbs(logprobs) => {
            let of = |sequence: &v1::Sequence| {
                let response = &sequence.ids[sequence.prompt_tokens as usize..];
                v1::Floats {
                    values: response.iter().map(|&id| -(id as f32)).collect(),
                }
            };
            let sequences = logprobs.pack.as_ref().unwrap().sequences.iter().map(of).collect();
            Event::LogProbs(v1::PackLogProbs { sequences })
        }
        Command::TrainPack(train) => {
            let of = |sequence: &v1::Sequence| v1::SequenceSums {
                tokens: sequence.mask.iter().filter(|&&trained| trained).count() as u32,
                loss: sequence.advantages.iter().map(|&value| f64::from(value)).sum(),
                kl: 2.0,
                ratio: 3.0,
                clipped_low: 4.0,
                clipped_high: 5.0,
                logprob_abs_diff: 6.0,
                logprob_abs_diff_max: 7.0,
                entropy: 8.0,
            };
            let sequences = train.pack.as_ref().unwrap().sequences.iter().map(of).collect();
            Event::PackTrained(v1::PackTrained { sequences })
        }
        Command::OptimizerStep(step) => Event::OptimizerStepped(v1::OptimizerStepped {
            grad_norm: step.learning_rate * 2.0,
            skipped: true,
            again: true,
            loss_scale: Some(512.0),
        }),
        Command::Save(v1::Save { folder }) | Command::Export(v1::Export { folder, .. }) => {
            let name = format!("{}.safetensors", folder.len());
            Event::Saved(v1::Saved {
                files: vec![v1::File {
                    name,
                    bytes: 12,
                    sha256: "ab".to_owned(),
                }],
            })
        }
        Command::Abort(_)
        | Command::StartTraining(_)
        | Command::SetVersion(_)
        | Command::Freeze(_)
        | Command::Restore(_)
        | Command::Shutdown(_) => Event::Done(v1::Done {}),
    }
}
