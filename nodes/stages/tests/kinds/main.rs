//! Every kind as it runs, built from the text of its node, in a world whose answers are computed.

#![allow(clippy::unwrap_used)]

mod agent_loop;
mod contracts;
mod fakes;
mod groups;
mod judging;
mod replay_buffer;
mod scoring;
mod sft_trainer;
mod trainer;
mod trainer_hazards;
