//! Where values come from that the pipeline file itself does not say.

use std::fmt::Write as _;

use rlpipe_core::document::Sources;
use rlpipe_runtime::compile::Pipeline;
use rlpipe_runtime::plan::{Origin, origins, resolved};

/// Values from variables, arguments and overlays; those of the file and defaults are counted.
pub fn section(pipeline: &Pipeline, sources: &Sources) -> String {
    let Some(resolved) = resolved(pipeline) else {
        return String::new();
    };
    let origins = origins(pipeline, sources, &resolved);
    let base = sources.iter().next().map(|(_, source)| source.name.as_str());
    let of_base = |origin: &Origin| matches!(origin, Origin::File { file, .. } if Some(file.as_str()) == base);
    let defaults = origins.values().filter(|origin| **origin == Origin::Default).count();
    let written = origins.values().filter(|origin| of_base(origin)).count();
    let mut out = String::from("\nvalues\n");
    let _ = writeln!(
        out,
        "  {written} as {} says, {defaults} defaults (`rlpipe validate --print` shows each)",
        base.unwrap_or("the file")
    );
    let others = origins
        .iter()
        .filter(|(_, origin)| !of_base(origin) && **origin != Origin::Default);
    let width = others.clone().map(|(path, _)| path.len()).max().unwrap_or(0);
    for (path, origin) in others {
        let _ = writeln!(out, "  {path:width$}  {origin}");
    }
    out
}
