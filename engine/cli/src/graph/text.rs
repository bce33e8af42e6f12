//! The graph as a drawing of characters, or as a list of layers where that is too wide.

use std::fmt::Write as _;

use ascii_dag::{BoxedNode, Graph as Drawing, RenderOptions};

use super::Graph;

/// Larger graphs are listed: nobody reads a drawing of them.
const MOST_DRAWN: usize = 60;

/// The drawing, at most so many characters wide; below it what is no edge.
pub fn text(graph: &Graph, width: usize) -> String {
    let drawn = (graph.nodes.len() <= MOST_DRAWN).then(|| drawing(graph));
    let fits = |drawn: &String| drawn.lines().all(|line| line.chars().count() <= width);
    let mut out = drawn.filter(fits).unwrap_or_else(|| layers(graph));
    let mut below = Vec::new();
    for state in &graph.states {
        below.push(format!("  {} ┄┄▷ {}  ({})", state.node, state.of, state.key));
    }
    for pool in graph.pools() {
        let users = graph.nodes.iter().filter(|node| node.pool.as_deref() == Some(pool));
        let users: Vec<&str> = users.map(|node| node.name.as_str()).collect();
        below.push(format!("  {} ┄┄▷ {pool}  (pool)", users.join(", ")));
    }
    if !below.is_empty() {
        let _ = write!(out, "\nreferences to state, which are no edges\n{}\n", below.join("\n"));
    }
    out
}

fn drawing(graph: &Graph) -> String {
    let labels: Vec<String> = graph.nodes.iter().map(|node| label(&node.name, &node.kind)).collect();
    let mut drawing = Drawing::new();
    for (index, label) in labels.iter().enumerate() {
        drawing.add_node(index, BoxedNode(label));
    }
    for edge in &graph.edges {
        drawing.add_edge(edge.from, edge.to, None);
    }
    let text = drawing.compute_layout().render_string(&RenderOptions::plain());
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_matches('\n'))
}

/// A node's name, and its kind where the name does not say it.
fn label(name: &str, kind: &str) -> String {
    if name == kind {
        name.to_owned()
    } else {
        format!("{name}: {kind}")
    }
}

/// A line a node, in layers: each layer takes from those above it.
fn layers(graph: &Graph) -> String {
    let mut depth = vec![0; graph.nodes.len()];
    // Nodes come after those they take from.
    for index in 0..graph.nodes.len() {
        let above = graph.edges.iter().filter(|edge| edge.to == index);
        depth[index] = above.map(|edge| depth[edge.from] + 1).max().unwrap_or(0);
    }
    let mut out = String::new();
    for layer in 0..=depth.iter().copied().max().unwrap_or(0) {
        for (index, node) in graph
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| depth[*index] == layer)
        {
            let from = graph.edges.iter().filter(|edge| edge.to == index);
            let from: Vec<&str> = from.map(|edge| graph.nodes[edge.from].name.as_str()).collect();
            let from = if from.is_empty() {
                String::new()
            } else {
                format!(" <- {}", from.join(", "))
            };
            let _ = writeln!(out, "{:>3}  {}{from}", layer + 1, label(&node.name, &node.kind));
        }
    }
    out
}
