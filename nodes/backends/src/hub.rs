//! Where workers dial in: a unix socket in a folder of its own, and a token that only this run's workers know.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rlpipe_wire::v1::driver_server::{Driver, DriverServer};
use rlpipe_wire::v1::{FromWorker, ToWorker, from_worker};
use rlpipe_wire::{MESSAGE_LIMIT_BYTES, TOKEN_KEY};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::Worker;
use crate::socket_folder::{PREFIX, SOCKET, SocketFolder};
use crate::worker::Outbound;

/// What fits into the address of a unix socket on Linux, less the final zero.
const SOCKET_PATH_LIMIT_BYTES: usize = 107;
/// How long a broken stream waits for the runtime to say how the process ended, which explains more.
const OBITUARY_GRACE: Duration = Duration::from_secs(2);

/// The place where workers dial in could not be made, or one did not come.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// No folder for the socket.
    #[error(
        "cannot make a folder for the workers' socket in `{}`: {source}; set TMPDIR to a folder that can be written",
        parent.display()
    )]
    Folder {
        /// The system's temporary folder.
        parent: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The socket's path is too long for the system.
    #[error(
        "the workers' socket `{}` has {} bytes of path and the system takes at most {SOCKET_PATH_LIMIT_BYTES}; \
         set TMPDIR to a folder with a shorter path", path.display(), path.as_os_str().len()
    )]
    PathTooLong {
        /// Where the socket would be.
        path: PathBuf,
    },
    /// The system gave no random bytes.
    #[error("cannot make the run's token from `/dev/urandom`: {0}")]
    Token(io::Error),
    /// The socket could not be bound.
    #[error("cannot listen for workers on `{}`: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A worker did not say hello in time.
    #[error(
        "worker {rank} of pool `{pool}` did not report within {} s; its log says what it is doing", within.as_secs_f64()
    )]
    Absent {
        /// Its rank.
        rank: u32,
        /// Its pool.
        pool: String,
        /// How long was waited.
        within: Duration,
    },
}

/// Listens for workers. Dropping it ends their streams, on which they end themselves, and removes the socket.
pub struct Hub {
    endpoint: String,
    token: Arc<str>,
    workers: watch::Sender<BTreeMap<u32, Worker>>,
    server: JoinHandle<()>,
    folder: SocketFolder,
}

/// What workers dial where the folder of the socket, below this one, ends in `random`.
pub fn endpoint_below(parent: &Path, random: &str) -> String {
    endpoint_of(&parent.join(format!("{PREFIX}{random}")).join(SOCKET))
}

fn endpoint_of(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

impl Hub {
    /// Listens on a socket in a fresh folder, open to this user only, below the system's temporary folder.
    pub async fn listen() -> Result<Self, HubError> {
        Self::listen_below(&std::env::temp_dir()).await
    }

    async fn listen_below(parent: &Path) -> Result<Self, HubError> {
        let folder = SocketFolder::make_below(parent).map_err(|source| HubError::Folder {
            parent: parent.to_owned(),
            source,
        })?;
        let path = folder.path().join(SOCKET);
        if path.as_os_str().as_bytes().len() > SOCKET_PATH_LIMIT_BYTES {
            return Err(HubError::PathTooLong { path });
        }
        let token: Arc<str> = random_token().map_err(HubError::Token)?.into();
        let listener = UnixListener::bind(&path).map_err(|source| HubError::Listen {
            path: path.clone(),
            source,
        })?;

        let (workers, _) = watch::channel(BTreeMap::new());
        let service = DriverServer::new(Door {
            token: token.clone(),
            workers: workers.clone(),
        })
        .max_decoding_message_size(MESSAGE_LIMIT_BYTES)
        .max_encoding_message_size(MESSAGE_LIMIT_BYTES);
        let server = tokio::spawn(async move {
            let router = tonic::transport::Server::builder().add_service(service);
            if let Err(error) = router.serve_with_incoming(UnixListenerStream::new(listener)).await {
                tracing::error!(%error, "the workers' socket is closed");
            }
        });
        Ok(Self {
            endpoint: endpoint_of(&path),
            token,
            workers,
            server,
            folder,
        })
    }

    /// What workers dial: `unix:PATH`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The secret that workers show.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The folder of the socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The worker of this rank, once it has said hello. Errors about it name `pool`.
    pub async fn worker(&self, rank: u32, pool: &str, within: Duration) -> Result<Worker, HubError> {
        let mut arrivals = self.workers.subscribe();
        let arrived = arrivals.wait_for(|workers| workers.contains_key(&rank));
        let worker = match tokio::time::timeout(within, arrived).await {
            Ok(Ok(workers)) => workers.get(&rank).cloned(),
            Ok(Err(_)) | Err(_) => None,
        };
        let worker = worker.ok_or_else(|| HubError::Absent {
            rank,
            pool: pool.to_owned(),
            within,
        })?;
        worker.set_pool(pool);
        Ok(worker)
    }
}

impl fmt::Debug for Hub {
    /// Without the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Hub")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.server.abort();
        for worker in self.workers.borrow().values() {
            worker.close("the run is over");
        }
    }
}

/// 256 random bits, in hexadecimal.
fn random_token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The server's side of the protocol: lets in who has the token.
struct Door {
    token: Arc<str>,
    workers: watch::Sender<BTreeMap<u32, Worker>>,
}

#[tonic::async_trait]
impl Driver for Door {
    type AttendStream = UnboundedReceiverStream<Result<ToWorker, Status>>;

    async fn attend(&self, request: Request<Streaming<FromWorker>>) -> Result<Response<Self::AttendStream>, Status> {
        let shown = request.metadata().get(TOKEN_KEY).map(|value| value.as_bytes());
        if !shown.is_some_and(|shown| same(shown, self.token.as_bytes())) {
            return Err(Status::unauthenticated("the run's token is missing or wrong"));
        }
        let (outbound, commands) = mpsc::unbounded_channel();
        tokio::spawn(serve(self.workers.clone(), request.into_inner(), outbound));
        Ok(Response::new(UnboundedReceiverStream::new(commands)))
    }
}

/// Compares in a time that does not tell how much of a guess was right.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

/// One worker's stream, from its hello to its end.
async fn serve(workers: watch::Sender<BTreeMap<u32, Worker>>, mut inbound: Streaming<FromWorker>, outbound: Outbound) {
    let hello = match inbound.message().await {
        Ok(Some(FromWorker {
            event: Some(from_worker::Event::Hello(hello)),
            ..
        })) => hello,
        Ok(_) => {
            // A refused worker may be gone already.
            let _ = outbound.send(Err(Status::invalid_argument("the first message must be `Hello`")));
            return;
        }
        Err(_) => return,
    };
    let rank = hello.rank;
    let worker = Worker::new(hello, outbound.clone());
    let admitted = workers.send_if_modified(|workers| {
        let free = !workers.contains_key(&rank);
        if free {
            workers.insert(rank, worker.clone());
        }
        free
    });
    if !admitted {
        let _ = outbound.send(Err(Status::already_exists(format!("worker {rank} is here already"))));
        return;
    }
    // Only the worker's own handle may keep the stream open.
    drop(outbound);

    let mut closed = pin!(worker.closed());
    let reason = loop {
        let message = tokio::select! {
            message = inbound.message() => message,
            _ = &mut closed => return,
        };
        match message {
            Ok(Some(message)) => {
                if let Err(fault) = worker.answer(message) {
                    worker.close(&fault);
                    return;
                }
            }
            Ok(None) => break "it ended its stream".to_owned(),
            Err(status) => break format!("its stream broke: {}", status.message()),
        }
    };
    if tokio::time::timeout(OBITUARY_GRACE, closed).await.is_err() {
        worker.close(&reason);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn the_socket_lies_in_a_private_folder_that_goes_with_the_hub() {
        let hub = Hub::listen().await.unwrap();
        let folder = hub.folder().to_owned();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(hub.endpoint(), format!("unix:{}", folder.join("driver").display()));
        assert_eq!(hub.token().len(), 64);
        assert!(!format!("{hub:?}").contains(hub.token()));
        assert_ne!(hub.token(), Hub::listen().await.unwrap().token());
        drop(hub);
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn a_folder_with_a_long_path_is_refused_with_a_way_out() {
        let parent = tempfile::tempdir().unwrap();
        let deep = parent.path().join("d".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let error = Hub::listen_below(&deep).await.unwrap_err().to_string();
        assert!(error.contains("at most 107") && error.contains("TMPDIR"), "{error}");
        let error = Hub::listen_below(&deep.join("absent")).await.unwrap_err().to_string();
        assert!(error.contains("set TMPDIR"), "{error}");
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        for other in [&b""[..], b"ab", b"abd", b"abcd"] {
            assert!(!same(b"abc", other));
        }
    }
}
