//! What this process gets out of its device at best: how fast memory is copied, and how fast matrices are multiplied.
//! What is achieved is held against this instead of a data sheet.

use std::time::{Duration, Instant};

use rlpipe_wire::v1;
use tch::{Cuda, Device, Kind, Tensor};

/// Each rate is the best of what fits into this time.
const TIME: Duration = Duration::from_millis(300);
/// And of at least so many tries, the first of which wakes the device.
const LEAST_TRIES: usize = 4;

/// Sizes that are far beyond caches, and keep the whole device busy.
struct Sizes {
    copy_bytes: i64,
    /// Of square matrices.
    width: i64,
    /// Turns that are timed together: on a card, asking whether one has ended would be part of a short one.
    turns: usize,
}

impl Sizes {
    fn of(device: Device) -> Self {
        if device.is_cuda() {
            Self {
                copy_bytes: 1 << 30,
                width: 8192,
                turns: 10,
            }
        } else {
            Self {
                copy_bytes: 256 << 20,
                width: 1024,
                turns: 1,
            }
        }
    }
}

/// Measures all of them.
pub fn measure(device: Device) -> v1::DeviceCeilings {
    let _no_grad = tch::no_grad_guard();
    let sizes = Sizes::of(device);
    v1::DeviceCeilings {
        copy_bytes_per_s: copy(device, &sizes),
        bfloat16_product_operations_per_s: product(device, Kind::BFloat16, &sizes),
        float32_product_operations_per_s: product(device, Kind::Float, &sizes),
    }
}

/// Bytes read and written.
fn copy(device: Device, sizes: &Sizes) -> f64 {
    let from = Tensor::ones([sizes.copy_bytes], (Kind::Uint8, device));
    let mut to = from.zeros_like();
    rate(device, 2.0 * sizes.copy_bytes as f64, sizes.turns, || to.copy_(&from))
}

/// A product of two square matrices of width n is n^3 multiplications and as many additions. The numbers are random:
/// a card that multiplies zeros takes less power, and is faster.
fn product(device: Device, kind: Kind, sizes: &Sizes) -> f64 {
    let random = || Tensor::randn([sizes.width, sizes.width], (Kind::Float, device)).to_kind(kind);
    let (left, right) = (random(), random());
    let out = left.zeros_like();
    rate(device, 2.0 * (sizes.width as f64).powi(3), sizes.turns, || {
        let _ = left.matmul_out(&out, &right);
    })
}

/// Of `work` a turn, how much is done in a second.
fn rate(device: Device, work: f64, turns: usize, mut turn: impl FnMut()) -> f64 {
    let (started, mut tries, mut best) = (Instant::now(), 0, 0.0_f64);
    while tries < LEAST_TRIES || started.elapsed() < TIME {
        let start = Instant::now();
        for _ in 0..turns {
            turn();
        }
        if let Device::Cuda(index) = device {
            Cuda::synchronize(index as i64);
        }
        best = best.max(work * turns as f64 / start.elapsed().as_secs_f64());
        tries += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_work_over_time() {
        let mut turns = 0;
        let rate = rate(Device::Cpu, 10.0, 2, || {
            turns += 1;
            std::thread::sleep(Duration::from_millis(1));
        });
        assert!(turns >= 2 * LEAST_TRIES && turns % 2 == 0, "{turns}");
        // A sleep is never shorter than asked for.
        assert!(rate > 0.0 && rate <= 10_000.0, "{rate}");
    }

    #[test]
    fn every_ceiling_is_a_number() {
        let v1::DeviceCeilings {
            copy_bytes_per_s,
            bfloat16_product_operations_per_s,
            float32_product_operations_per_s,
        } = measure(Device::Cpu);
        for rate in [
            copy_bytes_per_s,
            bfloat16_product_operations_per_s,
            float32_product_operations_per_s,
        ] {
            assert!(rate.is_finite() && rate > 0.0, "{rate}");
        }
    }
}
