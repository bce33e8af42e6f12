//! `agent_loop`: turns prompts into groups of responses.

use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use rlpipe_core::data::{FinishReason, Group, Rollout, Sampling, Status};
use rlpipe_core::kind::{
    AgentLoop, Choice, Contract, Field, Fraction, GroupTask, Input, NodeConfig, NonNegative, OpenFraction, Output,
    PortType, Role, Stage, StageError,
};
use rlpipe_core::services::{Context, Engine, GenerateRequest, Sample, ServiceError, Services, Tokenizer};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

/// Turns prompts into groups of responses.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentLoopConfig {
    /// How a response comes about. This version has `single_turn`.
    #[serde(default)]
    r#loop: Choice<Loop>,
    /// How tokens are drawn.
    sampling: SamplingConfig,
}

/// How a response comes about.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loop {
    /// The prompt is answered once.
    SingleTurn(SingleTurn),
}

impl Default for Loop {
    fn default() -> Self {
        Self::SingleTurn(SingleTurn {})
    }
}

/// It has no settings of its own.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SingleTurn {}

/// How tokens are drawn.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplingConfig {
    /// The response ends after so many tokens.
    max_new_tokens: NonZeroU32,
    /// Stop tokens cannot be drawn before so many tokens, and stop strings are not looked for.
    #[serde(default)]
    min_new_tokens: u32,
    /// Logits are divided by it. 0 takes the likeliest token.
    #[serde(default = "one")]
    temperature: NonNegative,
    /// Only the likeliest tokens with this much probability together are drawn from, and what is as likely as the last of
    /// them. 1 is all.
    #[serde(default = "all")]
    top_p: Fraction,
    /// Only so many likeliest tokens are drawn from, and what is as likely as the last of them. 0 is all.
    #[serde(default)]
    top_k: u32,
    /// Only tokens with at least this share of the likeliest one's probability are drawn from. 0 is all.
    #[serde(default)]
    min_p: OpenFraction,
    /// Texts that end a response, such as `"\n\nQuestion:"`, however they are spread over tokens. The token that completes
    /// one is the last that is kept and trained; the response's text ends before it, as with vLLM and SGLang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["\n\nQuestion:"])]
    stop: Vec<StopString>,
}

/// A text that ends a response: one character at least.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct StopString(#[schemars(length(min = 1))] String);

impl<'de> Deserialize<'de> for StopString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)? {
            text if text.is_empty() => Err(de::Error::custom(
                "an empty stop string would end every response; take it out",
            )),
            text => Ok(Self(text)),
        }
    }
}

fn one() -> NonNegative {
    NonNegative::new(1.0).unwrap_or_else(|| unreachable!("1 is not negative"))
}

fn all() -> Fraction {
    Fraction::new(1.0).unwrap_or_else(|| unreachable!("1 is a fraction"))
}

impl NodeConfig for AgentLoopConfig {
    const KIND: &'static str = "agent_loop";
    const SUMMARY: &'static str = "Turns prompts into groups of responses.";
    const EXAMPLE: &'static str = "\
type: agent_loop
inputs: { prompts: prompts, engine: engine }
loop: single_turn
sampling: { max_new_tokens: 1024, temperature: 1.0 }
";

    fn contract(&self) -> Contract {
        Contract {
            inputs: vec![
                Input::one("prompts", PortType::Prompts),
                Input::one("engine", PortType::Engine),
            ],
            outputs: vec![Output::new("groups", PortType::Groups).adds(&[
                Field::Tokens,
                Field::SampledLogprobs,
                Field::PolicyVersion,
            ])],
            uses: Vec::new(),
            role: Role::AgentLoop {
                max_new_tokens: self.sampling.max_new_tokens.get(),
                min_new_tokens: self.sampling.min_new_tokens,
                temperature: self.sampling.temperature.get(),
                top_p: self.sampling.top_p.get(),
                top_k: self.sampling.top_k,
                min_p: self.sampling.min_p.get(),
                stop_strings: self.stop_strings(),
            },
        }
    }

    fn build(&self, node: &str, services: &dyn Services) -> Result<Stage, ServiceError> {
        let engine = services.input(node, "engine")?;
        Ok(Stage::AgentLoop(Arc::new(SingleTurnLoop {
            engine: services.engine(&engine)?,
            tokenizer: services.tokenizer(&engine)?,
            stop_strings: self.stop_strings(),
            sampling: Sampling {
                max_new_tokens: self.sampling.max_new_tokens.get(),
                min_new_tokens: self.sampling.min_new_tokens,
                temperature: self.sampling.temperature.get(),
                top_p: self.sampling.top_p.get(),
                top_k: self.sampling.top_k,
                min_p: self.sampling.min_p.get(),
            },
        })))
    }
}

impl AgentLoopConfig {
    fn stop_strings(&self) -> Vec<String> {
        self.sampling.stop.iter().map(|stop| stop.0.clone()).collect()
    }
}

struct SingleTurnLoop {
    engine: Arc<dyn Engine>,
    tokenizer: Arc<dyn Tokenizer>,
    sampling: Sampling,
    stop_strings: Vec<String>,
}

#[async_trait]
impl AgentLoop for SingleTurnLoop {
    async fn run(&self, task: GroupTask, context: &Context) -> Result<Group, StageError> {
        let seed = context.seed.named(&context.node).with(task.id);
        let request = GenerateRequest {
            prompt_ids: task.row.prompt_ids.clone(),
            seeds: (0..task.samples).map(|sample| seed.with(sample.into()).0).collect(),
            stop_ids: self.tokenizer.stop_ids().to_vec(),
            stop_strings: self.stop_strings.clone(),
            sampling: self.sampling.clone(),
        };
        let samples = self.engine.generate(request).await?;
        let rollouts = samples
            .into_iter()
            .map(|sample| self.rollout(sample))
            .collect::<Result<_, _>>()?;
        Ok(Group {
            id: task.id,
            sampler: task.sampler,
            row: task.row,
            rollouts,
        })
    }
}

impl SingleTurnLoop {
    fn rollout(&self, sample: Sample) -> Result<Rollout, ServiceError> {
        Ok(Rollout {
            response: self.tokenizer.decode(&sample.ids, sample.stop_bytes)?,
            mask: vec![true; sample.ids.len()],
            response_ids: sample.ids,
            logprobs: sample.logprobs,
            policy_version: sample.policy_version,
            temperature: self.sampling.temperature,
            score: None,
            advantage: None,
            reference_logprobs: None,
            status: match sample.finish_reason {
                FinishReason::Aborted => Status::Aborted,
                FinishReason::Stop | FinishReason::Length => Status::Completed,
            },
            finish_reason: sample.finish_reason,
        })
    }
}
