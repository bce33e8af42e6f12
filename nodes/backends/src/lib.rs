//! The services behind kinds: the driver's end of the workers' streams, over `rlpipe-wire`, and programs that judge.
//!
//! `hub` listens and lets workers in, `worker` is one worker's stream (commands out, answers in), `torch` makes an
//! engine and a learner of a worker and a model, `convert` checks and translates what crosses the wire. `huggingface` fetches models from a hub.

mod busy;
mod command;
mod convert;
mod hub;
#[cfg(feature = "download")]
pub mod huggingface;
mod socket_folder;
mod torch;
mod worker;

pub use busy::Busy;
pub use command::{CommandPool, PoolSettings, log_name, passed_on, sign, try_command};
pub use hub::{Hub, HubError, endpoint_below};
pub use rlpipe_wire::TOKEN_VARIABLE;
pub use torch::{TorchEngine, TorchLearner};
pub use worker::{Ceilings, EngineSpec, LoadRequest, Loaded, PendingCommand, Worker};
