//! Prints a pipeline: `cargo run -p rlpipe-tests --example large_pipeline NODES BRANCHES [toml]`.

use std::io::Write as _;

use rlpipe_core::document::to_yaml;
use rlpipe_tests::{large_pipeline, to_toml};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse().ok());
    let (Some(nodes), Some(branches)) = (number(0), number(1)) else {
        return Err(std::io::Error::other("usage: large_pipeline NODES BRANCHES [toml]"));
    };
    let pipeline = large_pipeline(nodes, branches);
    let text = match arguments.get(2) {
        Some(_) => to_toml(&pipeline),
        None => to_yaml(&pipeline).replace("$${", "${"),
    };
    std::io::stdout().write_all(text.as_bytes())
}
