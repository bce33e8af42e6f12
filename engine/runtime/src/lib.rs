//! Compiles pipelines into plans, and runs plans.

pub mod cluster;
pub mod compile;
mod hash;
pub mod plan;
pub mod run;
pub mod schedule;
pub mod trial;
