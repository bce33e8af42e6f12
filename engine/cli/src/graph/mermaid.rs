//! The graph for Mermaid, which GitHub and many editors draw.

use std::fmt::Write as _;

use super::Graph;

/// A flowchart: edges solid, references to state and to pools dashed.
pub fn mermaid(graph: &Graph) -> String {
    let mut out = String::from("flowchart TD\n");
    // Names may be words that Mermaid reads as its own, such as `end`: nodes have ids of ours.
    for (index, node) in graph.nodes.iter().enumerate() {
        let _ = writeln!(
            out,
            "    n{index}[\"{}<br/>{}\"]",
            escaped(&node.name),
            escaped(&node.kind)
        );
    }
    for (index, pool) in graph.pools().iter().enumerate() {
        let _ = writeln!(out, "    p{index}[(\"pool {}\")]", escaped(pool));
    }
    for edge in &graph.edges {
        let _ = writeln!(out, "    n{} -->|{}| n{}", edge.from, edge.port_type, edge.to);
    }
    for state in &graph.states {
        if let (Some(from), Some(to)) = (graph.index(&state.node), graph.index(&state.of)) {
            let _ = writeln!(out, "    n{from} -.->|{}| n{to}", escaped(&state.key));
        }
    }
    for (pool_index, pool) in graph.pools().iter().enumerate() {
        let users = graph.nodes.iter().enumerate();
        for (index, _) in users.filter(|(_, node)| node.pool.as_deref() == Some(pool)) {
            let _ = writeln!(out, "    n{index} -.- p{pool_index}");
        }
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
