//! What a Hugging Face model folder holds: its configuration, the names and shapes of its parameters, and whether its
//! files fit them. Reads JSON and the headers of safetensors, and of tensors only a head that must repeat the embedding;
//! driver and worker ask the same questions here.

mod config;
mod fault;
mod folder;
mod header;
mod keys;
mod parameters;
mod rope;
mod stop;
mod tied;
mod tokenizer;

pub use config::{Architecture, ModelConfig, parse_config, read_config};
pub use fault::{Fault, Part, joined};
pub use folder::{check_export, check_files, check_folder, weight_files};
pub use header::{Entry, read_header};
pub use parameters::{Parameter, parameters};
pub use rope::{Rope, Rotary};
