use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::{assert_golden, command, ended, project, rlpipe};

/// Nothing here takes nearly as long; it only keeps a fault from waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn quickstart() -> String {
    std::fs::read_to_string(project().join("pipelines/quickstart.yaml")).unwrap()
}

#[test]
fn each_value_is_printed_with_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let base = "env: { vars: { STEPS: { kind: int, default: 40 }, SEED: { kind: int }, FOLDER: { kind: path, optional: true } } }\n";
    let text = quickstart()
        .replace("total_steps: 40", "total_steps: \"${STEPS}\"")
        .replace("seed: 1", "seed: \"${SEED}\"")
        .replace("max_tokens_per_pack: 4096", "max_tokens_per_pack: ${PACK:-4096}")
        .replace("name: quickstart\n", &format!("name: quickstart\n{base}"))
        .replace(
            "SEED: { kind: int }",
            "SEED: { kind: int }, PACK: { kind: int, optional: true }",
        );
    std::fs::write(folder.path().join("base.yaml"), text).unwrap();
    std::fs::write(folder.path().join("mine.yaml"), "nodes:\n  trainer: { max_grad_norm: 0.5 }\n  evaluator: null\n  held_out: null\n  tries: null\n  marks: null\ntests: null\n").unwrap();
    let mut print = command(folder.path(), &["validate", "--print", "base.yaml", "mine.yaml"]);
    print
        .args(["--set", "nodes.varied.max_refill=2"])
        .env("SEED", "7")
        .env("FOLDER", "x");
    let printed = ended(print.output().unwrap()).expect(0);
    let shown = printed.output.replace(&*folder.path().to_string_lossy(), "/folder");
    assert_golden("engine/cli/tests/verbs/golden/printed.yaml", &shown);
    assert!(!shown.contains("evaluator"), "{shown}");

    // It loads again, and prints the same values.
    std::fs::write(folder.path().join("again.yaml"), &printed.output).unwrap();
    let again = rlpipe(folder.path(), &["validate", "--print", "again.yaml"]).expect(0);
    let values = |text: &str| {
        let lines = text
            .lines()
            .map(|line| line.split("  #").next().unwrap().trim_end().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(values(&printed.output), values(&again.output));
}

#[test]
fn an_overlay_that_replaces_a_reference_does_not_make_its_variable_unused() {
    let pipeline = "pipelines/custom-reward.yaml";
    let mut alone = command(&project(), &["validate", pipeline, "--format", "concise"]);
    alone.args(["--set", "run.work_dir=runs", "--set", "pools.one.cpus_per_worker=1"]);
    alone
        .env("MODEL_PATH", "m")
        .env("DATA_PATH", "d")
        .env("EVAL_DATA_PATH", "e");
    assert_eq!(ended(alone.output().unwrap()).expect(0).errors, "");
}

#[test]
fn several_pipelines_are_checked_in_one_call() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), quickstart()).unwrap();
    let wrong = quickstart().replace("samples_per_prompt", "sample_per_prompt");
    std::fs::write(folder.path().join("b.yaml"), wrong).unwrap();
    let both = rlpipe(
        folder.path(),
        &["validate", "--each", "a.yaml", "b.yaml", "--format", "concise"],
    )
    .expect(78);
    assert!(both.errors.contains("b.yaml:23:80: error[RL0201]"), "{}", both.errors);
    assert!(both.errors.ends_with("1 valid, 1 with faults\n"), "{}", both.errors);
    let json = rlpipe(
        folder.path(),
        &["validate", "--each", "b.yaml", "a.yaml", "b.yaml", "--format", "json"],
    )
    .expect(78);
    let list: Value = serde_json::from_str(&json.output).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    rlpipe(folder.path(), &["validate", "--each", "a.yaml", "a.yaml"]).expect(0);
    rlpipe(folder.path(), &["validate", "--each", "--print", "a.yaml"]).expect(2);
}

#[test]
fn colour_is_where_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.yaml"), quickstart().replace("trainer", "trianer")).unwrap();
    let coloured = |variables: &[(&str, &str)]| {
        let mut validate = command(folder.path(), &["validate", "p.yaml"]);
        validate.envs(variables.iter().copied());
        ended(validate.output().unwrap()).expect(78).errors.contains("\x1b[")
    };
    assert!(!coloured(&[]), "not a terminal");
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "0")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

/// `rlpipe validate --watch`, and the lines that it says.
struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let arguments = [&["validate", "--watch", "--format", "concise"], arguments].concat();
        let mut child = command(folder, &arguments).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// What is said up to the line that says that it waits.
    fn round(&self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            if line.starts_with("watching ") {
                return said;
            }
            said.push(line);
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_change_is_checked_however_it_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (path, beside) = (folder.path().join("p.yaml"), folder.path().join("p.yaml.new"));
    std::fs::write(&path, quickstart()).unwrap();
    let mut watching = Watching::start(folder.path(), &["p.yaml"]);
    assert_eq!(watching.round(), [] as [&str; 0]);
    // Written in place.
    std::fs::write(&path, quickstart().replace("type: trainer", "type: trianer")).unwrap();
    assert!(watching.round()[0].contains("error[RL0207]"));
    // Renamed over.
    std::fs::write(&beside, quickstart().replace("max_refill", "max_refil")).unwrap();
    std::fs::rename(&beside, &path).unwrap();
    assert!(watching.round()[0].contains("error[RL0201]"));
    // Taken away, and there again.
    std::fs::remove_file(&path).unwrap();
    assert!(watching.round()[0].contains("error[RL0100]"));
    std::fs::write(&path, quickstart()).unwrap();
    assert_eq!(watching.round(), [] as [&str; 0]);

    let id = libc::pid_t::try_from(watching.child.id()).unwrap();
    // SAFETY: a signal to the process just started, which has not been waited for.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
    let status = watching.child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(libc::SIGINT)
    );
}

#[test]
fn with_data_its_files_are_watched_too() {
    let folder = tempfile::tempdir().unwrap();
    rlpipe(folder.path(), &["init"]).expect(0);
    let data = folder.path().join("data/sums.jsonl");
    let rows = std::fs::read_to_string(&data).unwrap();
    let watching = Watching::start(folder.path(), &["quickstart.yaml", "--data"]);
    watching.round();
    std::fs::write(&data, format!("{{\n{rows}")).unwrap();
    let said = watching.round();
    assert!(
        said.iter()
            .any(|line| line.contains("sums.jsonl:1") && line.contains("error[RL10")),
        "{said:?}"
    );
}
