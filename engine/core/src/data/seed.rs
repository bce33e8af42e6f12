//! Seeds are hashes of names and numbers, never a stream: what one rollout draws does not depend on the others.

use std::hash::Hasher;

/// A 64-bit seed made of what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed of a run.
    pub fn run(seed: u64) -> Self {
        Self(0).with(seed)
    }

    /// A seed for something numbered below this one.
    #[must_use]
    pub fn with(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number.wrapping_add(0x9e37_79b9_7f4a_7c15))))
    }

    /// A seed for something named below this one.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        hasher.write(name.as_bytes());
        self.with(hasher.finish())
    }
}

/// The finaliser of splitmix64 (Steele, Lea and Flood 2014).
pub(super) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// FNV-1a: the standard library's hasher may change between releases, and seeds must not.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_by_name_number_and_order() {
        let run = Seed::run(1);
        assert_ne!(run.with(1).with(2), run.with(2).with(1));
        assert_ne!(run.named("a"), run.named("b"));
        assert_ne!(Seed::run(1), Seed::run(2));
    }
}
