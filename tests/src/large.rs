//! Pipelines with any number of nodes, for limits and for speed.

use serde_json::{Map, Value, json};

/// Nodes that every one of them has, and nodes of a branch.
const TRUNK: usize = 5;
const BRANCH: usize = 8;

/// A valid pipeline of so many nodes: judged and filtered branches that a buffer mixes, as many evaluators, and one trainer.
///
/// What the branches do not use up becomes one chain of filters, so that few branches make it deep and many make it wide.
/// There are at least 13 nodes, and `branches` is cut to what fits.
pub fn large_pipeline(nodes: usize, branches: usize) -> Value {
    let nodes = nodes.max(TRUNK + BRANCH);
    let branches = branches.clamp(1, (nodes - TRUNK) / BRANCH);
    let mut graph = Map::new();
    let mut insert = |name: String, node: Value| graph.insert(name, node);
    insert(
        "engine".to_owned(),
        json!({ "type": "rollout_engine", "pool": "local", "model": "tiny", "max_context_tokens": 32 }),
    );
    let mut mixed = Vec::new();
    for branch in 0..branches {
        let name = |what: &str| format!("{what}_{branch}");
        let sampler = |path: &str, shuffle: bool| {
            json!({
                "type": "sampler",
                "dataset": { "path": format!("data/{path}-{branch}.jsonl") },
                "shuffle": shuffle,
                "samples_per_prompt": if shuffle { 8 } else { 1 },
                "max_prompt_tokens": "${PROMPT_TOKENS}",
            })
        };
        let agent_loop = |prompts: &str, temperature: f64| {
            json!({
                "type": "agent_loop",
                "inputs": { "prompts": name(prompts), "engine": "engine" },
                "loop": "single_turn",
                "sampling": { "max_new_tokens": 8, "temperature": temperature },
            })
        };
        let judger =
            |groups: &str| json!({ "type": "judger", "inputs": { "groups": name(groups) }, "judge": "number" });
        insert(name("prompts"), sampler("train", true));
        insert(name("answers"), agent_loop("prompts", 1.0));
        insert(name("scored"), judger("answers"));
        insert(name("varied"), filter(&name("scored")));
        insert(name("held_out"), sampler("test", false));
        insert(name("tries"), agent_loop("held_out", 0.0));
        insert(name("marks"), judger("tries"));
        insert(
            name("evaluator"),
            json!({ "type": "evaluator", "inputs": { "groups": name("marks") }, "every_steps": 10 }),
        );
        mixed.push(name("varied"));
    }
    for extra in 0..nodes - TRUNK - BRANCH * branches {
        let name = format!("filtered_{extra}");
        if let Some(last) = mixed.last_mut() {
            let before = std::mem::replace(last, name.clone());
            insert(name, filter(&before));
        }
    }
    let mix: Map<String, Value> = mixed.iter().map(|name| (name.clone(), json!(1))).collect();
    insert(
        "buffer".to_owned(),
        json!({
            "type": "replay_buffer",
            "inputs": { "groups": mixed },
            "mix": mix,
            "prompts_per_step": 4 * branches,
        }),
    );
    insert(
        "advantages".to_owned(),
        json!({ "type": "advantage", "inputs": { "batch": "buffer" }, "estimator": "grpo" }),
    );
    insert(
        "trainer".to_owned(),
        json!({
            "type": "trainer",
            "inputs": { "batch": "advantages" },
            "pool": "local",
            "model": "tiny",
            "max_tokens_per_pack": 4096,
            "optimizer": { "adamw": { "lr": 3e-4 } },
        }),
    );
    insert(
        "sync".to_owned(),
        json!({ "type": "weight_sync", "inputs": { "weights": "trainer" }, "to": "engine", "every_steps": 1 }),
    );
    json!({
        "version": 1,
        "name": "large",
        "env": { "vars": { "PROMPT_TOKENS": { "kind": "int", "default": 16 } } },
        "run": { "work_dir": "runs", "total_steps": 40, "hf_export": { "every_steps": 40 } },
        "pools": { "local": { "accelerator": "auto" } },
        "models": {
            "tiny": {
                "init": {
                    "architecture": "llama",
                    "hidden_size": 128,
                    "layers": 4,
                    "heads": 4,
                    "intermediate_size": 384,
                    "tokenizer": { "characters": "0123456789+-= " },
                },
            },
        },
        "nodes": graph,
    })
}

fn filter(groups: &str) -> Value {
    json!({ "type": "filter", "inputs": { "groups": groups }, "keep": "spread_reward", "max_refill": 4, "when_exhausted": "fill" })
}
