//! `rlpipe run`.

use rlpipe_runtime::compile::{Data, Outcome, check_world, load_data};

/// The passes that look outside: the world, then the data. Returns what the data sets hold.
pub fn outside(outcome: &mut Outcome, data: bool, world: bool) -> Data {
    let Some(pipeline) = &outcome.pipeline else { return Data::default() };
    if world {
        check_world(pipeline, &mut outcome.diagnostics);
    }
    if data { load_data(pipeline, &mut outcome.sources, &mut outcome.diagnostics) } else { Data::default() }
}
