//! `rlpipe-worker ENDPOINT`: started by the driver, never by hand.
//!
//! ENDPOINT is where the driver listens, `unix:PATH` or `http://HOST:PORT`. The environment says the rest: RLPIPE_TOKEN,
//! RLPIPE_ACCELERATOR (`cpu`, `cuda` or `auto`), RLPIPE_RANK (0 when absent), OMP_NUM_THREADS and RUST_LOG.

use std::env;
use std::io;
use std::process::ExitCode;

use rlpipe_torch::{Error, Result, device, serve, worker};
use rlpipe_wire::{TOKEN_VARIABLE, v1};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    device::load_cuda_library();
    die_with_the_driver();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        // A log that cannot be written is no reason to end.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .init();
    std::panic::set_hook(Box::new(|panic| tracing::debug!(%panic, "panic")));
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "cannot work");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<()> {
    let endpoint = env::args()
        .nth(1)
        .ok_or_else(|| Error("give the driver's endpoint as the argument".to_owned()))?;
    let variable = |name: &str| env::var(name).map_err(|error| Error(format!("environment variable {name}: {error}")));
    let token = variable(TOKEN_VARIABLE)?;
    let rank = env::var("RLPIPE_RANK").unwrap_or_else(|_| "0".to_owned());
    let rank = rank
        .parse()
        .map_err(|error| Error(format!("RLPIPE_RANK `{rank}`: {error}")))?;
    device::settle_threads();
    let accelerator = device::open(&variable("RLPIPE_ACCELERATOR")?)?;
    let hello = v1::Hello {
        rank,
        process_id: std::process::id(),
        device: accelerator.name.clone(),
        torch_version: device::TORCH_VERSION.to_owned(),
    };
    let serve::Conversation {
        commands,
        events,
        thread,
    } = serve::start(endpoint, token, hello)?;
    worker::run(worker::Worker::new(accelerator), &commands, &events);
    drop(events);
    // The wire thread ends the process once the driver has heard the last answer.
    thread.join().map_err(|_| Error("the wire thread panicked".to_owned()))
}

/// Whatever ends the driver ends its workers; an interrupt is the driver's to decide about; a full disk is an error.
fn die_with_the_driver() {
    // SAFETY: plain system calls. The parent-death signal belongs to this thread, which lives as long as the process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
