//! Templates and expressions over the columns of a data set's rows, in the Jinja of chat templates.
//!
//! A template that is one whole `{{ ... }}` gives the value itself, a list or a number for instance; every other one
//! gives text. What is not defined is an error, not an empty text.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use serde_json::{Map, Value as Json};

use crate::compared::Compared;

const NAME: &str = "columns";
/// Where a whole expression leaves its value.
const RESULT: &str = "__result";

/// What can go wrong with a template over columns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// It is no template, or no expression.
    #[error("{0}")]
    Syntax(String),
    /// It uses columns that the row does not have.
    #[error("the row has no column {}; it has {}", quoted(.missing), quoted(.there))]
    Missing {
        /// What is not there.
        missing: Vec<String>,
        /// What is.
        there: Vec<String>,
    },
    /// It fails on the row, or gives nothing.
    #[error("{0}")]
    Fails(String),
}

fn quoted(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The columns of one row, as templates see them.
pub struct Columns<'a> {
    map: &'a Map<String, Json>,
    /// Made when the first template asks.
    value: OnceCell<Value>,
}

impl<'a> Columns<'a> {
    /// The columns of a row.
    pub fn new(map: &'a Map<String, Json>) -> Self {
        Self {
            map,
            value: OnceCell::new(),
        }
    }

    fn value(&self) -> Value {
        self.value.get_or_init(|| Value::from(Serde(self.map))).clone()
    }
}

/// A template, or an expression, over columns.
#[derive(Debug)]
pub struct ColumnTemplate {
    environment: Environment<'static>,
    /// It gives a value, not text.
    is_expression: bool,
    /// The columns it may use.
    names: BTreeSet<String>,
    /// What it compares, if it is an expression.
    compared: Compared,
}

impl ColumnTemplate {
    /// A template, such as `Question: {{ question }}`.
    pub fn template(source: &str) -> Result<Self, ColumnError> {
        if let Some(inner) = whole_expression(source)
            && let Ok(expression) = Self::expression(inner)
        {
            return Ok(expression);
        }
        Self::compile(source.to_owned(), false)
    }

    /// An expression, such as `difficulty > 3`.
    pub fn expression(source: &str) -> Result<Self, ColumnError> {
        // Alone it must be an expression: what is put into a statement below could otherwise end it.
        environment()?
            .compile_expression(source)
            .map_err(|error| syntax(&error))?;
        Ok(Self {
            compared: Compared::of(source),
            ..Self::compile(format!("{{% set {RESULT} = ({source}) %}}"), true)?
        })
    }

    fn compile(source: String, is_expression: bool) -> Result<Self, ColumnError> {
        let mut environment = environment()?;
        let globals: BTreeSet<String> = environment.globals().map(|(name, _)| name.to_owned()).collect();
        environment
            .add_template_owned(NAME, source)
            .map_err(|error| syntax(&error))?;
        let names = environment
            .get_template(NAME)
            .map_err(|error| syntax(&error))?
            .undeclared_variables(false);
        Ok(Self {
            names: names.into_iter().filter(|name| !globals.contains(name)).collect(),
            environment,
            is_expression,
            compared: Compared::default(),
        })
    }

    /// What it gives for a row.
    pub fn evaluate(&self, columns: &Columns<'_>) -> Result<Json, ColumnError> {
        let fails = |error: &minijinja::Error| self.fails(error, columns);
        let template = self.environment.get_template(NAME).map_err(|error| fails(&error))?;
        if !self.is_expression {
            let text = template.render(columns.value());
            return text.map(Json::String).map_err(|error| fails(&error));
        }
        let rendered = template
            .render_captured(columns.value())
            .map_err(|error| fails(&error))?;
        let value = rendered.state().lookup(RESULT).unwrap_or(Value::UNDEFINED);
        if value.is_undefined() {
            return Err(self.undefined(columns, "it is undefined".to_owned()));
        }
        serde_json::to_value(&value).map_err(|error| ColumnError::Fails(format!("it gives no JSON value: {error}")))
    }

    /// Whether an expression holds for a row, as Jinja sees truth: empty texts and lists, 0 and null are false. A text that
    /// it compares with a number is an error: the kinds would decide, not the values.
    pub fn holds(&self, columns: &Columns<'_>) -> Result<bool, ColumnError> {
        if let Some(unlike) = self.compared.unlike(columns.map) {
            return Err(ColumnError::Fails(unlike));
        }
        Ok(match self.evaluate(columns)? {
            Json::Null => false,
            Json::Bool(truth) => truth,
            Json::Number(number) => number.as_f64() != Some(0.0),
            Json::String(text) => !text.is_empty(),
            Json::Array(items) => !items.is_empty(),
            Json::Object(entries) => !entries.is_empty(),
        })
    }

    fn fails(&self, error: &minijinja::Error, columns: &Columns<'_>) -> ColumnError {
        let text = plain(error);
        if error.kind() == ErrorKind::UndefinedError || text.contains("undefined") {
            self.undefined(columns, text)
        } else {
            ColumnError::Fails(text)
        }
    }

    fn undefined(&self, columns: &Columns<'_>, text: String) -> ColumnError {
        let missing: Vec<String> = self
            .names
            .iter()
            .filter(|name| !columns.map.contains_key(*name))
            .cloned()
            .collect();
        if missing.is_empty() {
            return ColumnError::Fails(format!("{text}: a key or a place that it asks for is not in this row"));
        }
        ColumnError::Missing {
            missing,
            there: columns.map.keys().cloned().collect(),
        }
    }
}

/// What stands between the braces, if the source is one `{{ ... }}` and nothing else.
fn whole_expression(source: &str) -> Option<&str> {
    let inner = source.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    Some(inner.strip_suffix(['-', '+']).unwrap_or(inner))
}

fn environment() -> Result<Environment<'static>, ColumnError> {
    let mut environment = Environment::new();
    // A text is as it is written, its last line end too.
    let as_written = SyntaxConfig::builder().keep_trailing_newline(true).build();
    environment.set_syntax(as_written.map_err(|error| syntax(&error))?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", crate::template::to_json);
    Ok(environment)
}

fn syntax(error: &minijinja::Error) -> ColumnError {
    ColumnError::Syntax(plain(error))
}

/// The message alone: the name and the line of the template mean nothing to users.
fn plain(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(value: Json) -> Map<String, Json> {
        value.as_object().unwrap().clone()
    }

    fn give(template: &str, columns: &Json) -> Result<Json, ColumnError> {
        let columns = row(columns.clone());
        ColumnTemplate::template(template)?.evaluate(&Columns::new(&columns))
    }

    #[test]
    fn text_around_makes_text_and_a_whole_expression_a_value() {
        let columns =
            json!({ "q": "2+2", "n": 4, "chat": [{ "role": "user", "content": "hi" }], "none": null, "x": 0.5 });
        for (template, wanted) in [
            ("{{ q }}", json!("2+2")),
            ("Q: {{ q }}\n", json!("Q: 2+2\n")),
            ("{{ n }}", json!(4)),
            (" {{- n -}} ", json!(4)),
            ("{{ n }}{{ n }}", json!("44")),
            ("{{ chat }}", json!([{ "role": "user", "content": "hi" }])),
            ("{{ chat[0].content }}", json!("hi")),
            ("{{ none }}", Json::Null),
            ("{{ x * 2 }}", json!(1.0)),
            ("{% if n > 3 %}large{% else %}small{% endif %}", json!("large")),
            ("no braces <b>", json!("no braces <b>")),
            ("{{ other | default('nothing') }}", json!("nothing")),
            (
                "{{ chat | tojson }}!",
                json!("[{\"role\": \"user\", \"content\": \"hi\"}]!"),
            ),
        ] {
            assert_eq!(give(template, &columns), Ok(wanted), "{template}");
        }
    }

    /// A row of GSM8K as it is published.
    #[test]
    fn methods_of_python_take_the_answer_out_of_gsm8k() {
        let columns = json!({ "question": "How many?", "answer": "48/2 = <<48/2=24>>24\n#### 1,072" });
        let template = "{{ answer.split('#### ')[1].replace(',', '') }}";
        assert_eq!(give(template, &columns), Ok(json!("1072")));
        let without = json!({ "question": "How many?", "answer": "many" });
        let error = give(template, &without).unwrap_err();
        assert!(
            matches!(&error, ColumnError::Fails(text) if text.contains("not in this row")),
            "{error:?}"
        );
    }

    #[test]
    fn columns_that_are_not_there_are_named_with_those_that_are() {
        let columns = json!({ "problem": "2+2", "solution": "4" });
        for template in [
            "{{ question }}",
            "Q: {{ question }}",
            "{{ question.strip() }}",
            "{{ range(3) + question }}",
        ] {
            let error = give(template, &columns).unwrap_err().to_string();
            assert_eq!(
                error, "the row has no column `question`; it has `problem`, `solution`",
                "{template}"
            );
        }
    }

    #[test]
    fn what_does_not_parse_is_found_without_a_row() {
        for source in ["{{ question", "{% if x %}", "{{ a b }}", "{{ x | nosuchfilter( }}"] {
            assert!(
                matches!(ColumnTemplate::template(source), Err(ColumnError::Syntax(_))),
                "{source}"
            );
        }
        for source in ["", "a ==", "1) %}{% set x = (2", "a = 3"] {
            assert!(
                matches!(ColumnTemplate::expression(source), Err(ColumnError::Syntax(_))),
                "{source}"
            );
        }
    }

    #[test]
    fn conditions_are_as_true_as_jinja_sees_it() {
        let columns = row(json!({ "level": 3, "subject": "algebra", "tags": [], "ok": true, "zero": 0, "text": "" }));
        for (source, wanted) in [
            ("level > 2", true),
            ("level > 2 and subject == 'geometry'", false),
            ("subject in ['algebra', 'geometry']", true),
            ("tags", false),
            ("zero", false),
            ("text", false),
            ("ok", true),
            ("not ok", false),
            ("subject.startswith('alg')", true),
            ("other is not defined", true),
        ] {
            let expression = ColumnTemplate::expression(source).unwrap();
            assert_eq!(expression.holds(&Columns::new(&columns)), Ok(wanted), "{source}");
        }
        let missing = ColumnTemplate::expression("lvl > 2").unwrap();
        let error = missing.holds(&Columns::new(&columns)).unwrap_err();
        assert!(error.to_string().starts_with("the row has no column `lvl`"), "{error}");
    }
}
