//! Cards: who has them, and what a worker needs for them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rlpipe_core::kind::Target;
use rlpipe_runtime::cluster::worker_program;
use rlpipe_runtime::compile::{Accelerator, shown_path};

use super::{Finding, Looked, State, Topic};

/// The worker's part for cards, which lies beside it, and what names another.
const OBJECT: &str = "librlpipe_cuda.so";
const OBJECT_VARIABLE: &str = "RLPIPE_CUDA_OBJECT";

/// Of a pipeline that wants a card, where there is one.
pub fn findings(looked: &Looked<'_>) -> Vec<Finding> {
    let pools = looked.pipeline.into_iter().flat_map(|pipeline| {
        let used = |name: &str| pipeline.uses(Target::Pool, name);
        pipeline.pools.iter().filter(move |(name, _)| used(name))
    });
    let wanted: Vec<Accelerator> = pools
        .filter_map(|(_, pool)| Some(pool.config.as_ref()?.accelerator))
        .filter(|accelerator| matches!(accelerator, Accelerator::Cuda | Accelerator::Auto))
        .collect();
    if wanted.is_empty() || !looked.machine.nvidia_card {
        return Vec::new();
    }
    let mut all: Vec<Finding> = worker_program()
        .ok()
        .map(|program| {
            cuda_object(
                &program,
                std::env::var_os(OBJECT_VARIABLE),
                wanted.contains(&Accelerator::Cuda),
            )
        })
        .into_iter()
        .collect();
    all.extend(cards());
    all
}

/// Whether the worker finds its part for cards where it looks for it. Where it must not have a card, it may be that it
/// takes the processor: with a libtorch that has no CUDA.
fn cuda_object(program: &Path, named: Option<OsString>, is_card_needed: bool) -> Finding {
    let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let places: Vec<PathBuf> = match &named {
        Some(path) => vec![path.into()],
        None => program
            .ancestors()
            .skip(1)
            .take(2)
            .map(|folder| folder.join(OBJECT))
            .collect(),
    };
    if let Some(path) = places.iter().find(|path| path.is_file()) {
        return Finding::new(
            Topic::Worker,
            State::Ok,
            format!("`{}` is there, for cards", path.display()),
        );
    }
    let (state, means) = match is_card_needed {
        true => (State::Fault, "the worker cannot use the card without it"),
        false => (
            State::Warning,
            "the worker cannot use the card without it, and ends as it starts where its libtorch has CUDA",
        ),
    };
    let place = shown_path(&places[0]).display().to_string();
    let finding = Finding::new(Topic::Worker, state, format!("there is no `{place}`: {means}"));
    match named {
        Some(_) => finding.mend(format!("unset {OBJECT_VARIABLE}")),
        None => finding.mend("make build   # makes it; where programs are copied, copy it with them"),
    }
}

/// As the card's driver tells.
fn cards() -> Vec<Finding> {
    let query = |what: &str| {
        let output = Command::new("nvidia-smi")
            .args([what, "--format=csv,noheader,nounits"])
            .stdin(Stdio::null())
            .output();
        output
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(cards) = query("--query-gpu=name,memory.total,memory.free") else {
        let text = "there is a card, and `nvidia-smi` does not tell of it";
        return vec![Finding::new(Topic::Resources, State::Warning, text).mend("nvidia-smi")];
    };
    let processes = query("--query-compute-apps=pid,used_memory").unwrap_or_default();
    of_cards(&cards, &processes)
}

/// From what `nvidia-smi` writes, memory in MiB.
fn of_cards(cards: &str, processes: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    for (number, card) in cards.lines().enumerate() {
        let parts: Vec<&str> = card.split(',').map(str::trim).collect();
        let [name, total, free] = parts.as_slice() else {
            continue;
        };
        let text = format!("card {number}, {name}: {free} of {total} MiB free");
        all.push(Finding::new(Topic::Resources, State::Ok, text));
    }
    for process in processes.lines() {
        let parts: Vec<&str> = process.split(',').map(str::trim).collect();
        let [id, used] = parts.as_slice() else { continue };
        let text = format!("process {id} holds {used} MiB of a card");
        let finding = Finding::new(Topic::Resources, State::Warning, text);
        all.push(
            finding
                .mend(format!("ps -o pid,etime,args -p {id}"))
                .mend(format!("kill {id}")),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_part_for_cards_is_looked_for_where_the_worker_looks() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("deps/rlpipe-worker");
        std::fs::create_dir(folder.path().join("deps")).unwrap();
        std::fs::write(&program, "").unwrap();
        let absent = cuda_object(&program, None, true);
        assert_eq!(absent.state, State::Fault);
        assert!(
            absent
                .text
                .contains("deps/librlpipe_cuda.so`: the worker cannot use the card")
        );
        assert!(absent.mends[0].starts_with("make build"));
        let maybe = cuda_object(&program, None, false);
        assert_eq!(maybe.state, State::Warning);
        assert!(maybe.text.contains("where its libtorch has CUDA"));
        let named = cuda_object(&program, Some("/absent/object.so".into()), true);
        assert!(named.text.contains("`/absent/object.so`") && named.mends == ["unset RLPIPE_CUDA_OBJECT"]);
        for place in ["librlpipe_cuda.so", "deps/librlpipe_cuda.so"] {
            std::fs::write(folder.path().join(place), "").unwrap();
            let there = cuda_object(&program, None, true);
            assert_eq!(there.state, State::Ok);
            assert!(there.text.contains(place));
        }
    }

    #[test]
    fn cards_and_their_holders() {
        let found = of_cards("NVIDIA H200, 143771, 143000\n", "4711, 512\n");
        let texts: Vec<&str> = found.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "card 0, NVIDIA H200: 143000 of 143771 MiB free",
                "process 4711 holds 512 MiB of a card"
            ]
        );
        assert_eq!(found[1].mends[1], "kill 4711");
        assert!(of_cards("", "").is_empty() && of_cards("odd\n", "No running processes\n").is_empty());
    }
}
