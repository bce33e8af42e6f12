//! The codes that diagnostics carry, with what `rlpipe explain` says of each.
//!
//! A code is stable: it keeps its meaning for ever, and one that is no longer given is not given to something else.
//! To add one, add a `static` to the file of its hundred and its name to the list there.
//! A new hundred is a new file, named in two lines here.

use std::sync::LazyLock;

mod rl01;
mod rl02;
mod rl03;
mod rl04;
mod rl05;
mod rl06;
mod rl07;
mod rl08;
mod rl09;
mod rl10;
mod rl11;

pub use rl01::*;
pub use rl02::*;
pub use rl03::*;
pub use rl04::*;
pub use rl05::*;
pub use rl06::*;
pub use rl07::*;
pub use rl08::*;
pub use rl09::*;
pub use rl10::*;
pub use rl11::*;

/// One kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// Such as `RL0402`.
    pub id: &'static str,
    /// What was found, in a few words.
    pub title: &'static str,
    /// Whose rule it carries over, or whose fault it catches: a system with its file, or a report. `rlpipe` for our own.
    pub origin: &'static [&'static str],
    /// The rest.
    pub explanation: Explanation,
}

/// What `rlpipe explain` prints, in Markdown.
#[derive(Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What the finding means.
    pub meaning: &'static str,
    /// Why it is one.
    pub why: &'static str,
    /// A text that has it.
    pub example: &'static str,
    /// How to get rid of it.
    pub fix: &'static str,
}

/// The codes of each hundred.
static LISTS: &[&[&Code]] = &[
    LIST_RL01, LIST_RL02, LIST_RL03, LIST_RL04, LIST_RL05, LIST_RL06, LIST_RL07, LIST_RL08, LIST_RL09, LIST_RL10,
    LIST_RL11,
];

/// All codes, in order.
pub static CODES: LazyLock<Vec<&'static Code>> = LazyLock::new(|| LISTS.concat());

/// The code of an id, in any case of letters.
pub fn code(id: &str) -> Option<&'static Code> {
    CODES.iter().copied().find(|code| code.id.eq_ignore_ascii_case(id))
}
