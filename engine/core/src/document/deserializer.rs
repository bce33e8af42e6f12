//! A serde deserializer over a tree.
//!
//! It keeps the path of an error exact through any nesting, lets a loose text stand for the type that is wanted, reads
//! a bare name as a choice without settings, and answers for unresolved values with something of the wanted type, so
//! that they bring no fault of their own.

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::bare::{Bare, Key};
use super::fault::{DecodeError, What, text_words};
use super::path_text::{CommandWord, NEWTYPE_NAME, WORD_NAME};
use super::tree::{Entry, Segment, Tree, Value};

/// The name by which the deserializer knows that a choice of several named things is wanted.
pub(crate) const CHOICE_NAME: &str = "$rlpipe::choice";

/// Decodes one tree.
#[derive(Clone, Copy)]
pub(super) struct TreeDeserializer<'a>(pub &'a Tree);

pub(super) type Outcome<T> = Result<T, DecodeError>;

fn found(tree: &Tree) -> String {
    match &tree.value {
        Value::Null | Value::Unresolved => "nothing".to_owned(),
        Value::Bool(value) => format!("`{value}`"),
        Value::Int(value) => format!("the number `{value}`"),
        Value::Float(value) => format!("the number `{value:?}`"),
        Value::Text(text) => text_words(text),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
    }
}

pub(super) fn wrong_type(tree: &Tree, expected: &str) -> DecodeError {
    DecodeError::new(What::WrongType {
        found: found(tree),
        expected: expected.to_owned(),
    })
}

/// `true` or `false`, from a loose text too.
fn as_bool(tree: &Tree) -> Option<bool> {
    match &tree.value {
        Value::Bool(value) => Some(*value),
        Value::Text(text) if tree.loose => text.trim().parse().ok(),
        _ => None,
    }
}

fn as_integer(tree: &Tree) -> Option<i64> {
    match &tree.value {
        Value::Int(value) => Some(*value),
        Value::Text(text) if tree.loose => text.trim().parse().ok(),
        _ => None,
    }
}

fn as_number(tree: &Tree) -> Option<f64> {
    match &tree.value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Text(text) if tree.loose => text.trim().parse().ok().filter(|value: &f64| value.is_finite()),
        _ => None,
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
            if self.unresolved() {
                return visitor.$visit(1);
            }
            match as_integer(self.0).and_then(|value| <$type>::try_from(value).ok()) {
                Some(value) => visitor.$visit(value),
                None if as_integer(self.0).is_none() => Err(wrong_type(self.0, "a whole number")),
                None if <$type>::MIN == 0 && <$type>::BITS == 64 => Err(wrong_type(self.0, "a whole number from 0")),
                None if <$type>::BITS == 64 => Err(wrong_type(self.0, "a whole number")),
                None => {
                    let expected = format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX);
                    Err(wrong_type(self.0, &expected))
                }
            }
        })*
    };
}

impl<'de> TreeDeserializer<'de> {
    fn unresolved(&self) -> bool {
        matches!(self.0.value, Value::Unresolved)
    }

    fn text<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        match &self.0.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Unresolved => visitor.visit_borrowed_str(""),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                let found = format!("{}, which needs quotes to be text", found(self.0));
                Err(DecodeError::new(What::WrongType {
                    found,
                    expected: "text".to_owned(),
                }))
            }
            _ => Err(wrong_type(self.0, "text")),
        }
    }

    fn list<V: Visitor<'de>>(self, wanted_length: usize, visitor: V) -> Outcome<V::Value> {
        match &self.0.value {
            Value::List(elements) => {
                let mut access = Elements { elements, at: 0 };
                let value = visitor.visit_seq(&mut access)?;
                if access.at < elements.len() {
                    return Err(DecodeError::new(What::Invalid(format!(
                        "expected {} elements, found {}",
                        access.at,
                        elements.len()
                    ))));
                }
                Ok(value)
            }
            Value::Unresolved => visitor.visit_seq(Repeated {
                tree: self.0,
                left: wanted_length,
            }),
            _ => Err(wrong_type(self.0, "a list")),
        }
    }

    fn map<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        let entries = match &self.0.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Unresolved => &[],
            _ => return Err(wrong_type(self.0, "a mapping")),
        };
        self.map_of(entries, visitor)
    }

    fn map_of<V: Visitor<'de>>(self, entries: &'de [Entry], visitor: V) -> Outcome<V::Value> {
        let mut access = Entries { entries, at: 0 };
        let value = visitor.visit_map(&mut access)?;
        // A choice reads one key and leaves the rest.
        if access.at < entries.len() {
            Err(several_choices(entries))
        } else {
            Ok(value)
        }
    }
}

/// An overlay that names another choice than the file below it replaces that: what was merged is not one choice of two.
fn newest_choice(entries: &[Entry]) -> &[Entry] {
    let newest = entries.iter().map(|entry| entry.key_range.source).max();
    let mut of_newest = (0..entries.len()).filter(|&index| Some(entries[index].key_range.source) == newest);
    match (of_newest.next(), of_newest.next()) {
        (Some(index), None) => &entries[index..=index],
        _ => entries,
    }
}

fn several_choices(entries: &[Entry]) -> DecodeError {
    let names: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    DecodeError::custom(format!(
        "expected one choice, found {}: keep one of {}",
        names.len(),
        choices(&names)
    ))
}

impl<'de> Deserializer<'de> for TreeDeserializer<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(_) => self.list(0, visitor),
            Value::Map(_) => self.map(visitor),
            Value::Unresolved => visitor.visit_unit(),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        match as_bool(self.0) {
            Some(value) => visitor.visit_bool(value),
            None if self.unresolved() => visitor.visit_bool(false),
            None => Err(wrong_type(self.0, "`true` or `false`")),
        }
    }

    integers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        match as_number(self.0) {
            Some(value) => visitor.visit_f64(value),
            None if self.unresolved() => visitor.visit_f64(1.0),
            None => Err(wrong_type(self.0, "a number")),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.text(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.text(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.text(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.text(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        match self.0.value {
            Value::Null | Value::Unresolved => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        match &self.0.value {
            Value::Null | Value::Unresolved => visitor.visit_unit(),
            Value::Map(entries) => match entries.first() {
                None => visitor.visit_unit(),
                Some(entry) => Err(DecodeError::unknown_field(&entry.key, &[]).within(Segment::Key(entry.key.clone()))),
            },
            _ => Err(wrong_type(self.0, "no settings")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Outcome<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Outcome<V::Value> {
        match &self.0.value {
            Value::Text(text) if name == NEWTYPE_NAME && text.is_empty() => Err(wrong_type(self.0, "a path")),
            Value::Text(text) if name == NEWTYPE_NAME => match self.0.origin.resolve(text).to_str() {
                Some(path) => visitor.visit_str(path),
                None => Err(DecodeError::custom("the path is not UTF-8")),
            },
            Value::Text(text) if name == WORD_NAME && CommandWord::is_path(text) => {
                match self.0.origin.resolve(text).to_str() {
                    Some(path) => visitor.visit_str(path),
                    None => Err(DecodeError::custom("the path is not UTF-8")),
                }
            }
            Value::Map(entries) if name == CHOICE_NAME => self.map_of(newest_choice(entries), visitor),
            _ if name == CHOICE_NAME => self.deserialize_any(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.list(0, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Outcome<V::Value> {
        self.tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Outcome<V::Value> {
        self.tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.map(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Outcome<V::Value> {
        self.map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Outcome<V::Value> {
        match &self.0.value {
            Value::Text(name) => visitor.visit_enum(Bare { name, tree: self.0 }),
            Value::Map(entries) => match entries.as_slice() {
                [_] => {
                    MapAccessDeserializer::new(&mut Entries { entries, at: 0 }).deserialize_enum("", variants, visitor)
                }
                [] => Err(DecodeError::custom(format!(
                    "expected one of {}, found an empty mapping",
                    choices(variants)
                ))),
                _ => Err(several_choices(entries)),
            },
            Value::Unresolved => {
                let name = variants.first().copied().unwrap_or_default();
                visitor.visit_enum(Bare { name, tree: self.0 })
            }
            _ => Err(wrong_type(self.0, &format!("one of {}", choices(variants)))),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        self.text(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_unit()
    }
}

impl<'de> TreeDeserializer<'de> {
    fn tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Outcome<V::Value> {
        match &self.0.value {
            Value::List(elements) if elements.len() != length => Err(DecodeError::new(What::Invalid(format!(
                "expected {length} elements, found {}",
                elements.len()
            )))),
            _ => self.list(length, visitor),
        }
    }
}

fn choices(variants: &[&str]) -> String {
    variants
        .iter()
        .map(|variant| format!("`{variant}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

struct Elements<'a> {
    elements: &'a [Tree],
    at: usize,
}

impl<'de> SeqAccess<'de> for &mut Elements<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Outcome<Option<T::Value>> {
        let Some(element) = self.elements.get(self.at) else {
            return Ok(None);
        };
        let index = self.at;
        self.at += 1;
        seed.deserialize(TreeDeserializer(element))
            .map(Some)
            .map_err(|error| error.within(Segment::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.elements.len() - self.at)
    }
}

/// As many unresolved elements as a tuple wants.
pub(super) struct Repeated<'a> {
    pub tree: &'a Tree,
    pub left: usize,
}

impl<'de> SeqAccess<'de> for Repeated<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Outcome<Option<T::Value>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(TreeDeserializer(self.tree)).map(Some)
    }
}

pub(super) struct Entries<'a> {
    pub entries: &'a [Entry],
    pub at: usize,
}

impl<'de> MapAccess<'de> for &mut Entries<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Outcome<Option<K::Value>> {
        let Some(entry) = self.entries.get(self.at) else {
            return Ok(None);
        };
        self.at += 1;
        seed.deserialize(Key(&entry.key))
            .map(Some)
            .map_err(|error| error.within(Segment::Key(entry.key.clone())))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Outcome<T::Value> {
        let Some(entry) = self.at.checked_sub(1).and_then(|index| self.entries.get(index)) else {
            return Err(DecodeError::custom("a value was asked for before its key"));
        };
        seed.deserialize(TreeDeserializer(&entry.value))
            .map_err(|error| error.within(Segment::Key(entry.key.clone())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len() - self.at)
    }
}
