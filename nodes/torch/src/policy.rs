//! One loaded model: its weights, and the trainer and engine that share them.

use std::path::{Path, PathBuf};

use rlpipe_wire::v1;
use tch::{Kind, Tensor};

use crate::device::{dtype_of, kind_of, wide};
use crate::generate::Engine;
use crate::model::Network;
use crate::native::operators;
use crate::train::{self, Trainer};
use crate::weights::Written;
use crate::{Error, Result, device, fail, weights};

/// A model and everything that belongs to it.
#[derive(Debug)]
pub struct Policy {
    /// The computation.
    pub network: Network,
    /// In the compute type; the engine reads them unless it has its own.
    pub weights: Vec<Tensor>,
    /// fp32 weights of a model that is trained in a half type; otherwise `weights` are their own master.
    pub master: Option<Vec<Tensor>>,
    /// Whether training was asked for.
    pub trainable: bool,
    /// The copy that Freeze made.
    pub frozen: Option<Vec<Tensor>>,
    /// Since StartTraining.
    pub trainer: Option<Trainer>,
    /// When generation was asked for.
    pub engine: Option<Engine>,
    /// The engine's own weights, which only SetVersion renews.
    pub engine_weights: Option<Vec<Tensor>>,
    /// Policy version that the engine speaks for.
    pub version: u64,
    /// Where it came from.
    source: PathBuf,
    /// Type of each piece there.
    source_kinds: Vec<Kind>,
}

impl Policy {
    /// Reads or draws the weights, and reserves the engine's cache.
    pub fn load(command: &v1::Load, accelerator: &device::Accelerator) -> Result<Self> {
        let folder = Path::new(&command.folder);
        let kind = kind_of(&command.dtype)?;
        let network = Network::new(rlpipe_model::read_config(folder)?, kind, accelerator.device);
        let master_kind = if command.trainable { wide(kind) } else { kind };
        let loaded = match command.init_seed {
            Some(seed) => {
                let range = network.config.initializer_range;
                weights::init(&network.layout, seed, range, master_kind, network.device)
            }
            None => weights::load(folder, &network.layout, master_kind, network.device)?,
        };
        let mut policy = Self {
            weights: loaded.leaves.iter().map(|leaf| leaf.to_kind(kind)).collect(),
            master: (master_kind != kind).then_some(loaded.leaves),
            trainable: command.trainable,
            frozen: None,
            trainer: None,
            engine: None,
            engine_weights: None,
            version: 0,
            source: folder.to_owned(),
            source_kinds: loaded.source_kinds,
            network,
        };
        if let Some(spec) = &command.engine {
            // The cache is sized by what is free once these are there.
            policy.engine_weights = spec.own_weights.then(|| copies(&policy.weights));
            policy.engine = Some(Engine::new(
                &policy.network,
                spec,
                policy.training_bytes(),
                command.token_bytes.clone(),
                0,
            )?);
        }
        Ok(policy)
    }

    /// What StartTraining asks for: gradients and two moments, of the shapes and the type of the master weights;
    /// nothing where the model is not trained. In bytes.
    pub fn training_bytes(&self) -> u64 {
        let bytes = |leaf: &Tensor| (leaf.numel() * leaf.kind().elt_size_in_bytes()) as u64;
        match self.trainable {
            true => 3 * self.master().iter().map(bytes).sum::<u64>(),
            false => 0,
        }
    }

    /// What Load answers.
    pub fn describe(&self, device: &str) -> v1::Loaded {
        v1::Loaded {
            parameters: self.network.layout.parameters(),
            vocabulary: self.network.config.vocabulary as u32,
            slots: self.engine.as_ref().map_or(0, |engine| engine.slots() as u32),
            device: device.to_owned(),
            dtype: dtype_of(self.network.kind).to_owned(),
        }
    }

    /// The weights that the optimizer updates.
    pub fn master(&self) -> &[Tensor] {
        self.master.as_deref().unwrap_or(&self.weights)
    }

    /// Refuses weights that training has made infinite or no numbers: nothing could go on from them.
    pub fn ensure_finite(&self) -> Result<()> {
        if self.trainer.is_some() && !operators::total_norm(self.master())?.f_double_value(&[])?.is_finite() {
            fail!(
                "the weights are not finite: they have diverged, and are not written; lower the learning rate and go on \
                 from an earlier checkpoint"
            );
        }
        Ok(())
    }

    /// Casts the master weights into the compute weights.
    pub fn refresh(&mut self) -> Result<()> {
        match &self.master {
            Some(master) => operators::foreach_copy(&self.weights, master),
            None => Ok(()),
        }
    }

    /// Runs the engine for one block; what it had in flight is lost on an error.
    pub fn advance(&mut self) -> Result<Vec<crate::generate::Finished>> {
        let Some(engine) = &mut self.engine else {
            return Ok(Vec::new());
        };
        engine.advance(&self.network, self.engine_weights.as_deref().unwrap_or(&self.weights))
    }

    /// Hands a Generate command to the engine.
    pub fn generate(&mut self, id: u64, command: v1::Generate) -> Result<()> {
        match &mut self.engine {
            Some(engine) => engine.accept(&self.network, id, command),
            None => fail!("model `{}` was loaded without an engine", command.model),
        }
    }

    /// Whether the engine has something in flight.
    pub fn is_generating(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| !engine.is_idle())
    }

    /// The engine speaks for this version from the next token on.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
        if let Some(own) = &mut self.engine_weights {
            let _no_grad = tch::no_grad_guard();
            for (own, weight) in own.iter_mut().zip(&self.weights) {
                own.copy_(weight);
            }
        }
        if let Some(engine) = &mut self.engine {
            engine.set_version(version);
        }
    }

    /// Keeps a copy of the weights as they are.
    pub fn freeze(&mut self) {
        self.frozen = Some(copies(&self.weights));
    }

    /// Log-probs of a pack under the current or the frozen weights.
    pub fn logprobs(&self, command: &v1::LogProbs) -> Result<v1::PackLogProbs> {
        let weights = match (&self.frozen, command.frozen) {
            (Some(frozen), true) => frozen,
            (None, true) => fail!("model `{}` has no frozen copy; send Freeze first", command.model),
            (_, false) => &self.weights,
        };
        let pack = command.pack.clone().unwrap_or_default();
        let values = train::logprobs(&self.network, weights, &pack, command.logprob_chunk_tokens)?;
        Ok(v1::PackLogProbs {
            sequences: values.into_iter().map(|values| v1::Floats { values }).collect(),
        })
    }

    /// Fresh moments and counters.
    pub fn start_training(&mut self, settings: v1::AdamW) -> Result<()> {
        if !self.trainable {
            fail!("the model was loaded without `trainable`");
        }
        self.trainer = None;
        self.trainer = Some(Trainer::new(settings, self.master(), self.network.kind)?);
        Ok(())
    }

    /// Adds the gradient of a pack.
    pub fn train_pack(&mut self, command: &v1::TrainPack) -> Result<v1::PackTrained> {
        let Some(trainer) = &mut self.trainer else {
            fail!("training has not started; send StartTraining first")
        };
        let sequences = trainer.add_pack(&self.network, &self.weights, command)?;
        Ok(v1::PackTrained { sequences })
    }

    /// Updates master and compute weights.
    pub fn optimizer_step(&mut self, learning_rate: f64) -> Result<v1::OptimizerStepped> {
        let Some(trainer) = &mut self.trainer else {
            fail!("training has not started; send StartTraining first")
        };
        let master = self.master.as_deref().unwrap_or(&self.weights);
        let stepped = trainer.step(master, learning_rate)?;
        self.refresh()?;
        Ok(stepped)
    }

    /// Writes `model.safetensors` with Hugging Face names, in `dtype`; `source` is the type that each parameter came in.
    /// What was written is read back and held against the model that was loaded.
    pub fn export(&self, folder: &Path, dtype: &str) -> Result<Written> {
        self.ensure_finite()?;
        let kinds = match dtype {
            "source" => self.source_kinds.clone(),
            dtype => vec![kind_of(dtype)?; self.source_kinds.len()],
        };
        let largest = |leaf: &Tensor| leaf.abs().max().double_value(&[]);
        if kinds.contains(&Kind::Half) && self.master().iter().map(largest).any(|largest| largest > 65_504.0) {
            fail!("a weight is above 65504, where float16 ends; export in `float32` or `bfloat16`");
        }
        let (network, name) = (&self.network, "model.safetensors");
        let written = weights::write(folder, name, &network.layout, self.master(), &kinds)?;
        let faults = rlpipe_model::check_export(&self.source, &network.config, &folder.join(name));
        match faults.is_empty() {
            true => Ok(written),
            false => Err(Error(format!(
                "the export is not the model that was loaded: {}",
                rlpipe_model::joined(&faults)
            ))),
        }
    }
}

fn copies(weights: &[Tensor]) -> Vec<Tensor> {
    weights.iter().map(|weight| weight.detach().copy()).collect()
}
