//! A pipeline is compiled and shown; if it is valid, its resolved file must load again and be the same.
//!
//! Zero bytes part the input: the pipeline, an overlay, and then `--set` arguments. A part that begins with `#toml` is TOML.
#![no_main]

use std::io;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use rlpipe_core::diagnostic::{Fix, apply_fixes, render_concise, render_full, render_github, render_json};
use rlpipe_core::document::to_yaml;
use rlpipe_runtime::compile::{Outcome, Request, compile};
use rlpipe_runtime::plan::{Plan, resolved};
use rlpipe_stages::KINDS;

fuzz_target!(|text: &str| {
    let mut parts = text.split('\0');
    let files: Vec<&str> = parts.by_ref().take(2).collect();
    let set: Vec<String> = parts.take(3).map(str::to_owned).collect();
    let outcome = compiled(&files, set);
    show(&outcome);
    let Some(pipeline) = outcome.pipeline.as_ref().filter(|_| !outcome.diagnostics.has_errors()) else {
        return;
    };
    let (Some(plan), Some(first)) = (Plan::of(pipeline), resolved(pipeline)) else {
        panic!("no errors, and no plan");
    };
    plan.hash();
    let first = to_yaml(&first);
    let again = compiled(&[&first], Vec::new());
    assert!(
        !again.diagnostics.has_errors(),
        "{first}\n{}",
        render_full(&again.diagnostics, &again.sources, false)
    );
    let second = again
        .pipeline
        .as_ref()
        .and_then(resolved)
        .map(|resolved| to_yaml(&resolved));
    assert_eq!(second, Some(first));
});

fn compiled(files: &[&str], overrides: Vec<String>) -> Outcome {
    let name = |(index, text): (usize, &&str)| {
        let extension = if text.starts_with("#toml") { "toml" } else { "yaml" };
        PathBuf::from(format!("{index}.{extension}"))
    };
    let paths: Vec<PathBuf> = files.iter().enumerate().map(name).collect();
    let read = |path: &Path| -> io::Result<String> {
        let index = paths.iter().position(|known| path.ends_with(known));
        let text = index.and_then(|index| files.get(index));
        text.map(|text| (*text).to_owned())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    compile(&Request {
        files: paths.clone(),
        overrides,
        environment: &|name| (name.len() % 2 == 0).then(|| "8".to_owned()),
        working_folder: PathBuf::from("/fuzz"),
        read: &read,
        kinds: KINDS,
    })
}

fn show(outcome: &Outcome) {
    let (diagnostics, sources) = (&outcome.diagnostics, &outcome.sources);
    render_full(diagnostics, sources, false);
    render_concise(diagnostics, sources);
    render_github(diagnostics, sources);
    render_json(diagnostics, sources);
    for (id, source) in sources.iter() {
        let fixes = diagnostics.iter().filter_map(|found| found.fix.as_ref());
        let fixes: Vec<&Fix> = fixes.filter(|fix| fix.range.source == id).collect();
        apply_fixes(&source.text, &fixes);
    }
}
