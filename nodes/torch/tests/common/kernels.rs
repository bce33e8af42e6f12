//! What tests of kernels share: outputs that are poisoned and guarded, launches, and comparisons.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use rlpipe_torch::native::kernel::{Argument, Module};
use tch::{Device, Kind, Tensor};

pub const CARD: Device = Device::Cuda(0);
pub const FLOAT: (Kind, Device) = (Kind::Float, CARD);
pub const INT: (Kind, Device) = (Kind::Int, CARD);
pub const LONG: (Kind, Device) = (Kind::Int64, CARD);
/// Elements before and after an output that must stay as they are.
const GUARD: i64 = 64;
/// What is in an integer output before.
const POISON: i64 = -77_777;

static IS_FLOAT16: AtomicBool = AtomicBool::new(false);

/// The half type that a part is run in.
pub fn narrow() -> Kind {
    match IS_FLOAT16.load(Ordering::Relaxed) {
        true => Kind::Half,
        false => Kind::BFloat16,
    }
}

/// An error in units of bfloat16, in those of the half type: float16 has three bits more.
pub fn rounded(bfloat16: f64) -> f64 {
    match narrow() {
        Kind::Half => bfloat16 / 8.0,
        _ => bfloat16,
    }
}

/// Runs each part in each half type.
pub fn run_in_halves(parts: &[(&str, fn())]) {
    for is_float16 in [false, true] {
        IS_FLOAT16.store(is_float16, Ordering::Relaxed);
        println!("{:?}", narrow());
        run(parts);
    }
}

/// Runs each part, and fails with the names of those that did; prints the seed of their random inputs, fresh each time.
pub fn run(parts: &[(&str, fn())]) {
    let seed = (RandomState::new().build_hasher().finish() >> 2) as i64;
    println!("seed {seed}");
    tch::manual_seed(seed);
    let _no_grad = tch::no_grad_guard();
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

/// An output between guards, all of it not a number (or [`POISON`]).
pub struct Guarded {
    whole: Tensor,
    /// Of the output.
    pub size: Vec<i64>,
}

impl Guarded {
    pub fn new(size: &[i64], options: (Kind, Device)) -> Self {
        let whole = [size.iter().product::<i64>() + 2 * GUARD];
        Self {
            whole: match options.0 {
                Kind::Int => Tensor::full(whole, POISON, options),
                _ => Tensor::full(whole, f64::NAN, options),
            },
            size: size.to_vec(),
        }
    }

    pub fn holding(values: &Tensor) -> Self {
        let guarded = Self::new(&values.size(), (values.kind(), CARD));
        guarded.inside().copy_(values);
        guarded
    }

    pub fn inside(&self) -> Tensor {
        self.whole
            .narrow(0, GUARD, self.size.iter().product())
            .view(self.size.as_slice())
    }

    pub fn argument(&self) -> Argument {
        Argument::from(&self.inside())
    }

    /// What was written, when the guards are whole.
    pub fn written(&self) -> Tensor {
        let length = self.whole.size()[0];
        let guards = Tensor::cat(
            &[
                self.whole.narrow(0, 0, GUARD),
                self.whole.narrow(0, length - GUARD, GUARD),
            ],
            0,
        );
        let whole = match guards.kind() {
            Kind::Int => guards.eq(POISON),
            _ => guards.isnan(),
        };
        assert_eq!(count(&whole), 2 * GUARD, "guards");
        self.inside()
    }
}

pub fn count(flags: &Tensor) -> i64 {
    flags.sum(Kind::Int64).int64_value(&[])
}

pub fn launch(module: &Module, name: &str, grid: [u32; 2], block: [u32; 2], shared_bytes: u32, arguments: &[Argument]) {
    let function = module.function(name).unwrap();
    let (grid, block) = ([grid[0], grid[1], 1], [block[0], block[1], 1]);
    // SAFETY: the tests give what the comment above the kernel asks for.
    unsafe { function.launch(grid, block, shared_bytes, arguments).unwrap() }
}

pub fn random(size: &[i64]) -> Tensor {
    Tensor::randn(size, FLOAT).to_kind(narrow())
}

pub fn wide(tensor: &Tensor) -> Tensor {
    tensor.to_kind(Kind::Double)
}

/// The error's root mean square, as a part of the values'; not a number where anything found is.
pub fn gap(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.size(), expected.size());
    let expected = wide(expected);
    ((wide(found) - &expected).norm() / expected.norm().clamp_min(1e-30)).double_value(&[])
}

pub fn numbers<T: tch::kind::Element + Copy>(tensor: &Tensor) -> Vec<T>
where
    Vec<T>: TryFrom<Tensor, Error = tch::TchError>,
{
    Vec::try_from(tensor.to_device(Device::Cpu).contiguous().view([-1])).unwrap()
}

/// A number of `below`, by torch's generator.
pub fn below(below: i64) -> i64 {
    Tensor::randint(below, [1], (Kind::Int64, Device::Cpu)).int64_value(&[0])
}
