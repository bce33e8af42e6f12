//! The workers of a run, and what nodes ask of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use rlpipe_backends::{Busy, EngineSpec, Hub, LoadRequest, TOKEN_VARIABLE, TorchEngine, TorchLearner, Worker};
use rlpipe_core::data::Seed;
use rlpipe_core::services::{
    CommandJudge, Engine, JudgeCommand, Learner, MemoryPeak, Rows, SavedFile, ServiceError, Services, Tokenizer,
};
use rlpipe_runtime::cluster::{Cluster, LocalCluster, WorkerSpec, worker_log, worker_program};
use rlpipe_runtime::compile::{Accelerator, Data, HubCache, init_model, model_folder};
use rlpipe_runtime::plan::{Plan, PlannedModel, PlannedWorker};
use rlpipe_runtime::run::RunFolder;
use rlpipe_runtime::schedule::{BusyTime, WorkerState};
use tokio::task::JoinHandle;

use crate::programs::Programs;
use crate::progress::Progress;

/// Opening CUDA and torch takes seconds; more than this is a fault.
const HELLO_WITHIN: Duration = Duration::from_secs(180);
/// A worker that was asked to end has this long.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(20);

/// A worker to start.
pub struct Wanted<'a> {
    /// Its place among the workers, from 0.
    pub rank: u32,
    /// What errors call its pool.
    pub pool: &'a str,
    /// Takes its output.
    pub log: PathBuf,
    /// Threads that it computes with.
    pub cpus: u32,
    /// What it computes on.
    pub accelerator: Accelerator,
}

/// Starts a worker, and waits until it has reported. When its process ends, everything that waits for it fails at once
/// and says how: that is the task, and dropping it kills the process.
pub async fn launch(hub: &Hub, cluster: &dyn Cluster, wanted: Wanted<'_>) -> Result<(Worker, JoinHandle<()>)> {
    let Wanted { rank, pool, log, .. } = wanted;
    let program = worker_program()?;
    let spec = WorkerSpec {
        rank,
        pool: pool.to_owned(),
        program: program.clone(),
        endpoint: hub.endpoint().to_owned(),
        environment: vec![(TOKEN_VARIABLE.to_owned(), hub.token().to_owned())],
        log: log.clone(),
        cpus: wanted.cpus,
        accelerator: wanted.accelerator,
    };
    let mut process = cluster.start(spec).await?;
    let worker = tokio::select! {
        worker = hub.worker(rank, pool, HELLO_WITHIN) => {
            worker.map_err(|error| anyhow::anyhow!("{error}: `{}`", log.display()))?
        }
        exit = process.wait() => {
            anyhow::bail!(
                "worker {rank} of pool `{pool}`, program `{}`, did not start: {}",
                program.display(),
                process.report(exit)
            );
        }
    };
    let watched = worker.clone();
    let watcher = tokio::spawn(async move {
        let exit = process.wait().await;
        watched.close(&process.report(exit));
    });
    Ok((worker, watcher))
}

/// Waits until a worker that was asked to end has ended, but not for ever.
pub async fn ended_or_killed(mut watcher: JoinHandle<()>) {
    if tokio::time::timeout(SHUTDOWN_WITHIN, &mut watcher).await.is_err() {
        // Dropping its task kills the process.
        watcher.abort();
    }
}

/// The workers, and everything else that nodes look up by name.
pub struct Fleet {
    seed: Seed,
    /// Inputs that take exactly one node, by node and port.
    inputs: BTreeMap<(String, String), String>,
    rows: BTreeMap<String, Arc<dyn Rows>>,
    tokenizers: BTreeMap<String, Arc<rlpipe_text::Tokenizer>>,
    /// The worker of each model.
    workers: BTreeMap<String, Worker>,
    /// The model of each engine node.
    models_of_engines: BTreeMap<String, String>,
    /// Folders of the models.
    folders: BTreeMap<String, PathBuf>,
    /// Where models of a hub are.
    cache: HubCache,
    /// Programs that judge.
    programs: Programs,
    /// One a process: waits for its end.
    watchers: Mutex<Vec<JoinHandle<()>>>,
    /// Last, so that streams outlive everything that uses them.
    _hub: Hub,
}

impl Fleet {
    /// Starts the workers of the plan and lets them load their models.
    pub async fn start(
        plan: &Plan,
        data: Data,
        cache: HubCache,
        folder: &RunFolder,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let hub = Hub::listen().await?;
        let cluster = LocalCluster::new()?;
        let mut fleet = Self {
            seed: Seed::run(plan.run.seed),
            inputs: plan
                .nodes
                .iter()
                .flat_map(|node| {
                    node.inputs
                        .iter()
                        .filter(|(_, edges)| edges.len() == 1)
                        .map(|(port, edges)| ((node.name.clone(), port.clone()), edges[0].node.clone()))
                })
                .collect(),
            rows: data.rows,
            tokenizers: data.tokenizers,
            workers: BTreeMap::new(),
            models_of_engines: BTreeMap::new(),
            folders: BTreeMap::new(),
            cache,
            programs: Programs::new(plan, folder, progress)?,
            watchers: Mutex::default(),
            _hub: hub,
        };
        for planned in &plan.workers {
            let worker = fleet.start_worker(plan, planned, &cluster, folder).await?;
            for model in &planned.models {
                let loaded = fleet.load(plan, &worker, model, folder).await?;
                progress.line(&loaded);
            }
        }
        Ok(fleet)
    }

    async fn start_worker(
        &self,
        plan: &Plan,
        planned: &PlannedWorker,
        cluster: &dyn Cluster,
        folder: &RunFolder,
    ) -> Result<Worker> {
        let pool = plan
            .pools
            .get(&planned.pool)
            .with_context(|| format!("the plan has no pool `{}`", planned.pool))?;
        let wanted = Wanted {
            rank: planned.rank,
            pool: &planned.pool,
            log: folder.logs().join(worker_log(planned.rank)),
            cpus: pool.cpus_per_worker.get(),
            accelerator: pool.accelerator,
        };
        let (worker, watcher) = launch(&self._hub, cluster, wanted).await?;
        if let Ok(mut watchers) = self.watchers.lock() {
            watchers.push(watcher);
        }
        Ok(worker)
    }

    async fn load(
        &mut self,
        plan: &Plan,
        worker: &Worker,
        planned: &PlannedModel,
        folder: &RunFolder,
    ) -> Result<String> {
        let name = &planned.model;
        let config = plan
            .models
            .get(name)
            .with_context(|| format!("the plan has no model `{name}`"))?;
        let place = model_folder(config, folder.model(name), &self.cache)
            .map_err(|error| anyhow::anyhow!("the model `{name}`: {error}"))?;
        if let Some(init) = &config.init {
            init_model(&place, init).map_err(|error| anyhow::anyhow!("the model `{name}`: {error}"))?;
        }
        let request = LoadRequest {
            model: name.clone(),
            folder: place.clone(),
            dtype: config.dtype.on(worker.device() != "cpu").name().to_owned(),
            init_seed: config.init.is_some().then(|| self.seed.named("models").named(name).0),
            engine: planned.engine.as_ref().map(|engine| EngineSpec {
                max_context_tokens: engine.max_context_tokens,
                slots: engine.slots,
                memory_fraction: engine.memory_fraction,
                own_weights: engine.own_weights,
            }),
            trainable: planned.trainable,
            token_bytes: match &planned.engine {
                Some(_) => self.token_bytes(name),
                None => Vec::new(),
            },
        };
        let loaded = worker.load(&request).await?;
        self.workers.insert(name.clone(), worker.clone());
        self.folders.insert(name.clone(), place);
        if let Some(engine) = &planned.engine {
            self.models_of_engines.insert(engine.node.clone(), name.clone());
        }
        let parameters = loaded.parameters as f64 / 1e6;
        let slots = if loaded.slots > 0 {
            format!(", {} rollouts at a time", loaded.slots)
        } else {
            String::new()
        };
        Ok(format!(
            "`{name}`: {parameters:.1} M parameters in {} on {}{slots}",
            loaded.dtype, loaded.device
        ))
    }

    /// What each token of a model stands for; nothing where its tokens do not stand for bytes.
    fn token_bytes(&self, model: &str) -> Vec<Vec<u8>> {
        let Some(tokenizer) = self.tokenizers.get(model) else {
            return Vec::new();
        };
        (0..tokenizer.vocabulary_size() as u32)
            .map_while(|id| tokenizer.token_bytes(id))
            .collect()
    }

    /// Versions and devices, for the checkpoint.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::from([("rlpipe".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
        for worker in self.workers.values() {
            versions.insert("torch".to_owned(), worker.torch_version().to_owned());
            versions.insert(
                format!("device of worker {}", worker.rank()),
                worker.device().to_owned(),
            );
        }
        versions
    }

    /// The folder of the model that is trained: exports take their text files from there.
    pub fn trained_folder(&self, plan: &Plan) -> Result<PathBuf> {
        let planned = plan
            .workers
            .iter()
            .flat_map(|worker| &worker.models)
            .find(|model| model.trainable);
        let name = &planned.context("the plan trains no model")?.model;
        self.folders
            .get(name)
            .cloned()
            .with_context(|| format!("the model `{name}` is not loaded"))
    }

    /// Lets programs and workers end, and waits for it, but not for ever.
    pub async fn shutdown(&self) {
        self.programs.shutdown().await;
        for worker in self.distinct() {
            // A worker that is gone already has nothing to shut down.
            let _ = worker.shutdown().await;
        }
        let watchers = self
            .watchers
            .lock()
            .map(|mut watchers| std::mem::take(&mut *watchers))
            .unwrap_or_default();
        for watcher in watchers {
            ended_or_killed(watcher).await;
        }
    }

    fn distinct(&self) -> Vec<Worker> {
        let by_rank: BTreeMap<u32, &Worker> = self.workers.values().map(|worker| (worker.rank(), worker)).collect();
        by_rank.into_values().cloned().collect()
    }

    fn of<'a, T>(map: &'a BTreeMap<String, T>, what: &str, name: &str) -> Result<&'a T, ServiceError> {
        map.get(name)
            .ok_or_else(|| ServiceError(format!("there is no {what} `{name}` in this run")))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Dropping a watcher's task kills its process.
        for watcher in self
            .watchers
            .lock()
            .map(|mut watchers| std::mem::take(&mut *watchers))
            .unwrap_or_default()
        {
            watcher.abort();
        }
    }
}

impl Services for Fleet {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn input(&self, node: &str, input: &str) -> Result<String, ServiceError> {
        self.inputs
            .get(&(node.to_owned(), input.to_owned()))
            .cloned()
            .ok_or_else(|| ServiceError(format!("the input `{input}` of `{node}` is not connected")))
    }

    fn rows(&self, sampler: &str) -> Result<Arc<dyn Rows>, ServiceError> {
        Self::of(&self.rows, "data for the sampler", sampler).cloned()
    }

    fn engine(&self, node: &str) -> Result<Arc<dyn Engine>, ServiceError> {
        let model = Self::of(&self.models_of_engines, "engine", node)?;
        Ok(Arc::new(TorchEngine::new(
            Self::of(&self.workers, "worker for the model", model)?.clone(),
            model.clone(),
        )))
    }

    fn tokenizer(&self, engine: &str) -> Result<Arc<dyn Tokenizer>, ServiceError> {
        let model = Self::of(&self.models_of_engines, "engine", engine)?;
        Ok(Arc::new(ModelTokenizer(
            Self::of(&self.tokenizers, "tokenizer of the model", model)?.clone(),
        )))
    }

    fn learner(&self, model: &str) -> Result<Arc<dyn Learner>, ServiceError> {
        Ok(Arc::new(TorchLearner::new(
            Self::of(&self.workers, "worker for the model", model)?.clone(),
            model,
        )))
    }

    fn command_judge(&self, node: &str, command: &JudgeCommand) -> Result<Arc<dyn CommandJudge>, ServiceError> {
        Ok(self.programs.start(node, command)?)
    }
}

#[async_trait::async_trait]
impl WorkerState for Fleet {
    async fn save(&self, folder: &Path) -> Result<Vec<SavedFile>, ServiceError> {
        let mut files = Vec::new();
        for worker in self.distinct() {
            files.extend(worker.save(folder).await?);
        }
        Ok(files)
    }

    async fn restore(&self, folder: &Path) -> Result<(), ServiceError> {
        for worker in self.distinct() {
            worker.restore(folder).await?;
        }
        Ok(())
    }

    async fn memory_peaks(&self) -> Result<BTreeMap<u32, MemoryPeak>, ServiceError> {
        let mut peaks = BTreeMap::new();
        for worker in self.distinct() {
            peaks.insert(worker.rank(), worker.memory_peak().await?);
        }
        Ok(peaks)
    }

    fn take_busy(&self) -> BTreeMap<u32, Vec<BusyTime>> {
        let time = |busy: Busy| BusyTime {
            name: busy.name,
            time: busy.since..busy.until,
            worked: busy.worked,
        };
        let of = |worker: &Worker| worker.take_busy().into_iter().map(time).collect();
        let distinct = self.distinct();
        distinct.iter().map(|worker| (worker.rank(), of(worker))).collect()
    }
}

/// A model's tokenizer, as nodes see it.
struct ModelTokenizer(Arc<rlpipe_text::Tokenizer>);

impl Tokenizer for ModelTokenizer {
    fn decode(&self, ids: &[u32], without_bytes: u32) -> Result<String, ServiceError> {
        self.0
            .decode_start(ids, without_bytes as usize)
            .map_err(|error| ServiceError(error.to_string()))
    }

    fn stop_ids(&self) -> &[u32] {
        self.0.stop_ids()
    }
}
