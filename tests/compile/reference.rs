//! What is said of codes and kinds: whole, and the same everywhere.

use rlpipe_core::diagnostic::CODES;
use rlpipe_core::document::Format;
use rlpipe_runtime::compile::{Setting, describe_kind, kind_settings, section_settings};
use rlpipe_stages::KINDS;
use rlpipe_tests::{check_generated, checks_page, codes_page, kinds_page, pipeline_page, tree_of};

#[test]
fn the_page_of_codes_is_up_to_date() {
    check_generated("docs/reference/codes.md", &codes_page(&CODES)).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_page_of_checks_is_up_to_date() {
    check_generated("docs/reference/checks.md", &checks_page(&CODES)).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_code_says_where_it_comes_from() {
    for code in CODES.iter() {
        assert!(!code.origin.is_empty(), "{}", code.id);
        for origin in code.origin {
            let whole = origin.len() > 4 && !origin.ends_with('.') && !origin.contains('\n');
            assert!(whole, "{}: {origin:?}", code.id);
        }
    }
}

#[test]
fn the_page_of_kinds_is_up_to_date() {
    check_generated("docs/reference/kinds.md", &kinds_page(KINDS)).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_page_of_pipelines_is_up_to_date() {
    check_generated("docs/reference/pipeline.md", &pipeline_page()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_code_is_explained() {
    for code in CODES.iter() {
        let text = &code.explanation;
        for (what, words) in [("meaning", text.meaning), ("why", text.why), ("fix", text.fix)] {
            assert!(
                words.len() > 15 && words.ends_with('.'),
                "`{what}` of {}: {words:?}",
                code.id
            );
            assert!(
                !words.contains("  ") && !words.contains('\n'),
                "`{what}` of {}: {words:?}",
                code.id
            );
        }
        assert!(
            text.example.ends_with('\n') && text.example.len() > 5,
            "`example` of {}",
            code.id
        );
        assert!(
            !code.title.ends_with('.') && code.title.starts_with(|first: char| !first.is_uppercase()),
            "{}",
            code.id
        );
    }
}

#[test]
fn examples_of_codes_can_be_read() {
    // Those of RL01 cannot, by their nature.
    for code in CODES.iter().filter(|code| code.id > "RL02") {
        let (tree, diagnostics) = tree_of(code.explanation.example, Format::Yaml);
        assert!(
            tree.is_some() && diagnostics.is_empty(),
            "example of {}: {diagnostics:?}",
            code.id
        );
    }
}

#[test]
fn every_setting_is_described() {
    fn check(path: &str, setting: &Setting) {
        let path = format!("{path}.{}", setting.key);
        assert!(!setting.description.is_empty(), "`{path}` has no description");
        assert!(setting.type_text != "any value", "`{path}` has no type");
        setting.settings.iter().for_each(|below| check(&path, below));
        for (name, description, settings) in &setting.choices {
            assert!(!description.is_empty(), "`{path}: {name}` has no description");
            settings
                .iter()
                .for_each(|below| check(&format!("{path}.{name}"), below));
        }
    }
    for kind in KINDS {
        kind_settings(kind).iter().for_each(|setting| check(kind.name, setting));
    }
    for (place, settings) in section_settings() {
        // The default of a variable is of the variable's kind.
        let settings = settings
            .iter()
            .filter(|setting| (place, &*setting.key) != ("env.vars.NAME", "default"));
        settings.for_each(|setting| check(place, setting));
    }
}

#[test]
fn a_kind_is_described_in_lines_of_a_terminal() {
    for kind in KINDS {
        let text = describe_kind(kind);
        assert!(text.contains("\nexample\n") && text.contains("\nsettings\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
