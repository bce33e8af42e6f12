//! What holds of every pipeline, right or wrong.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rlpipe_core::diagnostic::{Fix, apply_fixes, render_concise, render_full, render_github, render_json};
use rlpipe_core::document::{Format, to_yaml};
use rlpipe_runtime::compile::Outcome;
use rlpipe_runtime::plan::{Plan, annotated, resolved};
use rlpipe_tests::{compile_files, compile_text, project, shipped_pipelines, to_toml, tree_of};
use serde_json::Value;

/// Settings that shipped pipelines may have too, as `--set` arguments.
const VARIANTS: &[(&str, &[&str])] = &[
    (
        "pipelines/quickstart.yaml",
        &["run.total_epochs=2", "run.total_steps=null"],
    ),
    (
        "pipelines/quickstart.yaml",
        &["nodes.sync.every_steps=5", "run.checkpoint.every_steps=10"],
    ),
    ("pipelines/quickstart.yaml", &["nodes.evaluator.enabled=false"]),
    (
        "pipelines/quickstart.yaml",
        &["nodes.evaluator.at_end=false", "nodes.evaluator.limit=3"],
    ),
    (
        "pipelines/quickstart.yaml",
        &["pools.local.host_memory_per_worker=1.5GiB", "name=a.b-c_1"],
    ),
    (
        "pipelines/quickstart.yaml",
        &["nodes.scored.on_error=drop_group", "nodes.scored.judge=exact"],
    ),
    (
        "pipelines/quickstart.yaml",
        &[
            "nodes.trainer.loss.policy.clip.dual=3",
            "nodes.trainer.old_logprobs=rollout",
        ],
    ),
    (
        "pipelines/quickstart.yaml",
        &["nodes.advantages.estimator={ grpo: { std: none } }"],
    ),
    (
        "pipelines/quickstart.yaml",
        &["models.tiny.init.tokenizer=bytes", "models.tiny.dtype=bfloat16"],
    ),
    // Texts that could be read as something else.
    (
        "pipelines/quickstart.yaml",
        &["run.work_dir='$${HOME}/on: # off'", "run.seed=9007199254740993"],
    ),
    (
        "pipelines/quickstart.yaml",
        &[
            "nodes.frozen={ type: reference, inputs: { batch: buffer }, pool: local, model: tiny }",
            "nodes.advantages.inputs.batch=frozen",
            "nodes.trainer.loss.kl={ k3: { coefficient: 1e-3 } }",
        ],
    ),
    (
        "pipelines/quickstart.yaml",
        &[
            "nodes.second={ type: judger, inputs: { groups: answers }, judge: exact }",
            "nodes.buffer.inputs.groups=[varied, second]",
            "nodes.buffer.mix={ varied: 3, second: 0.5 }",
        ],
    ),
    (
        "pipelines/gsm8k.yaml",
        &["nodes.trainer.optimizer_steps=4", "models.policy.dtype=auto"],
    ),
];

/// Every pipeline that has to compile, with how it is named in a failure.
fn pipelines() -> Vec<(String, Outcome)> {
    let shipped = shipped_pipelines()
        .into_iter()
        .map(|path| (path.display().to_string(), compile_files(&[path], &[])));
    let variants = VARIANTS.iter().map(|(path, set)| {
        (
            format!("{path} with {set:?}"),
            compile_files(&[PathBuf::from(path)], set),
        )
    });
    shipped.chain(variants).collect()
}

fn said(outcome: &Outcome) -> String {
    render_full(&outcome.diagnostics, &outcome.sources, false)
}

#[test]
fn a_resolved_pipeline_loads_again_and_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (name, outcome) in pipelines() {
        assert!(!outcome.diagnostics.has_errors(), "{name}:\n{}", said(&outcome));
        let pipeline = outcome.pipeline.unwrap();
        let text = to_yaml(&resolved(&pipeline).unwrap());
        let again = compile_text(folder.path(), "resolved.yaml", &text);
        assert!(!again.diagnostics.has_errors(), "{name}:\n{text}\n{}", said(&again));
        let loaded = again.pipeline.unwrap();
        assert_eq!(to_yaml(&resolved(&loaded).unwrap()), text, "{name}");
        let plans = [&pipeline, &loaded].map(|pipeline| serde_json::to_value(Plan::of(pipeline).unwrap()).unwrap());
        assert_eq!(plans[0], plans[1], "{name}");
    }
}

#[test]
fn a_printed_pipeline_says_where_values_come_from_and_loads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (name, outcome) in pipelines() {
        let pipeline = outcome.pipeline.unwrap();
        let resolved_once = resolved(&pipeline).unwrap();
        let text = annotated(&pipeline, &outcome.sources, &resolved_once);
        let again = compile_text(folder.path(), "printed.yaml", &text);
        assert!(!again.diagnostics.has_errors(), "{name}:\n{text}\n{}", said(&again));
        assert_eq!(resolved(&again.pipeline.unwrap()).unwrap(), resolved_once, "{name}");
        // Each argument is named at what it sets.
        let set = VARIANTS
            .iter()
            .find(|(path, set)| name == format!("{path} with {set:?}"));
        for argument in set
            .into_iter()
            .flat_map(|(_, set)| *set)
            .filter(|set| !set.ends_with("=null") && !set.ends_with("enabled=false"))
        {
            assert!(
                text.contains(&format!("# --set {argument}")),
                "{name}: {argument}\n{text}"
            );
        }
    }
}

#[test]
fn a_plan_can_be_written_and_read() {
    for (name, outcome) in pipelines() {
        let plan = Plan::of(&outcome.pipeline.unwrap()).unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        let read: Plan = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text, "{name}");
        assert_eq!(read.hash(), plan.hash(), "{name}");
    }
}

#[test]
fn the_hash_knows_what_resume_may_change() {
    let plan = |set: &[&str]| {
        let outcome = compile_files(&[PathBuf::from("pipelines/quickstart.yaml")], set);
        Plan::of(&outcome.pipeline.unwrap()).unwrap().hash()
    };
    let original = plan(&[]);
    let allowed = [
        "run.work_dir=elsewhere",
        "run.total_steps=50",
        "run.checkpoint.keep=7",
        "run.hf_export=null",
        "run.report_waits_after_seconds=9",
        "tests.the_last_number_counts.tolerance=0.5",
    ];
    for set in allowed {
        assert_eq!(plan(&[set]), original, "{set}");
    }
    for set in [
        "run.seed=2",
        "nodes.trainer.max_grad_norm=0.5",
        "pools.local.cpus_per_worker=1",
        "models.tiny.dtype=float32",
    ] {
        assert_ne!(plan(&[set]), original, "{set}");
    }
}

#[test]
fn the_quickstart_is_the_same_in_both_formats() {
    let plan = |name: &str| {
        let outcome = compile_files(&[Path::new("pipelines").join(name)], &[]);
        assert!(outcome.diagnostics.is_empty(), "{name}:\n{}", said(&outcome));
        Plan::of(&outcome.pipeline.unwrap()).unwrap()
    };
    let (yaml, toml) = (plan("quickstart.yaml"), plan("quickstart.toml"));
    let value = |plan: &Plan| -> Value { serde_json::to_value(plan).unwrap() };
    assert_eq!(value(&yaml), value(&toml));
    assert_eq!(yaml.hash(), toml.hash());
}

/// One change of a text, with places as shares of its length.
#[derive(Debug, Clone)]
enum Edit {
    DropLine(f64),
    RepeatLine(f64, f64),
    SwapLines(f64, f64),
    DropCharacters(f64, usize),
    PutCharacters(f64, String),
    /// A word of the text in place of another.
    SwapWords(f64, f64),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = || 0.0..1.0_f64;
    let put = prop_oneof![
        "[-{}\\[\\]:,#&*!|>'\"%@`$ \t\n]{1,3}",
        "[0-9.eE+-]{1,20}",
        Just("${".to_owned()),
        Just("${X:-".to_owned()),
        Just("null".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just("4294967295".to_owned()),
        Just("<<: *a".to_owned()),
        Just("é\u{feff}漢".to_owned()),
    ];
    let edit = prop_oneof![
        place().prop_map(Edit::DropLine),
        (place(), place()).prop_map(|(from, to)| Edit::RepeatLine(from, to)),
        (place(), place()).prop_map(|(from, to)| Edit::SwapLines(from, to)),
        (place(), 1..8_usize).prop_map(|(at, count)| Edit::DropCharacters(at, count)),
        (place(), put).prop_map(|(at, text)| Edit::PutCharacters(at, text)),
        (place(), place()).prop_map(|(from, to)| Edit::SwapWords(from, to)),
    ];
    prop::collection::vec(edit, 1..5)
}

fn edited(text: &str, edit: &Edit) -> String {
    let at = |share: f64, count: usize| ((share * count as f64) as usize).min(count.saturating_sub(1));
    let mut lines: Vec<&str> = text.split('\n').collect();
    let characters: Vec<char> = text.chars().collect();
    match edit {
        Edit::DropLine(share) => {
            lines.remove(at(*share, lines.len()));
            lines.join("\n")
        }
        Edit::RepeatLine(from, to) => {
            let line = lines[at(*from, lines.len())];
            lines.insert(at(*to, lines.len()), line);
            lines.join("\n")
        }
        Edit::SwapLines(from, to) => {
            let count = lines.len();
            lines.swap(at(*from, count), at(*to, count));
            lines.join("\n")
        }
        Edit::DropCharacters(share, count) => {
            let start = at(*share, characters.len());
            let rest = characters.iter().skip(start + count);
            characters[..start].iter().chain(rest).collect()
        }
        Edit::PutCharacters(share, put) => {
            let start = at(*share, characters.len());
            let (before, after) = characters.split_at(start);
            before.iter().collect::<String>() + put + &after.iter().collect::<String>()
        }
        Edit::SwapWords(from, to) => {
            let mut words: Vec<&str> = text.split(' ').collect();
            let count = words.len();
            words[at(*to, count)] = words[at(*from, count)];
            words.join(" ")
        }
    }
}

/// Does all that can be done with what came of a text.
fn use_all(outcome: &Outcome) {
    let (diagnostics, sources) = (&outcome.diagnostics, &outcome.sources);
    said(outcome);
    render_concise(diagnostics, sources);
    render_github(diagnostics, sources);
    render_json(diagnostics, sources);
    for (id, source) in sources.iter() {
        let fixes: Vec<&Fix> = diagnostics.iter().filter_map(|found| found.fix.as_ref()).collect();
        let fixes: Vec<&Fix> = fixes.into_iter().filter(|fix| fix.range.source == id).collect();
        apply_fixes(&source.text, &fixes);
    }
    let Some(pipeline) = outcome.pipeline.as_ref().filter(|_| !diagnostics.has_errors()) else {
        return;
    };
    assert!(Plan::of(pipeline).is_some() && resolved(pipeline).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_is_too_much(which in 0..64_usize, edits in edits()) {
        let pipelines = shipped_pipelines();
        let path = &pipelines[which % pipelines.len()];
        let mut text = std::fs::read_to_string(project().join(path)).unwrap();
        for edit in &edits {
            text = edited(&text, edit);
        }
        let folder = tempfile::tempdir().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        use_all(&compile_text(folder.path(), name, &text));
    }

    /// Every pipeline as TOML, and laid over another one, with a `--set` argument that is a line of it.
    #[test]
    fn no_overlay_is_too_much(base in 0..64_usize, which in 0..64_usize, is_toml: bool, line in 0.0..1.0_f64, edits in edits()) {
        let pipelines = shipped_pipelines();
        let path = &pipelines[which % pipelines.len()];
        let mut text = std::fs::read_to_string(project().join(path)).unwrap();
        if is_toml {
            let tree = tree_of(&text, Format::of_file(path)).0.unwrap();
            text = to_toml(&tree.to_json());
        }
        let is_toml = is_toml || Format::of_file(path) == Format::Toml;
        for edit in &edits {
            text = edited(&text, edit);
        }
        let lines: Vec<&str> = text.lines().collect();
        let argument = lines.get((line * lines.len() as f64) as usize).map_or("", |line| line.trim());
        let argument = format!("nodes.{}", argument.replacen(": ", "=", 1).replacen(" = ", "=", 1));
        let folder = tempfile::tempdir().unwrap();
        let overlay = folder.path().join(if is_toml { "overlay.toml" } else { "overlay.yaml" });
        std::fs::write(&overlay, &text).unwrap();
        let files = [pipelines[base % pipelines.len()].clone(), overlay];
        use_all(&compile_files(&files, &[&argument]));
    }
}
