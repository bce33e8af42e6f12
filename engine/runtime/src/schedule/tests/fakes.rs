//! A small world: rows that are easy, hard or in between, an engine that finishes in any order, a policy of one weight.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rlpipe_core::data::{
    Activations, AdamW, Batch, DropReason, ExportDtype, FinishReason, Group, Loss, Metrics, PackMemory, Row, Seed,
    Sequence, SequenceSums, VersionRun,
};
use rlpipe_core::diagnostic::Severity;
use rlpipe_core::services::{
    CommandJudge, Context, Engine, GenerateRequest, HeldRows, JudgeCommand, Learner, MemoryPeak, Observer,
    OptimizerReport, Rows, Sample, SavedFile, ServiceError, Services, Tokenizer, Weights,
};
use rlpipe_stages::KINDS;

use super::super::event::{Event, Reporter};
use super::super::graph::{Graph, build};
use super::super::path::Surroundings;
use super::super::state::{BusyTime, WorkerState};
use super::super::times::Times;
use super::super::waits::Waits;
use crate::compile::{Request, compile, read_file};
use crate::hash::sha256;
use crate::plan::Plan;

const HEAD: &str = "\
version: 1
name: small
run: { work_dir: runs, seed: 3, total_steps: 6 }
pools: { local: { accelerator: cpu, workers_per_node: 1, cpus_per_worker: 1 } }
models: { tiny: { path: model, dtype: float32 } }
nodes:
  engine: { type: rollout_engine, pool: local, model: tiny, max_context_tokens: 64 }
  advantages: { type: advantage, inputs: { batch: buffer }, estimator: grpo }
  trainer: { type: trainer, inputs: { batch: advantages }, pool: local, model: tiny, optimizer: { adamw: { lr: 0.1 } } }
  sync: { type: weight_sync, inputs: { weights: trainer }, to: engine }
";

/// From a sampler to a buffer of four groups a step, with a filter that asks again four times.
pub const FILTERED: &str = "
  prompts: { type: sampler, dataset: { path: rows.jsonl }, shuffle: false, samples_per_prompt: 4, max_prompt_tokens: 8 }
  answers: { type: agent_loop, inputs: { prompts: prompts.prompts, engine: engine }, sampling: { max_new_tokens: 4 } }
  scored: { type: judger, inputs: { groups: answers }, judge: number, on_error: drop_group }
  varied: { type: filter, inputs: { groups: scored }, keep: spread_reward, max_refill: 4 }
  buffer: { type: replay_buffer, inputs: { groups: [varied] }, prompts_per_step: 4 }
";

/// The same without a filter.
pub const PLAIN: &str = "
  prompts: { type: sampler, dataset: { path: rows.jsonl }, shuffle: false, samples_per_prompt: 4, max_prompt_tokens: 8 }
  answers: { type: agent_loop, inputs: { prompts: prompts.prompts, engine: engine }, sampling: { max_new_tokens: 4 } }
  scored: { type: judger, inputs: { groups: answers }, judge: number, on_error: drop_group }
  buffer: { type: replay_buffer, inputs: { groups: [scored] }, prompts_per_step: 4 }
";

/// An evaluator with its own sampler.
pub const EVALUATED: &str = "
  held_out: { type: sampler, dataset: { path: held-out.jsonl }, shuffle: false }
  tries: { type: agent_loop, inputs: { prompts: held_out.prompts, engine: engine }, sampling: { max_new_tokens: 4, temperature: 0.0 } }
  marks: { type: judger, inputs: { groups: tries }, judge: number, on_error: drop_group }
  evaluator: { type: evaluator, inputs: { groups: marks }, at_start: true, every_steps: 2 }
";

/// The plan of these nodes, beside engine, advantage, trainer and sync.
pub fn plan(nodes: &str, overrides: &[&str]) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.yaml"), format!("{HEAD}{nodes}")).unwrap();
    let outcome = compile(&Request {
        files: vec![PathBuf::from("small.yaml")],
        overrides: overrides.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: &|_| None,
        working_folder: folder.path().to_owned(),
        read: &read_file,
        kinds: KINDS,
    });
    let errors = outcome
        .diagnostics
        .into_iter()
        .filter(|found| found.severity == Severity::Error);
    let errors: Vec<String> = errors.map(|found| found.message).collect();
    assert!(errors.is_empty(), "{errors:?}");
    Plan::of(&outcome.pipeline.unwrap()).unwrap()
}

/// A row a letter: `e`asy (always right), `h`ard (never), `m`ixed, `b`roken (without a ground truth), `c`alled off (all but
/// the first sample).
pub fn rows(letters: &str) -> Vec<Row> {
    let row = |(index, letter): (usize, char)| Row {
        line: index as u64 + 1,
        prompt_ids: vec![letter as u32, index as u32],
        ground_truth: (letter != 'b').then(|| "1".to_owned()),
        ..Row::default()
    };
    letters.chars().enumerate().map(row).collect()
}

/// Answers `1` where it is right. When it answers depends on the seed and on `order`: no two orders are alike.
#[derive(Default)]
pub struct Shuffled {
    pub order: u64,
    /// Second token of each prompt, as it was answered.
    pub answered: Mutex<Vec<u32>>,
    pub version: Mutex<u64>,
    /// The prompt at which it gives up.
    pub breaks_at: Option<u32>,
}

#[async_trait]
impl Engine for Shuffled {
    async fn generate(&self, request: GenerateRequest) -> Result<Vec<Sample>, ServiceError> {
        let (letter, index) = (char::from_u32(request.prompt_ids[0]).unwrap(), request.prompt_ids[1]);
        if self.order > 0 {
            for _ in 0..Seed(request.seeds[0]).with(self.order).0 % 23 {
                tokio::task::yield_now().await;
            }
        }
        if self.breaks_at == Some(index) {
            return Err(ServiceError("the worker is gone".to_owned()));
        }
        self.answered.lock().unwrap().push(index);
        let version = *self.version.lock().unwrap();
        let sample = |(place, seed): (usize, &u64)| {
            let right = match letter {
                'e' => true,
                'm' => place == 0 || (place > 1 && seed % 2 == 0),
                _ => false,
            };
            let length = 1 + (seed >> 32) as usize % 3;
            Sample {
                ids: [vec![7; length - 1], vec![u32::from(right)]].concat(),
                logprobs: vec![-((seed % 1000) as f32) / 1000.0 - version as f32 / 64.0; length],
                finish_reason: match letter {
                    'c' if place > 0 => FinishReason::Aborted,
                    _ => FinishReason::Stop,
                },
                stop_bytes: 0,
                policy_version: vec![VersionRun {
                    version,
                    tokens: length as u32,
                }],
            }
        };
        Ok(request.seeds.iter().enumerate().map(sample).collect())
    }

    async fn set_version(&self, version: u64) -> Result<(), ServiceError> {
        *self.version.lock().unwrap() = version;
        Ok(())
    }
}

/// A policy of one weight, which grows by what it is told; and what was to be kept of each pack.
#[derive(Default)]
pub struct OneWeight(Mutex<(f64, f64)>, pub Mutex<Vec<Activations>>);

#[async_trait]
impl Learner for OneWeight {
    async fn start_training(&self, _optimizer: &AdamW) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn logprobs(
        &self,
        _weights: Weights,
        pack: &[Sequence],
        _chunk_tokens: u32,
    ) -> Result<Vec<Vec<f32>>, ServiceError> {
        Ok(pack.iter().map(|sequence| vec![-0.5; sequence.mask.len()]).collect())
    }

    async fn train_pack(
        &self,
        pack: &[Sequence],
        _loss: &Loss,
        denominator: f64,
        memory: PackMemory,
    ) -> Result<Vec<SequenceSums>, ServiceError> {
        self.1.lock().unwrap().push(memory.activations);
        let mut state = self.0.lock().unwrap();
        let mut all = Vec::new();
        for sequence in pack {
            let signal = sequence.advantages.iter().zip(&sequence.rollout_logprobs);
            let loss = signal
                .map(|(advantage, logprob)| f64::from(advantage * logprob))
                .sum::<f64>()
                + state.0;
            state.1 += loss / denominator;
            all.push(SequenceSums {
                tokens: sequence.mask.len() as u32,
                loss,
                ..SequenceSums::default()
            });
        }
        Ok(all)
    }

    async fn optimizer_step(&self, learning_rate: f64) -> Result<OptimizerReport, ServiceError> {
        let mut state = self.0.lock().unwrap();
        let gradient = std::mem::take(&mut state.1);
        state.0 -= learning_rate * gradient;
        Ok(OptimizerReport {
            grad_norm: gradient.abs(),
            skipped: false,
            again: false,
            loss_scale: None,
        })
    }

    async fn freeze(&self) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn export(&self, _folder: &Path, _dtype: ExportDtype) -> Result<(), ServiceError> {
        Ok(())
    }
}

struct Numbers;

impl Tokenizer for Numbers {
    fn decode(&self, ids: &[u32], _without_bytes: u32) -> Result<String, ServiceError> {
        Ok(ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
    }

    fn stop_ids(&self) -> &[u32] {
        &[0]
    }
}

/// Remembers what it is told.
#[derive(Default)]
pub struct Ears {
    pub notices: Mutex<Vec<String>>,
    pub progress: Mutex<Vec<(u64, u64)>>,
    /// Steps with their phases, in order.
    pub phases: Mutex<Vec<(u64, &'static str)>>,
    pub metrics: Mutex<Vec<(u64, Metrics)>>,
}

impl Observer for Ears {
    fn progress(&self, _node: &str, what: &str, done: u64, total: u64) {
        if what == "groups" {
            self.progress.lock().unwrap().push((done, total));
        }
    }

    fn notice(&self, node: &str, text: &str) {
        self.notices.lock().unwrap().push(format!("{node}: {text}"));
    }
}

impl Reporter for Ears {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Phase { step, phase } => self.phases.lock().unwrap().push((*step, phase.name())),
            Event::Step { step, metrics, .. } => self.metrics.lock().unwrap().push((*step, (*metrics).clone())),
        }
    }
}

/// All of it.
pub struct World {
    pub plan: Plan,
    pub engine: Arc<Shuffled>,
    pub learner: Arc<OneWeight>,
    pub ears: Arc<Ears>,
    rows: BTreeMap<String, Arc<HeldRows>>,
    asked_for_memory: AtomicU64,
}

impl World {
    /// A world for a plan, with the rows of each sampler.
    pub fn new(plan: Plan, rows: &[(&str, Vec<Row>)]) -> Self {
        let shared = |rows: &Vec<Row>| Arc::new(rows.iter().cloned().collect());
        Self {
            plan,
            engine: Arc::default(),
            learner: Arc::default(),
            ears: Arc::default(),
            asked_for_memory: AtomicU64::new(0),
            rows: rows
                .iter()
                .map(|(name, rows)| ((*name).to_owned(), shared(rows)))
                .collect(),
        }
    }

    /// The same, with an engine that finishes in another order.
    pub fn in_order(mut self, order: u64) -> Self {
        self.engine = Arc::new(Shuffled {
            order,
            ..Shuffled::default()
        });
        self
    }

    pub fn graph(&self) -> Graph {
        build(&self.plan, KINDS, self).unwrap()
    }

    pub fn surroundings(&self, step: u64) -> Surroundings {
        Surroundings {
            context: Context {
                node: Arc::from(""),
                step,
                total_steps: 6,
                seed: self.seed(),
                observer: self.ears.clone(),
            },
            waits: Waits::default(),
            times: Times::default(),
            reporter: self.ears.clone(),
            report_after: Duration::from_secs(300),
        }
    }
}

impl Services for World {
    fn seed(&self) -> Seed {
        Seed::run(self.plan.run.seed)
    }

    fn input(&self, node: &str, input: &str) -> Result<String, ServiceError> {
        let found = self.plan.node(node).and_then(|node| node.input(input));
        found
            .map(str::to_owned)
            .ok_or_else(|| ServiceError(format!("`{node}` has no `{input}`")))
    }

    fn rows(&self, sampler: &str) -> Result<Arc<dyn Rows>, ServiceError> {
        let rows = self.rows.get(sampler).cloned();
        rows.map(|rows| rows as Arc<dyn Rows>)
            .ok_or_else(|| ServiceError(format!("`{sampler}` has no rows")))
    }

    fn engine(&self, _node: &str) -> Result<Arc<dyn Engine>, ServiceError> {
        Ok(self.engine.clone())
    }

    fn tokenizer(&self, _engine: &str) -> Result<Arc<dyn Tokenizer>, ServiceError> {
        Ok(Arc::new(Numbers))
    }

    fn learner(&self, _model: &str) -> Result<Arc<dyn Learner>, ServiceError> {
        Ok(self.learner.clone())
    }

    fn command_judge(&self, node: &str, _command: &JudgeCommand) -> Result<Arc<dyn CommandJudge>, ServiceError> {
        Err(ServiceError(format!("`{node}`: there are no programs here")))
    }
}

/// Saves the weight and the engine's version.
#[async_trait]
impl WorkerState for World {
    async fn save(&self, folder: &Path) -> Result<Vec<SavedFile>, ServiceError> {
        let state = (
            self.learner.0.lock().unwrap().0.to_bits(),
            *self.engine.version.lock().unwrap(),
        );
        let bytes = serde_json::to_vec(&state).unwrap();
        std::fs::write(folder.join("weights.json"), &bytes).unwrap();
        Ok(vec![SavedFile {
            name: "weights.json".to_owned(),
            bytes: bytes.len() as u64,
            sha256: sha256(&bytes),
        }])
    }

    async fn restore(&self, folder: &Path) -> Result<(), ServiceError> {
        let bytes = std::fs::read(folder.join("weights.json")).unwrap();
        let (weight, version): (u64, u64) = serde_json::from_slice(&bytes).unwrap();
        self.learner.0.lock().unwrap().0 = f64::from_bits(weight);
        *self.engine.version.lock().unwrap() = version;
        Ok(())
    }

    async fn memory_peaks(&self) -> Result<BTreeMap<u32, MemoryPeak>, ServiceError> {
        // Never the same twice, as it may be: nothing that is compared may depend on it.
        let times = self.asked_for_memory.fetch_add(1, Ordering::SeqCst);
        let peak = MemoryPeak {
            host_bytes: (1 << 30) + times,
            accelerator_bytes: 0,
        };
        Ok(BTreeMap::from([(0, peak)]))
    }

    fn take_busy(&self) -> BTreeMap<u32, Vec<BusyTime>> {
        BTreeMap::new()
    }
}

/// Lines of the rows of a batch.
pub fn lines(batch: &Batch) -> Vec<u64> {
    batch.groups.iter().map(|group| group.row.line).collect()
}

/// Ids of dropped groups, with their reasons.
pub fn reasons(dropped: &[(Group, DropReason)]) -> Vec<(u64, &str)> {
    dropped
        .iter()
        .map(|(group, reason)| {
            let (DropReason::Failed(text) | DropReason::Filtered(text)) = reason;
            (group.id, text.as_str())
        })
        .collect()
}
