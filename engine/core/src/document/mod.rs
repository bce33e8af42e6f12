//! From text to a tree with exact ranges, and from a tree to typed values.
//!
//! `parse` reads YAML or TOML into a [`Tree`] in which every key and value knows its bytes in the text; `merge` lays
//! overlays and `--set` arguments over it; `interpolate` fills in `${NAME}`; `decode` turns a part of it into any
//! `Deserialize` type and reports every fault of that part with the range that is wrong.

mod annotate;
mod argument;
mod bare;
mod decode;
mod deserializer;
mod fault;
mod flow;
mod interpolate;
mod parse;
mod path_text;
mod source;
#[cfg(test)]
mod tests;
mod toml;
mod tree;
mod yaml;

pub use self::toml::to_toml;
pub use annotate::to_annotated_yaml;
pub use argument::set_argument;
pub use decode::decode;
pub(crate) use deserializer::CHOICE_NAME;
pub use fault::{Fault, What};
pub use interpolate::{Reference, Substitute, interpolate};
pub use parse::{MAXIMUM_DEPTH, MAXIMUM_TEXT_BYTES, parse};
pub use path_text::{CommandWord, PathText};
pub use source::{Format, Place, Range, Source, SourceId, Sources};
pub use tree::{Entry, Found, Origin, Segment, Tree, Value, merge, path_text};
pub use yaml::to_yaml;
