//! Reads what a program answers, and names what is wrong with it.

use rlpipe_core::data::Score;
use rlpipe_core::plugin::Ready;
use serde_json::{Map, Value};

/// Of a line that is no message, what an error shows.
const SHOWN_CHARACTERS: usize = 200;

/// What a program says of each sample, in order; an error in the place of a score is that sample's alone.
pub type Scored = Vec<Result<Score, String>>;

/// Why a line is not the answer that was awaited.
#[derive(Debug, PartialEq)]
pub enum Wrong {
    /// Who speaks when is not clear any more: the process is of no use.
    Stream(String),
    /// The answer is to the question, and does not fit it.
    Answer(String),
}

/// The answer to `start`.
pub fn ready(line: &[u8]) -> Result<Ready, String> {
    let message = message(line, "ready")?;
    serde_json::from_value(Value::Object(message)).map_err(|error| format!("its `ready` is not as it must be: {error}"))
}

/// The answer to a `score` of `samples` samples.
pub fn scores(line: &[u8], id: u64, samples: usize) -> Result<Scored, Wrong> {
    let mut message = message(line, "scores").map_err(Wrong::Stream)?;
    match message.get("id") {
        Some(found) if found.as_u64() == Some(id) => {}
        Some(found) => return Err(Wrong::Stream(format!("it answered `score` {id} with the id `{found}`"))),
        None => return Err(Wrong::Stream("its `scores` has no `id`".to_owned())),
    }
    let Some(Value::Array(scores)) = message.remove("scores") else {
        return Err(Wrong::Answer("its `scores` has no list `scores`".to_owned()));
    };
    if scores.len() != samples {
        return Err(Wrong::Answer(format!(
            "it gave {} for {}: it must give one a sample, in their order",
            counted(scores.len(), "score"),
            counted(samples, "sample")
        )));
    }
    Ok(scores.into_iter().map(score).collect())
}

/// One sample's score.
fn score(value: Value) -> Result<Score, String> {
    let Value::Object(mut fields) = value else {
        return Err(format!("it gave the score {}, which is not an object", shown(&value)));
    };
    match fields.remove("error") {
        None | Some(Value::Null) => {}
        Some(Value::String(error)) => return Err(format!("it says: {error}")),
        Some(error) => return Err(format!("it gave the error {}, which is not a text", shown(&error))),
    }
    let reward = match fields.remove("reward") {
        None => return Err("it gave a score without `reward`, which may be `null` to abstain".to_owned()),
        Some(Value::Null) => None,
        Some(reward) => match reward.as_f64().filter(|reward| reward.is_finite()) {
            Some(reward) => Some(reward),
            None => return Err(format!("it gave the reward {}, which is not a number", shown(&reward))),
        },
    };
    let parsed = match fields.remove("parsed") {
        None | Some(Value::Null) => None,
        Some(Value::String(parsed)) => Some(parsed),
        Some(parsed) => return Err(format!("it gave {} as `parsed`, which is not a text", shown(&parsed))),
    };
    let parts = match fields.remove("parts") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(parts)) => parts,
        Some(parts) => return Err(format!("it gave {} as `parts`, which is not an object", shown(&parts))),
    };
    let part = |(name, value): (String, Value)| match value.as_f64().filter(|value| value.is_finite()) {
        Some(number) => Ok((name, number)),
        None => Err(format!(
            "it gave the part `{name}` as {}, which is not a number",
            shown(&value)
        )),
    };
    Ok(Score {
        reward,
        parsed,
        parts: parts.into_iter().map(part).collect::<Result<_, _>>()?,
        error: None,
    })
}

/// A line as a message of a type.
fn message(line: &[u8], wanted: &str) -> Result<Map<String, Value>, String> {
    let text = String::from_utf8_lossy(line);
    let found = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(message)) => message,
        Ok(other) => return Err(no_message(wanted, &shown(&other), "")),
        Err(_) => {
            let not_finite = ["NaN", "Infinity"].into_iter().find(|word| text.contains(word));
            let hint = not_finite.map_or_else(String::new, |word| {
                format!("; JSON has no `{word}`: a reward is a finite number, or `null` to abstain")
            });
            return Err(no_message(wanted, &format!("`{}`", cut(text.trim_end())), &hint));
        }
    };
    match found.get("type").and_then(Value::as_str) {
        Some(kind) if kind == wanted => Ok(found),
        Some(kind) => Err(format!("it wrote a message `{kind}` where `{wanted}` was awaited")),
        None => Err(no_message(wanted, &shown(&Value::Object(found)), "; it has no `type`")),
    }
}

fn no_message(wanted: &str, found: &str, hint: &str) -> String {
    format!(
        "it wrote {found} where the message `{wanted}` was awaited{hint}; its standard output is for messages alone, \
         other text goes to standard error"
    )
}

fn shown(value: &Value) -> String {
    format!("`{}`", cut(&value.to_string()))
}

/// The beginning of a text, where it is long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// "1 sample", "2 samples".
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn scored(scores: &str, samples: usize) -> Result<Scored, Wrong> {
        let line = format!(r#"{{"type":"scores","id":7,"scores":{scores}}}"#);
        super::scores(line.as_bytes(), 7, samples)
    }

    #[test]
    fn scores_are_read_each_by_itself() {
        let found = scored(
            r#"[{"reward":1},{"reward":null,"parsed":"2","extra":0},{"error":"no unit"},
                {"reward":0.7,"parts":{"format":0.1,"length":-2}}]"#,
            4,
        )
        .unwrap();
        let rewards: Vec<_> = found.iter().flatten().map(|score| score.reward).collect();
        assert_eq!(rewards, [Some(1.0), None, Some(0.7)]);
        assert_eq!(found[1].as_ref().unwrap().parsed.as_deref(), Some("2"));
        assert_eq!(found[2], Err("it says: no unit".to_owned()));
        let parts: Vec<_> = found[3].as_ref().unwrap().parts.iter().collect();
        assert_eq!(parts, [(&"format".to_owned(), &0.1), (&"length".to_owned(), &-2.0)]);
    }

    #[test]
    fn a_wrong_score_is_that_samples_error_and_names_what_was_given() {
        for (score, part) in [
            (r#"{"reward":"x"}"#, "the reward `\"x\"`, which is not a number"),
            (r#"{"reward":true}"#, "the reward `true`"),
            (r#"{"reward":[1]}"#, "the reward `[1]`"),
            (r#"{"rewards":1}"#, "without `reward`"),
            ("1.5", "the score `1.5`, which is not an object"),
            (r#"{"reward":1,"parsed":2}"#, "`2` as `parsed`"),
            (r#"{"reward":1,"parts":[1]}"#, "`[1]` as `parts`"),
            (
                r#"{"reward":1,"parts":{"format":"good"}}"#,
                "the part `format` as `\"good\"`",
            ),
            (r#"{"error":5}"#, "the error `5`"),
        ] {
            let found = scored(&format!(r#"[{{"reward":1}},{score}]"#), 2).unwrap();
            assert!(found[0].is_ok());
            let error = found[1].as_ref().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn i15_a_wrong_number_of_scores_is_named_with_both_counts() {
        for (scores, samples, said) in [
            (r#"[{"reward":1}]"#, 8, "it gave 1 score for 8 samples"),
            (r#"[{"reward":1},{"reward":1}]"#, 1, "it gave 2 scores for 1 sample"),
            ("[]", 1, "it gave 0 scores for 1 sample"),
        ] {
            let Err(Wrong::Answer(error)) = scored(scores, samples) else {
                panic!("{scores}")
            };
            assert!(error.starts_with(said), "{error}");
        }
        assert!(matches!(scored(r#"{"reward":1}"#, 1), Err(Wrong::Answer(_))));
    }

    #[test]
    fn what_is_no_message_is_shown() {
        let long = "word ".repeat(1000);
        for (line, parts) in [
            (
                "loading model...",
                &["`loading model...` where the message `scores`", "standard error"][..],
            ),
            ("", &["it wrote ``"][..]),
            (&long, &["word ...`"][..]),
            (
                r#"{"type":"scores","id":7,"scores":[{"reward":NaN}]}"#,
                &["JSON has no `NaN`", "`null` to abstain"][..],
            ),
            (
                r#"{"type":"scores","id":7,"scores":[{"reward":-Infinity}]}"#,
                &["JSON has no `Infinity`"][..],
            ),
            ("[1.0]", &["it wrote `[1.0]`"][..]),
            (r#"{"id":7}"#, &["it has no `type`"][..]),
            (
                r#"{"type":"ready"}"#,
                &["a message `ready` where `scores` was awaited"][..],
            ),
            (
                r#"{"type":"scores","id":6,"scores":[]}"#,
                &["answered `score` 7 with the id `6`"][..],
            ),
            (
                r#"{"type":"scores","id":"7","scores":[]}"#,
                &["with the id `\"7\"`"][..],
            ),
            (r#"{"type":"scores","scores":[]}"#, &["has no `id`"][..]),
        ] {
            let Err(Wrong::Stream(error)) = scores(line.as_bytes(), 7, 0) else {
                panic!("{line}")
            };
            for part in parts {
                assert!(error.contains(part), "{error}");
            }
            assert!(error.len() < 500, "{error}");
        }
        assert!(scores(b"\xff\xfe", 7, 0).is_err());
    }

    #[test]
    fn ready_may_say_nothing_or_much() {
        assert_eq!(ready(br#"{"type":"ready"}"#).unwrap(), Ready::default());
        let full = ready(br#"{"type":"ready","name":"a","version":"2","reads":["level"],"config_schema":{},"new":1}"#);
        assert_eq!(full.unwrap().reads, ["level"]);
        for line in [
            r#"{"type":"ready","name":3}"#,
            "hello",
            r#"{"type":"scores","id":1,"scores":[]}"#,
        ] {
            assert!(ready(line.as_bytes()).is_err(), "{line}");
        }
    }
}
