//! The hand-written kernels of `nodes/torch/kernels`, compiled for the card when they are first needed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::Result;
use crate::native::kernel::Module;

/// Sizes of a head that there are kernels for.
pub const HEAD_DIMS: [i64; 4] = [32, 64, 96, 128];

const SOURCE: &str = concat!(
    include_str!("../kernels/common.cuh"),
    include_str!("../kernels/norm.cu"),
    include_str!("../kernels/rotary.cu"),
    include_str!("../kernels/gate.cu"),
    include_str!("../kernels/cache.cu"),
    include_str!("../kernels/attend.cu"),
    include_str!("../kernels/sample.cu"),
    include_str!("../kernels/head.cu"),
);

static MODULES: Mutex<BTreeMap<(i64, i64), Module>> = Mutex::new(BTreeMap::new());

/// The kernels for heads of `head_dim`, one of [`HEAD_DIMS`], where `share` query heads have a key head.
pub fn module(head_dim: i64, share: i64) -> Result<Module> {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = modules.get(&(head_dim, share)) {
        return Ok(module.clone());
    }
    let (dim, share_option) = (format!("-DHEAD_DIM={head_dim}"), format!("-DSHARE={share}"));
    let module = Module::compile(SOURCE, &[&dim, &share_option, "--use_fast_math"])?;
    modules.insert((head_dim, share), module.clone());
    Ok(module)
}
