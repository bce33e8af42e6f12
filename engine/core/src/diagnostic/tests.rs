#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;
use crate::document::{Format, Sources};

const BASE: &str = "# démo\nnodes:\n  trainer:\n    every: 4\n  sync:\n    ünits: 1; every: 6\n    to: engine\n";

fn range(sources: &Sources, source: u32, text: &str) -> Range {
    let (id, found) = sources.iter().nth(source as usize).unwrap();
    let start = found.text.find(text).unwrap() as u32;
    Range::new(id, start, start + text.len() as u32)
}

fn sample() -> (Sources, Diagnostics) {
    let mut sources = Sources::default();
    sources.add_file(Path::new("base.yaml"), BASE);
    sources.add_file(Path::new("over.toml"), "[nodes.trainer]\nevery = 4\n");
    let place = sources.add_place("environment", Format::Environment);
    let value = range(&sources, 0, "6");
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(
        Diagnostic::warning(&codes::RL0104, place, "`GPUS` is not set")
            .label_text("looked for in the environment")
            .note("set it"),
    );
    let interval = Diagnostic::error(
        &codes::RL0101,
        value,
        "`sync` fires every 6 steps but its source every 4",
    )
    .label_text("not a multiple of 4")
    .label(range(&sources, 0, "every: 4"), "source interval")
    .label(range(&sources, 1, "4"), "set here")
    .note("use a multiple of 4, such as 8")
    .fix("use 8", value, "8");
    diagnostics.push(interval.clone());
    diagnostics.push(Diagnostic::error(
        &codes::RL0102,
        range(&sources, 0, "trainer"),
        "first, at 100%, a: b",
    ));
    diagnostics.push(interval);
    (sources, diagnostics)
}

#[test]
fn the_list_is_sorted_and_says_nothing_twice() {
    let (_, diagnostics) = sample();
    let order: Vec<_> = diagnostics.sorted().iter().map(|found| found.code.id).collect();
    assert_eq!(order, ["RL0102", "RL0101", "RL0104"]);
    assert_eq!(
        (diagnostics.len(), diagnostics.counts(), diagnostics.has_errors()),
        (4, (2, 1), true)
    );
    assert!(!Diagnostics::default().has_errors());
}

#[test]
fn full() {
    let (sources, diagnostics) = sample();
    let expected = "\
error[RL0102]: first, at 100%, a: b
 --> base.yaml:3:3
  |
3 |   trainer:
  |   ^^^^^^^

error[RL0101]: `sync` fires every 6 steps but its source every 4
 --> base.yaml:6:22
  |
4 |     every: 4
  |     -------- source interval
5 |   sync:
6 |     ünits: 1; every: 6
  |                      ^ not a multiple of 4
  |
 ::: over.toml:2:9
  |
2 | every = 4
  |         - set here
  |
  = note: use a multiple of 4, such as 8
help: use 8
  |
6 -     ünits: 1; every: 6
6 +     ünits: 1; every: 8
  |

warning[RL0104]: `GPUS` is not set
--> environment
 = note: looked for in the environment
 = note: set it

2 errors and 1 warning; `rlpipe explain RL0102` says more
";
    assert_eq!(render_full(&diagnostics, &sources, false), expected);
    assert!(render_full(&diagnostics, &sources, true).contains("\u{1b}["));
    assert_eq!(render_full(&Diagnostics::default(), &sources, false), "");
}

#[test]
fn concise() {
    let (sources, diagnostics) = sample();
    let expected = "\
base.yaml:3:3: error[RL0102]: first, at 100%, a: b
base.yaml:6:22: error[RL0101]: `sync` fires every 6 steps but its source every 4
environment: warning[RL0104]: `GPUS` is not set
2 errors and 1 warning
";
    assert_eq!(render_concise(&diagnostics, &sources), expected);
    assert_eq!(render_concise(&Diagnostics::default(), &sources), "");
}

#[test]
fn github() {
    let (sources, diagnostics) = sample();
    let expected = "\
::error file=base.yaml,line=3,col=3,endLine=3,endColumn=10,title=RL0102::first, at 100%25, a: b
::error file=base.yaml,line=6,col=22,endLine=6,endColumn=23,title=RL0101::`sync` fires every 6 steps but its source every 4%0Anot a multiple of 4%0Ause a multiple of 4, such as 8
::warning title=RL0104::`GPUS` is not set%0Alooked for in the environment%0Aset it
";
    assert_eq!(render_github(&diagnostics, &sources), expected);
}

#[test]
fn json() {
    let (sources, diagnostics) = sample();
    let setting = |path: &str, value: &str| (path.to_owned(), value.to_owned());
    let mut with_alternative = Diagnostics::default();
    for mut diagnostic in diagnostics {
        if diagnostic.code.id == "RL0101" {
            diagnostic.alternatives.push(Alternative {
                settings: vec![setting("nodes.sync.every_steps", "4"), setting("run.total_steps", "8")],
            });
        }
        with_alternative.push(diagnostic);
    }
    let diagnostics = with_alternative;
    let list: Vec<serde_json::Value> = serde_json::from_str(&render_json(&diagnostics, &sources)).unwrap();
    let expected = serde_json::json!({
        "code": "RL0101", "severity": "error",
        "message": "`sync` fires every 6 steps but its source every 4", "label": "not a multiple of 4",
        "file": "base.yaml", "line": 6, "column": 22, "end_line": 6, "end_column": 23,
        "labels": [
            { "text": "source interval", "file": "base.yaml", "line": 4, "column": 5, "end_line": 4, "end_column": 13 },
            { "text": "set here", "file": "over.toml", "line": 2, "column": 9, "end_line": 2, "end_column": 10 },
        ],
        "notes": ["use a multiple of 4, such as 8"],
        "fix": {
            "title": "use 8", "replacement": "8", "file": "base.yaml",
            "line": 6, "column": 22, "end_line": 6, "end_column": 23,
        },
        "alternatives": [{ "nodes.sync.every_steps": "4", "run.total_steps": "8" }],
    });
    assert_eq!(list[1], expected);
    assert_eq!(list[2]["file"], "environment");
    assert!(list[2]["line"].is_null() && list[2]["fix"].is_null());
    assert_eq!(render_json(&Diagnostics::default(), &sources), "[]\n");
}

#[test]
fn odd_ranges_are_shown_all_the_same() {
    let mut sources = Sources::default();
    let id = sources.add_file(Path::new("a.yaml"), "é\ta: 1\r\n\u{1b}[31m\r\n");
    for (start, end) in [(0, 1), (1, 1), (1, 0), (7, 900), (900, 901), (0, 17), (17, 17)] {
        let mut diagnostics = Diagnostics::default();
        let range = Range::new(id, start, end);
        diagnostics.push(
            Diagnostic::error(&codes::RL0101, range, "x\u{1b}[31m\ny")
                .fix("f", range, "z")
                .note("n\nm"),
        );
        let full = render_full(&diagnostics, &sources, false);
        assert!(full.contains("a.yaml") && !full.contains('\u{1b}'), "{full}");
        assert!(!render_concise(&diagnostics, &sources).contains('\u{1b}'));
        render_json(&diagnostics, &sources);
        render_github(&diagnostics, &sources);
    }
}

#[test]
fn fixes_are_applied_once_and_never_over_each_other() {
    let mut sources = Sources::default();
    let id = sources.add_file(Path::new("a.yaml"), "aéb: c\n");
    let fix = |start, end, replacement: &str| Fix {
        title: String::new(),
        range: Range::new(id, start, end),
        replacement: replacement.into(),
    };
    let fixes = [
        fix(6, 7, "X"),
        fix(0, 1, "A"),
        fix(6, 7, "X"),
        fix(5, 7, "no"),
        fix(7, 7, " # end"),
        fix(2, 3, "no"),
        fix(4, 4, "!"),
        fix(99, 99, "no"),
    ];
    let chosen: Vec<&Fix> = fixes
        .iter()
        .filter(|fix| fix.replacement != "no" || fix.range.start != 5)
        .collect();
    assert_eq!(apply_fixes("aéb: c\n", &chosen), "Aéb!: X # end\n");
    assert_eq!(apply_fixes("aéb: c\n", &[&fixes[0], &fixes[3]]), "aéb:no\n");
    assert_eq!(apply_fixes("x", &[]), "x");
}

#[test]
fn codes_are_in_order_and_explained() {
    let ids: Vec<_> = CODES.iter().map(|code| code.id).collect();
    assert!(ids.is_sorted_by(|left, right| left < right), "{ids:?}");
    for found in CODES.iter() {
        assert!(
            found.id.len() == 6
                && found.id.starts_with("RL")
                && found.id[2..].bytes().all(|byte| byte.is_ascii_digit())
        );
        let Explanation {
            meaning,
            why,
            example,
            fix,
        } = found.explanation;
        for text in [found.title, meaning, why, example, fix] {
            assert!(!text.is_empty(), "{}", found.id);
        }
        assert!(!found.title.ends_with('.'), "{}", found.id);
        assert_eq!(code(&found.id.to_lowercase()), Some(*found));
    }
    assert_eq!(code("RL9999"), None);
}

/// Of a long text only a part is rendered, and nothing of that can be seen.
#[test]
fn long_texts_are_shown_as_short_ones_are() {
    let shown = |lines_before: usize| {
        let padding = "# line\n".repeat(lines_before);
        let text = format!("{padding}first: 1\nsecond: two\nthird: 3\n");
        let mut sources = Sources::default();
        let id = sources.add_file("long.yaml".as_ref(), text);
        let range =
            |start: usize, end: usize| Range::new(id, (padding.len() + start) as u32, (padding.len() + end) as u32);
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(
            Diagnostic::error(&codes::RL0101, range(17, 20), "not a number")
                .label_text("here")
                .label(range(0, 5), "and here")
                .fix("write 2", range(17, 20), "2"),
        );
        render_full(&diagnostics, &sources, false)
    };
    let line = |text: &str, number: usize| {
        text.replace(&format!("{number}"), "N")
            .replace(&format!("{}", number + 1), "M")
    };
    // Numbers of lines with as many digits, so that both are drawn alike.
    let (short, long) = (shown(1001), shown(9501));
    assert!(short.contains("1003") && long.contains("9503"), "{short}\n{long}");
    assert_eq!(line(&short, 1002), line(&long, 9502));
}
