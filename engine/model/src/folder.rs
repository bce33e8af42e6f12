//! Whether the files of a model folder fit its configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::fault::some_of;
use crate::header::{Entry, read_header};
use crate::stop::check_stops;
use crate::tied::check_head;
use crate::tokenizer::check_tokenizer;
use crate::{Fault, ModelConfig, Parameter, parameters, read_config};

const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

/// All that keeps a model folder from being loaded, as far as `config.json`, the index and the headers of its weight
/// files tell. Empty for a folder that can be loaded.
pub fn check_folder(folder: &Path) -> Vec<Fault> {
    let config = read_config(folder);
    let files = weight_files(folder);
    let mut faults = Vec::new();
    match (&config, files) {
        (Ok(config), Ok(files)) => faults.extend(check_files(folder, &files, &parameters(config), config.tied)),
        (_, Err(fault)) => faults.push(fault),
        _ => {}
    }
    match config {
        Ok(config) => {
            faults.extend(check_tokenizer(folder, &config));
            faults.extend(check_stops(folder, &config));
        }
        Err(of_config) => faults.splice(..0, of_config).for_each(drop),
    }
    faults
}

/// Whether the folder has weights at all; one from nothing has none.
fn has_weights(folder: &Path) -> bool {
    folder.join(WHOLE).exists() || folder.join(INDEX).exists()
}

/// `model.safetensors`, or the shards that `model.safetensors.index.json` names.
pub fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, Fault> {
    if folder.join(WHOLE).exists() {
        return Ok(vec![folder.join(WHOLE)]);
    }
    let shards = index(folder)?.into_values().collect::<BTreeSet<_>>();
    Ok(shards.into_iter().map(|name| folder.join(name)).collect())
}

/// Tensor names to the files that hold them.
fn index(folder: &Path) -> Result<BTreeMap<String, String>, Fault> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let path = folder.join(INDEX);
    if !path.exists() {
        return Err(Fault::weights(format!(
            "`{}` has neither {WHOLE} nor {INDEX}",
            folder.display()
        )));
    }
    let text = fs::read_to_string(&path)
        .map_err(|error| Fault::weights(format!("cannot read `{}`: {error}", path.display())))?;
    let index: Index = serde_json::from_str(&text).map_err(|error| Fault::weights(error.to_string()).at(&path))?;
    let outside = |name: &&String| name.contains('/') || name.as_str() == ".." || name.is_empty();
    if let Some(name) = index.weight_map.values().find(outside) {
        return Err(Fault::weights(format!("shard `{name}` is not a file name")).at(&path));
    }
    if index.weight_map.is_empty() {
        return Err(Fault::weights("`weight_map` names no tensor").at(&path));
    }
    Ok(index.weight_map)
}

/// Whether files hold exactly these parameters, in floating-point types. A tied model's files may repeat the
/// embedding as its head.
pub fn check_files(folder: &Path, files: &[PathBuf], parameters: &[Parameter], tied: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut found: BTreeMap<String, (&Path, Entry)> = BTreeMap::new();
    let mut unread = false;
    for path in files {
        match read_header(path) {
            Err(fault) => {
                faults.push(fault);
                unread = true;
            }
            Ok(entries) => {
                for (name, entry) in entries {
                    if let Some((other, _)) = found.get(&name) {
                        let (other, path) = (other.display(), path.display());
                        faults.push(Fault::weights(format!("`{name}` is in `{other}` and in `{path}`")));
                    }
                    found.insert(name, (path, entry));
                }
            }
        }
    }
    // What a damaged file holds is unknown.
    let missing = parameters.iter().map(|parameter| parameter.name.as_str());
    let missing: Vec<&str> = missing.filter(|name| !unread && !found.contains_key(*name)).collect();
    if !missing.is_empty() {
        faults.push(Fault::weights(format!(
            "`{}` lacks {}",
            folder.display(),
            some_of(missing)
        )));
    }
    let wanted: BTreeMap<&str, &Parameter> = parameters
        .iter()
        .map(|parameter| (parameter.name.as_str(), parameter))
        .collect();
    let mut unexpected = Vec::new();
    for (name, (path, entry)) in &found {
        let Some(parameter) = wanted.get(name.as_str()) else {
            if !is_harmless(name, tied) {
                unexpected.push(name.as_str());
            }
            continue;
        };
        if entry.shape != parameter.shape {
            let (found, needed) = (&entry.shape, &parameter.shape);
            faults.push(Fault::weights(format!("`{name}` has shape {found:?}, but {needed:?} is needed")).at(path));
        }
        if !entry.is_float() {
            let dtype = &entry.dtype;
            faults.push(
                Fault::weights(format!(
                    "`{name}` has type {dtype}, but F64, F32, BF16 or F16 is needed"
                ))
                .at(path),
            );
        }
    }
    if let (true, Some(head), Some(embedding)) = (tied, found.get(HEAD), found.get(EMBEDDING)) {
        faults.extend(check_head((head.0, &head.1), (embedding.0, &embedding.1)));
    }
    if !unexpected.is_empty() {
        let names = some_of(unexpected);
        faults.push(Fault::weights(format!("`{}` has unexpected {names}", folder.display())));
    }
    faults
}

/// A repeated head, and tables that old exports carry although they follow from the configuration.
fn is_harmless(name: &str, tied: bool) -> bool {
    (tied && name == HEAD) || name.ends_with("rotary_emb.inv_freq")
}

/// Whether an exported file holds exactly the parameters of the model folder that was loaded, as its configuration and,
/// where it has weights, its own files say.
pub fn check_export(source: &Path, config: &ModelConfig, file: &Path) -> Vec<Fault> {
    let folder = file.parent().unwrap_or(file);
    let mut faults = check_files(folder, &[file.to_owned()], &parameters(config), config.tied);
    if has_weights(source) {
        match (source_shapes(source, config.tied), shapes(file, config.tied)) {
            (Ok(before), Ok(after)) if before != after => {
                let differs = |name: &&String| before.get(*name) != after.get(*name);
                let names: BTreeSet<&String> = before.keys().chain(after.keys()).filter(differs).collect();
                let count = |shapes: &Shapes| shapes.values().map(|shape| shape.iter().product::<i64>()).sum::<i64>();
                faults.push(Fault::weights(format!(
                    "the export `{}` has {} parameters in {} tensors, but the model `{}` has {} in {}; they differ in {}",
                    file.display(),
                    count(&after),
                    after.len(),
                    source.display(),
                    count(&before),
                    before.len(),
                    some_of(names.into_iter().map(String::as_str))
                )));
            }
            (Err(fault), _) => faults.push(fault),
            _ => {}
        }
    }
    faults
}

type Shapes = BTreeMap<String, Vec<i64>>;

fn source_shapes(folder: &Path, tied: bool) -> Result<Shapes, Fault> {
    let mut all = Shapes::new();
    for file in weight_files(folder)? {
        all.append(&mut shapes(&file, tied)?);
    }
    Ok(all)
}

fn shapes(file: &Path, tied: bool) -> Result<Shapes, Fault> {
    let entries = read_header(file)?.into_iter();
    let shapes = entries.map(|(name, entry)| (name, entry.shape));
    Ok(shapes.filter(|(name, _)| !is_harmless(name, tied)).collect())
}
