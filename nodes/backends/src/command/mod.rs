//! Programs that judge: processes that speak the plugin protocol (`rlpipe_core::plugin`), lines of JSON over pipes.
//!
//! `pool` shares samples out among processes and decides what a failure means for whom; `program` is one process, from
//! its start to its end; `answer` reads what it says; `log` keeps what it writes to standard error.

mod answer;
mod log;
mod pool;
mod program;

use std::sync::{Arc, Mutex};

use rlpipe_core::plugin::{Sample, Tried};
use rlpipe_core::services::JudgeCommand;
use rlpipe_process::Spawner;

use log::Log;
pub use pool::{CommandPool, PoolSettings, log_name};
use program::Program;
pub use program::{passed_on, sign};

/// Starts a program as a run would, lets it judge a sample, and ends it.
pub async fn try_command(command: &JudgeCommand, node: &str, seed: u64, sample: Option<Sample>) -> Tried {
    let mut tried = Tried::default();
    let spawner = match Spawner::guarded() {
        Ok(spawner) => spawner,
        Err(error) => {
            tried.failure = Some(format!("it cannot be started: {error}"));
            return tried;
        }
    };
    let log = Arc::new(Mutex::new(Log::nowhere()));
    let start = pool::start_message(command, node, seed);
    let mut program = match Program::start(command, &start, &spawner, &log).await {
        Ok((program, ready)) => {
            tried.ready = Some(ready);
            program
        }
        Err(failure) => {
            tried.failure = Some(failure.to_string());
            return tried;
        }
    };
    match sample {
        None => program.end().await,
        Some(sample) => match program.score(vec![sample]).await {
            Ok(mut scores) => {
                tried.score = scores.pop();
                program.end().await;
            }
            Err(fault) => tried.failure = Some(program.fail(fault).await.to_string()),
        },
    }
    tried
}
