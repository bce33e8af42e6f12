//! Numbers that know their bounds, so that a value out of bounds is a fault at its place in the file.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $within:expr, $expected:literal, $schema:tt) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(f64);

        impl $name {
            /// What is needed, in words.
            pub const EXPECTED: &str = $expected;

            /// The number, if it is within bounds.
            pub fn new(value: f64) -> Option<Self> {
                let within: fn(f64) -> bool = $within;
                within(value).then_some(Self(value))
            }

            /// The number.
            pub fn get(self) -> f64 {
                self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = f64::deserialize(deserializer)?;
                Self::new(value)
                    .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Float(value), &$expected))
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

bounded!(
    /// Any number but infinity.
    Finite, |value| value.is_finite(), "a finite number", { "type": "number" }
);
bounded!(
    /// Above 0.
    Positive, |value| value > 0.0 && value.is_finite(), "a number above 0", { "type": "number", "exclusiveMinimum": 0 }
);
bounded!(
    /// Above 1.
    AboveOne, |value| value > 1.0 && value.is_finite(), "a number above 1", { "type": "number", "exclusiveMinimum": 1 }
);
bounded!(
    /// 0 or above.
    NonNegative, |value| value >= 0.0 && value.is_finite(), "a number of at least 0", { "type": "number", "minimum": 0 }
);
bounded!(
    /// Above 0, at most 1.
    Fraction, |value| value > 0.0 && value <= 1.0, "a number above 0 and at most 1",
    { "type": "number", "exclusiveMinimum": 0, "maximum": 1 }
);
bounded!(
    /// At least 0, below 1.
    OpenFraction, |value| (0.0..1.0).contains(&value), "a number of at least 0 and below 1",
    { "type": "number", "minimum": 0, "exclusiveMaximum": 1 }
);

impl Default for OpenFraction {
    /// 0.
    fn default() -> Self {
        Self(0.0)
    }
}

impl Default for NonNegative {
    /// 0.
    fn default() -> Self {
        Self(0.0)
    }
}

/// A number of bytes, written `16GiB`, `512MiB` or as a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("B", 1),
];

impl ByteSize {
    /// Reads `16GiB`; none where the number or the unit is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(unit, bytes)| text.strip_suffix(unit).map(|number| (number.trim(), *bytes)))
            .unwrap_or((text, 1));
        let number: f64 = number.parse().ok()?;
        let bytes = number * unit as f64;
        (bytes >= 0.0 && bytes < u64::MAX as f64).then_some(Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS
            .iter()
            .filter(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        let exact = exact.max_by_key(|(_, bytes)| *bytes);
        let (unit, bytes) = exact.unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as `16GiB`")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ByteSize, E> {
                u64::try_from(value)
                    .map(ByteSize)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<ByteSize, E> {
                ByteSize::parse(value).ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// What [`ByteSize::parse`] reads, as far as it can be held.
const SIZE_PATTERN: &str =
    r"^([0-9]{1,7}(\.[0-9]+)? *([GT]iB|[GT]B)|[0-9]{1,12}(\.[0-9]+)? *([KM]iB|MB)|[0-9]{1,18} *B?)$";

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "pattern": SIZE_PATTERN, "patternErrorMessage": "a size such as `16GiB` or `512MiB`" },
                { "type": "integer", "minimum": 0, "maximum": i64::MAX }
            ]
        })
    }
}

/// A time, written `30s`, `500ms`, `2m` or `1h`; more than none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

const TIME_UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
/// The longest time that is one: ten years. The clock takes no more than can be added to now.
const LONGEST_SECONDS: f64 = 10.0 * 365.0 * 86400.0;

impl TimeSpan {
    /// Reads `30s`; none where the number or the unit is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (number, unit) = TIME_UNITS
            .iter()
            .find_map(|(unit, seconds)| text.strip_suffix(unit).map(|number| (number.trim(), *seconds)))?;
        let seconds = number.parse::<f64>().ok()? * unit;
        let span = (seconds > 0.0 && seconds <= LONGEST_SECONDS).then(|| Duration::from_secs_f64(seconds))?;
        (span >= Duration::from_millis(1)).then_some(Self(span))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        match (milliseconds % 3_600_000, milliseconds % 60_000, milliseconds % 1000) {
            (0, ..) => write!(f, "{}h", milliseconds / 3_600_000),
            (_, 0, _) => write!(f, "{}m", milliseconds / 60_000),
            (_, _, 0) => write!(f, "{}s", milliseconds / 1000),
            _ => write!(f, "{milliseconds}ms"),
        }
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = TimeSpan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time with its unit, such as `30s` or `500ms`")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<TimeSpan, E> {
                TimeSpan::parse(value).ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// What [`TimeSpan::parse`] reads: a millisecond at least, and less than ten years.
const TIME_PATTERN: &str = concat!(
    r"^([1-9][0-9]{0,10}(\.[0-9]+)? *ms|([1-9][0-9]{0,7}(\.[0-9]+)?|0?\.[0-9]{0,2}[1-9][0-9]*) *s",
    r"|([1-9][0-9]{0,5}(\.[0-9]+)?|0?\.[0-9]{0,2}[1-9][0-9]*) *m|([1-9][0-9]{0,3}(\.[0-9]+)?|0?\.[0-9]{0,2}[1-9][0-9]*) *h)$"
);

impl JsonSchema for TimeSpan {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TimeSpan".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": TIME_PATTERN,
            "patternErrorMessage": "a time such as `30s`, `500ms`, `2m` or `1h`"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_and_print() {
        for (text, milliseconds, printed) in [
            ("30s", 30_000, "30s"),
            ("500ms", 500, "500ms"),
            ("1.5s", 1500, "1500ms"),
            ("90s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("2 h", 7_200_000, "2h"),
        ] {
            let span = TimeSpan(Duration::from_millis(milliseconds));
            assert_eq!(TimeSpan::parse(text), Some(span), "{text}");
            assert_eq!(span.to_string(), printed);
            assert_eq!(TimeSpan::parse(printed), Some(span));
        }
        for text in ["", "30", "s", "0s", "-1s", "nans", "infs", "0.1ms", "1e9h", "1d"] {
            assert_eq!(TimeSpan::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes, printed) in [
            ("16GiB", 16 << 30, "16GiB"),
            ("1.5GiB", 1_610_612_736, "1536MiB"),
            ("1000", 1000, "1000B"),
            ("2GB", 2_000_000_000, "2GB"),
            ("0B", 0, "0B"),
        ] {
            assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
            assert_eq!(ByteSize(bytes).to_string(), printed);
            assert_eq!(ByteSize::parse(printed), Some(ByteSize(bytes)));
        }
        for text in ["", "GiB", "-1GiB", "1QiB", "nan"] {
            assert_eq!(ByteSize::parse(text), None, "{text}");
        }
    }
}
