//! `native` on a card: graphs, events, pinned memory, kernels compiled at run time, fused operators.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::fs;

use rlpipe_torch::error::caught;
use rlpipe_torch::native::cache::Cache;
use rlpipe_torch::native::cuda::{self, Event, Graph, Pool, Stream, pinned};
use rlpipe_torch::native::kernel::{Argument, Function, Module};
use rlpipe_torch::native::operators::{self, AdamWStep};
use tch::{Device, Kind, Tensor};

const CARD: Device = Device::Cuda(0);
const FLOAT: (Kind, Device) = (Kind::Float, CARD);

#[test]
fn what_tch_lacks_works_on_a_card() {
    let Some(card) = common::card() else { return };
    assert_eq!(card.name, cuda::card().unwrap().name);
    tch::manual_seed(11);
    let parts: [(&str, fn()); 12] = [
        ("streams and events", streams_and_events),
        ("pinned copies", pinned_copies),
        ("memory", memory),
        ("graphs", graphs),
        ("failed captures", failed_captures),
        ("random numbers in a graph", random_numbers_in_a_graph),
        ("kernels", kernels),
        ("kept kernels", kept_kernels),
        ("attention", attention),
        ("products", products),
        ("norms and copies", norms_and_copies),
        ("updates", updates),
    ];
    let failed: Vec<&str> = parts
        .iter()
        .filter(|(name, part)| {
            println!("{name}");
            std::panic::catch_unwind(part).is_err()
        })
        .map(|(name, _)| *name)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.detach().to_device(Device::Cpu).to_kind(Kind::Double).view([-1])).unwrap()
}

/// The largest difference, as a part of the largest of `expected`.
fn gap(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.size(), expected.size());
    let wide = |tensor: &Tensor| tensor.to_kind(Kind::Double);
    let most = |tensor: Tensor| tensor.abs().max().double_value(&[]);
    most(wide(found) - wide(expected)) / most(wide(expected))
}

/// Some milliseconds of work on the current stream.
fn busy() -> Tensor {
    let a = Tensor::ones([4096, 4096], FLOAT) * 1e-4;
    (0..20).fold(a.shallow_clone(), |b, _| b.matmul(&a))
}

fn streams_and_events() {
    let (before, side) = (Stream::current().unwrap(), Stream::new().unwrap());
    assert_ne!(before, side);
    let [begin, end] = [true, true].map(|timing| Event::new(timing).unwrap());
    assert!(begin.done().unwrap());
    let _ = busy();
    before.synchronize().unwrap();
    let result = {
        let _entered = side.enter().unwrap();
        assert_eq!(Stream::current().unwrap(), side);
        let elsewhere = std::thread::spawn(|| Stream::current().unwrap()).join().unwrap();
        assert_eq!(elsewhere, before);
        begin.record(side).unwrap();
        let result = busy();
        end.record(side).unwrap();
        result
    };
    assert_eq!(Stream::current().unwrap(), before);
    assert!(!end.done().unwrap());
    before.wait(&end).unwrap();
    let sum = result.sum(Kind::Double).double_value(&[]);
    assert!(end.done().unwrap() && sum.is_finite());
    end.synchronize().unwrap();
    let milliseconds = begin.milliseconds_until(&end).unwrap();
    assert!(milliseconds > 0.1 && milliseconds < 1000.0, "{milliseconds}");
}

fn pinned_copies() {
    let there = Tensor::arange(1000, (Kind::Int64, CARD)).view([10, 100]);
    let here = pinned(&[10, 100], Kind::Int64).unwrap();
    assert!(here.device() == Device::Cpu && here.size() == [10, 100]);
    let event = Event::new(false).unwrap();
    operators::copy_later(&here, &there).unwrap();
    event.record(Stream::current().unwrap()).unwrap();
    event.synchronize().unwrap();
    assert!(here.equal(&there.to_device(Device::Cpu)));

    // The copy waits its turn on the stream, and the host does not wait for it.
    let here = pinned(&[1], Kind::Float).unwrap();
    let _ = here.shallow_clone().fill_(7.0);
    let there = Tensor::full([1], 3.0, FLOAT);
    // Nothing that is new to the process comes after the work: loading a kernel waits for the card.
    let _work = busy();
    operators::copy_later(&here, &there).unwrap();
    event.record(Stream::current().unwrap()).unwrap();
    assert!(!event.done().unwrap());
    assert_eq!(numbers(&here), [7.0]);
    event.synchronize().unwrap();
    assert_eq!(numbers(&here), [3.0]);
    let _ = here.shallow_clone().fill_(5.0);
    operators::copy_later(&there, &here).unwrap();
    assert_eq!(numbers(&there), [5.0]);
}

fn memory() {
    cuda::empty_cache().unwrap();
    cuda::reset_peak().unwrap();
    let before = cuda::memory().unwrap();
    let size = 64u64 << 20;
    drop(Tensor::zeros([size as i64], (Kind::Uint8, CARD)));
    let after = cuda::memory().unwrap();
    assert_eq!(after.allocated, before.allocated);
    assert!(after.peak_allocated >= before.allocated + size && after.peak_reserved >= after.peak_allocated);
    assert!(after.reserved >= before.reserved + size && after.free + size <= before.free + (1 << 20));
    assert!(after.total >= after.free && after.reserved >= after.allocated);
    cuda::reset_peak().unwrap();
    cuda::empty_cache().unwrap();
    let emptied = cuda::memory().unwrap();
    assert!(emptied.reserved + size <= after.reserved && emptied.peak_allocated == emptied.allocated);
}

/// A graph that multiplies `x` by `factor`, and its result.
fn times(pool: &Pool, x: &Tensor, factor: f64) -> (Graph, Tensor) {
    Graph::capture(pool, || Ok(x * factor)).unwrap()
}

fn graphs() {
    let pool = Pool::new().unwrap();
    let mut x = Tensor::ones([1 << 20], FLOAT);
    let (double, doubled) = times(&pool, &x, 2.0);
    let before = cuda::memory().unwrap();
    let others: Vec<_> = (0..8).map(|index| times(&pool, &x, f64::from(index))).collect();
    drop(pool);
    for value in [3.0, 5.0] {
        let _ = x.fill_(value);
        double.replay().unwrap();
        assert_eq!(numbers(&doubled.narrow(0, 0, 2)), [2.0 * value; 2]);
        for (index, (graph, result)) in others.iter().enumerate() {
            graph.replay().unwrap();
            assert_eq!(numbers(&result.narrow(0, 0, 1)), [index as f64 * value]);
        }
    }
    // Results that live are apart; scratch is shared. 4 MiB a result, in segments of 20 MiB at most.
    assert!(cuda::memory().unwrap().reserved <= before.reserved + (60 << 20));
    drop((double, others));
    assert_eq!(numbers(&doubled.narrow(0, 0, 1)), [10.0]);
}

fn failed_captures() {
    let pool = Pool::new().unwrap();
    let mut x = Tensor::ones([4], FLOAT);
    let (double, doubled) = times(&pool, &x, 2.0);
    let usable = |value: f64| {
        let random = Tensor::rand([64], FLOAT);
        assert!(numbers(&random).iter().all(|x| (0.0..1.0).contains(x)));
        tch::manual_seed(5);
        drop(Tensor::zeros([100 << 20], (Kind::Uint8, CARD)));
        cuda::empty_cache().unwrap();
        let _ = x.fill_(value);
        double.replay().unwrap();
        assert_eq!(numbers(&doubled), [2.0 * value; 4]);
    };
    let mut usable = usable;
    // The third call records, and there a read of the card is not allowed.
    let y = Tensor::ones([4], FLOAT);
    let mut runs = 0;
    let error = Graph::capture(&pool, || {
        runs += 1;
        Ok(y.f_sum(Kind::Float)?.f_double_value(&[])?)
    });
    assert!(error.unwrap_err().0.contains("captur") && runs == 3);
    usable(3.0);
    let error = caught(|| Graph::capture(&pool, || Ok((&y * 2.0).sum(Kind::Float).double_value(&[]))).map(drop));
    assert!(error.unwrap_err().0.contains("captur"));
    usable(4.0);
    let error = Graph::capture(&pool, || {
        let _ = &y + 1.0;
        runs += 1;
        if runs == 6 {
            Err(rlpipe_torch::Error("given up".to_owned()))
        } else {
            Ok(())
        }
    });
    assert_eq!(error.map(drop).unwrap_err().0, "given up");
    usable(5.0);
    let (triple, tripled) = times(&pool, &y, 3.0);
    triple.replay().unwrap();
    assert_eq!(numbers(&tripled), [3.0; 4]);
    usable(6.0);
}

fn random_numbers_in_a_graph() {
    let pool = Pool::new().unwrap();
    let (graph, drawn) = Graph::capture(&pool, || Ok(Tensor::rand([32], FLOAT))).unwrap();
    let replay = || {
        graph.replay().unwrap();
        numbers(&drawn)
    };
    tch::manual_seed(9);
    let first = [replay(), replay()];
    assert_ne!(first[0], first[1]);
    tch::manual_seed(9);
    assert_eq!([replay(), replay()], first);
    tch::manual_seed(9);
    assert_eq!(numbers(&Tensor::rand([32], FLOAT)), first[0]);
}

const SOURCE: &str = r#"
extern "C" __global__ void line(const float *x, float *out, const float *bias, long long count, int offset, float slope) {
  extern __shared__ float shared[];
  long long at = (static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  // The last of the dynamic shared memory is used.
  shared[SHARED / sizeof(float) - 1 - threadIdx.x] = at < count ? x[at] : 0;
  if (at < count) out[at] = slope * shared[SHARED / sizeof(float) - 1 - threadIdx.x] + offset + (bias ? *bias : 0);
}
"#;

fn line(function: &Function, shared_bytes: u32, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let (out, count) = (x.empty_like(), x.numel());
    let arguments = [
        x.into(),
        (&out).into(),
        bias.into(),
        Argument::I64(count as i64),
        Argument::I32(-3),
        Argument::F32(0.5),
    ];
    let grid = [count.div_ceil(256) as u32, 2, 1];
    // SAFETY: the arguments are those of `line`, and `count` numbers lie at `x` and `out`.
    unsafe { function.launch(grid, [128, 1, 1], shared_bytes, &arguments) }.unwrap();
    out
}

fn kernels() {
    let shared_bytes = 200 << 10;
    let size = format!("-DSHARED={shared_bytes}");
    let none = Cache(None);
    let function = Module::compile_with(&none, SOURCE, &[&size])
        .unwrap()
        .function("line")
        .unwrap();
    let x = Tensor::arange(1001, FLOAT);
    let bias = Tensor::from(10.0f32).to_device(CARD);
    assert!(line(&function, shared_bytes, &x, None).equal(&(&x * 0.5 - 3.0)));
    assert!(line(&function, shared_bytes, &x, Some(&bias)).equal(&(&x * 0.5 + 7.0)));
    let pool = Pool::new().unwrap();
    let (graph, out) = Graph::capture(&pool, || Ok(line(&function, shared_bytes, &x, None))).unwrap();
    let _ = x.shallow_clone().fill_(4.0);
    graph.replay().unwrap();
    assert_eq!(numbers(&out.narrow(0, 999, 2)), [-1.0; 2]);

    let error = Module::compile_with(&none, "extern \"C\" __global__ void f() { nonsense; }", &[])
        .unwrap_err()
        .0;
    assert!(
        error.starts_with("kernels do not compile: kernels.cu(1): error"),
        "{error}"
    );
    assert!(error.contains("nonsense"), "{error}");
    let module = Module::compile_with(&none, SOURCE, &[&size]).unwrap();
    assert!(module.function("circle").unwrap_err().0.contains("circle"));
    let arguments = [
        (&x).into(),
        (&x).into(),
        None.into(),
        Argument::I64(0),
        Argument::I32(0),
        Argument::F32(0.0),
    ];
    // SAFETY: refused before anything runs.
    let error = unsafe { function.launch([1; 3], [4096, 1, 1], 0, &arguments) }
        .unwrap_err()
        .0;
    assert!(error.contains("cuLaunchKernelEx: invalid argument"), "{error}");
}

fn kept_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache(Some(folder.path().join("kernels")));
    let files = || {
        let mut files: Vec<_> = fs::read_dir(folder.path().join("kernels"))
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        files.sort();
        files
    };
    let x = Tensor::arange(10, FLOAT);
    let right = |cache: &Cache, shared: &str| {
        let module = Module::compile_with(cache, SOURCE, &[shared]).unwrap();
        assert!(line(&module.function("line").unwrap(), 1024, &x, None).equal(&(&x * 0.5 - 3.0)));
    };
    right(&cache, "-DSHARED=1024");
    let whole = fs::read(&files()[0]).unwrap();
    // What is found is used: an entry of another source under this name is what is loaded.
    right(&cache, "-DSHARED=512");
    assert_eq!(files().len(), 2);
    let [first, second] = files().try_into().unwrap();
    let (entry, other) = if fs::read(&first).unwrap() == whole {
        (first, second)
    } else {
        (second, first)
    };
    let code = Module::compile_with(&cache, "extern \"C\" __global__ void another() {}", &[]).map(drop);
    code.unwrap();
    let third = files()
        .into_iter()
        .find(|path| *path != entry && *path != other)
        .unwrap();
    fs::copy(&third, &entry).unwrap();
    assert!(
        Module::compile_with(&cache, SOURCE, &["-DSHARED=1024"])
            .unwrap()
            .function("another")
            .is_ok()
    );
    for damage in [whole[..whole.len() / 2].to_vec(), b"no kernel".to_vec(), Vec::new()] {
        fs::write(&entry, damage).unwrap();
        right(&cache, "-DSHARED=1024");
        assert_eq!(fs::read(&entry).unwrap(), whole);
    }
    right(&Cache(Some(entry)), "-DSHARED=1024");
}

/// Causal attention of each sequence by itself, in float32.
fn plain_attention(q: &Tensor, k: &Tensor, v: &Tensor, lengths: &[i64], scale: f64) -> (Tensor, Tensor) {
    let share = q.size()[1] / k.size()[1];
    let (mut outs, mut all, mut start) = (Vec::new(), Vec::new(), 0);
    for &length in lengths {
        // [heads, length, head size]
        let of = |x: &Tensor, share: i64| {
            x.narrow(0, start, length)
                .transpose(0, 1)
                .repeat_interleave_self_int(share, 0, None)
        };
        let future = Tensor::ones([length, length], (Kind::Bool, CARD)).triu(1);
        let scores = of(q, 1).matmul(&of(k, share).transpose(1, 2)) * scale;
        let scores = scores.masked_fill(&future, f64::NEG_INFINITY);
        outs.push(scores.softmax(-1, Kind::Float).matmul(&of(v, share)).transpose(0, 1));
        all.push(scores.logsumexp([-1], false));
        start += length;
    }
    (Tensor::cat(&outs, 0), Tensor::cat(&all, 1))
}

fn attention() {
    let lengths = [1, 7, 129, 64, 33, 300, 2];
    let tokens: i64 = lengths.iter().sum();
    let starts: Vec<i32> = (0..=lengths.len())
        .map(|n| lengths[..n].iter().sum::<i64>() as i32)
        .collect();
    let starts = Tensor::from_slice(&starts).to_device(CARD);
    for (heads, key_heads) in [(9, 3), (4, 4), (14, 2)] {
        for size in [64, 128] {
            let scale = 1.0 / (size as f64).sqrt();
            // Columns of one product, as the trainer has them: rows are not contiguous.
            let both = Tensor::randn([tokens, (heads + 2 * key_heads) * size], FLOAT).to_kind(Kind::BFloat16);
            let part = |from: i64, heads: i64| both.narrow(1, from * size, heads * size).view([tokens, heads, size]);
            let [q, k, v] = [
                part(0, heads),
                part(heads, key_heads),
                part(heads + key_heads, key_heads),
            ];
            let d_out = Tensor::randn([tokens, heads, size], FLOAT).to_kind(Kind::BFloat16);
            let (out, lse) = operators::flash_attention(&q, &k, &v, &starts, 300, scale).unwrap();
            let gradients =
                operators::flash_attention_backward(&d_out, [&q, &k, &v], (&out, &lse), &starts, 300, scale).unwrap();

            let leaves = [&q, &k, &v].map(|x| x.to_kind(Kind::Float).detach().set_requires_grad(true));
            let (expected, sums) = plain_attention(&leaves[0], &leaves[1], &leaves[2], &lengths, scale);
            (&expected * d_out.to_kind(Kind::Float)).sum(Kind::Float).backward();
            let what = format!("{heads}/{key_heads} heads of {size}");
            assert!(
                gap(&out, &expected.detach()) < 0.01,
                "{what}: {}",
                gap(&out, &expected.detach())
            );
            assert!(
                gap(&lse, &sums.detach()) < 1e-4,
                "{what}: {}",
                gap(&lse, &sums.detach())
            );
            for (found, leaf) in gradients.iter().zip(&leaves) {
                assert_eq!(found.kind(), Kind::BFloat16);
                assert!(gap(found, &leaf.grad()) < 0.01, "{what}: {}", gap(found, &leaf.grad()));
            }
        }
    }
}

/// What `native/operators.rs` says of tch's own products.
fn products() {
    let narrow = |size: [i64; 2]| Tensor::randn(size, FLOAT).to_kind(Kind::BFloat16);
    let (d_out, x) = (narrow([1001, 192]), narrow([1001, 64]));
    let sum = Tensor::randn([192, 64], FLOAT);
    let wide = |x: &Tensor| x.to_kind(Kind::Double);
    let product = wide(&d_out).tr().matmul(&wide(&x));
    let (expected, address) = (wide(&sum) + &product, sum.data_ptr());
    let returned = sum.f_addmm_dtype_out(&sum, &d_out.tr(), &x, Kind::Float).unwrap();
    assert_eq!((returned.data_ptr(), sum.data_ptr()), (address, address));
    assert!(gap(&sum, &expected) < 1e-5, "{}", gap(&sum, &expected));
    let found = d_out.tr().f_mm_dtype(&x, Kind::Float).unwrap();
    assert!(found.kind() == Kind::Float && gap(&found, &product) < 1e-5);
}

fn norms_and_copies() {
    let tensors: Vec<Tensor> = [&[300, 70][..], &[5], &[1], &[64, 3, 2]]
        .map(|size| Tensor::randn(size, FLOAT))
        .into();
    let flat = |tensors: &[Tensor]| Tensor::cat(&tensors.iter().map(|t| t.view([-1])).collect::<Vec<_>>(), 0);
    let before = flat(&tensors);
    let norm = operators::total_norm(&tensors).unwrap();
    assert!(norm.device() == CARD && norm.kind() == Kind::Double);
    assert!(gap(&norm, &before.to_kind(Kind::Double).norm()) < 1e-6);
    let narrow: Vec<Tensor> = tensors.iter().map(|t| t.to_kind(Kind::BFloat16).zeros_like()).collect();
    operators::foreach_copy(&narrow, &tensors).unwrap();
    assert!(flat(&narrow).equal(&before.to_kind(Kind::BFloat16)));
    operators::foreach_mul(&tensors, &(norm.reciprocal() * 2.0).to_kind(Kind::Float)).unwrap();
    assert!((operators::total_norm(&tensors).unwrap().double_value(&[]) - 2.0).abs() < 1e-6);
    operators::foreach_zero(&tensors).unwrap();
    assert_eq!(operators::total_norm(&tensors).unwrap().double_value(&[]), 0.0);
    let infinite = [Tensor::from(f32::INFINITY).to_device(CARD)];
    assert!(
        operators::total_norm(&infinite)
            .unwrap()
            .double_value(&[])
            .is_infinite()
    );
}

fn updates() {
    for (kind, tolerance) in [(Kind::Double, 1e-12), (Kind::Float, 1e-6)] {
        let list = || {
            [
                Tensor::randn([37, 11], (kind, CARD)),
                Tensor::randn([70_001], (kind, CARD)),
            ]
        };
        let (parameters, [means, squares]) = (list(), [0, 1].map(|_| list().map(|t| t.zeros_like())));
        let mut expected = parameters
            .each_ref()
            .map(|p| (p.to_kind(Kind::Double), 0.0 * p, 0.0 * p));
        let mut settings = AdamWStep {
            step: 0,
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.95,
            weight_decay: 0.1,
            eps: 1e-8,
        };
        for step in 1..=4 {
            settings.step = step;
            let gradients = list();
            let divisor = 4.0;
            let scale = Tensor::from(divisor as f32).to_device(CARD);
            for ((x, m, v), gradient) in expected.iter_mut().zip(&gradients) {
                let g = gradient.to_kind(Kind::Double) / divisor;
                *m = &*m * settings.beta1 + &g * (1.0 - settings.beta1);
                *v = &*v * settings.beta2 + &g * &g * (1.0 - settings.beta2);
                let mean = &*m / (1.0 - settings.beta1.powi(step as i32));
                let square: Tensor = &*v / (1.0 - settings.beta2.powi(step as i32));
                let root = square.sqrt() + settings.eps;
                *x =
                    &*x * (1.0 - settings.learning_rate * settings.weight_decay) - mean / root * settings.learning_rate;
            }
            operators::fused_adamw(&parameters, &gradients, &means, &squares, &settings, Some(&scale), None).unwrap();
            let skip = Tensor::from(1f32).to_device(CARD);
            let poison = [0, 1].map(|index| &gradients[index] * f64::NAN);
            operators::fused_adamw(&parameters, &poison, &means, &squares, &settings, None, Some(&skip)).unwrap();
        }
        for (found, (x, ..)) in parameters.iter().zip(&expected) {
            assert!(gap(found, x) < tolerance, "{kind:?}: {}", gap(found, x));
        }
    }
}
