//! tombi: a language server for TOML.

use std::process::Command;

use serde_json::json;

use super::{Editor, assert_marks, assert_offers, assert_shipped_are_clean, folder, installed, kinds};
use crate::client::Client;

const HEAD: &str = "\
#:schema ../schemas/pipeline.schema.json
version = 1
name = \"test\"
run = { work_dir = \"runs\", total_steps = 1 }
pools = { gpu = { accelerator = \"cuda\" } }
models = { policy = { path = \"policy\" } }
";

fn editor() -> Option<Editor> {
    let server = installed("python/bin/tombi")?;
    let client = Client::start(Command::new(server).args(["lsp", "--offline"]), &folder(), json!({}));
    Some(Editor::new(client, "toml", HEAD))
}

#[test]
fn toml_completes() {
    let Some(mut editor) = editor() else { return };
    let offered = editor.offered("[nodes.a]\n|\n");
    assert_offers("an empty node", &offered, &["type"], &["accelerator", "work_dir"]);

    let offered = editor.offered("[nodes.a]\ntype = |\n");
    assert_offers("`type`", &offered, &kinds(), &[]);

    let offered = editor.offered("[nodes.a]\ntype = \"trainer\"\n|\n");
    let keys = ["inputs", "pool", "model", "optimizer", "loss", "max_tokens_per_pack"];
    assert_offers("after `type`", &offered, &keys, &["judge", "sampling", "type"]);

    let offered = editor.offered("[nodes.a]\ntype = \"trainer\"\n[nodes.a.loss]\n|\n");
    assert_offers(
        "`loss`",
        &offered,
        &["policy", "kl", "reduction", "logprob_chunk_tokens"],
        &["optimizer", "pool"],
    );

    let offered = editor.offered("[nodes.a]\ntype = \"trainer\"\nold_logprobs = |\n");
    assert_offers("an enum", &offered, &["recompute", "rollout"], &["skip"]);

    let offered = editor.offered("[nodes.a]\ntype = \"trainer\"\n[nodes.a.inputs]\n|\n");
    assert_offers("`inputs`", &offered, &["batch", "initial_weights"], &["groups"]);

    editor.head = "#:schema ../schemas/pipeline.schema.json\n";
    assert_offers(
        "an empty file",
        &editor.offered("|\n"),
        &["version = 1", "run", "pools", "models", "nodes", "env"],
        &[],
    );
    let offered = editor.offered("[pools.gpu]\naccelerator = |\n");
    assert_offers("`accelerator`", &offered, &["none", "cpu", "cuda", "auto"], &[]);
}

#[test]
fn toml_marks_faults() {
    let Some(mut editor) = editor() else { return };
    assert_marks(
        &mut editor,
        "[nodes.a]\ntype = \"advantage\"\ninputs = { batch = \"b\" }\nestimator = \"grpo\"\nestimatr = \"grpo\"\n",
        "estimatr",
        "estimatr",
    );
    assert_marks(&mut editor, "[nodes.a]\ntype = \"trianer\"\n", "trianer", "\"trainer\"");
    assert_marks(
        &mut editor,
        "[nodes.a]\ntype = \"sampler\"\ndataset = { path = \"a.jsonl\" }\nover_long = \"skp\"\n",
        "skp",
        "\"skip\"",
    );
    assert_shipped_are_clean(&mut editor, "toml");
}
