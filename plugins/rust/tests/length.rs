//! The sample, run as rlpipe runs it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rlpipe_backends::try_command;
use rlpipe_core::data::FinishReason;
use rlpipe_core::plugin::{Sample, Tried};
use rlpipe_core::services::JudgeCommand;
use serde_json::{Value, json};

async fn tried(config: Value, response: &str) -> Tried {
    let command = JudgeCommand {
        keys: Vec::new(),
        run: vec![env!("CARGO_BIN_EXE_rlpipe-length-reward").to_owned()],
        config: config.as_object().unwrap().clone(),
        samples_per_message: 1,
        timeout: Duration::from_secs(60),
        start_timeout: Duration::from_secs(60),
        max_restarts: 0,
        environment: Vec::new(),
    };
    let sample = Sample {
        prompt: Vec::new(),
        response: response.to_owned(),
        ground_truth: None,
        data_source: String::new(),
        columns: serde_json::Map::new(),
        finish_reason: FinishReason::Stop,
        step: 0,
        total_steps: 0,
        seed: 0,
    };
    try_command(&command, "scored", 7, Some(sample)).await
}

#[tokio::test]
async fn the_sample_judges_by_length() {
    for (response, reward) in [
        ("abcd", 1.0),
        ("ab", 0.5),
        ("", 0.0),
        ("abcdefghijk", 0.0),
        ("héé", 0.75),
    ] {
        let tried = tried(json!({ "characters": 4 }), response).await;
        assert_eq!(tried.failure, None);
        assert_eq!(tried.ready.unwrap().name, "length");
        assert_eq!(tried.score.unwrap().unwrap().reward, Some(reward), "{response}");
    }
    let error = tried(json!({}), "abcd").await.score.unwrap().unwrap_err();
    assert_eq!(error, "it says: there is no `response`, or no `characters` in `config`");
}
