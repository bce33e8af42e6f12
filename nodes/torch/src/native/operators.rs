//! Operators on any device. None is recorded for autograd.
//!
//! Products that add bf16 x bf16 into fp32 need nothing of this: tch has them. On CUDA,
//! `sum.f_addmm_dtype_out(&sum, &a, &b, Kind::Float)` adds `a b` to `sum` in place, accumulated in fp32 and never rounded
//! in between; `sum` is fp32 `[n, m]`, `a` `[n, k]` and `b` `[k, m]` are of one type, bf16, f16 or fp32, and may be
//! transposed views. `a.f_mm_dtype(&b, Kind::Float)` makes a new fp32 product. Neither has a CPU kernel.

use std::borrow::Borrow;
use std::ffi::c_void;
use std::ptr;

use tch::{Kind, Tensor};
use torch_sys::C_tensor;

use super::{Message, answer, pointers};
use crate::{Result, fail};

type List = *const *const C_tensor;

unsafe extern "C" {
    fn rlpipe_free(message: *mut c_void);
    #[cfg(test)]
    fn rlpipe_throw(kind: i32) -> Message;
    fn rlpipe_flash_attention(
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        starts: *const C_tensor,
        longest: i64,
        scale: f64,
        out: *mut *mut C_tensor,
        lse: *mut *mut C_tensor,
    ) -> Message;
    fn rlpipe_fused_adamw(
        parameters: List,
        gradients: List,
        means: List,
        squares: List,
        count: usize,
        step: f64,
        learning_rate: f64,
        beta1: f64,
        beta2: f64,
        weight_decay: f64,
        eps: f64,
        divisor: *const C_tensor,
        skip: *const C_tensor,
    ) -> Message;
    fn rlpipe_total_norm(tensors: List, count: usize, out: *mut *mut C_tensor) -> Message;
    fn rlpipe_foreach_mul(tensors: List, count: usize, factor: *const C_tensor) -> Message;
    fn rlpipe_foreach_copy(into: List, from: List, count: usize) -> Message;
    fn rlpipe_foreach_zero(tensors: List, count: usize) -> Message;
    fn rlpipe_attend_rows(
        q: *const C_tensor,
        keys: *const C_tensor,
        values: *const C_tensor,
        positions: *const C_tensor,
        scale: f64,
        out: *mut *mut C_tensor,
    ) -> Message;
    fn rlpipe_copy_later(into: *const C_tensor, from: *const C_tensor) -> Message;
}

fn ok(message: Message) -> Result<()> {
    // SAFETY: every call of this file answers so.
    unsafe { answer(message, rlpipe_free) }
}

fn maybe(tensor: Option<&Tensor>) -> *const C_tensor {
    tensor.map_or(ptr::null(), Tensor::as_ptr)
}

fn same_length(first: usize, others: &[usize]) -> Result<()> {
    match others.iter().find(|other| **other != first) {
        Some(other) => fail!("a list of {first} tensors goes with one of {other}"),
        None => Ok(()),
    }
}

/// Causal attention within packed sequences (Dao, "FlashAttention-2"). CUDA only; `q` is `[tokens, heads, head size]`,
/// `k` and `v` are `[tokens, key heads, head size]`, bf16 or f16, the last dimension dense; heads are a multiple of key
/// heads. `starts` is int32 `[sequences + 1]` on the device: where each sequence begins, and the number of tokens;
/// `longest` is the most tokens of one. Returns the output, as `q`, and the log-sum-exp of the scaled scores, fp32
/// `[heads, tokens]`, which the backward pass wants.
pub fn flash_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    starts: &Tensor,
    longest: i64,
    scale: f64,
) -> Result<(Tensor, Tensor)> {
    let (mut out, mut lse) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: tensors live through the call; both results are new tensors when there is no message.
    unsafe {
        ok(rlpipe_flash_attention(
            q.as_ptr(),
            k.as_ptr(),
            v.as_ptr(),
            starts.as_ptr(),
            longest,
            scale,
            &mut out,
            &mut lse,
        ))?;
        Ok((Tensor::from_ptr(out), Tensor::from_ptr(lse)))
    }
}

/// Gradients of `q`, `k` and `v`, shaped as they are, from that of the output and what [`flash_attention`] returned.
/// Sums in an order that varies from run to run.
#[allow(clippy::too_many_arguments)]
pub fn flash_attention_backward(
    d_out: &Tensor,
    [q, k, v]: [&Tensor; 3],
    (out, lse): (&Tensor, &Tensor),
    starts: &Tensor,
    longest: i64,
    scale: f64,
) -> Result<[Tensor; 3]> {
    let _no_grad = tch::no_grad_guard();
    // The state of the random generator, which only dropout reads.
    let unused = Tensor::f_empty([0], (Kind::Int64, q.device()))?;
    let (d_q, d_k, d_v) = Tensor::f_internal_flash_attention_backward(
        d_out, q, k, v, out, lse, starts, starts, longest, longest, 0.0, true, &unused, &unused, scale, None, None,
    )?;
    Ok([d_q, d_k, d_v])
}

/// The settings of one AdamW update.
#[derive(Debug, Clone, Copy)]
pub struct AdamWStep {
    /// How many updates there were, with this one; corrects the bias of the moments.
    pub step: u64,
    /// Of this update.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Decoupled: taken off the parameter itself.
    pub weight_decay: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
}

/// One AdamW update in few kernels. All tensors are of one float type and on one device, the four lists equally long.
/// `divisor`, an fp32 scalar on that device, divides the gradients in place first. Where `skip`, likewise, is 1,
/// nothing changes at all.
pub fn fused_adamw<T: Borrow<Tensor>>(
    parameters: &[T],
    gradients: &[T],
    means: &[T],
    squares: &[T],
    settings: &AdamWStep,
    divisor: Option<&Tensor>,
    skip: Option<&Tensor>,
) -> Result<()> {
    same_length(parameters.len(), &[gradients.len(), means.len(), squares.len()])?;
    for scalar in [divisor, skip].into_iter().flatten() {
        // The kernels read a float from its address.
        if scalar.kind() != Kind::Float || scalar.numel() != 1 {
            fail!(
                "a divisor or skip is one fp32 number, not {:?} {:?}",
                scalar.kind(),
                scalar.size()
            );
        }
    }
    // SAFETY: tensors live through the call; lists are as long as is said; torch checks types and devices.
    ok(unsafe {
        rlpipe_fused_adamw(
            pointers(parameters).as_ptr(),
            pointers(gradients).as_ptr(),
            pointers(means).as_ptr(),
            pointers(squares).as_ptr(),
            parameters.len(),
            settings.step as f64,
            settings.learning_rate,
            settings.beta1,
            settings.beta2,
            settings.weight_decay,
            settings.eps,
            maybe(divisor),
            maybe(skip),
        )
    })
}

/// The 2-norm of all tensors together, a float64 scalar on their device; the list is not empty.
pub fn total_norm(tensors: &[Tensor]) -> Result<Tensor> {
    let mut out = ptr::null_mut();
    // SAFETY: tensors live through the call; the result is a new tensor when there is no message.
    unsafe {
        ok(rlpipe_total_norm(pointers(tensors).as_ptr(), tensors.len(), &mut out))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Multiplies all tensors, in place, by a scalar that lies on their device; the list is not empty.
pub fn foreach_mul(tensors: &[Tensor], factor: &Tensor) -> Result<()> {
    // SAFETY: tensors live through the call.
    ok(unsafe { rlpipe_foreach_mul(pointers(tensors).as_ptr(), tensors.len(), factor.as_ptr()) })
}

/// Copies each tensor into its place, converting; the lists are not empty.
pub fn foreach_copy(into: &[Tensor], from: &[Tensor]) -> Result<()> {
    same_length(into.len(), &[from.len()])?;
    // SAFETY: tensors live through the call; lists are as long as is said.
    ok(unsafe { rlpipe_foreach_copy(pointers(into).as_ptr(), pointers(from).as_ptr(), into.len()) })
}

/// Zeroes all tensors; the list is not empty.
pub fn foreach_zero(tensors: &[Tensor]) -> Result<()> {
    // SAFETY: tensors live through the call.
    ok(unsafe { rlpipe_foreach_zero(pointers(tensors).as_ptr(), tensors.len()) })
}

/// Attention of one token a row, on the CPU: `q` is `[rows, heads, head size]`, `keys` and `values` are
/// `[rows, key heads, places, head size]`, and a row attends to its places up to `positions[row]` (int64 `[rows]`), its own.
/// Float32, float64, or half types added up in float32; all dense. Returns what `q` is like. A row's bits depend on its own
/// queries, keys and values alone.
pub fn attend_rows(q: &Tensor, keys: &Tensor, values: &Tensor, positions: &Tensor, scale: f64) -> Result<Tensor> {
    let mut out = ptr::null_mut();
    // SAFETY: tensors live through the call, which checks them; the result is a new tensor when there is no message.
    unsafe {
        ok(rlpipe_attend_rows(
            q.as_ptr(),
            keys.as_ptr(),
            values.as_ptr(),
            positions.as_ptr(),
            scale,
            &mut out,
        ))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Copies without waiting where one side is on a card and the other in pinned memory ([`super::cuda::pinned`]): the copy
/// is done when the current stream is past this point. Otherwise as `copy_`.
pub fn copy_later(into: &Tensor, from: &Tensor) -> Result<()> {
    // SAFETY: tensors live through the call; torch keeps pinned memory until the stream is past the copy.
    ok(unsafe { rlpipe_copy_later(into.as_ptr(), from.as_ptr()) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tch::Device;

    /// Against torch's attention of each row alone, over as many places as it has.
    #[test]
    fn rows_are_attended_to_as_if_alone() {
        let cpu = |kind| (kind, Device::Cpu);
        for (kind, bound) in [
            (Kind::Double, 1e-12),
            (Kind::Float, 1e-5),
            (Kind::BFloat16, 2e-2),
            (Kind::Half, 4e-3),
        ] {
            for (rows, heads, kv_heads, dim, places) in
                [(1, 1, 1, 1, 1), (5, 9, 3, 64, 70), (3, 4, 4, 6, 9), (7, 6, 2, 33, 40)]
            {
                let random = |shape: &[i64]| Tensor::randn(shape, cpu(Kind::Double)).to_kind(kind);
                let q = random(&[rows, heads, dim]);
                let (keys, values) = (
                    random(&[rows, kv_heads, places, dim]),
                    random(&[rows, kv_heads, places, dim]),
                );
                let positions = Tensor::randint(places, [rows], cpu(Kind::Int64));
                let out = attend_rows(&q, &keys, &values, &positions, 0.3).unwrap();
                assert_eq!((out.size(), out.kind()), (q.size(), kind));
                // What lies behind a row's position, and other rows, are not read.
                let row = rows - 1;
                let live = positions.int64_value(&[row]) + 1;
                let one = |tensor: &Tensor| tensor.narrow(0, row, 1);
                let cut = |tensor: &Tensor| one(tensor).narrow(2, 0, live).contiguous();
                let at = one(&positions);
                let alone = attend_rows(&one(&q), &cut(&keys), &cut(&values), &at, 0.3).unwrap();
                assert_eq!(alone, one(&out), "{kind:?}");
                let spread = |tensor: &Tensor| {
                    cut(tensor)
                        .to_kind(Kind::Double)
                        .repeat_interleave_self_int(heads / kv_heads, 1, None)
                };
                let scores = (one(&q).to_kind(Kind::Double).unsqueeze(2) * spread(&keys)).sum_dim_intlist(
                    -1,
                    true,
                    None::<Kind>,
                ) * 0.3;
                let expected =
                    (scores.softmax(2, None::<Kind>) * spread(&values)).sum_dim_intlist(2, false, None::<Kind>);
                let apart = (expected - alone.to_kind(Kind::Double)).abs().max().double_value(&[]);
                assert!(apart < bound, "{kind:?}: {apart}");
            }
        }
        let rows = |count: i64| Tensor::zeros([count, 2, 4], cpu(Kind::Float));
        let places = Tensor::zeros([3, 1, 5, 4], cpu(Kind::Float));
        let at = |position: i64| Tensor::full([3], position, cpu(Kind::Int64));
        let refused = |q: &Tensor, positions: &Tensor| attend_rows(q, &places, &places, positions, 1.0).unwrap_err().0;
        assert!(refused(&rows(2), &at(0)).contains("do not go together"));
        assert!(refused(&rows(3), &at(5)).contains("position 5 of row 0 lies outside of 5 places"));
        assert!(refused(&rows(3), &at(-1)).contains("position -1"));
        assert!(refused(&rows(3), &at(0).to_kind(Kind::Int)).contains("int64"));
        assert!(refused(&rows(3).transpose(1, 2), &at(0)).contains("do not go together"));
        assert!(refused(&rows(3).to_kind(Kind::Double), &at(0)).contains("of one type"));
    }

    /// A row with one place is what lies there, in float16 the smallest and what is not finite too.
    #[test]
    fn the_only_place_comes_back() {
        for kind in [Kind::BFloat16, Kind::Half] {
            let of = |values: &[f64]| Tensor::from_slice(values).to_kind(kind).view([1, 1, 1, -1]);
            let values = of(&[
                6e-8,
                -6e-8,
                6e-5,
                6.2e-5,
                1.0,
                -0.0,
                65_504.0,
                -65_504.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
            ]);
            let keys = values.zeros_like();
            let at = Tensor::from_slice(&[0i64]);
            let out = attend_rows(&keys.view([1, 1, -1]), &keys, &values, &at, 1.0).unwrap();
            assert!(out.equal(&values.view([1, 1, -1])), "{out}");
            let spoiled = attend_rows(&keys.view([1, 1, -1]), &keys, &(&values * f64::NAN), &at, 1.0).unwrap();
            assert_eq!(spoiled.isnan().sum(Kind::Int64).int64_value(&[]), 10);
        }
    }

    #[test]
    fn exceptions_become_errors() {
        let message = |kind| ok(unsafe { rlpipe_throw(kind) }).unwrap_err().0;
        assert!(message(0).contains("an error of torch"), "{}", message(0));
        assert_eq!(message(1), "an error of the standard library");
        assert_eq!(message(2), "unknown C++ exception");
        let a = Tensor::zeros([2, 3], (Kind::BFloat16, Device::Cpu));
        let (first, starts) = (a.unsqueeze(0), Tensor::from_slice(&[0i32, 1]));
        let error = flash_attention(&first, &first, &first, &starts, 1, 1.0).unwrap_err().0;
        assert!(error.contains("CPU"), "{error}");
    }

    #[test]
    fn lists_of_different_lengths_and_scalars_of_another_type_are_refused() {
        let one = [Tensor::zeros([2], (Kind::Float, Device::Cpu))];
        assert!(
            foreach_copy(&one, &[])
                .unwrap_err()
                .0
                .contains("1 tensors goes with one of 0")
        );
        let settings = AdamWStep {
            step: 1,
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.9,
            weight_decay: 0.0,
            eps: 1e-8,
        };
        let wide = Tensor::from(2.0f64);
        let update = |skip| fused_adamw(&one, &one, &one, &one, &settings, None, skip);
        assert!(update(Some(&wide)).unwrap_err().0.contains("one fp32 number"));
        assert!(total_norm(&[]).is_err() && foreach_zero(&[]).is_err());
    }

    #[test]
    fn lists_are_computed_with_as_single_tensors_are() {
        tch::manual_seed(3);
        let options = (Kind::Float, Device::Cpu);
        let tensors = [
            Tensor::randn([3, 5], options),
            Tensor::randn([7], options),
            Tensor::randn([], options),
        ];
        let flat = |tensors: &[Tensor]| Tensor::cat(&tensors.iter().map(|t| t.view([-1])).collect::<Vec<_>>(), 0);
        let expected = flat(&tensors).to_kind(Kind::Double).norm().double_value(&[]);
        let norm = total_norm(&tensors).unwrap();
        assert_eq!(norm.kind(), Kind::Double);
        assert!((norm.double_value(&[]) / expected - 1.0).abs() < 1e-6);

        let narrow: Vec<Tensor> = tensors.iter().map(|t| t.to_kind(Kind::BFloat16).zeros_like()).collect();
        foreach_copy(&narrow, &tensors).unwrap();
        assert!(flat(&narrow).equal(&flat(&tensors).to_kind(Kind::BFloat16)));
        let before = flat(&tensors);
        foreach_mul(&tensors, &Tensor::from(-2.0f32)).unwrap();
        assert!(flat(&tensors).equal(&(before * -2.0)));
        foreach_zero(&tensors).unwrap();
        assert_eq!(flat(&tensors).count_nonzero(None).int64_value(&[]), 0);
    }

    #[test]
    fn a_divisor_divides_and_a_skip_leaves_everything() {
        let options = (Kind::Float, Device::Cpu);
        let list = |value: f64| [Tensor::full([4, 3], value, options)];
        let settings = AdamWStep {
            step: 3,
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            weight_decay: 0.2,
            eps: 1e-8,
        };
        let [divided, plain] = [(4.0, Some(2.0f32)), (2.0, None)].map(|(gradient, divisor)| {
            let (parameters, gradients, means, squares) = (list(1.5), list(gradient), list(0.5), list(0.25));
            let divisor = divisor.map(Tensor::from);
            fused_adamw(
                &parameters,
                &gradients,
                &means,
                &squares,
                &settings,
                divisor.as_ref(),
                None,
            )
            .unwrap();
            parameters[0].double_value(&[0, 0])
        });
        assert_eq!(divided, plain);
        let (m, v) = (0.9 * 0.5 + 0.1 * 2.0, 0.99 * 0.25 + 0.01 * 4.0);
        let (m, v) = (m / (1.0 - 0.9f64.powi(3)), v / (1.0 - 0.99f64.powi(3)));
        let expected = 1.5 - 0.1 * 0.2 * 1.5 - 0.1 * m / (f64::sqrt(v) + 1e-8);
        assert!((plain - expected).abs() < 1e-6, "{plain} {expected}");

        let (parameters, gradients, means, squares) = (list(1.5), list(f64::NAN), list(0.5), list(0.25));
        let skip = Tensor::from(1f32);
        fused_adamw(&parameters, &gradients, &means, &squares, &settings, None, Some(&skip)).unwrap();
        for (found, expected) in [(&parameters, 1.5), (&means, 0.5), (&squares, 0.25)] {
            assert!(found[0].equal(&list(expected)[0]));
        }
    }
}
