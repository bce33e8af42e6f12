//! Which pages of a paged key-value cache are whose. Pages of a prompt are shared by the samples that start from it.

/// Tokens of a page.
pub const PAGE_TOKENS: usize = 64;

/// Pages that `tokens` tokens fill.
pub fn pages_of(tokens: usize) -> usize {
    tokens.div_ceil(PAGE_TOKENS)
}

/// A page of the cache, by number.
pub type Page = i32;

/// The pages of a cache, and how many hold on to each.
#[derive(Debug)]
pub struct Pages {
    free: Vec<Page>,
    holders: Vec<u32>,
}

impl Pages {
    /// So many free pages.
    pub fn new(count: usize) -> Self {
        Self {
            free: (0..count as Page).rev().collect(),
            holders: vec![0; count],
        }
    }

    /// Pages that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// So many free pages, held once from now on; nothing where there are fewer.
    pub fn take(&mut self, count: usize) -> Option<Vec<Page>> {
        let rest = self.free.len().checked_sub(count)?;
        let taken = self.free.split_off(rest);
        for &page in &taken {
            self.holders[page as usize] = 1;
        }
        Some(taken)
    }

    /// One more holds these.
    pub fn share(&mut self, pages: &[Page]) {
        for &page in pages {
            self.holders[page as usize] += 1;
        }
    }

    /// One holder less; pages without any are free again.
    pub fn give_back(&mut self, pages: &[Page]) {
        for &page in pages {
            let holders = &mut self.holders[page as usize];
            *holders = holders.saturating_sub(1);
            if *holders == 0 {
                self.free.push(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_are_counted_up() {
        let counts = [0, 1, 64, 65, 128].map(pages_of);
        assert_eq!(counts, [0, 1, 1, 2, 2]);
    }

    proptest! {
        /// However pages are taken, shared and given back: no page is in two hands that did not share it, none is lost.
        #[test]
        fn no_page_is_lost_or_given_twice(acts in prop::collection::vec((0..3u8, 0..6usize), 0..200)) {
            let mut pages = Pages::new(16);
            let mut held: Vec<Vec<Page>> = Vec::new();
            for (act, amount) in acts {
                match act {
                    0 => match pages.take(amount) {
                        Some(taken) => {
                            let others: BTreeSet<Page> = held.iter().flatten().copied().collect();
                            prop_assert!(taken.len() == amount && taken.iter().all(|page| !others.contains(page)));
                            held.push(taken);
                        }
                        None => prop_assert!(pages.free() < amount),
                    },
                    1 if !held.is_empty() => {
                        let again = held[amount % held.len()].clone();
                        pages.share(&again);
                        held.push(again);
                    }
                    _ if !held.is_empty() => pages.give_back(&held.swap_remove(amount % held.len())),
                    _ => {}
                }
                let distinct: BTreeSet<Page> = held.iter().flatten().copied().collect();
                prop_assert_eq!(pages.free() + distinct.len(), 16);
            }
        }
    }
}
