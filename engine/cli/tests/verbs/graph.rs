//! The golden files were read by `mermaid` 11 and by Graphviz's `dot` when they were made.

use crate::{assert_golden, command, ended, project, rlpipe};

const QUICKSTART: &str = "pipelines/quickstart.yaml";

#[test]
fn the_graph_is_drawn_in_each_format() {
    for (format, name) in [("text", "txt"), ("mermaid", "mmd"), ("dot", "dot")] {
        let graph = rlpipe(&project(), &["graph", QUICKSTART, "--format", format]).expect(0);
        assert_golden(
            &format!("engine/cli/tests/verbs/golden/graph-quickstart.{name}"),
            &graph.output,
        );
    }
}

#[test]
fn where_a_drawing_is_too_wide_there_is_a_list() {
    let mut graph = command(&project(), &["graph", QUICKSTART]);
    let narrow = ended(graph.env("COLUMNS", "60").output().unwrap()).expect(0);
    assert!(
        narrow.output.lines().all(|line| line.chars().count() <= 60),
        "{}",
        narrow.output
    );
    assert!(
        narrow.output.contains("7  trainer <- advantages, warm_up\n"),
        "{}",
        narrow.output
    );
    assert!(narrow.output.contains("  sync ┄┄▷ engine  (to)\n"), "{}", narrow.output);
}

#[test]
fn names_that_mean_something_to_a_format_are_only_names() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(project().join(QUICKSTART)).unwrap();
    let text = text
        .replace("  sync: {", "  end: {")
        .replace("pool: local", "pool: end");
    let text = text.replace("pools: { local:", "pools: { end:");
    std::fs::write(folder.path().join("p.yaml"), text).unwrap();
    let dot = rlpipe(folder.path(), &["graph", "p.yaml", "--format", "dot"]).expect(0);
    assert!(
        dot.output.contains("\"end\" -> \"engine\" [label=\"to\", style=dashed"),
        "{}",
        dot.output
    );
    assert!(
        dot.output.contains("\"pool end\" [label=\"pool end\", shape=cylinder]"),
        "{}",
        dot.output
    );
    let mermaid = rlpipe(folder.path(), &["graph", "p.yaml", "--format", "mermaid"]).expect(0);
    assert!(
        mermaid.output.contains("[\"end<br/>weight_sync\"]"),
        "{}",
        mermaid.output
    );
}
