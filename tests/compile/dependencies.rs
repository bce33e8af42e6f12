//! Who may depend on what.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{CargoOpt, Metadata, MetadataCommand, PackageId};
use rlpipe_stages::KINDS;
use rlpipe_tests::project;

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command
        .manifest_path(project().join("Cargo.toml"))
        .features(CargoOpt::AllFeatures);
    // Crates of other systems were never fetched.
    let platform = format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH);
    command.other_options(["--offline".to_owned(), "--locked".to_owned(), platform]);
    command.exec().unwrap()
}

/// Names of all that a package of the workspace links, directly or not, itself included; tests do not count.
fn closure(metadata: &Metadata, package: &str) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut found: BTreeSet<&PackageId> = BTreeSet::new();
    let start = metadata
        .workspace_packages()
        .into_iter()
        .find(|found| found.name.as_str() == package)
        .unwrap();
    let mut waiting = vec![&start.id];
    while let Some(id) = waiting.pop() {
        if !found.insert(id) {
            continue;
        }
        for dependency in &nodes[id].deps {
            let normal = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == cargo_metadata::DependencyKind::Normal);
            if normal {
                waiting.push(&dependency.pkg);
            }
        }
    }
    found.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

#[test]
fn only_the_worker_links_libtorch() {
    let metadata = metadata();
    assert!(
        closure(&metadata, "rlpipe-torch").contains("torch-sys"),
        "the walk misses what it looks for"
    );
    for package in [
        "rlpipe-core",
        "rlpipe-model",
        "rlpipe-text",
        "rlpipe-wire",
        "rlpipe-runtime",
        "rlpipe-stages",
        "rlpipe-backends",
        "rlpipe-lsp",
        "rlpipe",
    ] {
        let found = closure(&metadata, package);
        for torch in ["tch", "torch-sys"] {
            assert!(!found.contains(torch), "`{package}` depends on `{torch}`");
        }
    }
}

#[test]
fn only_backends_speak_http() {
    for package in metadata().workspace_packages() {
        let uses = package
            .dependencies
            .iter()
            .any(|dependency| dependency.name == "reqwest");
        assert!(
            !uses || package.name.as_str() == "rlpipe-backends",
            "`{}` depends on `reqwest`",
            package.name
        );
    }
}

#[test]
fn kinds_know_of_the_contract_alone() {
    let found = closure(&metadata(), "rlpipe-stages");
    for other in [
        "rlpipe-runtime",
        "rlpipe-wire",
        "rlpipe-backends",
        "rlpipe-text",
        "tokio",
    ] {
        assert!(!found.contains(other), "`rlpipe-stages` depends on `{other}`");
    }
}

#[test]
fn editors_are_served_without_kinds_and_backends() {
    let found = closure(&metadata(), "rlpipe-lsp");
    for other in ["rlpipe-stages", "rlpipe-backends", "rlpipe-wire", "tonic", "reqwest"] {
        assert!(!found.contains(other), "`rlpipe-lsp` depends on `{other}`");
    }
}

#[test]
fn a_kind_is_a_folder() {
    let entries = std::fs::read_dir(project().join("nodes/stages/src"))
        .unwrap()
        .map(Result::unwrap);
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let folders: BTreeSet<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let distinct: BTreeSet<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    assert_eq!(distinct.len(), kinds.len(), "two kinds have one name");
    assert_eq!(folders, distinct);
}
