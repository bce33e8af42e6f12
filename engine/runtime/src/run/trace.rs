//! `trace.json`: what ran when and where, for Perfetto and `chrome://tracing`.
//!
//! The JSON array format of "Trace Event Format": complete events (`ph: X`) in lanes, a process a pool and a thread a
//! worker, named by metadata events (`ph: M`). Every write ends the array, and the next goes over that end, so that the
//! file is whole JSON at any moment; what a dying process tears is taken out at the next start.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::errors::{Named, RunError};

const HEAD: &str = "[";
const END: &str = "\n]\n";

/// Something that took time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span<'a> {
    /// The lane's group: a pool, or `driver`.
    pub pool: &'a str,
    /// The lane: a worker, or a node.
    pub worker: &'a str,
    /// What it was, such as `train`.
    pub name: &'a str,
    /// Microseconds on a clock that goes on over a resume, such as that of the Unix epoch.
    pub start_us: u64,
    /// Microseconds.
    pub duration_us: u64,
    /// Shown with it, such as the step.
    pub details: Map<String, Value>,
}

/// `trace.json`, open for more.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: File,
    /// Where the array's end is, and the next event goes.
    position: u64,
    lanes: Lanes,
    /// Whether an event could not be written, which is said once.
    is_incomplete: bool,
}

impl TraceFile {
    /// Opens the file behind the events that are there.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.named("open", path)?;
        let bytes = std::fs::read(path).named("read", path)?;
        let (whole, lanes) = whole_events(&String::from_utf8_lossy(&bytes));
        let tail = if whole == 0 {
            format!("{HEAD}{END}")
        } else {
            END.to_owned()
        };
        file.set_len(whole as u64)
            .and_then(|()| file.write_all_at(tail.as_bytes(), whole as u64))
            .named_write(path, tail.len())?;
        let position = (whole + tail.len() - END.len()) as u64;
        Ok(Self {
            path: path.to_owned(),
            file,
            position,
            lanes,
            is_incomplete: false,
        })
    }

    /// Adds an event, in one write; only the first that fails is an error, since a full disk fails them all.
    pub fn append(&mut self, span: &Span) -> Result<(), RunError> {
        let mut events = Vec::new();
        let (process, thread) = self.lanes.find(span.pool, span.worker, &mut events);
        events.push(json!({
            "ph": "X", "name": span.name, "pid": process, "tid": thread, "ts": span.start_us, "dur": span.duration_us,
            "args": span.details,
        }));
        let mut text = String::new();
        for event in events {
            let comma = if self.position == HEAD.len() as u64 && text.is_empty() {
                ""
            } else {
                ","
            };
            text.push_str(&format!("{comma}\n{event}"));
        }
        let bytes = format!("{text}{END}");
        let written = self.file.write_all_at(bytes.as_bytes(), self.position);
        if written.is_ok() {
            self.position += text.len() as u64;
        } else if std::mem::replace(&mut self.is_incomplete, true) {
            return Ok(());
        }
        written.named_write(&self.path, bytes.len())
    }
}

/// Numbers of the lanes there are, from 1: pools by their place, workers by theirs in the pool.
#[derive(Debug, Default)]
struct Lanes(Vec<(String, Vec<String>)>);

impl Lanes {
    /// The process and thread number of a lane; a lane that is new is named in `events`.
    fn find(&mut self, pool: &str, worker: &str, events: &mut Vec<Value>) -> (usize, usize) {
        let process = self.0.iter().position(|(name, _)| name == pool).unwrap_or_else(|| {
            self.0.push((pool.to_owned(), Vec::new()));
            events.push(json!({ "ph": "M", "name": "process_name", "pid": self.0.len(), "args": { "name": pool } }));
            self.0.len() - 1
        });
        let workers = &mut self.0[process].1;
        let thread = workers.iter().position(|name| name == worker).unwrap_or_else(|| {
            workers.push(worker.to_owned());
            events.push(json!({
                "ph": "M", "name": "thread_name", "pid": process + 1, "tid": workers.len(), "args": { "name": worker },
            }));
            workers.len() - 1
        });
        (process + 1, thread + 1)
    }
}

/// Bytes of the array up to the last whole event, without the comma behind it, and the lanes that were named.
fn whole_events(text: &str) -> (usize, Lanes) {
    #[derive(Deserialize)]
    struct Event {
        ph: String,
        name: String,
        pid: usize,
        #[serde(default)]
        args: Map<String, Value>,
    }
    let mut lanes = Lanes::default();
    let Some(mut rest) = text.strip_prefix(HEAD).and_then(|rest| rest.strip_prefix('\n')) else {
        return (0, lanes);
    };
    let (mut whole, mut start) = (HEAD.len(), HEAD.len() + 1);
    while let Some((line, after)) = rest.split_once('\n') {
        let event = line.strip_suffix(',').unwrap_or(line);
        let Ok(read) = serde_json::from_str::<Event>(event) else {
            break;
        };
        if read.ph == "M" {
            let name = read
                .args
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            match (read.name.as_str(), lanes.0.get_mut(read.pid.wrapping_sub(1))) {
                ("process_name", None) => lanes.0.push((name, Vec::new())),
                ("thread_name", Some((_, workers))) => workers.push(name),
                _ => {}
            }
        }
        whole = start + event.len();
        start += line.len() + 1;
        rest = after;
    }
    (whole, lanes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    fn span<'a>(pool: &'a str, worker: &'a str, name: &'a str, start_us: u64) -> Span<'a> {
        Span {
            pool,
            worker,
            name,
            start_us,
            duration_us: 5,
            details: Map::new(),
        }
    }

    fn read(path: &Path) -> Vec<Value> {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn the_file_is_whole_json_at_any_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let mut file = TraceFile::open(&path).unwrap();
        assert!(read(&path).is_empty());
        file.append(&span("gpu", "worker 0", "train", 10)).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            concat!(
                "[\n",
                r#"{"ph":"M","name":"process_name","pid":1,"args":{"name":"gpu"}},"#,
                "\n",
                r#"{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"worker 0"}},"#,
                "\n",
                r#"{"ph":"X","name":"train","pid":1,"tid":1,"ts":10,"dur":5,"args":{}}"#,
                "\n]\n"
            )
        );
        file.append(&span("gpu", "worker 1", "train \n \"é\"", 11)).unwrap();
        file.append(&span("driver", "scored", "judge", 12)).unwrap();
        assert_eq!(read(&path).len(), 8);
    }

    #[test]
    fn a_resume_goes_on_in_the_same_lanes_wherever_the_file_was_torn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let mut file = TraceFile::open(&path).unwrap();
        file.append(&span("gpu", "worker 0", "é", 1)).unwrap();
        file.append(&span("driver", "scored", "judge", 2)).unwrap();
        file.append(&span("driver", "eval", "judge", 3)).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let mut file = TraceFile::open(&path).unwrap();
            let before = read(&path);
            file.append(&span("driver", "scored", "again", 9)).unwrap();
            let after = read(&path);
            assert_eq!(after[..before.len()], before);
            let lanes: Vec<&Value> = after.iter().filter(|event| event["ph"] == "M").collect();
            let named: std::collections::BTreeSet<String> = lanes.iter().map(|lane| lane.to_string()).collect();
            assert_eq!(named.len(), lanes.len(), "a lane was named twice");
            let last = after.last().unwrap();
            let names = |kind: &str| {
                let lane = lanes.iter().find(|lane| {
                    lane["name"] == kind
                        && lane["pid"] == last["pid"]
                        && (kind == "process_name" || lane["tid"] == last["tid"])
                });
                lane.unwrap()["args"]["name"].clone()
            };
            assert_eq!(
                (names("process_name"), names("thread_name")),
                (json!("driver"), json!("scored"))
            );
        }
    }
}
