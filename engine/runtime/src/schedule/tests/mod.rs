//! The scheduler over the real kinds, compiled from text, with an engine and a learner that compute their answers.

#![allow(clippy::unwrap_used)]

mod evaluate;
mod fakes;
mod graph;
mod produce;
mod resume;
