//! The wire thread: dials the driver, hands its commands to the torch thread and sends back events.
//!
//! It ends the process when the stream ends, whatever torch is doing, so that no worker outlives its driver.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rlpipe_wire::v1::driver_client::DriverClient;
use rlpipe_wire::v1::from_worker::Event;
use rlpipe_wire::v1::to_worker::Command;
use rlpipe_wire::{MESSAGE_LIMIT_BYTES, TOKEN_KEY, v1};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Request;
use tonic::transport::Endpoint;

use crate::{Error, Result};

/// How long the driver may take to close the stream after Shutdown.
const FAREWELL: Duration = Duration::from_secs(5);
/// A driver on another machine that is silent for this long is taken to be gone.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The torch thread's ends of the conversation.
#[derive(Debug)]
pub struct Conversation {
    /// From the driver.
    pub commands: Receiver<v1::ToWorker>,
    /// To the driver; dropping it says goodbye.
    pub events: UnboundedSender<v1::FromWorker>,
    /// Ends the process; only a panic ends the thread alone.
    pub thread: JoinHandle<()>,
}

/// Starts the wire thread. `endpoint` is `unix:PATH` or `http://HOST:PORT`; `hello` is sent first.
pub fn start(endpoint: String, token: String, hello: v1::Hello) -> Result<Conversation> {
    let (to_torch, commands) = channel();
    let (events, outgoing) = unbounded_channel();
    let first = v1::FromWorker {
        id: 0,
        event: Some(Event::Hello(hello)),
        took_us: 0,
    };
    events.send(first).map_err(|error| Error(error.to_string()))?;
    let body = move || {
        let code = match converse(&endpoint, &token, to_torch, outgoing) {
            Ok(()) => 0,
            Err(error) => {
                tracing::error!(%error, "the driver is gone");
                1
            }
        };
        // SAFETY: no destructor may run, because torch is at work on the other thread.
        unsafe { libc::_exit(code) }
    };
    let thread = thread::Builder::new().name("wire".to_owned()).spawn(body);
    let thread = thread.map_err(|error| Error(format!("cannot start the wire thread: {error}")))?;
    Ok(Conversation {
        commands,
        events,
        thread,
    })
}

fn converse(
    endpoint: &str,
    token: &str,
    to_torch: Sender<v1::ToWorker>,
    outgoing: UnboundedReceiver<v1::FromWorker>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error(format!("cannot start the wire's runtime: {error}")))?;
    runtime.block_on(attend(endpoint, token, to_torch, outgoing))
}

async fn attend(
    endpoint: &str,
    token: &str,
    to_torch: Sender<v1::ToWorker>,
    outgoing: UnboundedReceiver<v1::FromWorker>,
) -> Result<()> {
    let failed = |what: &str, error: &dyn std::error::Error| {
        let causes = std::iter::successors(Some(error), |error| error.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        Error(format!("{what} `{endpoint}`: {}", causes.join(": ")))
    };
    let mut address = Endpoint::from_shared(endpoint.to_owned()).map_err(|error| failed("cannot read", &error))?;
    if !endpoint.starts_with("unix:") {
        address = address
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
    }
    let channel = address
        .connect()
        .await
        .map_err(|error| failed("cannot reach the driver at", &error))?;
    let mut client = DriverClient::new(channel)
        .max_decoding_message_size(MESSAGE_LIMIT_BYTES)
        .max_encoding_message_size(MESSAGE_LIMIT_BYTES);
    let mut request = Request::new(UnboundedReceiverStream::new(outgoing));
    let token = token
        .parse()
        .map_err(|_| Error("the token has characters that metadata cannot hold".to_owned()))?;
    request.metadata_mut().insert(TOKEN_KEY, token);
    let answer = client
        .attend(request)
        .await
        .map_err(|status| failed("refused by the driver at", &status))?;
    let mut incoming = answer.into_inner();
    while let Some(command) = incoming.next().await {
        let command = command.map_err(|status| failed("lost the driver at", &status))?;
        let is_last = matches!(command.command, Some(Command::Shutdown(_)));
        to_torch
            .send(command)
            .map_err(|_| Error("the torch thread has ended".to_owned()))?;
        if is_last {
            let _ = tokio::time::timeout(FAREWELL, async { while let Some(Ok(_)) = incoming.next().await {} }).await;
            return Ok(());
        }
    }
    Ok(())
}
