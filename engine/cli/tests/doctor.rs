//! `rlpipe doctor`, the program itself: each symptom by its cause, found, and mended by the command that it says.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A folder with the quickstart, its data, and a worker that only opens its libraries.
struct Place {
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

fn pipelines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines")
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("pipelines/data")).unwrap();
        for (file, lines) in [
            ("quickstart.yaml", usize::MAX),
            ("data/sums.jsonl", 64),
            ("data/sums-lessons.jsonl", 64),
            ("data/sums-held-out.jsonl", 8),
        ] {
            let text = std::fs::read_to_string(pipelines().join(file)).unwrap();
            let text: Vec<&str> = text.lines().take(lines).collect();
            std::fs::write(folder.path().join("pipelines").join(file), text.join("\n") + "\n").unwrap();
        }
        let place = Self {
            folder,
            environment: Vec::new(),
        };
        place.worker("echo 'cannot work error=give the driver'\"'\"'s endpoint as the argument' >&2; exit 1");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn worker(&self, script: &str) {
        let path = self.path("worker");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn around(&self, mut command: Command) -> Command {
        let known = [
            "MODEL_PATH",
            "DATA_PATH",
            "EVAL_DATA_PATH",
            "WORK_DIR",
            "HF_ENDPOINT",
            "HF_TOKEN",
            "HF_HUB_OFFLINE",
        ];
        for variable in known {
            command.env_remove(variable);
        }
        command
            .env("RLPIPE_WORKER", self.path("worker"))
            .env("HF_HUB_CACHE", self.path("cache"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn doctor(&self, arguments: &[&str]) -> Found {
        let mut command = self.around(Command::new(env!("CARGO_BIN_EXE_rlpipe")));
        command.args(["doctor", "--format", "json"]).args(arguments);
        Found::of(command)
    }

    /// The same as a command of a shell, as a person would give it.
    fn shell(&self, line: &str) -> Found {
        let mut command = self.around(Command::new("sh"));
        let line = line.replace("rlpipe run", "\"$RLPIPE\" doctor --format json");
        command.env("RLPIPE", env!("CARGO_BIN_EXE_rlpipe")).arg("-c").arg(line);
        Found::of(command)
    }
}

struct Found {
    code: Option<i32>,
    whole: Value,
}

impl Found {
    fn of(mut command: Command) -> Self {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let whole = serde_json::from_str(&text);
        assert!(whole.is_ok(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        Self {
            code: output.status.code(),
            whole: whole.unwrap(),
        }
    }

    /// The finding of a topic in this state that has these words; the exit code is as the states say.
    fn finding(&self, topic: &str, state: &str, words: &str) -> &Value {
        let wanted = if self.whole["can_start"] == true { 0 } else { 78 };
        assert_eq!(self.code, Some(wanted));
        let mut all = self.whole["findings"].as_array().unwrap().iter();
        let found = all.find(|finding| {
            (&finding["topic"], &finding["state"]) == (&topic.into(), &state.into())
                && finding["text"].as_str().unwrap().contains(words)
        });
        assert!(
            found.is_some(),
            "no `{topic}` `{state}` with `{words}`: {:#}",
            self.whole
        );
        found.unwrap()
    }

    fn fault(&self, topic: &str, words: &str) -> &Value {
        assert_eq!(self.code, Some(78), "{:#}", self.whole);
        self.finding(topic, "fault", words)
    }

    fn has_none(&self, code: &str) {
        let mut all = self.whole["findings"].as_array().unwrap().iter();
        assert!(all.all(|finding| finding["code"] != code), "{:#}", self.whole);
    }
}

fn mends(finding: &Value) -> Vec<&str> {
    finding["mends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command.as_str().unwrap())
        .collect()
}

const QUICKSTART: &str = "pipelines/quickstart.yaml";

#[test]
fn where_all_is_well_every_topic_is_measured() {
    let found = Place::new().doctor(&[QUICKSTART]);
    assert_eq!(found.code, Some(0), "{:#}", found.whole);
    for (topic, words) in [
        ("file", "15 nodes"),
        ("variables", "none are needed"),
        ("data", "`prompts`: 64 of 64 rows"),
        ("models", "`tiny`: 0.9 M parameters, trained"),
        ("steps", "40 train steps, 32 prompts of 8 samples"),
        ("resources", "`local`: 1 worker on `auto`"),
        ("memory", "`local`: a worker holds"),
        (
            "disk",
            "a checkpoint takes 9.8 MiB, 3 at once; an export takes 3.3 MiB, 1 in all",
        ),
        ("output", "no attempt yet"),
        ("programs", "none judges"),
        ("worker", "opens its libraries"),
        ("worker", "the driver can listen"),
    ] {
        found.finding(topic, "ok", words);
    }
}

#[test]
fn variables_that_are_not_set() {
    let place = Place::new();
    let file = pipelines().join("custom-reward.yaml");
    let found = place.doctor(&[file.to_str().unwrap()]);
    let finding = found.fault("variables", "`MODEL_PATH` is not set");
    assert!(
        mends(finding)[0].starts_with("export MODEL_PATH=...   # SmolLM2"),
        "{finding}"
    );
    found.fault("variables", "`DATA_PATH` is not set");
}

#[test]
fn no_backend_or_two() {
    let flags = "env:\n  vars:\n    USE_A: { kind: flag, optional: true }\n    USE_B: { kind: flag, optional: true }\n  rules:\n    - exactly_one: [USE_A, USE_B]\n";
    let place = Place::new();
    place.write("flags.yaml", flags);
    let found = place.doctor(&[QUICKSTART, "flags.yaml"]);
    assert_eq!(mends(found.fault("variables", "none is")), ["export USE_A=1"]);
    let place = place.set("USE_A", "1").set("USE_B", "1");
    let found = place.doctor(&[QUICKSTART, "flags.yaml"]);
    assert_eq!(
        mends(found.fault("variables", "`USE_A`, `USE_B` are set")),
        ["unset USE_B"]
    );
    place
        .shell(&format!("unset USE_B; rlpipe run {QUICKSTART} flags.yaml"))
        .has_none("RL0604");
    place.write("flags.yaml", &flags.replace("exactly_one", "all_or_none"));
    let found = place.shell(&format!("unset USE_B; rlpipe run {QUICKSTART} flags.yaml"));
    assert_eq!(mends(found.fault("variables", "`USE_B` is not")), ["export USE_B=..."]);
}

#[test]
fn a_row_without_ground_truth() {
    let place = Place::new();
    place.write(
        "pipelines/data/sums.jsonl",
        "{\"prompt\": \"1+1=\", \"reward_model\": {\"ground_truth\": \"2\"}}\n{\"prompt\": \"2+2=\"}\n",
    );
    let found = place.doctor(&[QUICKSTART]);
    let finding = found.fault("data", "no `reward_model.ground_truth`");
    assert!(
        mends(finding)[0].starts_with("sed -n 2p ") && mends(finding)[0].ends_with("data/sums.jsonl"),
        "{finding}"
    );
    assert!(
        finding["notes"][0].as_str().unwrap().contains("map: { ground_truth"),
        "{finding}"
    );
}

/// Each command, with `doctor` for `run`, finds the fault gone.
#[test]
fn more_than_the_machine_has() {
    let place = Place::new();
    for (arguments, topic, state, words, code) in [
        (
            &["--num-workers", "4"][..],
            "resources",
            "fault",
            "has 4 workers, and this version runs one",
            "RL1101",
        ),
        (
            &["--set", "pools.local.cpus_per_worker=4096"],
            "resources",
            "warning",
            "4096 processor cores",
            "RL1104",
        ),
        (
            &["--set", "pools.local.host_memory_per_worker=900TiB"],
            "memory",
            "fault",
            "wants 900TiB of memory",
            "RL1106",
        ),
    ] {
        let found = place.doctor(&[&[QUICKSTART], arguments].concat());
        let finding = found.finding(topic, state, words);
        assert_eq!(finding["code"], code);
        let command = *mends(finding).last().unwrap();
        assert!(
            command.starts_with("rlpipe run pipelines/quickstart.yaml "),
            "{command}"
        );
        place.shell(command).has_none(code);
    }
}

/// Whether there is room is said once, by the passes: what was measured does not contradict it.
#[test]
fn too_little_memory_is_a_fault_and_nothing_else() {
    let place = Place::new();
    let little = [
        "--set",
        "pools.local.host_memory_per_worker=1KiB",
        "--set",
        "pools.local.accelerator=cpu",
    ];
    let found = place.doctor(&[&[QUICKSTART][..], &little].concat());
    assert_eq!(found.fault("memory", "a worker of `local` takes")["code"], "RL0705");
    let mut all = found.whole["findings"].as_array().unwrap().iter();
    let is_well = |finding: &Value| finding["topic"] == "memory" && finding["state"] == "ok";
    assert!(!all.any(is_well), "{:#}", found.whole);
}

#[test]
fn intervals_that_do_not_fit_are_mended_in_the_file() {
    let place = Place::new();
    let text = std::fs::read_to_string(place.path(QUICKSTART)).unwrap();
    place.write(
        QUICKSTART,
        &text.replace("to: engine, every_steps: 1", "to: engine, every_steps: 4"),
    );
    let found = place.doctor(&[QUICKSTART]);
    let finding = found.fault("steps", "brings weights every 4");
    assert_eq!(mends(finding), ["rlpipe validate --fix pipelines/quickstart.yaml"]);
    let mut fix = place.around(Command::new(env!("CARGO_BIN_EXE_rlpipe")));
    fix.args(["validate", "--fix", QUICKSTART]).stderr(Stdio::null());
    assert!(fix.status().unwrap().success());
    place.doctor(&[QUICKSTART]).has_none("RL0401");
}

#[test]
fn an_attempt_that_a_process_holds() {
    let place = Place::new();
    let attempt = place.path("runs/quickstart/0001");
    std::fs::create_dir_all(attempt.join("checkpoints/step-5")).unwrap();
    let script = "import fcntl, os, sys\nfile = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\nfile.write(f'process {os.getpid()} on here')\nfile.flush()\nprint('held', flush=True)\nsys.stdin.read()\n";
    let mut holder = Command::new("python3")
        .args(["-c", script])
        .arg(attempt.join("lock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let found = place.doctor(&[QUICKSTART]);
    let id = holder.id();
    let finding = found.finding("output", "warning", &format!("0001` is held by process {id} on here"));
    assert_eq!(
        mends(finding),
        [format!("ps -o pid,etime,args -p {id}"), format!("kill {id}")]
    );
    drop(holder.stdin.take());
    holder.wait().unwrap();
    place
        .doctor(&[QUICKSTART])
        .finding("output", "ok", "its last checkpoint is of step 5; nobody holds it");
}

#[test]
fn a_folder_that_cannot_be_written_and_one_for_the_socket() {
    let place = Place::new();
    place.write("file", "");
    let found = place.doctor(&[QUICKSTART, "--work-dir", "file/runs"]);
    let finding = found.fault("output", "is no folder");
    assert_eq!(
        mends(finding),
        ["rlpipe run pipelines/quickstart.yaml --work-dir another/folder"]
    );
    place.shell(mends(finding)[0]).has_none("RL1132");
    let absent = place.path("absent").display().to_string();
    let found = place.set("TMPDIR", &absent).doctor(&[QUICKSTART]);
    assert_eq!(mends(found.fault("worker", "absent")), ["export TMPDIR=/tmp"]);
}

#[test]
fn a_worker_that_is_not_there_or_lacks_a_library() {
    let place = Place::new();
    place.worker("echo \"$0: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file\" >&2; exit 127");
    let found = place.doctor(&[QUICKSTART]);
    let finding = found.fault("worker", "libtorch_cpu.so");
    assert!(mends(finding)[1].starts_with("make build"), "{finding}");
    place.worker("exit 0");
    place.doctor(&[QUICKSTART]).fault("worker", "is no worker of rlpipe");
    std::fs::remove_file(place.path("worker")).unwrap();
    let found = place.doctor(&[QUICKSTART]);
    assert_eq!(mends(found.fault("worker", "which is not a file")), ["make build"]);
}

#[test]
fn a_program_that_is_not_there_or_dies() {
    let place = Place::new();
    let judge = |run: &str| format!("nodes: {{ scored: {{ judge: {{ command: {{ run: {run} }} }} }} }}\n");
    place
        .write("judge.yaml", &judge("[./judge.sh]"))
        .write("judge.sh", "#!/bin/sh\necho broken >&2\nexit 3\n");
    let found = place.doctor(&[QUICKSTART, "judge.yaml"]);
    let finding = found.fault("programs", "is not executable");
    let command = mends(finding)[0].to_owned();
    assert!(command.starts_with("chmod +x "), "{command}");
    let found = place.shell(&format!("{command}; rlpipe run {QUICKSTART} judge.yaml"));
    found.has_none("RL1120");
    found.fault("programs", "does not start");
}

/// A port that nobody listens at.
#[test]
fn a_hub_that_does_not_answer_is_told_where_a_model_is_to_be_fetched() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = Place::new().set("HF_ENDPOINT", &format!("http://{address}"));
    let model = "models.tiny={ hub: { repository: some/model } }";
    let found = place.doctor(&[QUICKSTART, "--set", "models.tiny.init=null", "--set", model]);
    let finding = found.fault("models", "is not on this machine");
    assert!(
        mends(finding)[0].starts_with("rlpipe download pipelines/quickstart.yaml"),
        "{finding}"
    );
    let finding = found.fault("models", &address.to_string());
    assert_eq!(mends(finding), [format!("curl -sSI http://{address}")]);
    // A model that is here is not asked for.
    place.doctor(&[QUICKSTART]).finding("models", "ok", "`tiny`");
}

#[test]
fn a_file_that_cannot_be_read() {
    let place = Place::new();
    place.write("broken.yaml", "run: [\n");
    let found = place.doctor(&[QUICKSTART, "broken.yaml"]);
    found.fault("file", "nothing more can be looked at");
    place
        .doctor(&["absent.yaml"])
        .fault("file", "cannot read `absent.yaml`");
}
