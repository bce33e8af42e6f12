//! yaml-language-server: what VS Code's YAML extension, Neovim, Helix and Zed use.

use std::process::Command;

use serde_json::json;

use super::{Editor, assert_marks, assert_offers, assert_shipped_are_clean, folder, installed, kinds};
use crate::client::Client;

const HEAD: &str = "\
# yaml-language-server: $schema=../schemas/pipeline.schema.json
version: 1
name: test
run: { work_dir: runs, total_steps: 1 }
pools: { gpu: { accelerator: cuda } }
models: { policy: { path: policy } }
";

fn editor() -> Option<Editor> {
    let server = installed("node_modules/yaml-language-server/bin/yaml-language-server")?;
    let settings = json!({
        "yaml": { "validate": true, "completion": true, "hover": true, "schemaStore": { "enable": false } },
    });
    let client = Client::start(Command::new("node").arg(server).arg("--stdio"), &folder(), settings);
    Some(Editor::new(client, "yaml", HEAD))
}

#[test]
fn yaml_completes() {
    let Some(mut editor) = editor() else { return };
    let offered = editor.offered("nodes:\n  a:\n    |\n");
    assert_offers(
        "an empty node",
        &offered,
        &[&kinds()[..], &["type"]].concat(),
        &["optimizer", "judge"],
    );

    let offered = editor.offered("nodes:\n  a:\n    type: |\n");
    assert_offers("`type`", &offered, &kinds(), &["type"]);

    let offered = editor.offered("nodes:\n  a:\n    type: trainer\n    |\n");
    let keys = ["inputs", "pool", "model", "optimizer", "loss", "max_tokens_per_pack"];
    assert_offers(
        "after `type: trainer`",
        &offered,
        &keys,
        &["judge", "sampling", "sampler", "judger", "type"],
    );

    let offered = editor.offered("nodes:\n  a:\n    type: trainer\n    loss:\n      |\n");
    assert_offers(
        "`loss`",
        &offered,
        &["policy", "kl", "reduction", "logprob_chunk_tokens"],
        &["optimizer", "pool"],
    );

    let offered = editor.offered("nodes:\n  a:\n    type: trainer\n    loss:\n      kl:\n        |\n");
    assert_offers("`kl`", &offered, &["k1", "k2", "k3"], &["policy"]);

    let offered = editor.offered("nodes:\n  a:\n    type: trainer\n    old_logprobs: |\n");
    assert_eq!(offered, ["recompute", "rollout"]);

    let offered = editor.offered("nodes:\n  a:\n    type: trainer\n    inputs:\n      |\n");
    assert_offers("`inputs`", &offered, &["batch", "initial_weights"], &["groups"]);

    editor.head = "# yaml-language-server: $schema=../schemas/pipeline.schema.json\n";
    assert_offers(
        "an empty file",
        &editor.offered("|\n"),
        &["version", "run", "pools", "models", "nodes", "env"],
        &[],
    );
    assert_offers(
        "`run`",
        &editor.offered("run:\n  |\n"),
        &["steps", "epochs", "work_dir"],
        &[],
    );
    assert_offers(
        "`pools`",
        &editor.offered("pools:\n  |\n"),
        &["auto", "cuda", "judges"],
        &[],
    );
    let offered = editor.offered("pools:\n  gpu:\n    |\n");
    assert_offers(
        "a pool",
        &offered,
        &["cuda", "accelerator", "cpus_per_worker"],
        &["work_dir"],
    );
    let offered = editor.offered("models:\n  policy:\n    |\n");
    assert_offers("a model", &offered, &["folder", "hub", "init", "dtype"], &[]);
    let offered = editor.offered("env:\n  vars:\n    SIZE:\n      |\n");
    assert_offers("a variable", &offered, &["number", "kind", "help"], &[]);
}

#[test]
fn yaml_shows_settings() {
    let Some(mut editor) = editor() else { return };
    let shown = editor.shown("nodes:\n  a:\n    type: trainer\n    old_log|probs: rollout\n");
    for wanted in [
        "old\\_logprobs",
        "Where the log-probs before this train step come from",
        "Default: `recompute`",
        "The engine reported them",
    ] {
        assert!(shown.contains(wanted), "`{wanted}` is not in {shown}");
    }
    let shown = editor.shown("nodes:\n  a:\n    type: sam|pler\n");
    for wanted in ["What kind of node it is", "Draws prompts from data sets"] {
        assert!(shown.contains(wanted), "`{wanted}` is not in {shown}");
    }
    let shown = editor.shown("nodes:\n  a:\n    type: agent_loop\n    sampling: { top|_k: 1 }\n");
    assert!(shown.contains("0 is all") && shown.contains("Default: `0`"), "{shown}");
}

#[test]
fn yaml_marks_faults() {
    let Some(mut editor) = editor() else { return };
    assert_marks(
        &mut editor,
        "nodes:\n  a: { type: advantage, inputs: { batch: b }, estimator: grpo, estimatr: grpo }\n",
        "estimatr",
        "estimatr",
    );
    assert_marks(
        &mut editor,
        "nodes:\n  a: { type: trianer }\n",
        "trianer",
        "\"trainer\"",
    );
    assert_marks(
        &mut editor,
        "nodes:\n  a: { type: sampler, dataset: { path: a.jsonl }, over_long: skp }\n",
        "skp",
        "\"skip\"",
    );
    assert_marks(
        &mut editor,
        "nodes:\n  a: { type: sampler, dataset: { path: a.jsonl }, samples_per_prompt: 0 }\n",
        "0",
        "1",
    );
    assert_shipped_are_clean(&mut editor, "yaml");
}
