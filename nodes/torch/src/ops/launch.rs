//! Operations by the hand-written kernels, for bfloat16 and float16 on a card. Each function is told that [`serves`]
//! holds of its rows; what they compute is said at the operation of the same name.

use tch::{Kind, Tensor};

use super::{HeadOutput, Normed};
use crate::kernels::{self, HEAD_DIMS, KINDS, of_heads, of_rows};
use crate::native::kernel::{Argument, Function};
use crate::{Result, fail};

/// Widest row that a block of `add_norm` keeps.
const WIDEST_NORM: i64 = 16_384;
/// What a thread of `add_norm` keeps of a row.
const NORM_COLUMNS: i64 = 32;
/// Rows that share a block where each has a warp.
const WARPS: i64 = 4;
/// Blocks of `norm_backward`, which leave a partial sum each.
const PARTIAL_SUMS: i64 = 1024;
/// Threads of a block of the other kernels: a vector of columns each, or a row together.
const THREADS: u32 = 256;
const ROW_THREADS: u32 = 256;

/// Whether kernels take rows of this width: type, device and vectors of 8.
pub fn serves(rows: &Tensor, width: i64) -> bool {
    width % 8 == 0 && KINDS.contains(&rows.kind()) && serves_memory(rows)
}

fn serves_memory(rows: &Tensor) -> bool {
    rows.device().is_cuda()
        && rows.numel() > 0
        && (rows.data_ptr() as usize).is_multiple_of(16)
        && kernels::suit_the_card()
}

/// Whether kernels norm rows, a residual stream in float32 or heads, with such a weight.
pub fn serves_norm(rows: &Tensor, weight: &Tensor) -> bool {
    let width = weight.numel() as i64;
    serves(weight, width)
        && width <= WIDEST_NORM
        && [Kind::Float, weight.kind()].contains(&rows.kind())
        && serves_memory(rows)
}

/// Of the kernels for the residual stream, and for heads.
fn norm_function(rows: &Tensor, kind: Kind, [of_stream, of_heads]: [&str; 2]) -> Result<Function> {
    of_rows(kind)?.function(if rows.kind() == Kind::Float {
        of_stream
    } else {
        of_heads
    })
}

/// Whether kernels turn heads of this size.
pub fn serves_heads(rows: &Tensor, head_dim: i64) -> bool {
    HEAD_DIMS.contains(&head_dim) && serves(rows, head_dim)
}

/// Whether kernels read these logits, of any vocabulary, of a model that computes in `kind`.
pub fn serves_logits(logits: &Tensor, kind: Kind) -> bool {
    KINDS.contains(&kind) && logits.kind() == Kind::Float && logits.is_contiguous() && serves_memory(logits)
}

pub fn add_norm(x: &Tensor, delta: Option<&Tensor>, weight: &Tensor, eps: f64) -> Result<Normed> {
    if delta.is_some() && x.kind() != Kind::Float {
        fail!("a residual stream is float32, and this is {:?}", x.kind());
    }
    let x = x.contiguous();
    let delta = delta.map(Tensor::contiguous);
    let (width, mut shape) = (weight.numel() as i64, x.size());
    let rows = x.numel() as i64 / width;
    let sum = delta.as_ref().map(|_| x.empty_like());
    let out = Tensor::empty(&shape, (weight.kind(), x.device()));
    if let Some(last) = shape.last_mut() {
        *last = 1;
    }
    let scale = Tensor::empty(&shape, (Kind::Float, x.device()));
    let arguments = [
        (&x).into(),
        delta.as_ref().into(),
        weight.into(),
        sum.as_ref().into(),
        (&out).into(),
        (&scale).into(),
        rows.into(),
        (width as i32).into(),
        (eps as f32).into(),
    ];
    let [columns, height] = norm_block(width);
    let grid = [(rows as u64).div_ceil(u64::from(height)) as u32, 1, 1];
    let function = norm_function(&x, weight.kind(), ["add_norm", "norm_heads"])?;
    // SAFETY: both are of norm.cu and take the same.
    unsafe { function.launch(grid, [columns, height, 1], 0, &arguments)? };
    Ok(Normed {
        sum: sum.unwrap_or(x),
        out,
        scale,
    })
}

pub fn norm_backward(
    d_out: &Tensor,
    x: &Tensor,
    scale: &Tensor,
    weight: &Tensor,
    d_residual: Option<&Tensor>,
    weight_sum: &mut Tensor,
) -> Result<Tensor> {
    let (d_out, x) = (d_out.contiguous(), x.contiguous());
    let d_residual = d_residual.map(Tensor::contiguous);
    let width = weight.numel() as i64;
    let rows = x.numel() as i64 / width;
    let [columns, height] = norm_block(width);
    let blocks = (rows as u64).div_ceil(u64::from(height)).min(PARTIAL_SUMS as u64) as i64;
    let d_x = Tensor::empty(x.size(), (weight.kind(), x.device()));
    let partial = Tensor::empty([blocks, width], (Kind::Float, x.device()));
    let arguments = [
        (&d_out).into(),
        (&x).into(),
        scale.into(),
        weight.into(),
        d_residual.as_ref().into(),
        (&d_x).into(),
        (&partial).into(),
        rows.into(),
        (width as i32).into(),
    ];
    let shared_bytes = if height > 1 { 4 * width as u32 } else { 0 };
    let function = norm_function(&x, weight.kind(), ["add_norm_backward", "norm_heads_backward"])?;
    // SAFETY: both are of norm.cu and take the same.
    unsafe { function.launch([blocks as u32, 1, 1], [columns, height, 1], shared_bytes, &arguments)? };
    let _ = weight_sum.g_add_(&partial.sum_dim_intlist(0, false, None::<Kind>));
    Ok(d_x)
}

/// Threads of a row, and rows of a block.
fn norm_block(width: i64) -> [u32; 2] {
    let columns = (width as u64).div_ceil(NORM_COLUMNS as u64).next_power_of_two().max(32) as u32;
    [columns, if columns == 32 { WARPS as u32 } else { 1 }]
}

pub fn gate(both: &Tensor) -> Result<Tensor> {
    let both = both.contiguous();
    let (rows, width) = halves(&both);
    let out = Tensor::empty([rows, width], (both.kind(), both.device()));
    let arguments = [(&both).into(), (&out).into(), rows.into(), (width as i32).into()];
    // SAFETY: `gate` of gate.cu.
    unsafe {
        of_rows(both.kind())?
            .function("gate")?
            .launch(blocks(rows * width / 8)?, [THREADS, 1, 1], 0, &arguments)?;
    }
    Ok(out)
}

pub fn gate_backward(d_out: &Tensor, both: &Tensor) -> Result<(Tensor, Tensor)> {
    let (d_out, both) = (d_out.contiguous(), both.contiguous());
    let (rows, width) = halves(&both);
    let (d_both, out) = (both.empty_like(), d_out.empty_like());
    let arguments = [
        (&d_out).into(),
        (&both).into(),
        (&d_both).into(),
        (&out).into(),
        rows.into(),
        (width as i32).into(),
    ];
    // SAFETY: `gate_backward` of gate.cu.
    unsafe {
        of_rows(both.kind())?.function("gate_backward")?.launch(
            blocks(rows * width / 8)?,
            [THREADS, 1, 1],
            0,
            &arguments,
        )?;
    }
    Ok((d_both, out))
}

/// Rows of `[rows, 2 * width]`, and the width.
fn halves(both: &Tensor) -> (i64, i64) {
    let width = both.size().last().copied().unwrap_or(2) / 2;
    (both.numel() as i64 / (2 * width), width)
}

/// Turns the first `turned` of the heads of `qkv`, `[rows, heads, dim]`, in place.
pub fn rotate(qkv: &Tensor, [cosine, sine, positions]: [&Tensor; 3], turned: i64, share: i64) -> Result<()> {
    let (rows, heads, dim) = qkv.size3()?;
    let arguments = [
        qkv.into(),
        positions.into(),
        cosine.into(),
        sine.into(),
        rows.into(),
        (turned as i32).into(),
        ((heads * dim) as i32).into(),
    ];
    let module = of_heads(qkv.kind(), dim, share)?;
    // SAFETY: `rotate` of rotary.cu; positions are rows of the tables.
    unsafe {
        module
            .function("rotate")?
            .launch(blocks(rows * turned * dim / 16)?, [THREADS, 1, 1], 0, &arguments)
    }
}

/// `[rows, (heads + 2 * kv_heads) * dim]`.
pub fn rotate_backward([d_q, d_k, d_v]: [&Tensor; 3], [cosine, sine, positions]: [&Tensor; 3]) -> Result<Tensor> {
    let (d_q, d_k, d_v) = (d_q.contiguous(), d_k.contiguous(), d_v.contiguous());
    let (rows, heads, dim) = d_q.size3()?;
    let kv_heads = d_k.size()[1];
    let all = heads + 2 * kv_heads;
    let d_qkv = Tensor::empty([rows, all * dim], (d_q.kind(), d_q.device()));
    let arguments = [
        (&d_q).into(),
        (&d_k).into(),
        (&d_v).into(),
        positions.into(),
        cosine.into(),
        sine.into(),
        (&d_qkv).into(),
        rows.into(),
        (heads as i32).into(),
        (kv_heads as i32).into(),
    ];
    let module = of_heads(d_q.kind(), dim, heads / kv_heads)?;
    // SAFETY: `rotate_backward` of rotary.cu; positions are rows of the tables.
    unsafe {
        module
            .function("rotate_backward")?
            .launch(blocks(rows * all * dim / 16)?, [THREADS, 1, 1], 0, &arguments)?;
    }
    Ok(d_qkv)
}

/// For a model that computes in `kind`.
pub fn head_forward(logits: &Tensor, targets: &Tensor, inverse_temperature: &Tensor, kind: Kind) -> Result<HeadOutput> {
    let (rows, vocabulary) = logits.size2()?;
    let (targets, inverse_temperature) = (targets.contiguous(), inverse_temperature.contiguous());
    let of_row = || Tensor::empty([rows], (Kind::Float, logits.device()));
    let (logprobs, entropy, log_sum) = (of_row(), of_row(), of_row());
    let arguments = [
        logits.into(),
        (&targets).into(),
        (&inverse_temperature).into(),
        (&logprobs).into(),
        (&entropy).into(),
        (&log_sum).into(),
        (vocabulary as i32).into(),
    ];
    // SAFETY: `head_forward` of head.cu; targets are ids of the vocabulary.
    unsafe {
        of_rows(kind)?
            .function("head_forward")?
            .launch([rows as u32, 1, 1], [ROW_THREADS, 1, 1], 0, &arguments)?;
    }
    Ok(HeadOutput {
        logprobs,
        entropy,
        log_sum,
    })
}

/// In `kind`.
pub fn head_backward(
    logits: &Tensor,
    targets: &Tensor,
    inverse_temperature: &Tensor,
    log_sum: &Tensor,
    d_logprobs: &Tensor,
    kind: Kind,
) -> Result<Tensor> {
    let (rows, vocabulary) = logits.size2()?;
    let [targets, inverse_temperature, log_sum, d_logprobs] =
        [targets, inverse_temperature, log_sum, d_logprobs].map(Tensor::contiguous);
    let d_logits = Tensor::empty([rows, vocabulary], (kind, logits.device()));
    let arguments: [Argument; 7] = [
        logits.into(),
        (&targets).into(),
        (&inverse_temperature).into(),
        (&log_sum).into(),
        (&d_logprobs).into(),
        (&d_logits).into(),
        (vocabulary as i32).into(),
    ];
    // SAFETY: `head_backward` of head.cu; targets are ids of the vocabulary.
    unsafe {
        of_rows(kind)?
            .function("head_backward")?
            .launch([rows as u32, 1, 1], [ROW_THREADS, 1, 1], 0, &arguments)?;
    }
    Ok(d_logits)
}

/// Blocks for so many threads, which the kernels count in 32 bits.
fn blocks(threads: i64) -> Result<[u32; 3]> {
    if threads > i64::from(u32::MAX) {
        fail!("an operation on {threads} vectors is too large for its kernel; use smaller packs");
    }
    Ok([(threads as u32).div_ceil(THREADS), 1, 1])
}
