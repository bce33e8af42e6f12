//! Counter random numbers: a value is a function of a key and an index alone, never of a generator's state.
//!
//! The bits are the finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").

use std::f64::consts::TAU;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Number `index` of the stream `key`, in (0, 1): a multiple of 2^-49, so that its product with a double `x` is below `x`.
pub fn uniform(key: u64, index: u64) -> f64 {
    let bits = mix(mix(key ^ GOLDEN).wrapping_add(GOLDEN.wrapping_mul(index.wrapping_add(1))));
    ((bits >> 16) as f64 + 0.5) * 2f64.powi(-48)
}

/// Number `index` of the stream `key` with mean 0 and deviation 1 (Box and Muller).
pub fn normal(key: u64, index: u64) -> f64 {
    let radius = (-2.0 * uniform(key, 2 * index).ln()).sqrt();
    radius * (TAU * uniform(key, 2 * index + 1)).cos()
}

/// The stream of a name under a seed (FNV-1a of the name, mixed with the seed).
pub fn key(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash ^ mix(seed.wrapping_add(GOLDEN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finaliser_is_that_of_splitmix64() {
        // First outputs of the reference generator seeded with 0 and 1234567.
        assert_eq!(mix(GOLDEN), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1_234_567u64.wrapping_add(GOLDEN)), 6_457_827_717_110_365_317);
    }

    #[test]
    fn moments_of_the_normal() {
        let draws: Vec<f64> = (0..200_000).map(|index| normal(5, index)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let moment = |power| draws.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.01 && (moment(2) - 1.0).abs() < 0.02 && (moment(4) - 3.0).abs() < 0.1);
    }

    #[test]
    fn neighbouring_keys_do_not_share_a_stream() {
        let stream = |key| (0..64).map(|index| uniform(key, index).to_bits()).collect::<Vec<_>>();
        assert_ne!(stream(1), stream(2));
        let (one, shifted) = (stream(1), stream(1 + GOLDEN));
        assert!(one.iter().all(|draw| !shifted.contains(draw)));
        assert_ne!(key(1, "a"), key(1, "b"));
        assert_ne!(key(1, "a"), key(2, "a"));
    }
}
