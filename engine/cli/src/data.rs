//! What is said of data sets: how far reading them is, and what became of their rows.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rlpipe_runtime::compile::Tally;

use crate::output;

/// Reading that takes longer than this is shown, so often.
const SHOWN_EVERY: Duration = Duration::from_secs(5);

/// Shows how far reading is, where it takes long.
pub struct ReadingProgress {
    shown: Cell<Instant>,
}

impl Default for ReadingProgress {
    fn default() -> Self {
        Self {
            shown: Cell::new(Instant::now()),
        }
    }
}

impl ReadingProgress {
    /// A data set is read up to `done` of `total` bytes.
    pub fn show(&self, dataset: &str, done: u64, total: u64) {
        if self.shown.get().elapsed() < SHOWN_EVERY {
            return;
        }
        self.shown.set(Instant::now());
        let percent = 100 * done / total.max(1);
        output::error(&format!(
            "reading `{dataset}`: {percent} % of {:.1} MB\n",
            total as f64 / 1e6
        ));
    }
}

/// What became of the rows of a data set, on a line.
pub fn tally_line(tally: &Tally) -> String {
    let name = match &tally.dataset {
        Some(dataset) => format!("{}.{dataset}", tally.sampler),
        None => tally.sampler.clone(),
    };
    let mut parts = vec![format!("{} of {} rows are drawn from", tally.used, tally.read)];
    let mut add = |count: u64, why: &str| {
        if count > 0 {
            parts.push(format!("{count} left out: {why}"));
        }
    };
    add(tally.unwanted, "`where` does not hold");
    add(tally.over_long, "the prompt is too long");
    let passed = tally.read - tally.unwanted - tally.over_long;
    if passed != tally.used {
        parts.push(format!("`sample_ratio` makes {} of {passed}", tally.used));
    }
    format!("`{name}`: {}\n", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_said_by_reason() {
        let mut tally = Tally {
            sampler: "prompts".to_owned(),
            dataset: None,
            read: 100,
            unwanted: 0,
            over_long: 0,
            used: 100,
            most_held: 100,
            longest: rlpipe_runtime::compile::Longest::default(),
        };
        assert_eq!(tally_line(&tally), "`prompts`: 100 of 100 rows are drawn from\n");
        tally.dataset = Some("gsm8k".to_owned());
        (tally.unwanted, tally.over_long, tally.used) = (30, 10, 30);
        assert_eq!(
            tally_line(&tally),
            "`prompts.gsm8k`: 30 of 100 rows are drawn from; 30 left out: `where` does not hold; 10 left out: the prompt is \
             too long; `sample_ratio` makes 30 of 60\n"
        );
    }
}
