//! The last whole number.

use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// It has no settings.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Number {}

static NUMBER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"-?[0-9]+").unwrap_or_else(|error| unreachable!("{error}")));

pub fn parse(response: &str) -> Option<String> {
    NUMBER.find_iter(response).last().map(|found| found.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_last_number_counts() {
        for (response, number) in [
            ("3 + 4 = 7", Some("7")),
            ("it is -12.", Some("-12")),
            ("5-3", Some("-3")),
            ("3.5", Some("5")),
            ("none", None),
            ("", None),
        ] {
            assert_eq!(parse(response).as_deref(), number, "{response}");
        }
    }
}
