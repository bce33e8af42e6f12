//! Runs the release binaries on the small pipeline, watches what they say, and compares what they leave.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rlpipe_core::data::repeats;
use rlpipe_tests::project;
use tempfile::TempDir;

/// Nothing here takes nearly as long; it only keeps a fault from waiting for ever.
const PATIENCE: Duration = Duration::from_secs(240);

/// A program beside the one that runs the tests, which lies in `deps`.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(
        path.is_file(),
        "there is no `{}`: run `make build`, and these tests for release",
        path.display()
    );
    path
}

/// Forty steps: a step that was just seen to begin is not the last one by the time that something is done about it.
pub const LONG: [&str; 4] = ["--set", "run.total_steps=40", "--set", "run.hf_export.every_steps=40"];

/// The small pipeline.
pub fn pipeline() -> PathBuf {
    project().join("tests/run/small.yaml")
}

/// A folder for the runs of one test.
pub struct Place {
    folder: TempDir,
    pipeline: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        Self {
            folder,
            pipeline: pipeline(),
        }
    }

    /// With a copy of the pipeline and its data, and these replacements in the pipeline.
    pub fn with_own_files(changes: &[(&str, &str)]) -> Self {
        let mut place = Self::new();
        let from = pipeline();
        place.pipeline = place.path().join("small.yaml");
        let mut text = std::fs::read_to_string(&from).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "`{from}` is not in the small pipeline");
            text = text.replace(from, to);
        }
        std::fs::write(&place.pipeline, text).unwrap();
        std::fs::create_dir(place.path().join("data")).unwrap();
        for entry in std::fs::read_dir(from.with_file_name("data")).unwrap().flatten() {
            std::fs::copy(entry.path(), place.path().join("data").join(entry.file_name())).unwrap();
        }
        place
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The first attempt's folder.
    pub fn attempt(&self) -> PathBuf {
        self.path().join("runs/small/0001")
    }

    /// `rlpipe` with nothing of the surroundings that matters to it.
    pub fn rlpipe(&self) -> Command {
        program("rlpipe-worker");
        self.around(Command::new(program("rlpipe")))
    }

    fn around(&self, mut command: Command) -> Command {
        for variable in ["RLPIPE_WORKER", "RLPIPE_LOG", "RUST_LOG"] {
            command.env_remove(variable);
        }
        command.env("TMPDIR", self.path().join("tmp")).stdin(Stdio::null());
        command
    }

    /// `rlpipe run` of the small pipeline, every phase reported.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.rlpipe();
        self.run_arguments(&mut command, arguments);
        command
    }

    /// The same where no file may grow beyond so many blocks of 512 bytes.
    pub fn limited(&self, blocks: u32, arguments: &[&str]) -> Ended {
        let mut command = self.around(Command::new("sh"));
        let limit = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        command.arg("-c").arg(limit).arg(program("rlpipe"));
        self.run_arguments(&mut command, arguments);
        Running::start(command).end()
    }

    fn run_arguments(&self, command: &mut Command, arguments: &[&str]) {
        command
            .arg("run")
            .arg(&self.pipeline)
            .arg("--work-dir")
            .arg(self.path().join("runs"));
        command.args(["--progress", "phases"]).args(arguments);
    }

    /// Starts a run.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(arguments))
    }

    /// Runs to the end, whichever it is.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end()
    }

    /// Runs to the end of all steps, and returns what the attempt left.
    pub fn record(&self, arguments: &[&str]) -> Record {
        self.run(arguments).expect(0);
        Record::of(&self.attempt())
    }

    /// No socket is left of a driver that could clear up.
    pub fn assert_cleared(&self) {
        let left: Vec<_> = std::fs::read_dir(self.path().join("tmp")).unwrap().flatten().collect();
        assert!(left.is_empty(), "left in the temporary folder: {left:?}");
    }
}

/// What a run without a break leaves, with these arguments.
pub fn unbroken(arguments: &[&str]) -> Record {
    Place::new().record(arguments)
}

/// A process that was started here, and all of its output.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    output: thread::JoinHandle<String>,
    seen: Vec<String>,
    workers: BTreeSet<u32>,
}

/// How a process ended.
pub struct Ended {
    pub status: ExitStatus,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub text: String,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        // A group of its own: signals of a terminal that tests run in are not meant for it.
        let command = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (errors, mut output) = (child.stderr.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let output = thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            text
        });
        Self {
            child,
            lines,
            output,
            seen: Vec::new(),
            workers: BTreeSet::new(),
        }
    }

    /// Reads on until a line has this in it.
    pub fn until(&mut self, wanted: &str) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let found = line.contains(wanted);
                    self.seen.push(line);
                    if found {
                        return;
                    }
                }
                Err(error) => panic!("no line with `{wanted}` ({error}) in:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Its worker, from the table of processes.
    pub fn worker(&mut self) -> u32 {
        let worker = self.find_worker();
        worker.unwrap_or_else(|| panic!("there is no worker after:\n{}", self.seen.join("\n")))
    }

    /// The first process below it with this name, once there is one. Its end too is waited for, and that of those
    /// between.
    pub fn until_below(&mut self, name: &str) -> u32 {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut below = children(self.child.id());
            let mut seen = 0;
            while let Some(process) = below.get(seen).copied() {
                if name_of(process) == name {
                    self.workers.extend(&below[..=seen]);
                    return process;
                }
                below.extend(children(process));
                seen += 1;
            }
            let text = self.seen.join("\n");
            assert!(
                Instant::now() < until && runs(self.child.id()),
                "there is no `{name}`:\n{text}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn find_worker(&mut self) -> Option<u32> {
        let mut children = children(self.child.id()).into_iter();
        let worker = children.find(|id| name_of(*id) == "rlpipe-worker");
        self.workers.extend(worker);
        worker
    }

    /// Kills the driver, and waits until its worker has ended too.
    pub fn kill(mut self) -> Ended {
        self.find_worker();
        self.signal(libc::SIGKILL);
        self.end()
    }

    /// The driver's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the driver.
    pub fn signal(&self, signal: i32) {
        send(self.child.id(), signal);
    }

    /// Waits for the end, and until no worker that was seen is left.
    pub fn end(mut self) -> Ended {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            while let Ok(line) = self.lines.try_recv() {
                self.seen.push(line);
            }
            assert!(Instant::now() < until, "it does not end:\n{}", self.seen.join("\n"));
            thread::sleep(Duration::from_millis(2));
        };
        while self.workers.iter().any(|worker| runs(*worker)) {
            assert!(Instant::now() < until, "workers are left: {:?}", self.workers);
            thread::sleep(Duration::from_millis(2));
        }
        // The streams end only when no process holds them any more.
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        let text = std::mem::take(&mut self.seen).join("\n");
        let output = std::mem::replace(&mut self.output, thread::spawn(String::new))
            .join()
            .unwrap();
        assert!(!text.contains("panicked"), "{text}");
        Ended { status, output, text }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails half-way leaves nothing behind either; the workers go with their driver.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// It ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "signal {:?}:\n{}",
            self.status.signal(),
            self.text
        );
        self
    }

    /// It said all of this.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.text.contains(part), "`{part}` is not in:\n{}", self.text);
        }
        self
    }
}

/// Sends a signal to a process that was started here.
pub fn send(process: u32, signal: i32) {
    // SAFETY: sends a signal.
    let sent = unsafe { libc::kill(i32::try_from(process).unwrap(), signal) };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}

/// State and parent of a process.
fn state(process: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Whether a process runs; a zombie does not.
pub fn runs(process: u32) -> bool {
    state(process).is_some_and(|(state, _)| !['Z', 'X'].contains(&state))
}

fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|process| state(*process).is_some_and(|(_, of)| of == parent))
        .collect()
}

fn name_of(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// What must be the same in every run of one seed, by name: rows of metrics without times, files of rollouts, exports.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Record(pub BTreeMap<String, Vec<u8>>);

impl Record {
    pub fn of(attempt: &Path) -> Self {
        let mut all = BTreeMap::new();
        let text = std::fs::read_to_string(attempt.join("metrics.jsonl")).unwrap_or_default();
        for (index, line) in text.lines().enumerate() {
            all.insert(format!("metrics, row {index:03}"), untimed(line).into_bytes());
        }
        for folder in ["rollouts/train", "rollouts/eval", "hf"] {
            files(&attempt.join(folder), folder, &mut all);
        }
        Self(all)
    }

    /// They are the same, bit for bit.
    #[track_caller]
    pub fn assert_is(&self, other: &Self) {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        for name in names {
            let (one, two) = (self.0.get(name), other.0.get(name));
            let text = |bytes: Option<&Vec<u8>>| {
                bytes.map_or("(not there)".to_owned(), |bytes| {
                    String::from_utf8_lossy(bytes).into_owned()
                })
            };
            assert!(one == two, "{name} differs:\n{:.3000}\n{:.3000}", text(one), text(two));
        }
    }

    /// The rows of metrics.
    pub fn rows(&self) -> Vec<serde_json::Value> {
        let rows = self.0.iter().filter(|(name, _)| name.starts_with("metrics"));
        rows.map(|(_, line)| serde_json::from_slice(line).unwrap()).collect()
    }

    /// The lines of a file of rollouts.
    pub fn lines(&self, file: &str) -> Vec<serde_json::Value> {
        let bytes = self
            .0
            .get(file)
            .unwrap_or_else(|| panic!("no `{file}` in {:?}", self.0.keys()));
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A row of metrics without what the machine was measured to take, its numbers as they are written. Names and numbers have no comma in them.
fn untimed(line: &str) -> String {
    let inside = line.trim_start_matches('{').trim_end_matches('}');
    let name = |field: &str| {
        field
            .trim_start_matches('"')
            .split('"')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let kept = inside.split(',').filter(|field| repeats(&name(field)));
    format!("{{{}}}", kept.collect::<Vec<_>>().join(","))
}

fn files(folder: &Path, name: &str, all: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), format!("{name}/{}", entry.file_name().to_string_lossy()));
        if path.is_dir() {
            files(&path, &name, all);
        } else {
            all.insert(name, std::fs::read(&path).unwrap());
        }
    }
}
