//! Who waits for whom. A wait that outlasts its deadline is reported, and again each time it has doubled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::event::Reporter;

/// All waits of a run.
#[derive(Clone, Default)]
pub struct Waits(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    last: u64,
    open: BTreeMap<u64, Wait>,
}

struct Wait {
    node: String,
    /// What for, such as "group 17".
    what: String,
    since: Instant,
    report_after: Duration,
}

/// A wait that is over when this is dropped.
pub struct Waiting {
    waits: Waits,
    id: u64,
}

impl Waits {
    /// `node` waits for `what` from now on.
    pub fn begin(&self, node: &str, what: String, report_after: Duration) -> Waiting {
        let mut list = self.lock();
        list.last += 1;
        let id = list.last;
        let wait = Wait {
            node: node.to_owned(),
            what,
            since: Instant::now(),
            report_after,
        };
        list.open.insert(id, wait);
        Waiting {
            waits: self.clone(),
            id,
        }
    }

    /// Reports waits that are overdue, until it is dropped.
    pub async fn watch(self, reporter: Arc<dyn Reporter>) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for (node, text) in self.overdue() {
                reporter.notice(&node, &text);
            }
        }
    }

    /// One line a node that waits too long: for what, and how long.
    fn overdue(&self) -> Vec<(String, String)> {
        let mut late: BTreeMap<String, (Vec<String>, Duration)> = BTreeMap::new();
        for wait in self.lock().open.values_mut() {
            let waited = wait.since.elapsed();
            if waited < wait.report_after {
                continue;
            }
            wait.report_after = waited * 2;
            let (whats, longest) = late.entry(wait.node.clone()).or_default();
            whats.push(wait.what.clone());
            *longest = (*longest).max(waited);
        }
        late.into_iter()
            .map(|(node, (whats, longest))| {
                let shown = whats.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
                let more = if whats.len() > 8 {
                    format!(" and {} more", whats.len() - 8)
                } else {
                    String::new()
                };
                (node, format!("has waited {} s for {shown}{more}", longest.as_secs()))
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_overdue_is_told_and_not_at_once_again() {
        let waits = Waits::default();
        let _late = waits.begin("answers", "group 3".to_owned(), Duration::ZERO);
        let _early = waits.begin("answers", "group 4".to_owned(), Duration::from_secs(3600));
        {
            let _over = waits.begin("scored", "group 5".to_owned(), Duration::ZERO);
        }
        let told = waits.overdue();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].0, "answers");
        assert!(told[0].1.ends_with("s for group 3"), "{}", told[0].1);
    }
}
