//! GSM8K answers (Cobbe et al. 2021): `#### 72` at the end of the response.
//!
//! The rules are those of verl and XTuner, but the whole response is searched, not its last 300 characters.

use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of `gsm8k`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Gsm8k {
    /// How the answer is found.
    pub extract: Extract,
}

/// How the answer is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Extract {
    /// The number after the last `#### `.
    #[default]
    Strict,
    /// The last number, with or without `####`; a full stop or comma after it is not part of it.
    Flexible,
}

static STRICT: LazyLock<Regex> = LazyLock::new(|| pattern(r"#### (-?[0-9.,]+)"));
static FLEXIBLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"-?[0-9][0-9.,]*"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("{error}"))
}

pub fn parse(response: &str, extract: Extract) -> Option<String> {
    let found = match extract {
        Extract::Strict => STRICT.captures_iter(response).last()?.get(1)?.as_str(),
        Extract::Flexible => FLEXIBLE
            .find_iter(response)
            .last()?
            .as_str()
            .trim_end_matches(['.', ',']),
    };
    Some(found.replace(',', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of XTuner's judger, but for the one that its window of 300 characters decides.
    #[test]
    fn strict_is_as_in_xtuner() {
        let far = format!("#### 72{}", " ".repeat(300));
        for (response, label, right) in [
            ("so #### 72<|im_end|>", "72", true),
            ("#### 12\n#### 72", "72", true),
            ("#### 72 apples", "72", true),
            ("#### -5", "-5", true),
            ("#### 1,234", "1234", true),
            ("#### 72.", "72", false),
            ("####72", "72", false),
            ("The answer is 72", "72", false),
            (&far, "72", true),
            ("", "72", false),
        ] {
            assert_eq!(
                parse(response, Extract::Strict).as_deref() == Some(label),
                right,
                "{response}"
            );
        }
    }

    #[test]
    fn flexible_takes_the_last_number() {
        for (response, number) in [
            ("The answer is 72.", Some("72")),
            ("it costs $1,234, or so", Some("1234")),
            ("#### 72", Some("72")),
            ("3.5 apples", Some("3.5")),
            ("-5", Some("-5")),
            ("... no, nothing", None),
        ] {
            assert_eq!(parse(response, Extract::Flexible).as_deref(), number, "{response}");
        }
    }
}
