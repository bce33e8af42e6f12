//! What an expression compares: columns with constants or with each other.
//!
//! Jinja here puts values of different kinds into an order of their kinds: every text is above every number, and equal to
//! none. `level > 3` would hold for each row whose `level` is the text `"1"`, and nothing would say so.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{BinOpKind, CompareOpKind, Expr, UnaryOpKind};
use minijinja::machinery::parse_expr;
use serde_json::{Map, Value as Json};

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
enum Side {
    /// A column, or a part of one: keys and places.
    Column(Vec<Step>),
    Constant(Json),
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Key(String),
    Place(usize),
}

/// The comparisons of an expression whose sides can be looked up in a row.
#[derive(Debug, Default)]
pub struct Compared(Vec<(Side, Side)>);

impl Compared {
    /// Those of an expression. A column that the expression asks something of (`level is number`) is left out: it may be
    /// compared only where that is so.
    pub fn of(source: &str) -> Self {
        let Ok(expression) = parse_expr(source) else {
            return Self::default();
        };
        let (mut pairs, mut asked) = (Vec::new(), BTreeSet::new());
        walk(&expression, &mut pairs, &mut asked);
        let is_asked = |side: &Side| match side {
            Side::Column(steps) => matches!(steps.first(), Some(Step::Key(name)) if asked.contains(name)),
            Side::Constant(_) => false,
        };
        pairs.retain(|(left, right)| !is_asked(left) && !is_asked(right));
        Self(pairs)
    }

    /// The first comparison of a text with a number, in words, and what to write instead.
    pub fn unlike(&self, columns: &Map<String, Json>) -> Option<String> {
        self.0.iter().find_map(|(left, right)| {
            let (found, other) = (left.value(columns)?, right.value(columns)?);
            match (found, other) {
                (Json::String(text), Json::Number(number)) => Some(said(left, text, right, number)),
                (Json::Number(number), Json::String(text)) => Some(said(right, text, left, number)),
                _ => None,
            }
        })
    }
}

fn said(text_side: &Side, text: &str, number_side: &Side, number: &serde_json::Number) -> String {
    let number_words = match number_side {
        Side::Column(_) => format!("`{}`, the number {number}", number_side.name()),
        Side::Constant(_) => format!("the number {number}"),
    };
    match text_side {
        Side::Column(_) => {
            let name = text_side.name();
            let filter = if number.is_f64() { "float" } else { "int" };
            format!(
                "it compares `{name}`, which is the text {text:?}, with {number_words}: a text is above every number and \
                 equal to none; write `{name} | {filter}` in place of `{name}`"
            )
        }
        Side::Constant(_) => format!(
            "it compares the text {text:?} with {number_words}: a text is above every number and equal to none; take the \
             quotes away"
        ),
    }
}

impl Side {
    fn value<'a>(&'a self, columns: &'a Map<String, Json>) -> Option<&'a Json> {
        let Self::Column(steps) = self else {
            return match self {
                Self::Constant(value) => Some(value),
                Self::Column(_) => None,
            };
        };
        let (Step::Key(first), rest) = steps.split_first()? else {
            return None;
        };
        rest.iter().try_fold(columns.get(first)?, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Place(place) => value.get(place),
        })
    }

    fn name(&self) -> String {
        let Self::Column(steps) = self else {
            return String::new();
        };
        let words = steps.iter().enumerate().map(|(at, step)| match step {
            Step::Key(key) if at == 0 => key.clone(),
            Step::Key(key) => format!(".{key}"),
            Step::Place(place) => format!("[{place}]"),
        });
        words.collect()
    }

    fn of(expression: &Expr<'_>) -> Option<Self> {
        match expression {
            Expr::Const(constant) => serde_json::to_value(&constant.value).ok().map(Self::Constant),
            Expr::UnaryOp(negative) if matches!(negative.op, UnaryOpKind::Neg) => match Self::of(&negative.expr)? {
                Self::Constant(Json::Number(number)) => Some(Self::Constant(Json::from(-number.as_f64()?))),
                _ => None,
            },
            Expr::Var(name) => Some(Self::Column(vec![Step::Key(name.id.to_owned())])),
            Expr::GetAttr(part) => Self::of(&part.expr)?.then(Step::Key(part.name.to_owned())),
            Expr::GetItem(part) => {
                let Expr::Const(place) = &part.subscript_expr else {
                    return None;
                };
                let step = match serde_json::to_value(&place.value).ok()? {
                    Json::String(key) => Step::Key(key),
                    place => Step::Place(usize::try_from(place.as_u64()?).ok()?),
                };
                Self::of(&part.expr)?.then(step)
            }
            _ => None,
        }
    }

    fn then(self, step: Step) -> Option<Self> {
        match self {
            Self::Column(mut steps) => {
                steps.push(step);
                Some(Self::Column(steps))
            }
            Self::Constant(_) => None,
        }
    }
}

/// Goes through what decides whether an expression holds.
fn walk(expression: &Expr<'_>, pairs: &mut Vec<(Side, Side)>, asked: &mut BTreeSet<String>) {
    let mut pair = |left: &Expr<'_>, right: &Expr<'_>| pairs.extend(Side::of(left).zip(Side::of(right)));
    match expression {
        Expr::Compare(compare) => {
            let mut left = &compare.expr;
            for next in &compare.ops {
                if !matches!(next.op, CompareOpKind::In | CompareOpKind::NotIn) {
                    pair(left, &next.expr);
                }
                left = &next.expr;
            }
        }
        Expr::BinOp(operation) => match operation.op {
            BinOpKind::Eq | BinOpKind::Ne | BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte => {
                pair(&operation.left, &operation.right);
            }
            BinOpKind::ScAnd | BinOpKind::ScOr => {
                walk(&operation.left, pairs, asked);
                walk(&operation.right, pairs, asked);
            }
            _ => {}
        },
        Expr::UnaryOp(operation) => walk(&operation.expr, pairs, asked),
        Expr::IfExpr(choice) => {
            walk(&choice.test_expr, pairs, asked);
            walk(&choice.true_expr, pairs, asked);
            choice
                .false_expr
                .iter()
                .for_each(|otherwise| walk(otherwise, pairs, asked));
        }
        Expr::Test(test) => {
            if let Some(Side::Column(steps)) = Side::of(&test.expr)
                && let Some(Step::Key(name)) = steps.first()
            {
                asked.insert(name.clone());
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_that_are_compared_with_numbers_are_found() {
        let row = json!({ "level": "3", "size": 4, "meta": { "rank": "1", "of": [1, "2"] }, "name": "a" });
        let row = row.as_object().unwrap();
        for (source, found) in [
            ("level > 3", Some("`level | int`")),
            ("3 < level", Some("`level | int`")),
            ("level == 3", Some("`level | int`")),
            ("level >= -0.5", Some("`level | float`")),
            ("name == 'a' and not level < 2", Some("`level | int`")),
            ("size > level", Some("`size`, the number 4")),
            ("meta.rank > 0", Some("`meta.rank | int`")),
            ("meta['of'][1] != 2", Some("`meta.of[1] | int`")),
            ("size == '4'", Some("take the quotes away")),
            ("1 < level < 5", Some("`level | int`")),
            ("level | int > 3", None),
            ("level == '3'", None),
            ("level > '2'", None),
            ("size > 3", None),
            ("meta.of[0] == 1", None),
            ("level is number and level > 3", None),
            ("level in [1, 2]", None),
            ("absent > 3", None),
            ("level", None),
        ] {
            let said = Compared::of(source).unlike(row);
            match found {
                Some(words) => assert!(
                    said.as_ref().is_some_and(|said| said.contains(words)),
                    "{source}: {said:?}"
                ),
                None => assert_eq!(said, None, "{source}"),
            }
        }
    }
}
