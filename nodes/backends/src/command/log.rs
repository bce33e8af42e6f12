//! What a program writes to standard error: a bounded beginning in a file, and its end in memory for errors to show.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

/// Of all processes of one place in the pool together, no more is kept.
const LIMIT_BYTES: u64 = 1 << 20;
/// Of a process that fails, what is shown: lines, and bytes where lines are long.
const TAIL_LINES: usize = 12;
const TAIL_BYTES: usize = 4 << 10;
/// Standard error may be held open by something that has left the process's group; no longer than this is waited for it.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);

/// The log of one place in the pool, over all processes that it has had.
#[derive(Debug)]
pub struct Log {
    file: Option<File>,
    room_bytes: u64,
}

impl Log {
    /// Appends to a file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file: Some(file),
            room_bytes: LIMIT_BYTES.saturating_sub(length),
        })
    }

    /// Keeps nothing in a file.
    pub fn nowhere() -> Self {
        Self {
            file: None,
            room_bytes: 0,
        }
    }

    /// Writes what there is room for; how many bytes there was not.
    fn write(&mut self, bytes: &[u8]) -> u64 {
        let Some(file) = &mut self.file else { return 0 };
        let kept = usize::try_from(self.room_bytes).unwrap_or(usize::MAX).min(bytes.len());
        self.room_bytes -= kept as u64;
        if file.write_all(&bytes[..kept]).is_err() {
            // A full disk is the run's to report; a log that stops is counted like one that is full.
            self.room_bytes = 0;
            return bytes.len() as u64;
        }
        (bytes.len() - kept) as u64
    }
}

/// What one process wrote so far.
#[derive(Debug, Default)]
struct Heard {
    tail: Vec<u8>,
    dropped_bytes: u64,
}

/// Reads a process's standard error as long as it is open, whatever comes: a pipe that nobody reads blocks its writer.
#[derive(Debug)]
pub struct Ear {
    heard: Arc<Mutex<Heard>>,
    log: Arc<Mutex<Log>>,
    reader: JoinHandle<()>,
}

impl Ear {
    pub fn open(mut pipe: ChildStderr, log: Arc<Mutex<Log>>) -> Self {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (to, file) = (heard.clone(), log.clone());
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                let bytes = &buffer[..count];
                let dropped = file.lock().unwrap_or_else(PoisonError::into_inner).write(bytes);
                let mut heard = to.lock().unwrap_or_else(PoisonError::into_inner);
                heard.dropped_bytes += dropped;
                heard.tail.extend_from_slice(bytes);
                let excess = heard.tail.len().saturating_sub(TAIL_BYTES);
                heard.tail.drain(..excess);
            }
        });
        Self { heard, log, reader }
    }

    /// Once the process has ended: its last lines, and how much was not kept, as a text to append to an error.
    pub async fn close(mut self) -> String {
        if tokio::time::timeout(DRAIN_WITHIN, &mut self.reader).await.is_err() {
            self.reader.abort();
        }
        let heard = std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner));
        let dropped = if heard.dropped_bytes > 0 {
            let text = format!(
                "rlpipe: {} more bytes of this process were not kept\n",
                heard.dropped_bytes
            );
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(file) = &mut log.file {
                // What cannot be written here is in the error all the same.
                let _ = file.write_all(text.as_bytes());
            }
            format!(" ({} bytes of it were not kept)", heard.dropped_bytes)
        } else {
            String::new()
        };
        let tail = String::from_utf8_lossy(&heard.tail);
        let mut lines: Vec<&str> = tail.lines().rev().take(TAIL_LINES).collect();
        lines.reverse();
        match lines.as_slice() {
            [] => String::new(),
            lines => format!("; the end of its standard error{dropped}:\n  {}", lines.join("\n  ")),
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
