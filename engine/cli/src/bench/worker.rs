//! One worker with one model, started as a run starts it.

use std::future::Future;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rlpipe_backends::{EngineSpec, Hub, LoadRequest, Loaded, Worker};
use rlpipe_core::data::Seed;
use rlpipe_runtime::cluster::{LocalCluster, worker_log};
use rlpipe_runtime::compile::{Accelerator, Dtype, Machine, driver_version, shown_bytes};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::arguments::{BenchDevice, BenchDtype, WorkerArguments};
use super::model::BenchModel;
use super::report::{ModelLine, Program, Report};
use crate::fleet::{Wanted, ended_or_killed, launch};

/// The model's name between driver and worker.
pub const MODEL: &str = "model";

/// A worker, and what belongs to it.
pub struct BenchWorker {
    pub worker: Worker,
    pub model: BenchModel,
    threads: u32,
    asked: BenchDevice,
    watcher: JoinHandle<()>,
    /// Its log, and the folder of a model without weights.
    _folder: TempDir,
    _hub: Hub,
}

impl BenchWorker {
    /// Starts it; the model is loaded later.
    pub async fn start(arguments: &WorkerArguments) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("rlpipe-bench-")
            .tempdir()
            .context("cannot make a folder for the worker's log; set TMPDIR to a folder that can be written")?;
        let model = BenchModel::of(arguments, folder.path())?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
        let threads = arguments.threads.unwrap_or(cores);
        let hub = Hub::listen().await?;
        let wanted = Wanted {
            rank: 0,
            pool: "bench",
            log: folder.path().join(worker_log(0)),
            cpus: threads,
            accelerator: match arguments.accelerator {
                BenchDevice::Auto => Accelerator::Auto,
                BenchDevice::Cpu => Accelerator::Cpu,
                BenchDevice::Cuda => Accelerator::Cuda,
            },
        };
        let (worker, watcher) = launch(&hub, &LocalCluster::new()?, wanted).await?;
        Ok(Self {
            worker,
            model,
            threads,
            asked: arguments.accelerator,
            watcher,
            _folder: folder,
            _hub: hub,
        })
    }

    /// Whether it computes on a processor.
    pub fn is_cpu(&self) -> bool {
        self.worker.device() == "cpu"
    }

    /// Loads the model.
    pub async fn load(&self, dtype: BenchDtype, engine: Option<EngineSpec>, trainable: bool) -> Result<Loaded> {
        let request = LoadRequest {
            model: MODEL.to_owned(),
            folder: self.model.folder.clone(),
            dtype: Dtype::from(dtype).on(!self.is_cpu()).name().to_owned(),
            init_seed: self.model.init_seed,
            engine,
            trainable,
            token_bytes: Vec::new(),
        };
        Ok(self.worker.load(&request).await?)
    }

    /// A report without results.
    pub fn report(&self, bench: &'static str, loaded: &Loaded, date: Option<&String>) -> Report {
        let driver = if self.is_cpu() { None } else { driver_version() };
        let versions = [
            ("torch", Some(self.worker.torch_version().to_owned())),
            ("driver", driver),
        ];
        let is_without_card = self.is_cpu() && self.asked == BenchDevice::Auto;
        let note = "there is no card here that torch can open: this is the processor";
        Report {
            bench,
            program: Program::this(),
            device: self.worker.device().to_owned(),
            versions: versions
                .into_iter()
                .filter_map(|(name, version)| Some((name, version?)))
                .collect(),
            threads: Some(self.threads),
            model: Some(ModelLine {
                name: self.model.name.clone(),
                weights: self.model.weights(),
                parameters: loaded.parameters,
                dtype: loaded.dtype.clone(),
            }),
            settings: serde_json::Map::new(),
            measured: Vec::new(),
            ratios: std::collections::BTreeMap::new(),
            ceilings: None,
            notes: is_without_card.then(|| note.to_owned()).into_iter().collect(),
            date: date.cloned(),
        }
    }

    /// Lets it end.
    pub async fn end(self) -> Result<()> {
        self.worker.shutdown().await?;
        ended_or_killed(self.watcher).await;
        Ok(())
    }
}

/// Of driver and worker together: measured with a hundred thousand prompts of one token, which had as many answers.
const BYTES_OF_A_SEQUENCE: u128 = 2304;
/// Its id and its log-prob, on both sides.
const BYTES_OF_A_TOKEN: u128 = 16;

/// Refuses so many sequences and tokens of a run as this machine's memory cannot hold. `fewer` is what to give less of.
pub fn ensure_held(sequences: u128, tokens: u128, fewer: &str) -> Result<()> {
    let bytes = sequences
        .saturating_mul(BYTES_OF_A_SEQUENCE)
        .saturating_add(tokens.saturating_mul(BYTES_OF_A_TOKEN));
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    let there = Machine::this().memory.map_or(u64::MAX, |memory| memory.0);
    ensure!(
        bytes <= there,
        "{sequences} sequences of {tokens} tokens in all take about {} of memory in this program and in the worker, \
         and this machine has {}; give fewer {fewer}",
        shown_bytes(bytes),
        shown_bytes(there)
    );
    Ok(())
}

/// Random ids below a vocabulary.
pub fn random_ids(seed: Seed, count: u32, vocabulary: u32) -> Vec<u32> {
    let id = |place| (seed.with(place).0 % u64::from(vocabulary.max(1))) as u32;
    (0..u64::from(count)).map(id).collect()
}

/// What a future comes to, and the seconds that it took.
pub async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<(T, f64)> {
    let started = Instant::now();
    let result = work.await?;
    Ok((result, started.elapsed().as_secs_f64()))
}
