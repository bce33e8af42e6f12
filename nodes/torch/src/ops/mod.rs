//! The operations of the network, forward and backward, each by plain torch operators: its *twin*, which serves any device
//! and any float type, and most by a kernel of `kernels/`, which serves half types on a card. Half types are computed in
//! float32 and rounded at the end.
//!
//! Nothing here builds a graph: callers hold no gradients, and the backward of each operation is a function beside it.

mod attention;
mod gate;
mod head;
mod launch;
mod norm;
mod product;
mod rotate;

pub use attention::{attention, attention_backward};
pub use gate::{gate, gate_backward};
pub use head::{HeadOutput, head_backward, head_forward};
pub use norm::{Normed, add_norm, norm_backward};
pub use product::{add_bias, add_product, add_rows, logits};
pub use rotate::{Turns, rotate, rotate_backward};

#[cfg(test)]
mod testing {
    //! What tests of several operations need.
    #![allow(clippy::unwrap_used)]

    use tch::{Device, Kind, Tensor};

    /// The types that a twin is held against autograd in, and how near it must come to it.
    pub const KINDS: [(Kind, f64); 2] = [(Kind::Double, 1e-10), (Kind::Float, 1e-5)];

    pub fn random(shape: &[i64], kind: Kind) -> Tensor {
        Tensor::randn(shape, (Kind::Double, Device::Cpu)).to_kind(kind)
    }

    /// The largest difference, relative to the largest value of `expected` where that is above 1.
    pub fn apart(found: &Tensor, expected: &Tensor) -> f64 {
        assert_eq!(found.size(), expected.size());
        let (found, expected) = (found.to_kind(Kind::Double), expected.detach().to_kind(Kind::Double));
        ((found - &expected).abs().max() / expected.abs().max().clamp_min(1.0)).double_value(&[])
    }

    /// Gradients of `(output * d_output).sum()` by autograd.
    pub fn slopes(output: &Tensor, d_output: &Tensor, inputs: &[&Tensor]) -> Vec<Tensor> {
        Tensor::f_run_backward(&[(output * d_output).sum(None)], inputs, false, false).unwrap()
    }

    pub fn leaf(tensor: &Tensor) -> Tensor {
        tensor.copy().set_requires_grad(true)
    }
}
