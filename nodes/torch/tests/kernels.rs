//! Every hand-written kernel against plain operators in float64, on a card: fresh random inputs, odd sizes, outputs that are
//! poisoned and guarded. One test, because torch's CUDA half must come before any torch act of the process; a machine
//! without a card has nothing to check here.
#![allow(clippy::unwrap_used)]

mod common;

use common::kernels::{
    CARD, FLOAT, Guarded, INT, LONG, below, count, gap, launch, narrow, numbers, random, rounded, run_in_halves, wide,
};
use rlpipe_torch::kernels;
use rlpipe_torch::native::kernel::Argument;
use rlpipe_torch::ops::{self, Turns};
use tch::{Kind, Tensor};

/// Of results that are rounded to a half type once, in bfloat16 by at most 2^-8 of each: root mean square of the error, as a
/// part of the values'.
fn once() -> f64 {
    rounded(4e-3)
}
/// Of results in float32.
const FINE: f64 = 1e-5;
const EPS: f64 = 1e-5;

#[test]
fn kernels_compute_what_plain_operators_do() {
    if common::card().is_none() {
        return;
    }
    run_in_halves(&[
        ("norms", norms),
        ("gates", gates),
        ("rotary", rotary),
        ("logits", logits),
        ("head", head),
        ("attention", attention),
        ("pages and embeddings", pages_and_embeddings),
    ]);
}

/// Of the residual stream, float32, and of heads, which nothing is added to.
fn norms() {
    for (width, columns, height) in [
        (64, 32, 4),
        (576, 32, 4),
        (1024, 32, 4),
        (1032, 64, 1),
        (4096, 128, 1),
        (16_384, 512, 1),
    ] {
        for kind in [Kind::Float, narrow()] {
            norms_of(kind, width, [columns, height]);
        }
    }
}

fn norms_of(kind: Kind, width: i64, block: [u32; 2]) {
    let module = kernels::of_rows(narrow()).unwrap();
    let (rows, height) = (1 + below(70), block[1]);
    let (x, weight) = (Tensor::randn([rows, width], FLOAT).to_kind(kind), random(&[width]));
    let delta = (kind == Kind::Float).then(|| random(&[rows, width]));
    let sum = delta.as_ref().map_or_else(|| x.shallow_clone(), |delta| &x + delta);
    let expected = ops::add_norm(&wide(&sum), None, &wide(&weight), EPS);
    let (found_sum, out) = (Guarded::holding(&x), Guarded::new(&[rows, width], (narrow(), CARD)));
    let scale = Guarded::new(&[rows, 1], FLOAT);
    let arguments = [
        found_sum.argument(),
        delta.as_ref().into(),
        (&weight).into(),
        found_sum.argument(),
        out.argument(),
        scale.argument(),
        rows.into(),
        (width as i32).into(),
        (EPS as f32).into(),
    ];
    let [forward, backward] = match delta {
        Some(_) => ["add_norm", "add_norm_backward"],
        None => ["norm_heads", "norm_heads_backward"],
    };
    launch(
        &module,
        forward,
        [(rows as u32).div_ceil(height), 1],
        block,
        0,
        &arguments,
    );
    assert!(found_sum.written().equal(&sum), "{width}");
    assert!(gap(&out.written(), &expected.out) < once(), "{width}");
    assert!(gap(&scale.written(), &expected.scale) < FINE, "{width}");
    let found = ops::add_norm(&x, delta.as_ref(), &weight, EPS);
    assert!(found.sum.equal(&sum) && found.out.equal(&out.written()) && found.scale.equal(&scale.written()));
    let found = ops::add_norm(&sum, None, &weight, EPS);
    assert!(found.sum.equal(&sum) && found.out.equal(&out.written()));

    let (d_out, residual) = (random(&[rows, width]), random(&[rows, width]));
    for residual in [None, Some(&residual)] {
        let mut expected_sum = Tensor::ones([width], (Kind::Double, CARD));
        let d_x = ops::norm_backward(
            &wide(&d_out),
            &wide(&sum),
            &expected.scale,
            &wide(&weight),
            residual.map(wide).as_ref(),
            &mut expected_sum,
        );
        let (found, partial) = (
            Guarded::new(&[rows, width], (narrow(), CARD)),
            Guarded::new(&[3, width], FLOAT),
        );
        let arguments = [
            (&d_out).into(),
            (&sum).into(),
            scale.argument(),
            (&weight).into(),
            residual.into(),
            found.argument(),
            partial.argument(),
            rows.into(),
            (width as i32).into(),
        ];
        let shared_bytes = 4 * width as u32 * u32::from(height > 1);
        launch(&module, backward, [3, 1], block, shared_bytes, &arguments);
        assert!(gap(&found.written(), &d_x) < once(), "{width}");
        let of_weight = partial.written().sum_dim_intlist(0, false, None::<Kind>) + 1.0;
        assert!(gap(&of_weight, &expected_sum) < FINE, "{width}");
        let mut weight_sum = Tensor::ones([width], FLOAT);
        let again = ops::norm_backward(&d_out, &sum, &scale.inside(), &weight, residual, &mut weight_sum);
        assert!(again.equal(&found.written()) && gap(&weight_sum, &expected_sum) < FINE);
    }
}

fn gates() {
    let module = kernels::of_rows(narrow()).unwrap();
    for width in [8, 1536, 4864, 11_008] {
        let rows = 1 + below(70);
        let (both, d_out) = (random(&[rows, 2 * width]) * 2.0, random(&[rows, width]));
        let (out, d_both) = (
            Guarded::new(&[rows, width], (narrow(), CARD)),
            Guarded::new(&[rows, 2 * width], (narrow(), CARD)),
        );
        let blocks = ((rows * width / 8) as u32).div_ceil(256);
        let sizes: [Argument; 2] = [rows.into(), (width as i32).into()];
        let arguments = [(&both).into(), out.argument(), sizes[0], sizes[1]];
        launch(&module, "gate", [blocks, 1], [256, 1], 0, &arguments);
        let expected = ops::gate(&wide(&both));
        assert!(gap(&out.written(), &expected) < once() && ops::gate(&both).equal(&out.written()));

        let again = Guarded::new(&[rows, width], (narrow(), CARD));
        let arguments = [
            (&d_out).into(),
            (&both).into(),
            d_both.argument(),
            again.argument(),
            sizes[0],
            sizes[1],
        ];
        launch(&module, "gate_backward", [blocks, 1], [256, 1], 0, &arguments);
        let expected = ops::gate_backward(&wide(&d_out), &wide(&both)).0;
        assert!(gap(&d_both.written(), &expected) < once() && again.written().equal(&out.written()));
        let (found, again) = ops::gate_backward(&d_out, &both);
        assert!(found.equal(&d_both.written()) && again.equal(&out.written()));
    }
}

/// Cosines and sines of positions.
fn tables(positions: i64, dim: i64) -> [Tensor; 2] {
    let frequencies = (Tensor::arange(dim / 2, FLOAT) * (-(10_000f64.ln()) * 2.0 / dim as f64)).exp();
    let angles = Tensor::arange(positions, FLOAT).unsqueeze(1) * frequencies;
    [angles.cos(), angles.sin()]
}

fn rotary() {
    for (heads, kv_heads, dim) in [(9, 3, 64), (4, 4, 32), (14, 2, 128), (3, 1, 96)] {
        let rows = 1 + below(50);
        let [cosine, sine] = tables(300, dim);
        let positions = Tensor::randint(300, [rows], LONG);
        let turns = Turns::new(&cosine, &sine, &positions);
        let wide_turns = Turns::new(&wide(&cosine), &wide(&sine), &positions);
        let qkv = random(&[rows, (heads + 2 * kv_heads) * dim]);
        let expected = ops::rotate(&wide(&qkv), &wide_turns, heads, kv_heads);
        let turned = Guarded::holding(&qkv);
        let found = ops::rotate(&turned.inside(), &turns, heads, kv_heads);
        let _ = turned.written();
        assert!(gap(&found.0, &expected.0) < once() && gap(&found.1, &expected.1) < once());
        assert!(wide(&found.2).equal(&expected.2));

        let [d_q, d_k, d_v] = [heads, kv_heads, kv_heads].map(|heads| random(&[rows, heads, dim]));
        let expected = ops::rotate_backward(&wide(&d_q), &wide(&d_k), &wide(&d_v), &wide_turns);
        let d_qkv = Guarded::new(&qkv.size(), (narrow(), CARD));
        let arguments = [
            (&d_q).into(),
            (&d_k).into(),
            (&d_v).into(),
            (&positions).into(),
            (&cosine).into(),
            (&sine).into(),
            d_qkv.argument(),
            rows.into(),
            (heads as i32).into(),
            (kv_heads as i32).into(),
        ];
        let blocks = ((qkv.numel() / 16) as u32).div_ceil(256);
        let module = kernels::of_heads(narrow(), dim, heads / kv_heads).unwrap();
        launch(&module, "rotate_backward", [blocks, 1], [256, 1], 0, &arguments);
        assert!(gap(&d_qkv.written(), &expected) < once());
        assert!(ops::rotate_backward(&d_q, &d_k, &d_v, &turns).equal(&d_qkv.written()));
    }
}

/// Of half states and weights they are as exact as sums in float32.
fn logits() {
    for (hidden, vocabulary) in [(64, 13), (576, 49_152), (896, 50_257)] {
        let (states, weight) = (random(&[1 + below(20), hidden]), random(&[vocabulary, hidden]));
        let found = ops::logits(&states, &weight);
        assert_eq!(found.kind(), Kind::Float);
        assert!(
            gap(&found, &ops::logits(&wide(&states), &wide(&weight))) < FINE,
            "{vocabulary}"
        );
    }
}

fn head() {
    let module = kernels::of_rows(narrow()).unwrap();
    for vocabulary in [13, 50_257, 50_260, 49_152, 151_936] {
        let rows = 3 + below(9);
        let logits = Tensor::randn([rows, vocabulary], FLOAT) * 3.0;
        let _ = logits.get(1).get(2).fill_(f64::NEG_INFINITY);
        let targets = Tensor::randint(vocabulary - 3, [rows], LONG) + 3;
        let inverse = Tensor::rand([rows], FLOAT) + 0.5;
        let expected = ops::head_forward(&wide(&logits), &targets, &wide(&inverse), Kind::Double);
        let outputs = [(); 3].map(|()| Guarded::new(&[rows], FLOAT));
        let arguments = [
            (&logits).into(),
            (&targets).into(),
            (&inverse).into(),
            outputs[0].argument(),
            outputs[1].argument(),
            outputs[2].argument(),
            (vocabulary as i32).into(),
        ];
        launch(&module, "head_forward", [rows as u32, 1], [256, 1], 0, &arguments);
        let again = ops::head_forward(&logits, &targets, &inverse, narrow());
        for ((found, again), expected) in outputs
            .iter()
            .zip([&again.logprobs, &again.entropy, &again.log_sum])
            .zip([&expected.logprobs, &expected.entropy, &expected.log_sum])
        {
            let apart = (wide(&found.written()) - expected).abs().max().double_value(&[]);
            assert!(apart < 2e-5 && found.written().equal(again), "{vocabulary}: {apart}");
        }
        let slopes = Tensor::randn([rows], FLOAT);
        let _ = slopes.get(0).fill_(0.0);
        let (wide_inverse, wide_slopes) = (wide(&inverse), wide(&slopes));
        let (log_sum, wide_logits) = (&expected.log_sum, wide(&logits));
        let expected = ops::head_backward(
            &wide_logits,
            &targets,
            &wide_inverse,
            log_sum,
            &wide_slopes,
            Kind::Double,
        );
        let gradient = Guarded::new(&[rows, vocabulary], (narrow(), CARD));
        let arguments = [
            (&logits).into(),
            (&targets).into(),
            (&inverse).into(),
            outputs[2].argument(),
            (&slopes).into(),
            gradient.argument(),
            (vocabulary as i32).into(),
        ];
        launch(&module, "head_backward", [rows as u32, 1], [256, 1], 0, &arguments);
        assert!(gap(&gradient.written(), &expected) < once(), "{vocabulary}");
        let log_sum = outputs[2].inside();
        let again = ops::head_backward(&logits, &targets, &inverse, &log_sum, &slopes, narrow());
        assert!(again.equal(&gradient.written()), "{vocabulary}");
    }
}

/// Rows of slots with pages of a cache, filled up to their newest token.
struct Paged {
    rows: Tensor,
    position: Tensor,
    done: Tensor,
    pages: Tensor,
    lengths: Vec<i64>,
    keys: Guarded,
    values: Guarded,
}

const SLOT_PAGES: i64 = 7;

/// Two steps of each shape: what the first wrote, the second reads.
fn attention() {
    let shapes = [
        (64, 3, 3, false),
        (128, 7, 2, true),
        (128, 2, 8, true),
        (32, 1, 4, false),
        (96, 8, 1, true),
        (64, 12, 2, false),
    ];
    for (dim, share, kv_heads, normed) in shapes {
        for splits in [1, 3, 8] {
            steps_of_attention(dim, share, kv_heads, normed, splits);
        }
    }
}

fn steps_of_attention(dim: i64, share: i64, kv_heads: i64, normed: bool, splits: i64) {
    let module = kernels::of_heads(narrow(), dim, share).unwrap();
    let (rows, heads) = (4 + below(9), share * kv_heads);
    let slots = rows + 2;
    let pages = slots * SLOT_PAGES;
    // One row has no slot, one is done.
    let order = Tensor::randperm(slots, LONG).narrow(0, 0, rows).to_kind(Kind::Int);
    let _ = order.get(2).fill_(-1);
    let slot_of: Vec<i32> = numbers(&order);
    let done = Tensor::zeros([slots], INT);
    let _ = done.get(i64::from(slot_of[3])).fill_(1);
    let lengths: Vec<i64> = (0..slots).map(|_| below(SLOT_PAGES * 64 - 2)).collect();
    let paged = Paged {
        rows: order,
        position: Tensor::from_slice(&lengths).to_device(CARD).to_kind(Kind::Int),
        done,
        pages: Tensor::randperm(pages, LONG)
            .to_kind(Kind::Int)
            .view([slots, SLOT_PAGES]),
        keys: Guarded::new(&[pages, kv_heads, 64, dim], (narrow(), CARD)),
        values: Guarded::new(&[pages, kv_heads, 64, dim], (narrow(), CARD)),
        lengths,
    };
    let page_of: Vec<i32> = numbers(&paged.pages);
    let mut past = Vec::new();
    for (slot, &length) in paged.lengths.iter().enumerate() {
        // As in prefill, keys and values are views of rows that hold more.
        let qkv = random(&[length, 4 * kv_heads, dim]);
        let (k, v) = (qkv.narrow(1, kv_heads, kv_heads), qkv.narrow(1, 2 * kv_heads, kv_heads));
        let place = |at: i64| i64::from(page_of[slot * SLOT_PAGES as usize + at as usize / 64]) * 64 + at % 64;
        let places = Tensor::from_slice(&(0..length).map(place).collect::<Vec<_>>()).to_device(CARD);
        let arguments = [
            (&k).into(),
            (&v).into(),
            k.stride()[0].into(),
            v.stride()[0].into(),
            (&places).into(),
            paged.keys.argument(),
            paged.values.argument(),
            length.into(),
            (kv_heads as i32).into(),
        ];
        let blocks = ((length * kv_heads * dim / 8) as u32).div_ceil(256).max(1);
        launch(&module, "write_cache", [blocks, 1], [256, 1], 0, &arguments);
        past.push([wide(&k), wide(&v)]);
    }
    let norms = normed.then(|| [random(&[dim]), random(&[dim])]);
    let [cosine, sine] = tables(SLOT_PAGES * 64, dim);
    let blocks = rows * kv_heads * ((share + 7) / 8);
    let parts = Guarded::new(&[blocks, splits, share.min(8), dim + 2], FLOAT);
    let arrived = Tensor::zeros([blocks], INT);
    for step in 0..2 {
        let qkv = random(&[rows, (heads + 2 * kv_heads) * dim]);
        let out = Guarded::new(&[rows, heads, dim], (narrow(), CARD));
        let arguments = [
            (&qkv).into(),
            norms.as_ref().map(|norms| &norms[0]).into(),
            norms.as_ref().map(|norms| &norms[1]).into(),
            (EPS as f32).into(),
            (&cosine).into(),
            (&sine).into(),
            (&paged.rows).into(),
            (&paged.position).into(),
            (&paged.done).into(),
            (&paged.pages).into(),
            paged.keys.argument(),
            paged.values.argument(),
            out.argument(),
            parts.argument(),
            (&arrived).into(),
            (kv_heads as i32).into(),
            (SLOT_PAGES as i32).into(),
            (dim as f32).powf(-0.5).into(),
        ];
        let grid = [blocks as u32, splits as u32];
        launch(&module, "attend", grid, [64, 1], 0, &arguments);
        let (out, qkv) = (out.written(), wide(&qkv).view([rows, -1, dim]));
        for (row, &slot) in slot_of.iter().enumerate() {
            let (out, qkv) = (out.get(row as i64), qkv.narrow(0, row as i64, 1));
            if row == 2 || row == 3 {
                assert_eq!(count(&out.isnan()), heads * dim, "rows without a live slot");
                continue;
            }
            let past = &mut past[slot as usize];
            let at = Tensor::from_slice(&[past[0].size()[0]]).to_device(CARD);
            let turns = Turns::new(&wide(&cosine), &wide(&sine), &at);
            let mut parts = qkv.split_with_sizes([heads, kv_heads, kv_heads], 1);
            if let Some(norms) = &norms {
                for (part, norm) in parts.iter_mut().zip(norms) {
                    *part = ops::add_norm(part, None, &wide(norm), EPS).out;
                }
            }
            let whole = Tensor::cat(&parts, 1).view([1, -1]);
            let (q, k, v) = ops::rotate(&whole, &turns, heads, kv_heads);
            let round = |tensor: &Tensor| wide(&tensor.to_kind(narrow()));
            let (q, k) = (round(&q), round(&k));
            *past = [Tensor::cat(&[&past[0], &k], 0), Tensor::cat(&[&past[1], &v], 0)];
            let spread = |past: &Tensor| past.repeat_interleave_self_int(share, 1, None).transpose(0, 1);
            let scores = q.transpose(0, 1).matmul(&spread(&past[0]).transpose(1, 2)) * (dim as f64).powf(-0.5);
            let expected = scores
                .softmax(-1, None::<Kind>)
                .matmul(&spread(&past[1]))
                .squeeze_dim(1);
            // Weights are rounded before they meet the values.
            let apart = gap(&out, &expected);
            assert!(
                apart < 2.0 * once(),
                "{dim} {share} {kv_heads} {splits}: row {row} of step {step}: {apart}"
            );
        }
        let mut written = 0;
        for past in &past {
            written += past[0].numel() as i64;
        }
        for side in [&paged.keys, &paged.values] {
            assert_eq!(
                count(&side.written().isnan().logical_not()),
                written,
                "the rest of the cache"
            );
        }
        assert_eq!(count(&arrived), 0);
        let _ = parts.written();
        let live: Vec<i64> = (0..rows as usize)
            .filter(|&row| row != 2 && row != 3)
            .map(|row| i64::from(slot_of[row]))
            .collect();
        let live = Tensor::from_slice(&live).to_device(CARD);
        let ones = Tensor::ones([live.size()[0]], INT);
        let _ = paged.position.shallow_clone().index_add_(0, &live, &ones);
    }
}

fn pages_and_embeddings() {
    let module = kernels::of_heads(narrow(), 64, 3).unwrap();
    let (keys, values) = (random(&[3, 5, 2, 64, 64]), random(&[3, 5, 2, 64, 64]));
    let (found_keys, found_values) = (Guarded::holding(&keys), Guarded::holding(&values));
    let [from, to] = [[0, 2], [4, 1]].map(|pages: [i32; 2]| Tensor::from_slice(&pages).to_device(CARD));
    let arguments = [
        found_keys.argument(),
        found_values.argument(),
        (&from).into(),
        (&to).into(),
        5.into(),
        2.into(),
    ];
    launch(&module, "copy_pages", [2, 3], [256, 1], 0, &arguments);
    let order = Tensor::from_slice(&[0i64, 2, 2, 3, 0]).to_device(CARD);
    assert!(found_keys.written().equal(&keys.index_select(1, &order)));
    assert!(found_values.written().equal(&values.index_select(1, &order)));

    let (table, width) = (random(&[100, 584]), 584);
    let tokens = Tensor::randint(100, [6], LONG);
    let (rows, done) = ([4i32, 2, -1, 5, 0], [0i32, 0, 0, 0, 0, 1]);
    let [rows_on, done, tokens_on] = [
        Tensor::from_slice(&rows),
        Tensor::from_slice(&done),
        tokens.to_kind(Kind::Int),
    ]
    .map(|tensor| tensor.to_device(CARD));
    let (out, step) = (Guarded::new(&[5, width], FLOAT), Tensor::full([1], 7, INT));
    let arguments = [
        (&table).into(),
        (&tokens_on).into(),
        (&rows_on).into(),
        (&done).into(),
        out.argument(),
        (&step).into(),
        (width as i32).into(),
    ];
    launch(&module, "embed", [5, 1], [128, 1], 0, &arguments);
    for (row, slot) in rows.into_iter().enumerate() {
        let found = out.written().get(row as i64);
        if slot < 0 || slot == 5 {
            assert_eq!(count(&found.isnan()), width);
        } else {
            let token = tokens.int64_value(&[i64::from(slot)]);
            assert!(found.equal(&table.get(token).to_kind(Kind::Float)));
        }
    }
    assert_eq!(step.int64_value(&[0]), 8);
}
