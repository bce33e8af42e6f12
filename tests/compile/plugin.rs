//! The schema of the plugin protocol: up to date, and exact about the messages.

use rlpipe_core::plugin;
use rlpipe_tests::check_generated;
use serde_json::json;

#[test]
fn the_committed_schema_of_plugins_is_up_to_date() {
    let text = serde_json::to_string_pretty(&plugin::schema()).unwrap() + "\n";
    check_generated("schemas/plugin.schema.json", &text).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn messages_keep_to_the_schema_and_others_do_not() {
    let schema = plugin::schema();
    assert!(jsonschema::meta::is_valid(&schema));
    let validator = jsonschema::draft7::new(&schema).unwrap();
    let sample = json!({
        "prompt": [{ "role": "user", "content": "1+1=" }], "response": "2", "ground_truth": "2", "data_source": "sums",
        "columns": { "level": 3 }, "finish_reason": "stop", "step": 1, "total_steps": 9, "seed": 5,
    });
    for message in [
        json!({ "type": "start", "protocol": 1, "node": "scored", "config": { "weight": 0.5 }, "seed": 7 }),
        json!({ "type": "ready" }),
        json!({ "type": "ready", "name": "length", "version": "1", "config_schema": { "type": "object" }, "reads": [] }),
        json!({ "type": "score", "id": 1, "samples": [sample] }),
        json!({ "type": "scores", "id": 1, "scores": [{ "reward": null }, { "error": "no number" }] }),
        json!({ "type": "scores", "id": 1, "scores": [{ "reward": 1, "parsed": "2", "parts": { "format": 0.1 } }] }),
    ] {
        assert!(validator.is_valid(&message), "{message}");
    }
    for message in [
        json!({ "type": "start", "node": "scored", "config": {}, "seed": 7 }),
        json!({ "type": "score", "samples": [] }),
        json!({ "type": "scores", "scores": [] }),
        json!({ "type": "scores", "id": 1, "scores": [{ "reward": "1" }] }),
        json!({ "type": "scores", "id": 1, "scores": [1.0] }),
        json!({ "type": "done" }),
    ] {
        assert!(!validator.is_valid(&message), "{message}");
    }
}
