//! One of several named things, each with its own settings: `estimator: { grpo: { std: unbiased } }`, or just `grpo`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::document::CHOICE_NAME;

/// A bare name `x` is read as `{ x: {} }`. `T` is an externally tagged enum of struct-like variants.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Choice<T>(pub T);

/// Enums that may stand in a [`Choice`].
pub trait ChoiceOf: DeserializeOwned + Serialize + JsonSchema {}

impl<T: DeserializeOwned + Serialize + JsonSchema> ChoiceOf for T {}

impl<T> Deref for Choice<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: ChoiceOf> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChoiceVisitor<T>(PhantomData<T>);
        impl<'de, T: ChoiceOf> Visitor<'de> for ChoiceVisitor<T> {
            type Value = Choice<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a name with its settings such as `{ name: { ... } }`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Choice<T>, E> {
                let settings = std::iter::once((name.to_owned(), Empty));
                T::deserialize(MapAccessDeserializer::new(MapDeserializer::new(settings))).map(Choice)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choice<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Choice)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Choice<T>, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
        deserializer.deserialize_newtype_struct(CHOICE_NAME, ChoiceVisitor(PhantomData))
    }
}

/// `{}`, or nothing, whatever is wanted.
struct Empty;

impl<'de, E: de::Error> de::IntoDeserializer<'de, E> for Empty {
    type Deserializer = EmptyDeserializer<E>;

    fn into_deserializer(self) -> EmptyDeserializer<E> {
        EmptyDeserializer(PhantomData)
    }
}

struct EmptyDeserializer<E>(PhantomData<E>);

impl<'de, E: de::Error> Deserializer<'de> for EmptyDeserializer<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_map(MapDeserializer::<_, E>::new(std::iter::empty::<(&str, &str)>()))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<T: ChoiceOf> JsonSchema for Choice<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ChoiceOf{}", T::schema_name()).into()
    }

    /// The enum's own schema, and beside it the bare names of variants without required settings.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let variants = T::json_schema(generator);
        let mut names = Vec::new();
        let mut described = Vec::new();
        let mut objects = Vec::new();
        let listed = variants
            .get("oneOf")
            .or_else(|| variants.get("anyOf"))
            .and_then(Value::as_array);
        for variant in listed.cloned().unwrap_or_else(|| vec![variants.clone().to_value()]) {
            let description = variant
                .get("description")
                .cloned()
                .unwrap_or(Value::String(String::new()));
            for name in variant_names(&variant) {
                if accepts_bare::<T>(&name) {
                    names.push(Value::String(name));
                    described.push(description.clone());
                }
            }
            if variant.get("properties").is_some() {
                objects.push(variant);
            }
        }
        let mut any = Vec::new();
        if !names.is_empty() {
            any.push(json!({ "type": "string", "enum": names, "enumDescriptions": described }));
        }
        any.extend(objects);
        let mut schema = Schema::default();
        schema.insert("anyOf".to_owned(), Value::Array(any));
        schema
    }
}

fn variant_names(variant: &Value) -> Vec<String> {
    if let Some(name) = variant.get("const").and_then(Value::as_str) {
        return vec![name.to_owned()];
    }
    if let Some(names) = variant.get("enum").and_then(Value::as_array) {
        return names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    variant
        .get("properties")
        .and_then(Value::as_object)
        .map(|properties| properties.keys().cloned().collect())
        .unwrap_or_default()
}

fn accepts_bare<T: ChoiceOf>(name: &str) -> bool {
    serde_json::from_value::<Choice<T>>(Value::String(name.to_owned())).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Fruit {
        None,
        Apple(Apple),
        Pear(Pear),
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Apple {
        red: bool,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Pear {
        weight: u32,
    }

    fn read(text: &str) -> Result<Choice<Fruit>, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_maps_are_read() {
        assert_eq!(read(r#""apple""#), Ok(Choice(Fruit::Apple(Apple { red: false }))));
        assert_eq!(
            read(r#"{"apple":{"red":true}}"#),
            Ok(Choice(Fruit::Apple(Apple { red: true })))
        );
        assert_eq!(read(r#""none""#), Ok(Choice(Fruit::None)));
        assert_eq!(
            read(r#"{"pear":{"weight":3}}"#),
            Ok(Choice(Fruit::Pear(Pear { weight: 3 })))
        );
    }

    #[test]
    fn faults_are_named() {
        assert!(read(r#""plum""#).unwrap_err().contains("unknown variant `plum`"));
        assert!(read(r#""pear""#).unwrap_err().contains("missing field `weight`"));
        assert!(
            read(r#"{"apple":{"green":true}}"#)
                .unwrap_err()
                .contains("unknown field `green`")
        );
        assert!(read("3").is_err());
    }

    #[test]
    fn the_schema_offers_bare_names_where_they_work() {
        let schema = schemars::generate::SchemaSettings::draft07()
            .into_generator()
            .into_root_schema_for::<Choice<Fruit>>();
        assert_eq!(schema.get("anyOf").unwrap()[0]["enum"], json!(["none", "apple"]));
    }
}
