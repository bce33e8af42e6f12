//! The hand-written kernels of `nodes/torch/kernels`, compiled for the card when they are first needed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tch::Kind;

use crate::native::cuda;
use crate::native::kernel::Module;
use crate::{Result, fail};

/// Sizes of a head that there are kernels for.
pub const HEAD_DIMS: [i64; 4] = [32, 64, 96, 128];

/// Compute types that there are kernels for.
pub const KINDS: [Kind; 2] = [Kind::BFloat16, Kind::Half];

/// Oldest compute capability with bfloat16 and copies that do not wait.
const CAPABILITY: (i32, i32) = (8, 0);

/// Whether the card, if there is one, is young enough for them.
pub fn suit_the_card() -> bool {
    cuda::card().is_ok_and(|card| card.capability >= CAPABILITY)
}

/// What knows nothing of heads.
const OF_ROWS: &str = concat!(
    include_str!("../kernels/common.cuh"),
    include_str!("../kernels/norm.cu"),
    include_str!("../kernels/gate.cu"),
    include_str!("../kernels/head.cu"),
);

const OF_HEADS: &str = concat!(
    include_str!("../kernels/common.cuh"),
    include_str!("../kernels/rotary.cu"),
    include_str!("../kernels/cache.cu"),
    include_str!("../kernels/attend.cu"),
    include_str!("../kernels/sample.cu"),
);

static MODULES: Mutex<BTreeMap<Vec<String>, Module>> = Mutex::new(BTreeMap::new());

/// `add_norm`, `norm_heads`, `gate`, `head_forward` and their backward passes, for one of [`KINDS`].
pub fn of_rows(kind: Kind) -> Result<Module> {
    compiled(OF_ROWS, kind, Vec::new())
}

/// The kernels of rotary, attention and a decode step, for heads of `head_dim`, one of [`HEAD_DIMS`], where `share` query
/// heads have a key head, in `kind`, one of [`KINDS`].
pub fn of_heads(kind: Kind, head_dim: i64, share: i64) -> Result<Module> {
    compiled(
        OF_HEADS,
        kind,
        vec![format!("-DHEAD_DIM={head_dim}"), format!("-DSHARE={share}")],
    )
}

/// What there is of each source differs in its options.
fn compiled(source: &str, kind: Kind, mut shape: Vec<String>) -> Result<Module> {
    match kind {
        Kind::BFloat16 => (),
        Kind::Half => shape.push("-DFLOAT16".to_owned()),
        other => fail!("there are no kernels for {other:?}"),
    }
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = modules.get(&shape) {
        return Ok(module.clone());
    }
    let mut options: Vec<&str> = shape.iter().map(String::as_str).collect();
    options.push("--use_fast_math");
    let module = Module::compile(source, &options)?.early()?;
    modules.insert(shape, module.clone());
    Ok(module)
}
