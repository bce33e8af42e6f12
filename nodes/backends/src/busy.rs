//! When a worker was busy, by the names of its commands.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::worker::PendingCommand;

/// Of times that nobody takes, no more are kept.
const MOST_BUSY: usize = 1 << 16;

/// A time in which a worker had commands of one name to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// Their name in the protocol.
    pub name: &'static str,
    /// When the first was sent.
    pub since: Instant,
    /// When the last was answered.
    pub until: Instant,
    /// When it was at each of them, as it says itself; nothing of `generate`, whose commands it does side by side,
    /// and of `abort`.
    pub worked: Vec<Range<Instant>>,
}

/// The times of one worker.
#[derive(Debug, Default)]
pub(crate) struct BusyTimes {
    /// By the name of commands that are pending.
    open: HashMap<&'static str, Open>,
    /// The newest of what was not taken yet.
    ended: VecDeque<Busy>,
}

/// Commands of one name, since the first that is not answered or overlaps such.
#[derive(Debug)]
struct Open {
    since: Instant,
    count: usize,
    worked: Vec<Range<Instant>>,
}

impl BusyTimes {
    /// A command is sent.
    pub fn open(&mut self, command: &PendingCommand) {
        let open = self.open.entry(command.name).or_insert_with(|| Open {
            since: command.since,
            count: 0,
            worked: Vec::new(),
        });
        open.count += 1;
    }

    /// A command was answered, which the worker was at for so long.
    pub fn close(&mut self, command: &PendingCommand, took: Duration) {
        let (name, until) = (command.name, Instant::now());
        let Some(open) = self.open.get_mut(name) else {
            return;
        };
        open.count -= 1;
        if !took.is_zero() {
            // On this clock, as if the answer had come at once: not before it was asked, nor before the last was done.
            let began = until.checked_sub(took).unwrap_or(command.since);
            let earliest = open
                .worked
                .last()
                .map_or(command.since, |last| last.end.max(command.since));
            open.worked.push(began.max(earliest)..until);
        }
        if open.count > 0 {
            return;
        }
        let Some(Open { since, worked, .. }) = self.open.remove(name) else {
            return;
        };
        if self.ended.len() == MOST_BUSY {
            self.ended.pop_front();
        }
        self.ended.push_back(Busy {
            name,
            since,
            until,
            worked,
        });
    }

    /// Those that ended since this was asked last.
    pub fn take(&mut self) -> Vec<Busy> {
        self.ended.drain(..).collect()
    }
}
