//! A model folder, its rows, and services that draw what they are told and keep what they are given to learn.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rlpipe_core::data::{AdamW, ExportDtype, FinishReason, Loss, PackMemory, Seed, Sequence, SequenceSums, VersionRun};
use rlpipe_core::kind::Stage;
use rlpipe_core::services::{
    CommandJudge, Context, Engine, GenerateRequest, JudgeCommand, Learner, Observer, OptimizerReport, Rows, Sample,
    ServiceError, Services, Tokenizer, Weights,
};
use rlpipe_runtime::compile::{Data, Outcome, Pipeline, load_data};
use rlpipe_tests::{compile_text, project};
use serde_json::{Map, Value, json};

/// A pipeline over `model` and `rows.jsonl`.
const PIPELINE: &str = "
version: 1
name: tokens
run: { work_dir: runs, total_steps: 1, hf_export: { every_steps: 1 } }
pools: { local: { accelerator: cpu } }
models: { policy: { path: model } }
nodes:
  prompts: { type: sampler, dataset: { path: rows.jsonl }, samples_per_prompt: 2 }
  engine: { type: rollout_engine, pool: local, model: policy, max_context_tokens: 2000 }
  answers: { type: agent_loop, inputs: { prompts: prompts, engine: engine }, sampling: { max_new_tokens: 16, stop: [\"\\n\\n\"] } }
  scored: { type: judger, inputs: { groups: answers }, judge: number }
  buffer: { type: replay_buffer, inputs: { groups: [scored] }, prompts_per_step: 1 }
  advantages: { type: advantage, inputs: { batch: buffer }, estimator: grpo }
  lessons: { type: sampler, dataset: { path: rows.jsonl } }
  warm_up:
    type: sft_trainer
    inputs: { examples: lessons.examples }
    pool: local
    model: policy
    examples_per_step: 8
    optimizer: { adamw: { lr: 1e-3 } }
  trainer:
    type: trainer
    inputs: { batch: advantages, initial_weights: warm_up }
    pool: local
    model: policy
    optimizer: { adamw: { lr: 1e-4 } }
  sync: { type: weight_sync, inputs: { weights: trainer }, to: engine, every_steps: 1 }
";

/// Tokens that byte pairs are merged to, in order.
const MERGES: [[&str; 2]; 5] = [["h", "e"], ["l", "l"], ["ll", "o"], ["he", "llo"], ["Ċ", "Ċ"]];

/// Writes a folder whose tokenizer has a token a byte, some merged ones, `<think>` as one that is not special, and
/// `<|im_end|>` to end and to fill up.
fn write_model(folder: &Path) {
    let model = project().join("tests/ui/models/chat");
    let read = |name: &str| serde_json::from_str::<Value>(&std::fs::read_to_string(model.join(name)).unwrap()).unwrap();
    let mut tokenizer = read("tokenizer.json");
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    for pair in MERGES {
        vocabulary.insert(pair.concat(), vocabulary.len().into());
    }
    let think = vocabulary.len();
    tokenizer["model"]["merges"] = MERGES.iter().map(|pair| json!(pair.join(" "))).collect();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    let mut thinks = added[0].clone();
    (thinks["id"], thinks["content"], thinks["special"]) = (json!(think), json!("<think>"), json!(false));
    added.push(thinks);
    std::fs::create_dir(folder).unwrap();
    let text = tokenizer
        .to_string()
        .replace("\"<start>\"", "\"<|im_start|>\"")
        .replace("\"</s>\"", "\"<|im_end|>\"");
    std::fs::write(folder.join("tokenizer.json"), text).unwrap();
    let config = json!({ "bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>" });
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
    std::fs::copy(model.join("config.json"), folder.join("config.json")).unwrap();
}

/// A pipeline, its data, and what became of them.
pub struct World {
    pub outcome: Outcome,
    pub data: Data,
    /// Ids that the engine draws for each sample, with why they end and the bytes of a stop string.
    pub drawn: Vec<(Vec<u32>, FinishReason, u32)>,
    /// What the engine was asked for.
    pub asked: Arc<Mutex<Vec<GenerateRequest>>>,
    /// What the learner was given.
    pub trained: Arc<Mutex<Vec<Sequence>>>,
    _folder: tempfile::TempDir,
}

impl World {
    /// With one of the templates of `tests/golden/templates` and these rows.
    pub fn new(family: &str, variables: &Map<String, Value>, rows: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_model(&folder.path().join("model"));
        let rows: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(folder.path().join("rows.jsonl"), rows).unwrap();
        let template: PathBuf = project().join(format!("tests/golden/templates/{family}.jinja"));
        let choice = json!({ "file": template, "variables": variables });
        let text = PIPELINE.replace("path: model }", &format!("path: model, chat_template: {choice} }}"));
        let mut outcome = compile_text(folder.path(), "pipeline.yaml", &text);
        let said: Vec<String> = outcome.diagnostics.iter().map(|found| found.message.clone()).collect();
        assert!(!outcome.diagnostics.has_errors(), "{said:?}");
        let pipeline = outcome.pipeline.as_ref().unwrap();
        let data = load_data(pipeline, &mut outcome.sources, &mut outcome.diagnostics, &|_, _, _| {});
        Self {
            outcome,
            data,
            drawn: Vec::new(),
            asked: Arc::default(),
            trained: Arc::default(),
            _folder: folder,
        }
    }

    pub fn tokenizer(&self) -> &Arc<rlpipe_text::Tokenizer> {
        &self.data.tokenizers["policy"]
    }

    /// Codes of what was found.
    pub fn codes(&self) -> Vec<&'static str> {
        self.outcome.diagnostics.iter().map(|found| found.code.id).collect()
    }

    /// A node of the pipeline, built.
    pub fn stage(&self, name: &str) -> Stage {
        let pipeline: &Pipeline = self.outcome.pipeline.as_ref().unwrap();
        let node = pipeline.nodes.iter().find(|node| node.name == name).unwrap();
        node.config.as_ref().unwrap().build(name, self).unwrap()
    }

    pub fn context(&self, node: &str) -> Context {
        Context {
            node: node.into(),
            step: 1,
            total_steps: 1,
            seed: self.seed(),
            observer: Arc::new(Deaf),
        }
    }

    /// What the learner was given.
    pub fn trained(&self) -> Vec<Sequence> {
        self.trained.lock().unwrap().clone()
    }
}

struct Deaf;

impl Observer for Deaf {
    fn progress(&self, _node: &str, _what: &str, _done: u64, _total: u64) {}
    fn notice(&self, _node: &str, _text: &str) {}
}

struct Drawing(Vec<(Vec<u32>, FinishReason, u32)>, Arc<Mutex<Vec<GenerateRequest>>>);

#[async_trait]
impl Engine for Drawing {
    async fn generate(&self, request: GenerateRequest) -> Result<Vec<Sample>, ServiceError> {
        let samples = self
            .0
            .iter()
            .take(request.seeds.len())
            .map(|(ids, finish_reason, stop_bytes)| Sample {
                ids: ids.clone(),
                logprobs: vec![-0.5; ids.len()],
                finish_reason: *finish_reason,
                stop_bytes: *stop_bytes,
                policy_version: vec![VersionRun {
                    version: 0,
                    tokens: ids.len() as u32,
                }],
            });
        self.1.lock().unwrap().push(request.clone());
        Ok(samples.collect())
    }

    async fn set_version(&self, _version: u64) -> Result<(), ServiceError> {
        Ok(())
    }
}

struct Keeping(Arc<Mutex<Vec<Sequence>>>);

#[async_trait]
impl Learner for Keeping {
    async fn start_training(&self, _optimizer: &AdamW) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn logprobs(&self, _: Weights, pack: &[Sequence], _: u32) -> Result<Vec<Vec<f32>>, ServiceError> {
        Ok(pack.iter().map(|sequence| vec![0.0; sequence.mask.len()]).collect())
    }

    async fn train_pack(
        &self,
        pack: &[Sequence],
        _: &Loss,
        denominator: f64,
        _: PackMemory,
    ) -> Result<Vec<SequenceSums>, ServiceError> {
        assert_eq!(
            pack.iter().map(Sequence::trained_tokens).sum::<usize>() as f64,
            denominator
        );
        self.0.lock().unwrap().extend_from_slice(pack);
        Ok(vec![SequenceSums::default(); pack.len()])
    }

    async fn optimizer_step(&self, _learning_rate: f64) -> Result<OptimizerReport, ServiceError> {
        Ok(OptimizerReport {
            grad_norm: 1.0,
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

struct Text(Arc<rlpipe_text::Tokenizer>);

impl Tokenizer for Text {
    fn decode(&self, ids: &[u32], without_bytes: u32) -> Result<String, ServiceError> {
        let text = self.0.decode_start(ids, without_bytes as usize);
        text.map_err(|error| ServiceError(error.to_string()))
    }

    fn stop_ids(&self) -> &[u32] {
        self.0.stop_ids()
    }
}

impl Services for World {
    fn seed(&self) -> Seed {
        Seed::run(1)
    }

    fn input(&self, _node: &str, input: &str) -> Result<String, ServiceError> {
        Ok(input.to_owned())
    }

    fn rows(&self, sampler: &str) -> Result<Arc<dyn Rows>, ServiceError> {
        Ok(self.data.rows[sampler].clone())
    }

    fn engine(&self, _node: &str) -> Result<Arc<dyn Engine>, ServiceError> {
        Ok(Arc::new(Drawing(self.drawn.clone(), self.asked.clone())))
    }

    fn tokenizer(&self, _engine: &str) -> Result<Arc<dyn Tokenizer>, ServiceError> {
        Ok(Arc::new(Text(self.data.tokenizers["policy"].clone())))
    }

    fn learner(&self, _model: &str) -> Result<Arc<dyn Learner>, ServiceError> {
        Ok(Arc::new(Keeping(self.trained.clone())))
    }

    fn command_judge(&self, node: &str, _command: &JudgeCommand) -> Result<Arc<dyn CommandJudge>, ServiceError> {
        Err(ServiceError(format!("`{node}` starts no program here")))
    }
}
