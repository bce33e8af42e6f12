//! Pipelines as texts: what the compiler, the schema and the references say of them.
#![allow(clippy::unwrap_used)]

mod activations;
mod batch;
mod dependencies;
mod documents;
mod generated;
mod keys;
mod memory;
mod plugin;
mod properties;
mod reference;
mod schema;
mod settings;
mod ui;
