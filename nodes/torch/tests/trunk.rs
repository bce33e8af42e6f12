//! The trunk's backward pass, written by hand, against autograd of a plain forward pass.
#![allow(clippy::unwrap_used)]

mod common;

use common::{adamw, cpu, fresh, golden, load_command, policy_loss, sequence, train_pack};
use rlpipe_torch::device::wide;
use rlpipe_torch::model::{Layout, Linear, Network, Packed};
use rlpipe_torch::policy::Policy;
use rlpipe_torch::train::Trunk;
use rlpipe_wire::v1::{Activations, Kl, Load};
use tch::{Device, Kind, Tensor};

const LEVELS: [Activations; 3] = [
    Activations::Keep,
    Activations::RecomputeGated,
    Activations::RecomputeLayers,
];

/// One sequence through transformers' formulas, in operators that autograd knows.
fn plain(network: &Network, weights: &[Tensor], ids: &[u32]) -> Tensor {
    let config = &network.config;
    let norm = |rows: &Tensor, leaf: usize| {
        let squares = rows.square().mean_dim([-1i64].as_slice(), true, None::<Kind>);
        rows * (squares + config.norm_eps).rsqrt() * &weights[leaf]
    };
    let linear = |rows: &Tensor, layer: Linear| {
        let product = rows.matmul(&weights[layer.weight].transpose(0, 1));
        layer
            .bias
            .map_or(product.shallow_clone(), |bias| product + &weights[bias])
    };
    let rotary = config.rotary(ids.len() as i64);
    let positions = Tensor::arange(ids.len() as i64, (Kind::Float, Device::Cpu));
    let angles = positions.unsqueeze(1) * Tensor::from_slice(&rotary.frequencies);
    let of = |table: Tensor| (table * f64::from(rotary.scale)).to_kind(network.kind).unsqueeze(1);
    let (cosine, sine) = (of(angles.cos()), of(angles.sin()));
    let rotate = |heads: &Tensor| {
        let halves = heads.chunk(2, -1);
        let first = &halves[0] * &cosine - &halves[1] * &sine;
        Tensor::cat(&[first, &halves[0] * &sine + &halves[1] * &cosine], -1)
    };
    let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
    let mut rows = weights[0].index_select(0, &Tensor::from_slice(&ids));
    for block in &network.layout.blocks {
        let qkv = linear(&norm(&rows, block.input_norm), block.qkv);
        let parts = qkv
            .view([ids.len() as i64, -1, config.head_dim])
            .split_with_sizes([config.heads, config.kv_heads, config.kv_heads], 1);
        let normed = block
            .query_key_norms
            .map(|(q, k)| [norm(&parts[0], q), norm(&parts[1], k)]);
        let [q, k] = normed.unwrap_or([parts[0].shallow_clone(), parts[1].shallow_clone()]);
        let spread = |heads: &Tensor| {
            let shared = config.heads / heads.size()[1];
            heads.repeat_interleave_self_int(shared, 1, None).transpose(0, 1)
        };
        let scores = spread(&rotate(&q)).matmul(&spread(&rotate(&k)).transpose(1, 2));
        let later = Tensor::ones_like(&scores).triu(1).to_kind(Kind::Bool);
        let scores = (scores / (config.head_dim as f64).sqrt()).masked_fill(&later, f64::NEG_INFINITY);
        let mixed = scores.softmax(-1, None::<Kind>).matmul(&spread(&parts[2]));
        let mixed = mixed.transpose(0, 1).reshape([ids.len() as i64, -1]);
        rows = &rows + linear(&mixed, block.output);
        let both = linear(&norm(&rows, block.gated_norm), block.gate_up).chunk(2, -1);
        rows = &rows + linear(&(&both[0] * both[0].sigmoid() * &both[1]), block.down);
    }
    norm(&rows, network.layout.last_norm)
}

fn apart(found: &Tensor, expected: &Tensor) -> f64 {
    // One token attends to itself whatever its query is: what should be nothing is rounding.
    let largest = expected.abs().max().clamp_min(0.1);
    ((found - expected).abs().max() / largest).double_value(&[])
}

fn compare(network: &Network, weights: &[Tensor], sequences: &[Vec<u32>], bound: f64, name: &str) {
    let leaves: Vec<Tensor> = weights.iter().map(|leaf| leaf.copy().set_requires_grad(true)).collect();
    let outputs: Vec<Tensor> = sequences.iter().map(|ids| plain(network, &leaves, ids)).collect();
    let expected = Tensor::cat(&outputs, 0);
    let d_hidden = expected.detach().randn_like();
    let (layout, kind) = (&network.layout, wide(network.kind));
    // A head of its own has no part in this.
    let trunk = &leaves[layout.trunk()];
    let slopes = Tensor::f_run_backward(&[(&expected * &d_hidden).sum(None)], trunk, false, false).unwrap();
    let pack = Packed::new(&sequences.iter().map(Vec::as_slice).collect::<Vec<_>>(), Device::Cpu);
    let _no_grad = tch::no_grad_guard();
    let packed = network.packed(weights, &pack, |_, _, _| ());
    assert!(apart(&packed, &expected) < bound, "{name}");
    for level in LEVELS {
        let found = Trunk::forward(network, weights, &pack, level);
        assert!(found.hidden.equal(&packed), "{name}");
        // What was summed before stays; in float32 it would take digits away.
        let before = if kind == Kind::Double { 1.0 } else { 0.0 };
        let zeros = layout.zeros(kind, Device::Cpu);
        let mut sums: Vec<Tensor> = zeros.iter().map(|zeros| zeros + before).collect();
        found.backward(network, weights, &pack, &d_hidden, &mut sums);
        for (leaf, (sum, slope)) in sums.iter().zip(&slopes).enumerate() {
            let difference = apart(&(sum - before), slope);
            assert!(difference < bound, "{name}, {level:?}, leaf {leaf}: {difference:e}");
        }
    }
}

#[test]
fn gradients_are_those_of_autograd() {
    let models = [
        "tied",
        "untied",
        "llama-biases",
        "qwen2-untied",
        "qwen3-biases",
        "rope-yarn",
        "rope-dynamic",
    ];
    for name in models {
        for (dtype, bound) in [("float64", 1e-10), ("float32", 3e-5)] {
            let command = Load {
                engine: None,
                ..load_command(&golden(name), dtype, None)
            };
            let policy = Policy::load(&command, &cpu()).unwrap();
            let vocabulary = policy.network.config.vocabulary as u64;
            let id = |seed: u64, at: usize| (rlpipe_torch::rng::uniform(seed, at as u64) * vocabulary as f64) as u32;
            let sequences = |lengths: &[usize]| -> Vec<Vec<u32>> {
                let numbered = lengths.iter().enumerate();
                numbered
                    .map(|(row, &length)| (0..length).map(|at| id(row as u64, at)).collect())
                    .collect()
            };
            // With `dynamic` scaling the longest of these is past the original length.
            for lengths in [&[1][..], &[5, 5, 5], &[1, 7, 33, 2, 1, 40]] {
                compare(&policy.network, &policy.weights, &sequences(lengths), bound, name);
            }
        }
    }
}

#[test]
fn gradients_and_sums_do_not_depend_on_what_is_kept() {
    for dtype in ["float64", "float32", "bfloat16", "float16"] {
        let mut policy = fresh(dtype, false);
        let sequences: Vec<_> = (0..5).map(|index| sequence(index, 2, 4 + index as usize)).collect();
        let mut of = |level: Activations| {
            policy.start_training(adamw()).unwrap();
            let mut command = train_pack(&sequences, policy_loss(Kl::K3), 20.0);
            command.activations = level.into();
            let sums = policy.train_pack(&command).unwrap();
            let gradients = policy.trainer.as_ref().unwrap().gradients().iter();
            (sums, gradients.map(Tensor::copy).collect::<Vec<_>>())
        };
        let (sums, kept) = of(Activations::Keep);
        for level in LEVELS {
            let (again, gradients) = of(level);
            assert_eq!(again, sums);
            for (found, kept) in gradients.iter().zip(&kept) {
                assert!(apart(found, kept) < 1e-10, "{dtype}, {level:?}");
            }
        }
    }
}

#[test]
fn the_residual_stream_is_wider_than_bfloat16() {
    let policy = fresh("bfloat16", false);
    let rows = policy
        .network
        .embedded(&policy.weights, &Tensor::from_slice(&[1i64, 5, 2]));
    assert_eq!((rows.sum.kind(), rows.out.kind()), (Kind::Float, Kind::BFloat16));
}

#[test]
fn leaves_of_the_trunk_come_before_a_head_of_its_own() {
    let layout = Layout::of(&fresh("float32", false).network.config);
    assert_eq!(layout.trunk().end, layout.head());
}
