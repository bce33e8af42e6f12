//! `rlpipe bench generate`: prompts of random ids, all at once, as a run sends them.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use rlpipe_backends::{EngineSpec, TorchEngine};
use rlpipe_core::data::{Sampling, Seed};
use rlpipe_core::services::{Engine as _, GenerateRequest};
use serde_json::json;

use super::arguments::GenerateArguments;
use super::report::{CeilingsLine, Measured, Report};
use super::roofline::Generation;
use super::worker::{BenchWorker, MODEL, ensure_held, random_ids, timed};
use crate::ExitError;

/// What is asked for in each run.
#[derive(Debug, Clone, Copy)]
struct Asked {
    prompts: u32,
    prompt_tokens: u32,
    new_tokens: u32,
    samples: u32,
    temperature: f64,
    top_p: f64,
    top_k: u32,
    min_p: f64,
    vocabulary: u32,
}

impl Asked {
    /// Requests of a run; no run repeats a prompt of another.
    fn requests(&self, seed: Seed) -> Vec<GenerateRequest> {
        let request = |prompt: u64| GenerateRequest {
            prompt_ids: random_ids(seed.with(prompt), self.prompt_tokens, self.vocabulary),
            seeds: (0..u64::from(self.samples))
                .map(|sample| seed.named("sample").with(prompt).with(sample).0)
                .collect(),
            stop_ids: Vec::new(),
            stop_strings: Vec::new(),
            sampling: Sampling {
                max_new_tokens: self.new_tokens,
                min_new_tokens: 0,
                temperature: self.temperature,
                top_p: self.top_p,
                top_k: self.top_k,
                min_p: self.min_p,
            },
        };
        (0..u64::from(self.prompts)).map(request).collect()
    }

    /// As many responses, each to a prompt of its own.
    fn separate(self) -> Self {
        Self {
            prompts: self.prompts * self.samples,
            samples: 1,
            ..self
        }
    }

    /// In a run.
    fn tokens(&self) -> u64 {
        u64::from(self.prompts) * u64::from(self.samples) * u64::from(self.new_tokens)
    }

    fn generation(&self, slots: u32, number_bytes: u64) -> Generation {
        let responses = u64::from(self.prompts) * u64::from(self.samples);
        Generation {
            prompts: self.prompts.into(),
            prompt_tokens: self.prompt_tokens.into(),
            responses,
            new_tokens: self.new_tokens.into(),
            slots: responses.min(slots.into()),
            number_bytes,
        }
    }
}

/// Measures.
pub async fn generate(arguments: &GenerateArguments) -> Result<Report> {
    if arguments.shared && arguments.samples < 2 {
        return Err(ExitError::misused(
            "`--shared` compares samples of one prompt with prompts of their own: give `--samples` above 1, such as 8",
        ));
    }
    let worker = BenchWorker::start(&arguments.worker).await?;
    let (prompts, new_tokens) = if worker.is_cpu() { (8, 32) } else { (512, 256) };
    let new_tokens = arguments.new_tokens.unwrap_or(new_tokens);
    let spec = EngineSpec {
        max_context_tokens: arguments.prompt_tokens.saturating_add(new_tokens),
        slots: arguments.slots.unwrap_or(0),
        memory_fraction: arguments.memory_fraction,
        own_weights: false,
    };
    let prompts = arguments.prompts.unwrap_or(prompts);
    let responses = u128::from(prompts) * u128::from(arguments.samples);
    let run_prompts = if arguments.shared { responses } else { prompts.into() };
    ensure_held(
        responses,
        run_prompts * u128::from(arguments.prompt_tokens) + responses * u128::from(new_tokens),
        "`--prompts` or `--samples`, or shorter ones",
    )?;
    let loaded = worker.load(arguments.worker.dtype, Some(spec), false).await;
    let loaded = match arguments.slots {
        Some(slots) => {
            loaded.with_context(|| format!("nothing can be loaded with `--slots {slots}`; with fewer, less is held"))?
        }
        None => loaded?,
    };
    let asked = Asked {
        prompts,
        prompt_tokens: arguments.prompt_tokens,
        new_tokens,
        samples: arguments.samples,
        temperature: arguments.temperature,
        top_p: arguments.top_p,
        top_k: arguments.top_k,
        min_p: arguments.min_p,
        vocabulary: loaded.vocabulary,
    };
    let ways: Vec<(&str, Asked)> = match arguments.shared {
        true => vec![("shared prompts", asked), ("separate prompts", asked.separate())],
        false => vec![("generate", asked)],
    };
    let engine = TorchEngine::new(worker.worker.clone(), MODEL);
    let mut times = vec![Vec::new(); ways.len()];
    for run in 0..=arguments.worker.runs {
        // In turn, so that what else the machine does falls on all of them.
        for ((name, asked), times) in ways.iter().zip(&mut times) {
            let seed = Seed::run(run.into()).named(name);
            times.push(once(&engine, asked, seed).await?);
        }
    }
    let mut report = worker.report("generate", &loaded, arguments.shown.date.as_ref());
    let ceilings = CeilingsLine::from(worker.worker.ceilings().await?);
    let number_bytes = if loaded.dtype == "float32" { 4 } else { 2 };
    for ((name, asked), times) in ways.iter().zip(&times) {
        let work = asked.generation(loaded.slots, number_bytes).work(&worker.model.sizes);
        let measured = Measured::of(
            name,
            &times[1..],
            times.first().copied(),
            "tokens",
            asked.tokens() as f64,
        );
        report
            .measured
            .extend(measured.map(|measured| measured.against(work, &ceilings, &loaded.dtype)));
    }
    if let [shared, separate] = report.measured.as_slice() {
        let ratio = separate.seconds.median / shared.seconds.median;
        report
            .ratios
            .insert("separate prompts over shared prompts".to_owned(), ratio);
    }
    report.ceilings = Some(ceilings);
    report.settings = settings(&asked, loaded.slots);
    worker.end().await?;
    Ok(report)
}

fn settings(asked: &Asked, slots: u32) -> serde_json::Map<String, serde_json::Value> {
    [
        ("prompts", json!(asked.prompts)),
        ("prompt_tokens", json!(asked.prompt_tokens)),
        ("new_tokens", json!(asked.new_tokens)),
        ("samples", json!(asked.samples)),
        ("slots", json!(slots)),
        ("temperature", json!(asked.temperature)),
        ("top_p", json!(asked.top_p)),
        ("top_k", json!(asked.top_k)),
        ("min_p", json!(asked.min_p)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

/// One run: its seconds, from the first request that is sent to the last answer that is back.
async fn once(engine: &TorchEngine, asked: &Asked, seed: Seed) -> Result<f64> {
    let requests = asked.requests(seed);
    let (groups, seconds) = timed(async {
        let all = requests.into_iter().map(|request| engine.generate(request));
        Ok(try_join_all(all).await?)
    })
    .await?;
    let tokens: usize = groups.iter().flatten().map(|sample| sample.ids.len()).sum();
    ensure!(
        tokens as u64 == asked.tokens(),
        "{tokens} tokens came back, {} were asked for: the worker ended responses that nothing ends",
        asked.tokens()
    );
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_their_own_are_as_many_responses() {
        let asked = Asked {
            prompts: 3,
            prompt_tokens: 5,
            new_tokens: 7,
            samples: 2,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            vocabulary: 11,
        };
        let (shared, separate) = (asked.requests(Seed::run(1)), asked.separate().requests(Seed::run(1)));
        assert_eq!((shared.len(), separate.len()), (3, 6));
        assert_eq!(asked.tokens(), 42);
        assert_eq!(asked.separate().tokens(), 42);
        assert!(
            shared
                .iter()
                .all(|request| request.seeds.len() == 2 && request.prompt_ids.len() == 5)
        );
        assert!(
            separate
                .iter()
                .flat_map(|request| &request.prompt_ids)
                .all(|id| *id < 11)
        );
        assert_ne!(separate[0].prompt_ids, separate[1].prompt_ids);
        assert_ne!(shared[0].seeds, shared[1].seeds);
        let generation = asked.generation(4, 2);
        assert_eq!((generation.responses, generation.slots), (6, 4));
    }
}
