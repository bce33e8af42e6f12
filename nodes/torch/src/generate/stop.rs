//! Stop strings, looked for in the bytes of tokens as they come: a string, and a character, may be spread over several.

use crate::{Result, fail};

/// The stop strings of a request, and what its samples end with so far.
#[derive(Debug)]
pub struct StopStrings {
    strings: Vec<Vec<u8>>,
    /// For each sample its last bytes: as many as may be the start of a stop string.
    tails: Vec<Vec<u8>>,
}

impl StopStrings {
    /// For so many samples.
    pub fn new(strings: Vec<String>, samples: usize) -> Result<Self> {
        if strings.iter().any(String::is_empty) {
            fail!("a stop string is empty; it would end every sample");
        }
        Ok(Self {
            strings: strings.into_iter().map(String::into_bytes).collect(),
            tails: vec![Vec::new(); samples],
        })
    }

    /// Takes the bytes of a sample's next token. Where they complete a stop string, and `counts`, says how many bytes at
    /// the end are that string and what the token has after it; of several strings the one that starts first.
    pub fn push(&mut self, sample: usize, bytes: &[u8], counts: bool) -> Option<u32> {
        let longest = self.strings.iter().map(Vec::len).max()?;
        let tail = &mut self.tails[sample];
        let before = tail.len();
        tail.extend_from_slice(bytes);
        let start = |string: &Vec<u8>| {
            // Only what ends in the new bytes: anything earlier was looked at, or did not count.
            let first = (before + 1).saturating_sub(string.len());
            tail[first..]
                .windows(string.len())
                .position(|part| part == string)
                .map(|at| first + at)
        };
        let found = self.strings.iter().filter_map(start).min().filter(|_| counts);
        let stop_bytes = found.map(|start| (tail.len() - start) as u32);
        tail.drain(..tail.len().saturating_sub(longest - 1));
        stop_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is left of a text that ends before the first stop string in it.
    fn first_stop<'a>(text: &'a str, stops: &[String]) -> Option<&'a str> {
        let start = stops.iter().filter_map(|stop| text.find(stop.as_str())).min()?;
        Some(&text[..start])
    }

    #[test]
    fn an_empty_string_is_refused() {
        let error = StopStrings::new(vec!["a".into(), String::new()], 1)
            .err()
            .map(|error| error.0);
        assert_eq!(
            error.as_deref(),
            Some("a stop string is empty; it would end every sample")
        );
    }

    #[test]
    fn what_lies_before_the_smallest_length_does_not_count() -> Result<()> {
        let mut stops = StopStrings::new(vec!["ab".into()], 1)?;
        assert_eq!(stops.push(0, b"xab", false), None);
        assert_eq!(stops.push(0, b"x", true), None);
        assert_eq!(stops.push(0, b"a", false), None);
        // It began before and is completed after.
        assert_eq!(stops.push(0, b"bcd", true), Some(4));
        Ok(())
    }

    proptest! {
        /// A sample ends with the first token after which the whole decoded text has a stop string, and what is kept is the
        /// text before it.
        #[test]
        fn stop_strings_are_found_however_they_are_split(
            text in "[ab\u{e9}\u{1f642}\n]{0,24}",
            stops in prop::collection::vec("[ab\u{e9}\u{1f642}\n]{1,4}", 1..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut found = StopStrings::new(stops.clone(), 3).unwrap_or_else(|_| unreachable!());
            for piece in cuts.windows(2) {
                let (start, end) = (piece[0], piece[1]);
                // Samples do not disturb each other.
                found.push(0, b"ab\n", true);
                let stop_bytes = found.push(1, &text.as_bytes()[start..end], true);
                // All that has been said, but for a character that has only begun.
                let said = (0..=end).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
                let kept = stop_bytes.map(|bytes| &text[..end - bytes as usize]);
                prop_assert_eq!(kept, first_stop(&text[..said], &stops));
                if kept.is_some() {
                    break;
                }
            }
        }
    }
}
