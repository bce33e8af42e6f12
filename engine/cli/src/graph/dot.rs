//! The graph for Graphviz.

use std::fmt::Write as _;

use super::Graph;

/// A digraph: edges solid, references to state and to pools dashed, which do not decide where nodes stand.
pub fn dot(name: &str, graph: &Graph) -> String {
    let mut out = format!("digraph {} {{\n    node [shape=box];\n", quoted(name));
    for node in &graph.nodes {
        let label = format!("{}\n{}", node.name, node.kind);
        let _ = writeln!(out, "    {} [label={}];", quoted(&node.name), quoted(&label));
    }
    for pool in graph.pools() {
        let (id, label) = (pool_id(pool), format!("pool {pool}"));
        let _ = writeln!(out, "    {id} [label={}, shape=cylinder];", quoted(&label));
    }
    for edge in &graph.edges {
        let (from, to) = (&graph.nodes[edge.from].name, &graph.nodes[edge.to].name);
        let _ = writeln!(
            out,
            "    {} -> {} [label=\"{}\"];",
            quoted(from),
            quoted(to),
            edge.port_type
        );
    }
    for state in &graph.states {
        let _ = writeln!(
            out,
            "    {} -> {} [label={}, style=dashed, constraint=false];",
            quoted(&state.node),
            quoted(&state.of),
            quoted(&state.key)
        );
    }
    for node in &graph.nodes {
        if let Some(pool) = &node.pool {
            let _ = writeln!(
                out,
                "    {} -> {} [style=dashed, arrowhead=none, constraint=false];",
                quoted(&node.name),
                pool_id(pool)
            );
        }
    }
    out.push_str("}\n");
    out
}

/// A pool may have the name of a node.
fn pool_id(pool: &str) -> String {
    quoted(&format!("pool {pool}"))
}

fn quoted(text: &str) -> String {
    format!(
        "\"{}\"",
        text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
    )
}
