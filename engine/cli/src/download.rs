//! `rlpipe download`: the models of a hub that a pipeline names, into the Hugging Face cache.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context, Result};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use rlpipe_backends::huggingface::{self, Download};
use rlpipe_runtime::compile::{HubCache, HubConfig, Snapshot, missing_files};

use crate::arguments::{DownloadArguments, Format};
use crate::validate::{compiled, show};
use crate::{FAULTY, output};

/// Where models come from, unless `HF_ENDPOINT` says otherwise.
const ENDPOINT: &str = "https://huggingface.co";

/// Fetches what is not here.
pub fn download(arguments: &DownloadArguments) -> Result<ExitCode> {
    let outcome = compiled(&arguments.pipeline)?;
    show(&outcome, Format::Full)?;
    let Some(pipeline) = outcome.pipeline.as_ref().filter(|_| !outcome.diagnostics.has_errors()) else {
        return Ok(ExitCode::from(FAULTY));
    };
    let models: Vec<(&str, &HubConfig)> = pipeline.hub_models().collect();
    if models.is_empty() {
        output::error("nothing to do: no model that the pipeline uses is one of a hub\n");
    }
    for (name, model) in models {
        let here = whole(&pipeline.hub, model).filter(|_| !arguments.update);
        let (snapshot, how) = match here {
            Some(snapshot) => (snapshot, "is here already"),
            None => (fetch(name, model, &pipeline.hub)?, "is here now"),
        };
        output::error(&format!(
            "`{name}`: `{}` at commit {} {how}, in {}\n",
            model.repository.as_str(),
            snapshot.commit.as_str(),
            snapshot.folder.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// A model that is here with all that a run needs.
fn whole(cache: &HubCache, model: &HubConfig) -> Option<Snapshot> {
    cache
        .find(model)
        .filter(|snapshot| missing_files(&snapshot.folder).is_empty())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// What is asked for of which hub.
pub fn request(model: &HubConfig, cache: &HubCache) -> Download {
    Download {
        endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned()),
        token: variable("HF_TOKEN"),
        repository: model.repository.as_str().to_owned(),
        revision: model.revision.as_str().to_owned(),
        folder: cache.repository(&model.repository),
    }
}

fn fetch(name: &str, model: &HubConfig, cache: &HubCache) -> Result<Snapshot> {
    let offline = variable("HF_HUB_OFFLINE").is_some_and(|value| !["0", "false", "no", "off"].contains(&&*value));
    if offline {
        anyhow::bail!(
            "the model `{name}`: `{model}` is not whole in `{}`, and `HF_HUB_OFFLINE` forbids to fetch it; unset that, or copy \
             the folder from the cache of a machine that has it",
            cache.repository(&model.repository).display()
        );
    }
    let request = request(model, cache);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot open connections")?;
    let shown = Shown::new();
    let result = runtime.block_on(huggingface::download(&request, &|file, done, size| {
        shown.report(file, done, size)
    }));
    shown.clear();
    // Looking a name up may still block a thread.
    runtime.shutdown_background();
    result.map_err(|error| anyhow::anyhow!("the model `{name}`: {error}"))?;
    let snapshot = cache.find(model).with_context(|| {
        format!("the model `{name}`: `{model}` was fetched, but another process took it away again")
    })?;
    let missing = missing_files(&snapshot.folder);
    if !missing.is_empty() {
        anyhow::bail!(
            "the model `{name}`: the repository `{}` has no `{}`, which a run needs; choose a revision or a conversion of it \
             that has",
            model.repository.as_str(),
            missing.join("`, `")
        );
    }
    Ok(snapshot)
}

/// How far it is: a bar on a terminal, a line a file elsewhere.
struct Shown {
    bar: Option<ProgressBar>,
    /// The file that was told of last, and whether that it is whole was told.
    last: Mutex<(String, bool)>,
}

impl Shown {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(0).with_style(style.progress_chars("=> "))
        });
        Self {
            bar,
            last: Mutex::default(),
        }
    }

    fn report(&self, file: &str, done: u64, size: u64) {
        let Ok(mut last) = self.last.lock() else { return };
        let (known, told) = &mut *last;
        if known != file {
            (*known, *told) = (file.to_owned(), false);
            if let Some(bar) = &self.bar {
                bar.set_prefix(file.to_owned());
                bar.set_length(size);
                // What an earlier process has fetched was not fetched at this speed.
                bar.reset();
                bar.set_position(done);
                bar.reset_eta();
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        if done == size && !std::mem::replace(told, true) {
            let line = format!("{file}: {}", HumanBytes(size));
            match &self.bar {
                Some(bar) => bar.println(line),
                None => output::error(&format!("{line}\n")),
            }
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
