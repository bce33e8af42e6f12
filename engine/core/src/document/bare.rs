//! The deserializers of what has a name and nothing else: keys, and choices without settings.

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Unexpected, VariantAccess, Visitor,
};

use super::deserializer::{Entries, Outcome, Repeated, TreeDeserializer, wrong_type};
use super::fault::DecodeError;
use super::tree::{Tree, Value};

/// A key: text, or the number or boolean that a map with such keys wants.
pub(super) struct Key<'a>(pub &'a str);

macro_rules! key_numbers {
    ($($method:ident $visit:ident;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
            match self.0.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(DecodeError::invalid_type(Unexpected::Str(self.0), &visitor)),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_borrowed_str(self.0)
    }

    key_numbers! {
        deserialize_bool visit_bool;
        deserialize_i8 visit_i8;
        deserialize_i16 visit_i16;
        deserialize_i32 visit_i32;
        deserialize_i64 visit_i64;
        deserialize_u8 visit_u8;
        deserialize_u16 visit_u16;
        deserialize_u32 visit_u32;
        deserialize_u64 visit_u64;
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Outcome<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Outcome<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Outcome<V::Value> {
        let text: StrDeserializer<'_, DecodeError> = self.0.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A choice given by its name alone: it has no settings, so a choice that takes some decodes an empty mapping.
pub(super) struct Bare<'a> {
    pub name: &'a str,
    pub tree: &'a Tree,
}

impl<'de> EnumAccess<'de> for Bare<'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Outcome<(V::Value, Self)> {
        Ok((seed.deserialize(Key(self.name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Bare<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Outcome<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Outcome<T::Value> {
        if matches!(self.tree.value, Value::Unresolved) {
            return seed.deserialize(TreeDeserializer(self.tree));
        }
        seed.deserialize(MapAccessDeserializer::new(&mut Entries { entries: &[], at: 0 }))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Outcome<V::Value> {
        if matches!(self.tree.value, Value::Unresolved) {
            return visitor.visit_seq(Repeated {
                tree: self.tree,
                left: length,
            });
        }
        Err(wrong_type(
            self.tree,
            &format!("a mapping `{{ {}: [...] }}` with {length} elements", self.name),
        ))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Outcome<V::Value> {
        visitor.visit_map(&mut Entries { entries: &[], at: 0 })
    }
}
