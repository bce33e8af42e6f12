//! A small world: a policy of one weight, an engine that hashes seeds, and a list of what was told.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rlpipe_core::data::{
    AdamW, Batch, ExportDtype, FinishReason, Group, Loss, Metrics, PackMemory, Rollout, Row, Score, Seed, Sequence,
    SequenceSums, Status, VersionRun,
};
use rlpipe_core::diagnostic::Diagnostics;
use rlpipe_core::document::{Format, Source, Sources, parse};
use rlpipe_core::kind::{AnyConfig, BatchStage, GroupStage, Kind, Stage, Trainer};
use rlpipe_core::plugin::Sample as PluginSample;
use rlpipe_core::services::{
    CommandJudge, Context, Engine, GenerateRequest, HeldRows, JudgeCommand, Learner, Observer, OptimizerReport, Rows,
    Sample, ServiceError, Services, Tokenizer, Weights,
};
use rlpipe_stages::KINDS;

/// A token that makes a gradient which is not finite.
pub const POISON: u32 = 999;

/// The token that ends responses.
pub const STOP: u32 = 0;

/// The config of a node, from its text.
pub fn config(text: &str) -> (&'static Kind, Box<dyn AnyConfig>) {
    let mut sources = Sources::default();
    let id = sources.add(Source {
        name: "node.yaml".to_owned(),
        text: text.into(),
        format: Format::Yaml,
        folder: Some(PathBuf::from("/pipelines")),
    });
    let mut diagnostics = Diagnostics::default();
    let tree = parse(&sources, id, &mut diagnostics).unwrap();
    assert!(diagnostics.into_iter().next().is_none(), "{text}");
    let name = tree.get("type").and_then(|name| name.as_text()).unwrap();
    let kind = KINDS.iter().find(|kind| kind.name == name).unwrap();
    let decoded = (kind.decode)(&tree).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
    (kind, decoded)
}

/// A node of this name, built from its text.
pub fn stage(name: &str, text: &str, world: &World) -> Stage {
    config(text).1.build(name, world).unwrap()
}

/// A judger or filter.
pub fn group_stage(name: &str, text: &str) -> Arc<dyn GroupStage> {
    match stage(name, text, &World::default()) {
        Stage::Groups(stage) => stage,
        _ => panic!("{text} works on no groups"),
    }
}

/// A node between buffer and trainer.
pub fn batch_stage(text: &str, world: &World) -> Arc<dyn BatchStage> {
    match stage("batch stage", text, world) {
        Stage::Batch(stage) => stage,
        _ => panic!("{text} works on no batch"),
    }
}

/// A trainer whose settings are these, beside what every trainer has.
pub fn trainer(settings: &str, world: &World) -> Box<dyn Trainer> {
    let text = format!("type: trainer\npool: gpu\nmodel: policy\noptimizer: {{ adamw: {{ lr: 0.5 }} }}\n{settings}");
    match stage("trainer", &text, world) {
        Stage::Trainer(stage) => stage,
        _ => panic!("{text} is no trainer"),
    }
}

/// A group with one rollout a response; ids are as given, and rewards and advantages where there are some.
pub fn group(id: u64, responses: &[(&[u32], Option<f64>)]) -> Group {
    let rollouts = responses.iter().map(|(ids, advantage)| {
        let score = Score {
            reward: *advantage,
            parsed: advantage.map(|reward| reward.to_string()),
            ..Score::default()
        };
        Rollout {
            score: Some(score),
            advantage: *advantage,
            ..rollout(ids)
        }
    });
    Group {
        id,
        sampler: "prompts".into(),
        row: Arc::new(Row {
            line: id + 1,
            prompt_ids: vec![50, 51 + id as u32],
            ..Row::default()
        }),
        rollouts: rollouts.collect(),
    }
}

/// A completed response that was not judged.
pub fn rollout(ids: &[u32]) -> Rollout {
    Rollout {
        response_ids: ids.to_vec(),
        logprobs: ids.iter().map(|id| base_logprob(*id)).collect(),
        mask: vec![true; ids.len()],
        policy_version: vec![VersionRun {
            version: 0,
            tokens: ids.len() as u32,
        }],
        temperature: 1.0,
        response: ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
        score: None,
        advantage: None,
        reference_logprobs: None,
        status: Status::Completed,
        finish_reason: FinishReason::Stop,
    }
}

/// A step of four groups, of responses that differ in length; one response has no advantage.
pub fn four_groups() -> Batch {
    Batch {
        groups: vec![
            group(0, &[(&[1, 2, 3], Some(1.0)), (&[4], Some(-1.0))]),
            group(1, &[(&[5, 6], Some(0.5)), (&[7, 8, 9, 10], None)]),
            group(2, &[(&[11, 12, 13, 14, 15], Some(-0.25)), (&[16], Some(0.25))]),
            group(3, &[(&[17, 18], Some(2.0)), (&[19, 20, 21], Some(-2.0))]),
        ],
    }
}

/// The learner's log-prob of a token under a weight of nothing.
pub fn base_logprob(id: u32) -> f32 {
    -0.1 * (1 + id % 7) as f32
}

/// What the learner was asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Start(AdamW),
    Logprobs(Weights, Vec<Sequence>),
    Train(Vec<Sequence>, Loss, f64),
    Step(f64),
    Freeze,
    Export(PathBuf),
}

/// A policy of one weight: the log-prob of a token is `base + weight * (id % 5)`. Its gradient is exact, its optimizer
/// plain descent.
#[derive(Default)]
pub struct OneWeight(Mutex<Policy>);

#[derive(Default)]
struct Policy {
    weight: f64,
    frozen: f64,
    gradient: f64,
    /// How often gradients are still too large for their type.
    too_large: u32,
    calls: Vec<Call>,
}

impl OneWeight {
    /// The next optimizer steps find gradients too large for their type.
    pub fn overflow(&self, times: u32) {
        self.0.lock().unwrap().too_large = times;
    }

    pub fn weight(&self) -> f64 {
        self.0.lock().unwrap().weight
    }

    pub fn calls(&self) -> Vec<Call> {
        self.0.lock().unwrap().calls.clone()
    }

    /// Packs that were trained, with their denominators.
    pub fn packs(&self) -> Vec<(Vec<Sequence>, f64)> {
        let trained = |call| match call {
            Call::Train(pack, _, denominator) => Some((pack, denominator)),
            _ => None,
        };
        self.calls().into_iter().filter_map(trained).collect()
    }

    pub fn rates(&self) -> Vec<f64> {
        let rate = |call| match call {
            Call::Step(rate) => Some(rate),
            _ => None,
        };
        self.calls().into_iter().filter_map(rate).collect()
    }
}

fn logprob(id: u32, weight: f64) -> f64 {
    f64::from(base_logprob(id)) + weight * f64::from(id % 5)
}

fn response(sequence: &Sequence) -> &[u32] {
    &sequence.ids[sequence.prompt_tokens as usize..]
}

/// What a sequence adds to the sums, and to the gradient.
fn learn(sequence: &Sequence, loss: &Loss, weight: f64) -> (SequenceSums, f64) {
    let (mut sums, mut gradient) = (SequenceSums::default(), 0.0);
    for (index, &id) in response(sequence).iter().enumerate() {
        if !sequence.mask[index] {
            continue;
        }
        let (now, slope) = (logprob(id, weight), f64::from(id % 5));
        sums.tokens += 1;
        sums.entropy -= now;
        let Loss::Policy(policy) = loss else {
            sums.loss -= now;
            gradient -= slope;
            continue;
        };
        let old = sequence.old_logprobs.get(index).map_or(now, |old| f64::from(*old));
        let advantage = f64::from(sequence.advantages[index]);
        let ratio = (now - old).exp();
        sums.loss -= advantage * ratio;
        sums.ratio += ratio;
        gradient -= advantage * ratio * slope;
        sums.clipped_low += f64::from(u8::from(ratio < 1.0 - policy.clip_low));
        sums.clipped_high += f64::from(u8::from(ratio > 1.0 + policy.clip_high));
        let difference = (now - f64::from(sequence.rollout_logprobs[index])).abs();
        sums.logprob_abs_diff += difference;
        sums.logprob_abs_diff_max = sums.logprob_abs_diff_max.max(difference);
        if let Some((_, coefficient)) = policy.kl {
            let d = now - f64::from(sequence.reference_logprobs[index]);
            sums.kl += (-d).exp() + d - 1.0;
            gradient += coefficient * (1.0 - (-d).exp()) * slope;
        }
        if id == POISON {
            (sums.loss, gradient) = (f64::NAN, f64::NAN);
        }
    }
    (sums, gradient)
}

#[async_trait]
impl Learner for OneWeight {
    async fn start_training(&self, optimizer: &AdamW) -> Result<(), ServiceError> {
        self.0.lock().unwrap().calls.push(Call::Start(optimizer.clone()));
        Ok(())
    }

    async fn logprobs(
        &self,
        weights: Weights,
        pack: &[Sequence],
        _chunk_tokens: u32,
    ) -> Result<Vec<Vec<f32>>, ServiceError> {
        let mut policy = self.0.lock().unwrap();
        policy.calls.push(Call::Logprobs(weights, pack.to_vec()));
        let weight = match weights {
            Weights::Current => policy.weight,
            Weights::Frozen => policy.frozen,
        };
        let of = |sequence| {
            response(sequence)
                .iter()
                .map(|id| logprob(*id, weight) as f32)
                .collect()
        };
        Ok(pack.iter().map(of).collect())
    }

    async fn train_pack(
        &self,
        pack: &[Sequence],
        loss: &Loss,
        denominator: f64,
        _memory: PackMemory,
    ) -> Result<Vec<SequenceSums>, ServiceError> {
        let mut policy = self.0.lock().unwrap();
        policy.calls.push(Call::Train(pack.to_vec(), loss.clone(), denominator));
        let mut all = Vec::new();
        for sequence in pack {
            let (sums, gradient) = learn(sequence, loss, policy.weight);
            policy.gradient += gradient / denominator;
            all.push(sums);
        }
        Ok(all)
    }

    async fn optimizer_step(&self, learning_rate: f64) -> Result<OptimizerReport, ServiceError> {
        let mut policy = self.0.lock().unwrap();
        policy.calls.push(Call::Step(learning_rate));
        let gradient = std::mem::take(&mut policy.gradient);
        let again = policy.too_large > 0;
        policy.too_large = policy.too_large.saturating_sub(1);
        if gradient.is_finite() && !again {
            policy.weight -= learning_rate * gradient;
        }
        Ok(OptimizerReport {
            grad_norm: gradient.abs(),
            skipped: again || !gradient.is_finite(),
            again,
            loss_scale: Some(f64::from(policy.too_large)),
        })
    }

    async fn freeze(&self) -> Result<(), ServiceError> {
        let mut policy = self.0.lock().unwrap();
        policy.frozen = policy.weight;
        policy.calls.push(Call::Freeze);
        Ok(())
    }

    async fn export(&self, folder: &Path, _dtype: ExportDtype) -> Result<(), ServiceError> {
        self.0.lock().unwrap().calls.push(Call::Export(folder.to_owned()));
        Ok(())
    }
}

/// Draws from seeds: 1 to 4 tokens, which end in each of the ways in turn.
#[derive(Default)]
pub struct Hashing {
    pub requests: Mutex<Vec<GenerateRequest>>,
    pub versions: Mutex<Vec<u64>>,
}

#[async_trait]
impl Engine for Hashing {
    async fn generate(&self, request: GenerateRequest) -> Result<Vec<Sample>, ServiceError> {
        let version = self.versions.lock().unwrap().last().copied().unwrap_or(0);
        let sample = |seed: &u64| {
            let tokens = 1 + seed % 4;
            let mut ids: Vec<u32> = (0..tokens).map(|index| 1 + (seed >> (8 * index)) as u32 % 9).collect();
            let finish_reason = [FinishReason::Stop, FinishReason::Length, FinishReason::Aborted][(seed % 3) as usize];
            if finish_reason == FinishReason::Stop {
                ids.push(STOP);
            }
            Sample {
                logprobs: ids.iter().map(|id| base_logprob(*id)).collect(),
                policy_version: vec![VersionRun {
                    version,
                    tokens: ids.len() as u32,
                }],
                ids,
                finish_reason,
                stop_bytes: 0,
            }
        };
        let samples = request.seeds.iter().map(sample).collect();
        self.requests.lock().unwrap().push(request);
        Ok(samples)
    }

    async fn set_version(&self, version: u64) -> Result<(), ServiceError> {
        self.versions.lock().unwrap().push(version);
        Ok(())
    }
}

/// Tokens are numbers; the stop token has no text.
struct Numbers;

impl Tokenizer for Numbers {
    fn decode(&self, ids: &[u32], _without_bytes: u32) -> Result<String, ServiceError> {
        let shown = ids.iter().filter(|id| **id != STOP).map(u32::to_string);
        Ok(shown.collect::<Vec<_>>().join(" "))
    }

    fn stop_ids(&self) -> &[u32] {
        &[STOP]
    }
}

/// Remembers what it is told.
#[derive(Default)]
pub struct Ears {
    pub notices: Mutex<Vec<String>>,
    pub progress: Mutex<Vec<(String, u64, u64)>>,
}

impl Observer for Ears {
    fn progress(&self, _node: &str, what: &str, done: u64, total: u64) {
        self.progress.lock().unwrap().push((what.to_owned(), done, total));
    }

    fn notice(&self, node: &str, text: &str) {
        self.notices.lock().unwrap().push(format!("{node}: {text}"));
    }
}

/// All of it.
#[derive(Default)]
pub struct World {
    pub learner: Arc<OneWeight>,
    pub engine: Arc<Hashing>,
    pub ears: Arc<Ears>,
    pub rows: Vec<Row>,
    pub judge: Arc<Lengths>,
}

/// A program by which the reward is the length of the response, and what it was asked. A response may also be `raise` or
/// `pass`, and `gone` ends the program.
#[derive(Default)]
pub struct Lengths {
    pub commands: Mutex<Vec<(String, JudgeCommand)>>,
    pub asked: Mutex<Vec<PluginSample>>,
}

#[async_trait]
impl CommandJudge for Lengths {
    async fn score(&self, samples: Vec<PluginSample>) -> Result<Vec<Result<Score, String>>, ServiceError> {
        self.asked.lock().unwrap().extend(samples.clone());
        let score = |sample: PluginSample| match sample.response.as_str() {
            "gone" => Err(ServiceError("`scored`: the program is of no use".to_owned())),
            "raise" => Ok(Err("it says: ValueError".to_owned())),
            "pass" => Ok(Ok(Score::default())),
            response => Ok(Ok(Score {
                reward: Some(response.len() as f64),
                parsed: Some(response.len().to_string()),
                parts: [("words".to_owned(), 1.0)].into(),
                error: None,
            })),
        };
        samples.into_iter().map(score).collect()
    }
}

impl World {
    pub fn context(&self, node: &str, step: u64) -> Context {
        Context {
            node: node.into(),
            step,
            total_steps: 10,
            seed: self.seed(),
            observer: self.ears.clone(),
        }
    }

    pub fn notices(&self) -> Vec<String> {
        self.ears.notices.lock().unwrap().clone()
    }

    /// One train step.
    pub async fn train(&self, trainer: &mut dyn Trainer, batch: &Batch, step: u64) -> Metrics {
        trainer.train(batch, &self.context("trainer", step)).await.unwrap()
    }
}

impl Services for World {
    fn seed(&self) -> Seed {
        Seed::run(7)
    }

    fn input(&self, _node: &str, input: &str) -> Result<String, ServiceError> {
        Ok(format!("the {input}"))
    }

    fn rows(&self, _sampler: &str) -> Result<Arc<dyn Rows>, ServiceError> {
        Ok(Arc::new(self.rows.iter().cloned().collect::<HeldRows>()))
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

    fn command_judge(&self, node: &str, command: &JudgeCommand) -> Result<Arc<dyn CommandJudge>, ServiceError> {
        let mut commands = self.judge.commands.lock().unwrap();
        commands.push((node.to_owned(), command.clone()));
        Ok(self.judge.clone())
    }
}
