//! A reward in Rust, as a plugin of rlpipe: the nearer a response is to `characters` long, the better.
//!
//! It is the same as `plugins/python/length_reward.py`, with the protocol written out.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

fn main() -> ExitCode {
    match judge(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard output is for messages alone; what is written here is in the run's `logs/`.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers each line until there are no more, which is how rlpipe ends a plugin.
fn judge(input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut wanted = None;
    for line in input.lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let answer = match message["type"].as_str() {
            Some("start") => {
                // Before `config` is used, rlpipe holds it against the schema.
                wanted = message["config"]["characters"].as_f64();
                ready()
            }
            Some("score") => {
                let samples = message["samples"].as_array().into_iter().flatten();
                let scores: Vec<Value> = samples.map(|sample| score(sample, wanted)).collect();
                json!({ "type": "scores", "id": message["id"], "scores": scores })
            }
            _ => return Err(io::Error::other(format!("what message is this? {message}"))),
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn ready() -> Value {
    json!({
        "type": "ready",
        "name": "length",
        "version": env!("CARGO_PKG_VERSION"),
        "config_schema": {
            "type": "object",
            "properties": { "characters": { "type": "integer", "minimum": 1 } },
            "required": ["characters"],
            "additionalProperties": false,
        },
    })
}

fn score(sample: &Value, wanted: Option<f64>) -> Value {
    let (Some(response), Some(wanted)) = (sample["response"].as_str(), wanted) else {
        return json!({ "error": "there is no `response`, or no `characters` in `config`" });
    };
    let found = response.chars().count() as f64;
    let reward = (1.0 - (found - wanted).abs() / wanted).max(0.0);
    json!({ "reward": reward, "parsed": found.to_string(), "parts": { "characters": found } })
}
