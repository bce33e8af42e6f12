//! Values that fit a schema: all forms of it one after the other, or one drawn at random.

use proptest::prelude::*;
use proptest::strategy::Union;
use serde_json::{Map, Value, json};

/// A schema with the definitions that it refers to.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    /// The definitions.
    pub definitions: &'a Value,
    /// The schema.
    pub own: &'a Value,
}

impl<'a> Schema<'a> {
    /// Another schema with the same definitions.
    pub fn with(self, own: &'a Value) -> Schema<'a> {
        Schema { own, ..self }
    }

    /// The schema that a reference stands for.
    pub fn resolved(self) -> Schema<'a> {
        let reference = self.own.get("$ref").or_else(|| {
            let all = self.own.get("allOf")?.as_array()?;
            all.first().filter(|_| all.len() == 1)?.get("$ref")
        });
        match reference
            .and_then(Value::as_str)
            .and_then(|reference| reference.rsplit('/').next())
        {
            Some(name) => self.with(&self.definitions[name]).resolved(),
            None => self,
        }
    }

    /// Its alternatives; variables, which may stand for any scalar, are none.
    pub fn alternatives(self) -> Vec<Schema<'a>> {
        let own = self.resolved();
        if own.own.get("if").is_some() {
            let bare = own.with(&own.own["else"]).alternatives();
            return bare
                .into_iter()
                .chain(own.with(&own.own["then"]).alternatives())
                .collect();
        }
        let Some(any) = own.own.get("anyOf").and_then(Value::as_array) else {
            return vec![own];
        };
        let is_variable = |schema: &&Value| schema["$ref"].as_str().is_some_and(|name| name.contains("Reference"));
        let others = any.iter().filter(|schema| !is_variable(schema));
        others.flat_map(|schema| own.with(schema).alternatives()).collect()
    }

    /// Its keys with their schemas; not the old names of keys, which decode as the new ones do.
    pub fn properties(self) -> impl Iterator<Item = (&'a str, Schema<'a>)> {
        let properties = self.own.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flatten()
            .filter(|(_, schema)| schema.get("deprecated").is_none())
            .map(move |(key, schema)| (key.as_str(), self.with(schema)))
    }

    /// Whether a key must be given.
    pub fn requires(self, key: &str) -> bool {
        // A key that had another name is required where that is not given.
        let all = self.own.get("allOf").and_then(Value::as_array);
        let unless_old = all.into_iter().flatten().filter_map(|schema| schema.get("else"));
        let mut required = unless_old
            .chain([self.own])
            .filter_map(|schema| schema.get("required").and_then(Value::as_array));
        required.any(|names| names.iter().any(|name| name == key))
    }

    /// Whether it is a mapping with exactly one of its keys.
    pub fn is_choice(self) -> bool {
        self.own["allOf"][0]["maxProperties"] == 1
    }

    fn kind(self) -> &'a str {
        match self.own.get("type") {
            Some(Value::String(kind)) => kind,
            // Of several types, the first.
            Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
            _ => "",
        }
    }

    /// The smallest value of it.
    pub fn least(self) -> Value {
        let first = self.alternatives()[0];
        if let Some(value) = first
            .own
            .get("const")
            .or_else(|| first.own.get("enum").map(|values| &values[0]))
        {
            return value.clone();
        }
        match first.kind() {
            "object" if first.is_choice() => first
                .properties()
                .take(1)
                .map(|(key, schema)| (key.to_owned(), schema.least()))
                .collect::<Map<_, _>>()
                .into(),
            "object" if first.own.get("minProperties").is_some() => {
                json!({ "one": first.with(&first.own["additionalProperties"]).least() })
            }
            "object" => first
                .properties()
                .filter(|(key, _)| first.requires(key))
                .map(|(key, schema)| (key.to_owned(), schema.least()))
                .collect::<Map<_, _>>()
                .into(),
            "array" => first.elements().map(Schema::least).collect(),
            "integer" => first.own.get("minimum").cloned().unwrap_or_else(|| 1.into()),
            "number" => first.a_number().into(),
            "boolean" => false.into(),
            _ => first.text(),
        }
    }

    /// A number within bounds: between them, or half a one from the only one.
    fn a_number(self) -> f64 {
        let bound = |key: &str| self.own.get(key).and_then(Value::as_f64);
        let low = bound("exclusiveMinimum").or(bound("minimum"));
        let high = bound("exclusiveMaximum").or(bound("maximum"));
        match (low, high) {
            (Some(low), Some(high)) => f64::midpoint(low, high),
            (Some(low), None) => low + 0.5,
            (None, Some(high)) => high - 0.5,
            (None, None) => 0.5,
        }
    }

    /// As many elements as there must be.
    fn elements(self) -> impl Iterator<Item = Schema<'a>> {
        let count = self.own.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
        (0..count).map(move |index| self.element(index))
    }

    fn element(self, index: usize) -> Schema<'a> {
        match &self.own["items"] {
            Value::Array(items) => self.with(&items[index]),
            items => self.with(items),
        }
    }

    /// A text, as its example is where only some are one.
    fn text(self) -> Value {
        match self.own.get("pattern").and_then(Value::as_str) {
            Some(pattern) if pattern.contains("GT") => "16GiB".into(),
            Some(pattern) if pattern.contains("ms") => "30s".into(),
            _ => "text_1".into(),
        }
    }

    /// Values in which each key of it is given at least once, in each of its forms, and no other that need not be.
    pub fn forms(self) -> Vec<Value> {
        let mut found = Vec::new();
        for form in self.alternatives() {
            match form.kind() {
                "object" if form.is_choice() => {
                    for (key, schema) in form.properties() {
                        found.extend(schema.forms().into_iter().map(|value| json!({ key: value })));
                    }
                }
                "object" if form.own.get("additionalProperties").is_some_and(Value::is_object) => {
                    let below = form.with(&form.own["additionalProperties"]).forms();
                    found.extend(below.into_iter().map(|value| json!({ "one": value })));
                }
                "object" => {
                    let least = form.least();
                    found.push(least.clone());
                    for (key, schema) in form.properties() {
                        for value in schema.forms() {
                            let mut whole = least.clone();
                            whole[key] = value;
                            found.push(whole);
                        }
                    }
                }
                "array" if form.own["items"].is_object() => {
                    let below = form.element(0).forms();
                    found.extend(
                        below
                            .into_iter()
                            .map(|value| json!([value]))
                            .filter(|_| form.elements().count() < 2),
                    );
                    found.push(form.least());
                }
                _ if form.own.get("enum").is_some() => {
                    found.extend(form.own["enum"].as_array().into_iter().flatten().cloned());
                }
                _ => found.push(form.least()),
            }
        }
        found
    }

    /// Any value of it.
    pub fn any(self) -> BoxedStrategy<Value> {
        let forms = self.alternatives().into_iter().map(Schema::any_of_form);
        Union::new(forms).boxed()
    }

    fn any_of_form(self) -> BoxedStrategy<Value> {
        let own = self.own;
        if let Some(value) = own.get("const") {
            return Just(value.clone()).boxed();
        }
        if let Some(values) = own.get("enum").and_then(Value::as_array) {
            return prop::sample::select(values.clone()).boxed();
        }
        match self.kind() {
            "object" if self.is_choice() => {
                let one = |(key, schema): (&str, Schema<'a>)| {
                    let key = key.to_owned();
                    schema
                        .any()
                        .prop_map(move |value| json!({ key.clone(): value }))
                        .boxed()
                };
                Union::new(self.properties().map(one)).boxed()
            }
            "object" if own.get("properties").is_some() => self.any_object(),
            "object" if own.get("additionalProperties") == Some(&json!(false)) => Just(json!({})).boxed(),
            "object" => {
                let least = own.get("minProperties").and_then(Value::as_u64).unwrap_or(0) as usize;
                let value = match own.get("additionalProperties") {
                    Some(schema) if schema.is_object() => self.with(schema).any(),
                    _ => any::<i32>().prop_map(Value::from).boxed(),
                };
                let entries = prop::collection::vec((name(), value), least..3);
                entries
                    .prop_map(|entries| Value::Object(entries.into_iter().collect()))
                    .boxed()
            }
            "array" => self.any_list(),
            "integer" => {
                let bound = |key: &str, other: i64| own.get(key).and_then(Value::as_i64).unwrap_or(other);
                let (low, high) = (bound("minimum", i64::MIN), bound("maximum", i64::MAX));
                let small = low.max(-1)..=high.min(low.saturating_add(64));
                prop_oneof![4 => small, 1 => low..=high].prop_map(Value::from).boxed()
            }
            "number" => self.any_number(),
            "boolean" => any::<bool>().prop_map(Value::from).boxed(),
            _ => match own.get("pattern").and_then(Value::as_str) {
                // Anchors are all that a generator cannot take.
                Some(pattern) => {
                    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
                    let texts = proptest::string::string_regex(inner);
                    texts.map_or_else(
                        |_| Just(self.text()).boxed(),
                        |texts| texts.prop_map(Value::from).boxed(),
                    )
                }
                None => name().prop_map(Value::from).boxed(),
            },
        }
    }

    fn any_object(self) -> BoxedStrategy<Value> {
        let entry = |(key, schema): (&str, Schema<'a>)| {
            let is_required = self.requires(key);
            let key = key.to_owned();
            let value = schema.any().prop_map(move |value| Some((key.clone(), value)));
            match is_required {
                true => value.boxed(),
                false => prop_oneof![2 => Just(None), 1 => value].boxed(),
            }
        };
        let entries: Vec<BoxedStrategy<Option<(String, Value)>>> = self.properties().map(entry).collect();
        entries
            .prop_map(|entries| Value::Object(entries.into_iter().flatten().collect()))
            .boxed()
    }

    fn any_list(self) -> BoxedStrategy<Value> {
        if let Some(items) = self.own["items"].as_array() {
            let elements: Vec<BoxedStrategy<Value>> = items.iter().map(|item| self.with(item).any()).collect();
            return elements.prop_map(Value::Array).boxed();
        }
        let bound = |key: &str, other| {
            self.own
                .get(key)
                .and_then(Value::as_u64)
                .map_or(other, |count| count as usize)
        };
        let least = bound("minItems", 0);
        let count = least..=bound("maxItems", least + 2);
        prop::collection::vec(self.element(0).any(), count)
            .prop_map(Value::Array)
            .boxed()
    }

    fn any_number(self) -> BoxedStrategy<Value> {
        let bound = |key: &str| self.own.get(key).and_then(Value::as_f64);
        let open_low = bound("exclusiveMinimum");
        let open_high = bound("exclusiveMaximum");
        let low = open_low.or(bound("minimum")).unwrap_or(-1e3);
        let high = open_high.or(bound("maximum")).unwrap_or(1e3);
        let inside = move |number: &f64| {
            open_low.is_none_or(|bound| *number > bound) && open_high.is_none_or(|bound| *number < bound)
        };
        (low..=high)
            .prop_filter("a bound is not meant", inside)
            .prop_map(Value::from)
            .boxed()
    }
}

/// A name, which is a template and an expression of Jinja too.
fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,6}_[0-9]{1,3}"
}
