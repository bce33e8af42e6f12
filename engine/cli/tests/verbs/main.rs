//! `rlpipe` as people and scripts call it: what each verb prints, writes, and ends with.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod fix;
mod graph;
mod init;
mod manual;
mod plan;
mod validate;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Set to `1`, it has expected files written instead of compared.
const WRITE_VARIABLE: &str = "RLPIPE_WRITE";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// How a call ended.
struct Ended {
    code: Option<i32>,
    output: String,
    errors: String,
}

/// `rlpipe` in a folder, with nothing of the surroundings that matters to it.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rlpipe"));
    for variable in [
        "RLPIPE_LOG",
        "RLPIPE_WORKER",
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "WORK_DIR",
        "MODEL_PATH",
        "DATA_PATH",
        "EVAL_DATA_PATH",
        "CPUS_PER_WORKER",
    ] {
        command.env_remove(variable);
    }
    command
        .args(arguments)
        .current_dir(folder)
        .env("TMPDIR", "/tmp")
        .stdin(Stdio::null());
    command
}

fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code(),
        output: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

fn rlpipe(folder: &Path, arguments: &[&str]) -> Ended {
    ended(command(folder, arguments).output().unwrap())
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.output, self.errors);
        self
    }
}

/// Compares a text with a file of the project, or writes that.
#[track_caller]
fn assert_golden(path: &str, text: &str) {
    let full = project().join(path);
    let text = text.replace(&*project().to_string_lossy(), "/project");
    if std::env::var(WRITE_VARIABLE).is_ok_and(|value| value == "1") {
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(&full, &text).unwrap();
    }
    let found = std::fs::read_to_string(&full).unwrap_or_default();
    assert!(
        found == text,
        "`{path}` is out of date (`make generate` writes it anew):\n{text}"
    );
}
