//! "Did you mean": the known words nearest to an unknown one.

/// At most this many words are proposed.
const MAXIMUM_PROPOSALS: usize = 3;

/// The candidates near enough to `word` to be worth proposing, nearest first, at most three.
///
/// Near means a third of the word may be mistyped (swapped neighbours count as one), or one holds the other.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let normal = |word: &str| word.to_lowercase().replace('-', "_");
    let word = normal(word);
    let length = word.chars().count();
    let allowed = (length / 3).max(1);
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = normal(candidate);
            let holds = word.len() >= 3 && other.len() >= 3 && (other.contains(&word) || word.contains(&other));
            // The distance is never less than the difference in length, which is found much faster.
            if !holds && other.chars().count().abs_diff(length) > allowed {
                return None;
            }
            let distance = strsim::damerau_levenshtein(&word, &other);
            match (distance <= allowed, holds) {
                (true, _) => Some((distance, candidate)),
                (false, true) => Some((allowed + distance, candidate)),
                (false, false) => None,
            }
        })
        .collect();
    near.sort();
    near.dedup();
    near.into_iter()
        .take(MAXIMUM_PROPOSALS)
        .map(|(_, candidate)| candidate)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposes_what_is_near() {
        let kinds = ["sampler", "trainer", "sft_trainer", "judger", "reference"];
        assert_eq!(nearest("trianer", kinds), ["trainer"]);
        assert_eq!(nearest("Trainer", kinds), ["trainer", "sft_trainer"]);
        assert_eq!(nearest("sft-trainer", kinds), ["sft_trainer", "trainer"]);
        assert_eq!(nearest("zzz", kinds), [] as [&str; 0]);
        assert_eq!(nearest("lr", ["lr", "lr_schedule", "eps"]), ["lr"]);
        assert_eq!(nearest("", kinds), [] as [&str; 0]);
    }
}
