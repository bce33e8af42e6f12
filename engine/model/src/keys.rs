//! Typed reading of a JSON object that collects faults instead of stopping at the first.

use serde_json::{Map, Value};

use crate::Fault;

/// An object, and what was found wrong in it. After a fault a reader returns some value of its type.
pub(crate) struct Keys<'a> {
    object: &'a Map<String, Value>,
    /// Prefix of keys in messages, such as `rope_scaling.`.
    within: &'a str,
    pub faults: Vec<Fault>,
}

impl<'a> Keys<'a> {
    pub fn new(object: &'a Map<String, Value>, within: &'a str) -> Self {
        Self {
            object,
            within,
            faults: Vec::new(),
        }
    }

    /// `null` means absent, as in transformers.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Whether it is there and `null`.
    pub fn is_null(&self, key: &str) -> bool {
        self.object.get(key).is_some_and(Value::is_null)
    }

    pub fn fault(&mut self, message: String) {
        self.faults.push(Fault::config(message));
    }

    fn wrong(&mut self, key: &str, value: &Value, needed: &str) {
        self.fault(format!("`{}{key}` is {value}, but {needed} is needed", self.within));
    }

    /// A positive whole number, if it is there.
    pub fn optional_count(&mut self, key: &str) -> Option<i64> {
        let value = self.get(key)?;
        match value.as_i64() {
            Some(count @ 1..=0x7fff_ffff) => Some(count),
            _ => {
                self.wrong(key, value, "a positive whole number");
                Some(1)
            }
        }
    }

    pub fn count(&mut self, key: &str) -> i64 {
        self.optional_count(key).unwrap_or_else(|| {
            self.missing(key);
            1
        })
    }

    /// A positive number, if it is there.
    pub fn optional_number(&mut self, key: &str) -> Option<f64> {
        let value = self.get(key)?;
        match value.as_f64() {
            Some(number) if number > 0.0 => Some(number),
            _ => {
                self.wrong(key, value, "a positive number");
                Some(1.0)
            }
        }
    }

    pub fn number(&mut self, key: &str) -> f64 {
        self.optional_number(key).unwrap_or_else(|| {
            self.missing(key);
            1.0
        })
    }

    /// A number that counts as absent when it is 0, as where transformers writes `x or default`.
    pub fn number_if_not_zero(&mut self, key: &str) -> Option<f64> {
        match self.get(key).map(Value::as_f64) {
            Some(Some(0.0)) => None,
            _ => self.optional_number(key),
        }
    }

    pub fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.get(key) {
            Some(Value::Bool(flag)) => *flag,
            Some(value) => {
                self.wrong(key, value, "true or false");
                default
            }
            None => default,
        }
    }

    pub fn text(&mut self, key: &str) -> Option<&'a str> {
        let value = self.get(key)?;
        if value.as_str().is_none() {
            self.wrong(key, value, "a text");
        }
        value.as_str()
    }

    fn missing(&mut self, key: &str) {
        self.fault(format!("`{}{key}` is missing", self.within));
    }
}
