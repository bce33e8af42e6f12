//! The gated part (Shazeer 2020, "GLU variants improve transformer", SwiGLU).

use tch::Tensor;

use super::launch;
use crate::device::wide;
use crate::error::unfailing;

/// `silu(gate) * up`, `[rows, width]`, of `both`, `[rows, 2 * width]`: first gate, then up.
pub fn gate(both: &Tensor) -> Tensor {
    if launch::serves(both, both.size()[1] / 2) {
        return unfailing(launch::gate(both));
    }
    let halves = both.to_kind(wide(both.kind())).chunk(2, -1);
    halves[0].silu().g_mul_(&halves[1]).to_kind(both.kind())
}

/// The gradient at `both` given `d_out` at the output of [`gate`], and that output again.
pub fn gate_backward(d_out: &Tensor, both: &Tensor) -> (Tensor, Tensor) {
    if launch::serves(both, both.size()[1] / 2) {
        return unfailing(launch::gate_backward(d_out, both));
    }
    let kind = wide(both.kind());
    let (halves, d_out) = (both.to_kind(kind).chunk(2, -1), d_out.to_kind(kind));
    let d_both = Tensor::empty(both.size(), (kind, both.device()));
    let (d_gate, d_up) = (
        d_both.narrow(-1, 0, d_out.size()[1]),
        d_both.narrow(-1, d_out.size()[1], d_out.size()[1]),
    );
    let mut out = halves[0].silu();
    let _ = out.mul_out(&d_up, &d_out);
    let _ = d_out.mul_out(&d_gate, &halves[1]);
    let _ = halves[0].silu_backward_grad_input(&d_gate, &d_gate);
    let out = out.g_mul_(&halves[1]).to_kind(both.kind());
    (d_both.to_kind(both.kind()), out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{KINDS, apart, leaf, random, slopes};
    use super::*;
    use tch::Kind;

    #[test]
    fn is_the_formula_and_its_gradient() {
        for (kind, bound) in KINDS {
            for (rows, width) in [(1, 1), (7, 5), (19, 96)] {
                let both = leaf(&random(&[rows, 2 * width], kind));
                let halves = both.chunk(2, -1);
                let expected = &halves[0] * halves[0].sigmoid() * &halves[1];
                let d_out = random(&[rows, width], kind);
                let wanted = slopes(&expected, &d_out, &[&both]);
                let both = both.detach();
                assert!(apart(&gate(&both), &expected) < bound);
                let (d_both, out) = gate_backward(&d_out, &both);
                assert!(apart(&d_both, &wanted[0]) < bound);
                assert!(out.equal(&gate(&both)));
            }
        }
    }

    #[test]
    fn half_types_are_rounded_once() {
        let (both, d_out) = (random(&[3, 20], Kind::BFloat16), random(&[3, 10], Kind::BFloat16));
        let wide = |tensor: &Tensor| tensor.to_kind(Kind::Float);
        assert!(gate(&both).equal(&gate(&wide(&both)).to_kind(Kind::BFloat16)));
        let expected = gate_backward(&wide(&d_out), &wide(&both)).0.to_kind(Kind::BFloat16);
        assert!(gate_backward(&d_out, &both).0.equal(&expected));
    }
}
