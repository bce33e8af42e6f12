//! Saves and restores everything a worker holds, so that a restored one goes on bit for bit.
//!
//! A folder has `worker.json` and, per model, safetensors files with Hugging Face names: `weights` (the master weights),
//! `means` and `squares` (the optimizer's moments), `frozen`, and `engine` where the engine's own weights differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rlpipe_wire::v1;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use crate::device::{dtype_of, wide};
use crate::policy::Policy;
use crate::train::{LossScale, Trainer};
use crate::weights::{self, Written};
use crate::{Error, Result, fail};

const INDEX: &str = "worker.json";
const FORMAT: &str = "rlpipe-worker";
const FORMAT_VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    format: String,
    format_version: u32,
    models: BTreeMap<String, Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    dtype: String,
    policy_version: u64,
    training: Option<Training>,
    frozen: bool,
    engine: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Training {
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    max_grad_norm: f64,
    steps: u64,
    /// Of float16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_scale: Option<LossScale>,
}

/// Writes and syncs all models into a folder that exists; the index comes last.
pub fn save(folder: &Path, policies: &BTreeMap<String, Policy>) -> Result<Vec<Written>> {
    let (mut written, mut models) = (Vec::new(), BTreeMap::new());
    for (name, policy) in policies {
        let entry = describe(name, policy)?;
        for (part, leaves, kind) in parts(policy, &entry) {
            let layout = &policy.network.layout;
            let kinds = vec![kind; layout.pieces.len()];
            written.push(weights::write(folder, &file_name(name, part), layout, leaves, &kinds)?);
        }
        models.insert(name.clone(), entry);
    }
    let index = Index {
        format: FORMAT.to_owned(),
        format_version: FORMAT_VERSION,
        models,
    };
    let text = serde_json::to_string_pretty(&index).map_err(|error| Error(error.to_string()))?;
    let path = folder.join(INDEX);
    fs::write(&path, text).map_err(|error| Error::io("write", &path, &error))?;
    written.push(weights::sync_and_hash(folder, INDEX)?);
    Ok(written)
}

/// Reads what [`save`] wrote into loaded models of the same names; on an error nothing has changed.
pub fn restore(folder: &Path, policies: &mut BTreeMap<String, Policy>) -> Result<()> {
    let index = read_index(&folder.join(INDEX))?;
    let names = |list: Vec<&String>| {
        list.iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (saved, loaded): (Vec<_>, Vec<_>) = (index.models.keys().collect(), policies.keys().collect());
    if saved != loaded {
        fail!(
            "`{}` has the models {}, but loaded are {}",
            folder.display(),
            names(saved),
            names(loaded)
        );
    }
    let mut all = Vec::new();
    for (name, entry) in &index.models {
        let Some(policy) = policies.get(name) else { continue };
        all.push(Saved::read(folder, name, entry, policy)?);
    }
    for (policy, saved) in policies.values_mut().zip(all) {
        saved.put(policy)?;
    }
    Ok(())
}

fn describe(name: &str, policy: &Policy) -> Result<Entry> {
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    {
        fail!("model `{name}` cannot be saved: a file is named after it, so letters, digits, `_` and `-` only");
    }
    if policy.is_generating() {
        fail!("model `{name}` is generating; save between steps");
    }
    policy.ensure_finite()?;
    let training = policy.trainer.as_ref().map(|trainer| {
        let v1::AdamW {
            beta1,
            beta2,
            eps,
            weight_decay,
            max_grad_norm,
        } = trainer.optimizer.settings;
        Training {
            beta1,
            beta2,
            eps,
            weight_decay,
            max_grad_norm,
            steps: trainer.optimizer.steps,
            loss_scale: trainer.loss_scale,
        }
    });
    if let Some(packs) = policy
        .trainer
        .as_ref()
        .map(Trainer::pending_packs)
        .filter(|packs| *packs > 0)
    {
        fail!("model `{name}` has gradients of {packs} packs; save after the optimizer step");
    }
    let own = policy.engine_weights.as_deref().unwrap_or_default();
    Ok(Entry {
        dtype: dtype_of(policy.network.kind).to_owned(),
        policy_version: policy.version,
        training,
        frozen: policy.frozen.is_some(),
        engine: own.iter().zip(&policy.weights).any(|(own, weight)| !own.equal(weight)),
    })
}

fn parts<'a>(policy: &'a Policy, entry: &Entry) -> Vec<(&'static str, &'a [Tensor], Kind)> {
    let (kind, master) = (policy.network.kind, policy.master());
    let mut parts = vec![("weights", master, master[0].kind())];
    if let Some(trainer) = &policy.trainer {
        parts.push(("means", trainer.optimizer.means.as_slice(), wide(kind)));
        parts.push(("squares", trainer.optimizer.squares.as_slice(), wide(kind)));
    }
    parts.extend(policy.frozen.as_deref().map(|frozen| ("frozen", frozen, kind)));
    parts.extend(
        policy
            .engine_weights
            .as_deref()
            .filter(|_| entry.engine)
            .map(|own| ("engine", own, kind)),
    );
    parts
}

fn file_name(model: &str, part: &str) -> String {
    format!("{model}.{part}.safetensors")
}

fn read_index(path: &Path) -> Result<Index> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("read", path, &error))?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|error| Error(format!("`{}` is not a worker's checkpoint: {error}", path.display())))?;
    if index.format != FORMAT || index.format_version != FORMAT_VERSION {
        let (format, version) = (&index.format, index.format_version);
        fail!(
            "`{}` is `{format}` {version}, but `{FORMAT}` {FORMAT_VERSION} is needed",
            path.display()
        );
    }
    Ok(index)
}

/// One model's part of a checkpoint, read and checked.
struct Saved {
    policy_version: u64,
    weights: Vec<Tensor>,
    training: Option<SavedTraining>,
    frozen: Option<Vec<Tensor>>,
    engine: Option<Vec<Tensor>>,
}

struct SavedTraining {
    settings: v1::AdamW,
    steps: u64,
    loss_scale: Option<LossScale>,
    means: Vec<Tensor>,
    squares: Vec<Tensor>,
}

impl Saved {
    fn read(folder: &Path, name: &str, entry: &Entry, policy: &Policy) -> Result<Self> {
        let (network, dtype) = (&policy.network, dtype_of(policy.network.kind));
        if entry.dtype != dtype {
            fail!(
                "`{}`: model `{name}` was saved as {}, but is loaded as {dtype}",
                folder.display(),
                entry.dtype
            );
        }
        if entry.training.is_some() && !policy.trainable {
            fail!(
                "`{}`: model `{name}` was trained, but is loaded without `trainable`",
                folder.display()
            );
        }
        if entry.engine && policy.engine_weights.is_none() {
            fail!(
                "`{}`: the engine of model `{name}` had its own weights, but now has none",
                folder.display()
            );
        }
        let read = |part, kind| weights::read(folder, &file_name(name, part), &network.layout, kind, network.device);
        let training = match entry.training.as_ref() {
            Some(&Training {
                beta1,
                beta2,
                eps,
                weight_decay,
                max_grad_norm,
                steps,
                loss_scale,
            }) => {
                let settings = v1::AdamW {
                    beta1,
                    beta2,
                    eps,
                    weight_decay,
                    max_grad_norm,
                };
                Some(SavedTraining {
                    settings,
                    steps,
                    loss_scale,
                    means: read("means", wide(network.kind))?,
                    squares: read("squares", wide(network.kind))?,
                })
            }
            None => None,
        };
        Ok(Self {
            policy_version: entry.policy_version,
            weights: read("weights", policy.master()[0].kind())?,
            training,
            frozen: entry.frozen.then(|| read("frozen", network.kind)).transpose()?,
            engine: entry.engine.then(|| read("engine", network.kind)).transpose()?,
        })
    }

    fn put(self, policy: &mut Policy) -> Result<()> {
        for (master, saved) in policy.master().iter().zip(&self.weights) {
            master.detach().copy_(saved);
        }
        policy.refresh()?;
        // Renews the engine's own weights from the policy's; those that differed come after.
        policy.set_version(self.policy_version);
        if self.engine.is_some() {
            policy.engine_weights = self.engine;
        }
        policy.frozen = self.frozen;
        policy.trainer = match self.training {
            Some(saved) => {
                let mut trainer = Trainer::new(saved.settings, policy.master(), policy.network.kind)?;
                trainer.optimizer.steps = saved.steps;
                trainer.optimizer.means = saved.means;
                trainer.optimizer.squares = saved.squares;
                trainer.loss_scale = saved.loss_scale;
                Some(trainer)
            }
            None => None,
        };
        Ok(())
    }
}
