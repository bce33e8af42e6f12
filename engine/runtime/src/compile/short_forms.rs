//! `--work-dir`, `--num-workers` and `--backend`: short forms of `--set` for the only such pool or node.

use rlpipe_core::diagnostic::Diagnostics;
use rlpipe_core::document::{Sources, Tree};

use super::Request;
use super::read::{quoted, read};

/// The `--set` arguments that the short forms stand for, or why they cannot stand for one.
pub fn short_forms(
    request: &Request<'_>,
    work_dir: Option<&str>,
    workers: Option<u32>,
    backend: Option<&str>,
) -> Result<Vec<String>, String> {
    let mut arguments = Vec::new();
    if let Some(folder) = work_dir {
        arguments.push(format!("run.work_dir={}", serde_json::Value::from(folder)));
    }
    if workers.is_none() && backend.is_none() {
        return Ok(arguments);
    }
    let (mut sources, mut diagnostics) = (Sources::new(&request.working_folder), Diagnostics::default());
    // A file that cannot be read is reported when it is compiled.
    let Some(tree) = read(request, &mut sources, &mut diagnostics) else {
        return Ok(arguments);
    };
    let names = |section: &str, key: &str, keep: &dyn Fn(&str) -> bool| -> Vec<String> {
        let entries = tree.get(section).map(Tree::entries).unwrap_or_default();
        let kept = entries
            .iter()
            .filter(|entry| entry.value.get(key).and_then(Tree::as_text).is_some_and(keep));
        kept.map(|entry| entry.key.clone()).collect()
    };
    if let Some(workers) = workers {
        let pool = only(
            "--num-workers",
            "pool that computes",
            &names("pools", "accelerator", &|value| value != "none"),
        )?;
        arguments.push(format!("pools.{pool}.workers_per_node={workers}"));
    }
    if let Some(backend) = backend {
        let engine = only(
            "--backend",
            "rollout engine",
            &names("nodes", "type", &|value| value == "rollout_engine"),
        )?;
        arguments.push(format!("nodes.{engine}.backend={}", serde_json::Value::from(backend)));
    }
    Ok(arguments)
}

fn only(argument: &str, what: &str, names: &[String]) -> Result<String, String> {
    match names {
        [name] => Ok(name.clone()),
        [] => Err(format!("`{argument}` needs a {what}, and the pipeline has none")),
        _ => Err(format!(
            "`{argument}` is for a pipeline with one {what}; this one has {}: use `--set`",
            quoted(names)
        )),
    }
}
