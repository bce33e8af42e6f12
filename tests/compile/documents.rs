//! The pipelines that documents show.

use std::path::PathBuf;

use rlpipe_core::diagnostic::Severity;
use rlpipe_runtime::compile::{Request, compile, read_file};
use rlpipe_stages::KINDS;
use rlpipe_tests::project;

/// The YAML blocks of a document.
fn blocks(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(project().join(document)).unwrap();
    let blocks = text.split("\n```yaml\n").skip(1);
    blocks
        .map(|rest| rest.split("\n```").next().unwrap_or_default().to_owned() + "\n")
        .collect()
}

/// What is said of a pipeline and its overlays.
fn said(texts: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..texts.len()).map(|index| format!("{index}.yaml")).collect();
    for (name, text) in names.iter().zip(texts) {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let outcome = compile(&Request {
        files: names.iter().map(PathBuf::from).collect(),
        overrides: Vec::new(),
        environment: &|_| None,
        working_folder: folder.path().to_owned(),
        read: &read_file,
        kinds: KINDS,
    });
    let errors = outcome
        .diagnostics
        .iter()
        .filter(|said| said.severity == Severity::Error);
    errors.map(|said| said.message.clone()).collect()
}

#[test]
fn the_pipeline_of_the_readme_has_no_faults() {
    let blocks = blocks("README.md");
    let whole: Vec<&String> = blocks.iter().filter(|block| block.contains("\nversion: 1\n")).collect();
    assert_eq!(whole.len(), 1);
    assert_eq!(said(&[whole[0]]), [""; 0]);
}

#[test]
fn the_pipelines_of_the_tutorial_have_no_faults() {
    let blocks = blocks("docs/tutorial.md");
    let [base, train, test, small, reward, sft] = blocks.as_slice() else {
        panic!("{} blocks", blocks.len())
    };
    // Samplers as they are after the second section, as parts of `nodes`.
    let maps = format!("nodes:\n{train}{test}");
    for overlays in [vec![], vec![small], vec![reward, small], vec![sft, small]] {
        let mut texts = vec![base.as_str(), maps.as_str()];
        texts.extend(overlays.iter().map(|overlay| overlay.as_str()));
        assert_eq!(said(&texts), [""; 0], "{texts:?}");
    }
}

#[test]
fn the_tests_of_their_page_have_no_faults() {
    let blocks = blocks("docs/testing.md");
    assert_eq!(blocks.len(), 3);
    let quickstart = std::fs::read_to_string(project().join("pipelines/quickstart.yaml")).unwrap();
    for block in &blocks {
        assert_eq!(said(&[&quickstart, block]), [""; 0], "{block}");
    }
}
