//! A text is read, its references are filled in, and what was found is shown. A text that begins with `#toml` is TOML.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlpipe_core::diagnostic::{Diagnostics, Fix, apply_fixes, render_concise, render_full, render_github, render_json};
use rlpipe_core::document::{Format, Source, Sources, Substitute, interpolate, parse, to_yaml};

fuzz_target!(|text: &str| {
    let format = if text.starts_with("#toml") {
        Format::Toml
    } else {
        Format::Yaml
    };
    let mut sources = Sources::default();
    let id = sources.add(Source {
        name: "text".to_owned(),
        text: text.into(),
        format,
        folder: None,
    });
    let mut diagnostics = Diagnostics::default();
    let tree = parse(&sources, id, &mut diagnostics);
    if let Some(mut tree) = tree {
        let origin = sources.working();
        interpolate(&mut tree, &sources, &mut diagnostics, &mut |reference| {
            (reference.name.len() % 2 == 0).then(|| Substitute {
                text: reference.name.clone(),
                origin: origin.clone(),
            })
        });
        to_yaml(&tree.to_json());
    }
    render_full(&diagnostics, &sources, false);
    render_concise(&diagnostics, &sources);
    render_github(&diagnostics, &sources);
    render_json(&diagnostics, &sources);
    let fixes: Vec<&Fix> = diagnostics.iter().filter_map(|found| found.fix.as_ref()).collect();
    apply_fixes(text, &fixes);
});
