//! Changes that remove a fault.

use crate::document::Range;

/// One replacement in one source.
#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    /// What it does: "quote it".
    pub title: String,
    /// The bytes it replaces; empty to insert.
    pub range: Range,
    /// The new bytes.
    pub replacement: String,
}

/// Another change that removes the fault: settings with the values that they would get, all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// Paths as `--set` has them, such as `nodes.buffer.prompts_per_step`, and values.
    pub settings: Vec<(String, String)>,
}

/// The fixes of this text that can be applied together, in order. Of fixes that overlap the first counts; the others are
/// left for another round, as are fixes whose range does not lie on whole characters of the text.
pub fn applicable<'a>(text: &str, fixes: &[&'a Fix]) -> Vec<&'a Fix> {
    let mut ordered: Vec<&Fix> = fixes.to_vec();
    ordered.sort_by_key(|fix| (fix.range.start, fix.range.end));
    let mut end = 0;
    let mut kept: Vec<&Fix> = Vec::new();
    for fix in ordered {
        let range = fix.range.start as usize..fix.range.end as usize;
        let repeated = kept
            .last()
            .is_some_and(|last| last.range == fix.range && last.replacement == fix.replacement);
        if !repeated && range.start >= end && text.get(range.clone()).is_some() {
            end = range.end;
            kept.push(fix);
        }
    }
    kept
}

/// `text` with those of the fixes applied that are [`applicable`] together.
pub fn apply_fixes(text: &str, fixes: &[&Fix]) -> String {
    let mut fixed = String::with_capacity(text.len());
    let mut copied = 0;
    for fix in applicable(text, fixes) {
        fixed.push_str(&text[copied..fix.range.start as usize]);
        fixed.push_str(&fix.replacement);
        copied = fix.range.end as usize;
    }
    fixed.push_str(&text[copied..]);
    fixed
}
