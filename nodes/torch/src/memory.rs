//! What this process has taken of memory at most.

use rlpipe_wire::v1;
use tch::Device;

use crate::device::memory_bytes;

/// The most that was seen in use on the card.
///
/// Torch's allocator keeps what it has asked the card for, so what is in use after a command is the most that the command
/// needed, the CUDA context included. Other processes on the card are counted too.
#[derive(Debug, Default)]
pub struct Peak {
    accelerator_bytes: u64,
}

impl Peak {
    /// Looks at the card.
    pub fn look(&mut self, device: Device) {
        if let Some((free, total)) = memory_bytes(device) {
            self.accelerator_bytes = self.accelerator_bytes.max(total - free);
        }
    }

    /// What was seen, and what the kernel says of the machine's memory.
    pub fn report(&self) -> v1::MemoryPeak {
        v1::MemoryPeak {
            host_bytes: host_peak_bytes().unwrap_or(0),
            accelerator_bytes: self.accelerator_bytes,
        }
    }
}

/// `VmHWM`: the most that was resident at once, mapped files included.
fn host_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_peak_stays_when_what_made_it_is_gone() {
        let before = host_peak_bytes().unwrap();
        let held = std::hint::black_box(vec![1u8; 64 << 20]);
        let during = host_peak_bytes().unwrap();
        assert!(during >= before + (60 << 20), "{before} {during}");
        assert_eq!(held.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
        drop(held);
        // The kernel adds up what processors count by themselves: a few pages more or less.
        assert!(host_peak_bytes().unwrap() + (1 << 20) >= during);
    }

    #[test]
    fn without_a_card_nothing_is_seen_of_it() {
        let mut peak = Peak::default();
        peak.look(Device::Cpu);
        assert_eq!(peak.report().accelerator_bytes, 0);
        assert!(peak.report().host_bytes > 0);
    }
}
