//! Renders chat templates as transformers does: jinja2 with `trim_blocks` and `lstrip_blocks`, loop controls,
//! `raise_exception`, `strftime_now`, a `tojson` that is `json.dumps`, special tokens as variables, and what the caller
//! sets besides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Utc};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, context};
use rlpipe_core::data::Message;
use serde_json::Map;

use crate::TextError;
use crate::json::Layout;

/// What a chat template turns into text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chat<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// Whether the assistant's turn is opened at the end.
    pub add_generation_prompt: bool,
    /// JSON schemas of the functions that the model may call; none is None in the template.
    pub tools: Option<&'a [serde_json::Value]>,
    /// What the model may look things up in; none is None in the template.
    pub documents: Option<&'a [serde_json::Value]>,
}

impl<'a> Chat<'a> {
    /// A conversation in which the assistant speaks next.
    pub fn prompt(messages: &'a [Message]) -> Self {
        Self {
            messages,
            add_generation_prompt: true,
            ..Self::default()
        }
    }
}

/// What a template sees beside its variables, by the names it sees them under.
pub const CHAT_NAMES: [&str; 4] = ["messages", "add_generation_prompt", "tools", "documents"];

/// Which template is used with a model folder, and what it is told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatTemplateChoice {
    /// A file with a template; none: the folder's own.
    pub file: Option<PathBuf>,
    /// Variables of the template, such as `enable_thinking`. They go before special tokens of the same name.
    pub variables: Map<String, serde_json::Value>,
}

const NAME: &str = "chat_template";

/// What a template said through `raise_exception`, to tell it from a fault of the template.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

#[derive(Debug)]
pub(crate) struct ChatTemplate {
    /// The model folder, or the template's own file.
    place: PathBuf,
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Compiles `source`, which was read from `file`; faults of rendering name `place`.
    pub fn compile(
        place: &Path,
        file: &Path,
        source: &str,
        special_tokens: &BTreeMap<String, String>,
        variables: &Map<String, serde_json::Value>,
    ) -> Result<ChatTemplate, TextError> {
        if let Some(name) = variables.keys().find(|name| CHAT_NAMES.contains(&name.as_str())) {
            return Err(TextError::Variable { name: name.clone() });
        }
        let fails = |error: minijinja::Error| TextError::Malformed {
            path: file.to_owned(),
            problem: format!("its chat template does not parse: {error}"),
            remedy: "correct it, or name another file in the model's `chat_template`",
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(fails)?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        // As in Python: nothing goes over None, and a text or a mapping has a length and items too.
        environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        environment.add_test("sequence", |value: &Value| !value.is_none() && value.len().is_some());
        for (name, text) in special_tokens {
            environment.add_global(name.clone(), text.clone());
        }
        for (name, value) in variables {
            environment.add_global(name.clone(), Value::from(Serde(value)));
        }
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(fails)?;
        let mut template = ChatTemplate {
            place: place.to_owned(),
            environment,
        };
        template.set_moment(SystemTime::now());
        Ok(template)
    }

    /// What `strftime_now` formats, in UTC.
    pub fn set_moment(&mut self, moment: SystemTime) {
        let moment = DateTime::<Utc>::from(moment);
        self.environment.add_function("strftime_now", move |format: &str| {
            let items: Vec<_> = StrftimeItems::new(format).collect();
            if items.contains(&Item::Error) {
                let problem = format!("`strftime_now` does not know the format `{format}`");
                return Err(minijinja::Error::new(ErrorKind::InvalidOperation, problem));
            }
            Ok(moment.format_with_items(items.iter()).to_string())
        });
    }

    pub fn render(&self, chat: &Chat<'_>) -> Result<String, TextError> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| self.fails(&error))?;
        let messages: Vec<_> = chat.messages.iter().map(with_reasoning).collect();
        let context = context! {
            messages => Serde(&messages),
            add_generation_prompt => chat.add_generation_prompt,
            tools => Serde(chat.tools),
            documents => Serde(chat.documents),
        };
        template.render(context).map_err(|error| match raised(&error) {
            Some(message) => TextError::TemplateRejects {
                place: self.place.clone(),
                message,
            },
            None => self.fails(&error),
        })
    }

    fn fails(&self, error: &minijinja::Error) -> TextError {
        TextError::TemplateFails {
            place: self.place.clone(),
            problem: error.to_string(),
        }
    }
}

/// Templates read the reasoning of a message as `reasoning_content` or as `thinking`; data may also call it `reasoning`.
fn with_reasoning(message: &Message) -> Cow<'_, Map<String, serde_json::Value>> {
    let entries = message.entries();
    let names = ["reasoning_content", "thinking", "reasoning"];
    let Some(reasoning) = names
        .iter()
        .find_map(|name| entries.get(*name).filter(|value| !value.is_null()))
    else {
        return Cow::Borrowed(entries);
    };
    let mut all = Map::from_iter([("thinking".to_owned(), reasoning.clone())]);
    all.extend(entries.clone());
    all.insert("reasoning_content".to_owned(), reasoning.clone());
    Cow::Owned(all)
}

/// `{% generation %}` marks the assistant's text for masks, which are made from tokens here: it becomes a block
/// that is always taken, so that its whitespace controls still act.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let tag = &rest[start + 2..start + length];
        out.push_str(&rest[..start + 2]);
        match tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length..];
    }
    out + rest
}

fn raised(error: &minijinja::Error) -> Option<String> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        next = error.source();
    }
    None
}

fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

pub(crate) fn to_json(value: &Value, arguments: Kwargs) -> Result<String, minijinja::Error> {
    let indent = match arguments.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) => match value.as_str() {
            Some(text) => Some(text.to_owned()),
            None => Some(" ".repeat(usize::try_from(value)?)),
        },
    };
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            let problem = "`separators` of `tojson` takes two texts";
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, problem));
        }
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let layout = Layout {
        ensure_ascii: arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    arguments.assert_all_used()?;
    let value = serde_json::to_value(value).map_err(|error| {
        minijinja::Error::new(
            ErrorKind::InvalidOperation,
            format!("`tojson` cannot write this value: {error}"),
        )
    })?;
    Ok(layout.write(&value))
}
