//! Every code, on paper: pipelines with a fault and what is said of them.

use std::collections::BTreeSet;
use std::path::Path;

use rlpipe_core::diagnostic::{CODES, Fix, apply_fixes, render_full};
use rlpipe_core::document::Format;
use rlpipe_runtime::compile::Outcome;
use rlpipe_tests::{Case, check_generated, project};

/// What is said, without what differs from machine to machine.
fn rendered(outcome: &Outcome) -> String {
    let text = render_full(&outcome.diagnostics, &outcome.sources, false);
    text.replace(&*project().to_string_lossy(), "/project")
}

#[test]
fn what_is_said_is_as_expected() {
    let mut wrong = Vec::new();
    for case in Case::all() {
        let outcome = case.check();
        if outcome.diagnostics.is_empty() {
            wrong.push(format!("`{}` has no fault", case.name));
        }
        let path = Path::new("tests/ui").join(format!("{}.stderr", case.name));
        wrong.extend(check_generated(path, &rendered(&outcome)).err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_case_has_its_fault_and_no_other() {
    let mut wrong = Vec::new();
    for case in Case::all() {
        let Some(code) = case.code() else { continue };
        let wanted: BTreeSet<String> = case.all_of("also").map(str::to_owned).chain([code]).collect();
        let outcome = case.check();
        let found: BTreeSet<String> = outcome
            .diagnostics
            .iter()
            .map(|found| found.code.id.to_owned())
            .collect();
        if found != wanted {
            wrong.push(format!("`{}` has {found:?}, and should have {wanted:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each names its report, and is found with the fault's name and a way to mend it.
#[test]
fn faults_from_the_field_are_named_with_their_mend() {
    let cases = Case::field();
    assert!(cases.len() >= 20, "{} cases in `tests/ui/field`", cases.len());
    assert!(cases.iter().filter(|case| case.name.ends_with(".toml")).count() >= 5);
    for case in cases {
        let report = case.text.lines().next().unwrap_or_default();
        let named = report.starts_with("# ") && (report.contains('#') || report.contains(".py"));
        assert!(
            named && report.contains(": "),
            "`{}` names no report: {report}",
            case.name
        );
        let wanted: BTreeSet<&str> = case.all_of("gives").flat_map(str::split_whitespace).collect();
        let outcome = case.check();
        let found: BTreeSet<&str> = outcome.diagnostics.iter().map(|found| found.code.id).collect();
        assert_eq!(found, wanted, "{}:\n{}", case.name, rendered(&outcome));
        for said in outcome.diagnostics.iter() {
            let mends = said.fix.is_some() || !said.notes.is_empty() || said.message.contains("must");
            assert!(mends, "`{}`: {} says no way to mend it", case.name, said.code.id);
        }
    }
}

#[test]
fn every_code_has_a_case_in_each_format() {
    let cases: BTreeSet<String> = Case::all().into_iter().map(|case| case.name).collect();
    let wanted = CODES
        .iter()
        .flat_map(|code| ["yaml", "toml"].map(|format| format!("{}.{format}", code.id.to_lowercase())));
    let missing: Vec<String> = wanted.filter(|name| !cases.contains(name)).collect();
    assert!(missing.is_empty(), "no cases in `tests/ui`: {}", missing.join(", "));
}

#[test]
fn every_expected_text_has_its_case() {
    let cases: BTreeSet<String> = Case::all().into_iter().map(|case| case.name).collect();
    for below in ["", "field/"] {
        for entry in std::fs::read_dir(Case::folder().join(below)).unwrap() {
            let name = format!("{below}{}", entry.unwrap().file_name().into_string().unwrap());
            if let Some(case) = name.strip_suffix(".stderr") {
                assert!(cases.contains(case), "`{name}` has no case");
            }
        }
    }
}

#[test]
fn the_base_has_no_fault() {
    let outcome = rlpipe_tests::compile_files(&["tests/ui/base/base.yaml".into()], &[]);
    assert_eq!(rendered(&outcome), "");
}

#[test]
fn one_round_finds_faults_of_five_passes() {
    for name in ["five.yaml", "five.toml"] {
        let case = Case::all().into_iter().find(|case| case.name == name).unwrap();
        let outcome = case.check();
        let found: BTreeSet<&str> = outcome.diagnostics.iter().map(|found| found.code.id).collect();
        assert_eq!(
            found,
            BTreeSet::from(["RL0201", "RL0301", "RL0401", "RL0503", "RL0602"]),
            "{name}"
        );
    }
}

/// Each fix that lies in the case's own text, applied alone in a copy of the folder, removes its fault.
#[test]
fn fixes_remove_their_faults() {
    let folder = copy_of_cases();
    let mut applied = 0;
    for case in Case::all() {
        let outcome = case.check();
        for diagnostic in outcome.diagnostics.sorted() {
            let Some(fix) = &diagnostic.fix else { continue };
            let source = outcome.sources.get(fix.range.source);
            assert!(
                matches!(source.format, Format::Yaml | Format::Toml | Format::Argument),
                "{}",
                case.name
            );
            if source.format == Format::Argument {
                continue;
            }
            let fixed = apply_fixes(&source.text, &[fix] as &[&Fix]);
            let path = folder.path().join(&source.name);
            std::fs::write(&path, fixed).unwrap();
            let after = case.check_in(folder.path());
            let again = after
                .diagnostics
                .iter()
                .find(|found| found.code == diagnostic.code && found.message == diagnostic.message);
            assert!(
                again.is_none(),
                "`{}` still has its fault: {}",
                case.name,
                diagnostic.message
            );
            // What could not be seen before may come up, but what was written in must be readable itself.
            let unreadable = |outcome: &Outcome| {
                outcome
                    .diagnostics
                    .iter()
                    .filter(|found| found.code.id < "RL02")
                    .count()
            };
            let readable = unreadable(&after) <= unreadable(&outcome);
            assert!(
                readable,
                "the fix of `{}` cannot be read:\n{}",
                case.name,
                rendered(&after)
            );
            std::fs::write(&path, &*source.text).unwrap();
            applied += 1;
        }
    }
    assert!(applied > 30, "only {applied} fixes");
}

fn copy_of_cases() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&Case::folder(), folder.path());
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
