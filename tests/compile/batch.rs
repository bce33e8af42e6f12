//! The batch arithmetic against a check by trying: groups are dealt, prompts and responses laid side by side, rewards
//! tried one by one. Settings are generated, the same in every run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rlpipe_core::diagnostic::{Diagnostic, Severity, apply_fixes};
use rlpipe_runtime::compile::{Outcome, Request, compile};
use rlpipe_stages::KINDS;

const CASES: u64 = 10_000;
/// Of so many cases one is asked whether any nearer change would have done.
const SEARCHED: u64 = 20;

/// Numbers that follow from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.within(1..=count) == 1
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.within(0..=list.len() as u64 - 1) as usize]
    }
}

/// A filter behind the first judger.
#[derive(Clone, Copy)]
enum Filter {
    None,
    Spread(f64),
    Mean(f64, f64),
    Both(f64, f64, f64),
}

/// One pipeline: numbers by their path, and what is no number.
#[derive(Clone)]
struct Case {
    numbers: BTreeMap<&'static str, u64>,
    mix: Vec<u64>,
    min_new_tokens: u64,
    filter: Filter,
    fills: bool,
    weight: f64,
    greedy: bool,
}

const GROUPS: &str = "nodes.buffer.prompts_per_step";
const STEPS: &str = "nodes.trainer.optimizer_steps";
const PACK: &str = "nodes.trainer.max_tokens_per_pack";
const CONTEXT: &str = "nodes.engine.max_context_tokens";
const WORKERS: &str = "pools.local.workers_per_node";
const SAMPLES: [&str; 2] = ["nodes.first.samples_per_prompt", "nodes.second.samples_per_prompt"];
const PROMPT: [&str; 2] = ["nodes.first.max_prompt_tokens", "nodes.second.max_prompt_tokens"];
const RESPONSE: [&str; 2] = [
    "nodes.answers_first.sampling.max_new_tokens",
    "nodes.answers_second.sampling.max_new_tokens",
];
const NAMES: [&str; 2] = ["first", "second"];

impl Case {
    fn drawn(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let inputs = if draw.one_in(3) { 2 } else { 1 };
        let mut numbers = BTreeMap::from([
            (GROUPS, draw.within(1..=40)),
            (STEPS, if draw.one_in(2) { 1 } else { draw.within(1..=8) }),
            (PACK, draw.within(12..=90)),
            (CONTEXT, draw.within(12..=90)),
            (WORKERS, if draw.one_in(4) { draw.within(2..=12) } else { 1 }),
        ]);
        for input in 0..inputs {
            numbers.insert(SAMPLES[input], draw.within(1..=5));
            numbers.insert(RESPONSE[input], draw.within(1..=24));
            if !draw.one_in(6) {
                numbers.insert(PROMPT[input], draw.within(1..=24));
            }
        }
        let mix = if inputs == 2 && draw.one_in(2) {
            vec![draw.within(1..=20), draw.within(1..=20)]
        } else {
            Vec::new()
        };
        let tenths = |tenth: u64| tenth as f64 / 10.0;
        let (above, low) = (tenths(draw.within(0..=11)), draw.within(0..=10));
        let (low, high) = (tenths(low), tenths(low + draw.within(0..=4)));
        Self {
            min_new_tokens: draw.within(0..=numbers[RESPONSE[0]].min(3)),
            filter: match draw.within(0..=5) {
                0 => Filter::Spread(above),
                1 => Filter::Mean(low, high),
                2 => Filter::Both(above, low, high),
                _ => Filter::None,
            },
            fills: draw.one_in(3),
            weight: draw.of(&[1.0, 0.5, -1.0, 0.0]),
            greedy: draw.one_in(12),
            numbers,
            mix,
        }
    }

    fn inputs(&self) -> usize {
        SAMPLES.iter().filter(|path| self.numbers.contains_key(*path)).count()
    }

    fn text(&self) -> String {
        let number = |path: &str| self.numbers[path];
        let mut text = format!(
            "version: 1\nname: drawn\nrun: {{ work_dir: runs, total_steps: 9, hf_export: {{ every_steps: 9 }} }}\n\
             pools: {{ local: {{ accelerator: cpu, workers_per_node: {} }} }}\n\
             models:\n  tiny: {{ init: {{ architecture: llama, hidden_size: 8, layers: 1, heads: 2, intermediate_size: 8, \
             tokenizer: bytes }} }}\nnodes:\n  \
             engine: {{ type: rollout_engine, pool: local, model: tiny, max_context_tokens: {} }}\n",
            number(WORKERS),
            number(CONTEXT)
        );
        let mut ends = Vec::new();
        for input in 0..self.inputs() {
            let name = NAMES[input];
            let prompt = self.numbers.get(PROMPT[input]);
            let prompt = prompt
                .map(|prompt| format!(", max_prompt_tokens: {prompt}"))
                .unwrap_or_default();
            let min_new_tokens = if input == 0 { self.min_new_tokens } else { 0 };
            let temperature = if self.greedy && input == 0 { 0 } else { 1 };
            let _ = write!(
                text,
                "  {name}: {{ type: sampler, dataset: {{ path: rows.jsonl }}, samples_per_prompt: {}{prompt} }}\n  \
                 answers_{name}:\n    type: agent_loop\n    inputs: {{ prompts: {name}, engine: engine }}\n    \
                 sampling: {{ max_new_tokens: {}, min_new_tokens: {min_new_tokens}, temperature: {temperature} }}\n  \
                 judged_{name}: {{ type: judger, inputs: {{ groups: answers_{name} }}, judge: {{ weighted_sum: {{ right: {{ \
                 judge: number, weight: {} }} }} }} }}\n",
                number(SAMPLES[input]),
                number(RESPONSE[input]),
                self.weight
            );
            ends.push(format!("judged_{name}"));
        }
        let when = if self.fills { "fill" } else { "fail" };
        let mut filter = |name: &str, keep: String| {
            let before = std::mem::replace(&mut ends[0], name.to_owned());
            let _ = writeln!(
                text,
                "  {name}: {{ type: filter, inputs: {{ groups: {before} }}, keep: {keep}, when_exhausted: {when} }}"
            );
        };
        if let Filter::Spread(above) | Filter::Both(above, ..) = self.filter {
            filter("varied", format!("{{ spread_reward: {{ above: {above} }} }}"));
        }
        if let Filter::Mean(min, max) | Filter::Both(_, min, max) = self.filter {
            filter("fair", format!("{{ mean_reward: {{ min: {min}, max: {max} }} }}"));
        }
        let mix = match self.mix.as_slice() {
            [first, second] => format!(", mix: {{ {}: {first}, {}: {second} }}", ends[0], ends[1]),
            _ => String::new(),
        };
        let _ = write!(
            text,
            "  buffer: {{ type: replay_buffer, inputs: {{ groups: [{}] }}, prompts_per_step: {}{mix} }}\n  \
             advantages: {{ type: advantage, inputs: {{ batch: buffer }}, estimator: grpo }}\n  \
             trainer:\n    type: trainer\n    inputs: {{ batch: advantages }}\n    pool: local\n    model: tiny\n    \
             optimizer_steps: {}\n    max_tokens_per_pack: {}\n    optimizer: {{ adamw: {{ lr: 1e-4 }} }}\n  \
             sync: {{ type: weight_sync, inputs: {{ weights: trainer }}, to: engine }}\n",
            ends.join(", "),
            number(GROUPS),
            number(STEPS),
            number(PACK)
        );
        text
    }

    /// Codes of the rules that are broken, one each, found out by trying.
    fn broken(&self) -> Vec<&'static str> {
        let number = |path: &str| self.numbers[path];
        let mut broken = Vec::new();
        let inputs = 0..self.inputs();
        for input in inputs.clone() {
            // A prompt has a token at least; without a bound shorter ones may still fit.
            let prompts = 1..=self.numbers.get(PROMPT[input]).copied().unwrap_or(1);
            let responses = 1..=number(RESPONSE[input]);
            let lengths = prompts.flat_map(|prompt| responses.clone().map(move |response| prompt + response));
            let longest = lengths.max().unwrap();
            broken.extend((longest > number(CONTEXT)).then_some("RL0501"));
            broken.extend((longest > number(PACK)).then_some("RL0502"));
            // Whether any rewards of 0 and 1 give an advantage that is not 0.
            let differ = (0..1_u32 << number(SAMPLES[input]).min(8)).any(|rewards| {
                let rewards = (0..number(SAMPLES[input]).min(8)).map(|sample| rewards >> sample & 1);
                rewards.clone().max() != rewards.min()
            });
            broken.extend((!differ).then_some("RL0504"));
        }
        let mut dealt = vec![0_u64; number(STEPS) as usize];
        (0..number(GROUPS)).for_each(|group| dealt[(group % number(STEPS)) as usize] += 1);
        broken.extend((dealt.iter().min() != dealt.iter().max()).then_some("RL0503"));
        let fewest = inputs.clone().map(|input| number(SAMPLES[input])).min().unwrap();
        let rollouts = dealt.iter().min().unwrap() * fewest;
        broken.extend((number(WORKERS) > 1 && rollouts < number(WORKERS)).then_some("RL0505"));
        if self.inputs() == 2 {
            let (first, second) = match self.mix.as_slice() {
                [first, second] => (*first, *second),
                _ => (1, 1),
            };
            // The larger remainder takes the group that is left over, the first where they are equal.
            let (whole, total) = (number(GROUPS), first + second);
            let (mut ours, mut theirs) = (whole * first / total, whole * second / total);
            if ours + theirs < whole {
                let first_takes = whole * first % total >= whole * second % total;
                ours += u64::from(first_takes);
                theirs += u64::from(!first_takes);
            }
            broken.extend((ours == 0 || theirs == 0).then_some("RL0506"));
        }
        broken
    }

    /// Whether some rewards of a group pass the filters, found out by trying all.
    fn some_group_passes(&self) -> bool {
        let samples = self.numbers[SAMPLES[0]];
        (0..1_u32 << samples).any(|right| {
            let rewards: Vec<f64> = (0..samples)
                .map(|sample| f64::from(right >> sample & 1) * self.weight)
                .collect();
            let low = rewards.iter().copied().fold(f64::INFINITY, f64::min);
            let high = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mean = rewards.iter().sum::<f64>() / samples as f64;
            let spread_is = |above: f64| high - low > above;
            let mean_is = |min: f64, max: f64| (min..=max).contains(&mean);
            let can_be = !self.greedy || low == high;
            can_be
                && match self.filter {
                    Filter::None => true,
                    Filter::Spread(above) => spread_is(above),
                    Filter::Mean(min, max) => mean_is(min, max),
                    Filter::Both(above, min, max) => spread_is(above) && mean_is(min, max),
                }
        })
    }

    fn with(&self, settings: &[(String, String)]) -> Self {
        let mut changed = self.clone();
        for (path, value) in settings {
            let place = changed.numbers.iter_mut().find(|(known, _)| *known == path);
            *place.unwrap_or_else(|| panic!("`{path}` is no setting")).1 = value.parse().unwrap();
        }
        changed
    }
}

fn compiled(text: &str) -> Outcome {
    compile(&Request {
        files: vec![PathBuf::from("drawn.yaml")],
        overrides: Vec::new(),
        environment: &|_| None,
        working_folder: PathBuf::from("/drawn"),
        read: &|_: &Path| Ok(text.to_owned()),
        kinds: KINDS,
    })
}

fn of_batch(outcome: &Outcome) -> Vec<&Diagnostic> {
    outcome
        .diagnostics
        .iter()
        .filter(|said| said.code.id.starts_with("RL05"))
        .collect()
}

/// Rules that a diagnostic says are broken: its own, and one for each "and".
fn rules_of(said: &Diagnostic) -> usize {
    1 + said.notes.iter().filter(|note| note.starts_with("and ")).count()
}

fn distance(case: &Case, settings: &[(String, String)]) -> f64 {
    let of = |(path, value): &(String, String)| {
        let (old, new) = (case.numbers[path.as_str()] as f64, value.parse::<f64>().unwrap());
        (new - old).abs() / new.max(old)
    };
    settings.iter().map(of).sum()
}

/// How near the nearest change of one setting is after which nothing is broken, found out by trying.
fn nearest_by_trying(case: &Case) -> Option<f64> {
    let mut nearest: Option<f64> = None;
    for path in case.numbers.keys() {
        for value in 1..=150_u64 {
            let settings = [((*path).to_owned(), value.to_string())];
            // A response may not be shorter than its own lower bound, and workers in other numbers are not proposed here.
            let too_short = *path == RESPONSE[0] && value < case.min_new_tokens;
            let far = nearest.is_some_and(|nearest| distance(case, &settings) >= nearest);
            if value != case.numbers[path] && !too_short && !far && case.with(&settings).broken().is_empty() {
                nearest = Some(distance(case, &settings));
            }
        }
    }
    nearest
}

fn check(seed: u64, counts: &mut BTreeMap<&'static str, usize>) {
    let case = Case::drawn(seed);
    let text = case.text();
    let outcome = compiled(&text);
    let unexpected = |said: &&Diagnostic| {
        said.severity == Severity::Error && !said.code.id.starts_with("RL05") && said.code.id != "RL0801"
    };
    assert!(
        outcome.diagnostics.iter().find(unexpected).is_none(),
        "{seed}: {:?}\n{text}",
        outcome.diagnostics
    );
    let (said, broken) = (of_batch(&outcome), case.broken());
    assert_eq!(
        said.iter().map(|said| rules_of(said)).sum::<usize>(),
        broken.len(),
        "{seed}: {broken:?}\n{text}"
    );
    for code in &broken {
        *counts.entry(code).or_default() += 1;
    }
    for said in &said {
        assert!(broken.contains(&said.code.id), "{seed}: {}\n{text}", said.code.id);
        assert!(
            !said.alternatives.is_empty(),
            "{seed}: nothing is proposed for {}\n{text}",
            said.message
        );
        let distances: Vec<f64> = said
            .alternatives
            .iter()
            .map(|change| distance(&case, &change.settings))
            .collect();
        assert!(distances.is_sorted(), "{seed}: {:?}\n{text}", said.alternatives);
        for (place, change) in said.alternatives.iter().enumerate() {
            let changed = case.with(&change.settings);
            let left = broken.len() - rules_of(said);
            assert_eq!(changed.broken().len(), left, "{seed}: {change:?}\n{text}");
            // All are tried above; compiled are the nearest, and now and then the others.
            if seed.is_multiple_of(if place == 0 { 2 } else { SEARCHED }) {
                let after = compiled(&changed.text());
                let rules: usize = of_batch(&after).iter().map(|said| rules_of(said)).sum();
                assert_eq!(rules, left, "{seed}: {change:?}\n{text}");
            }
            *counts.entry("proposals").or_default() += 1;
        }
        if let Some(fix) = &said.fix {
            let fixed = apply_fixes(&text, &[fix]);
            let proposed = said
                .alternatives
                .iter()
                .any(|change| case.with(&change.settings).text() == fixed);
            assert!(proposed, "{seed}: {fix:?}\n{text}");
            *counts.entry("fixes").or_default() += 1;
        }
    }
    if let ([said], true) = (said.as_slice(), seed.is_multiple_of(SEARCHED)) {
        let first = &said.alternatives[0].settings;
        match nearest_by_trying(&case) {
            Some(nearest) => {
                assert_eq!(first.len(), 1, "{seed}: {first:?}\n{text}");
                assert!(
                    (distance(&case, first) - nearest).abs() < 1e-9,
                    "{seed}: {first:?}\n{text}"
                );
            }
            None => assert!(first.len() > 1, "{seed}: {first:?}\n{text}"),
        }
        *counts.entry("searched").or_default() += 1;
    }
    let vain = outcome.diagnostics.iter().find(|said| said.code.id == "RL0801");
    assert_eq!(vain.is_none(), case.some_group_passes(), "{seed}: {vain:?}\n{text}");
    if let Some(vain) = vain {
        assert_eq!(vain.severity == Severity::Warning, case.fills, "{seed}\n{text}");
        *counts.entry("RL0801").or_default() += 1;
    }
    *counts
        .entry(if outcome.diagnostics.has_errors() {
            "refused"
        } else {
            "accepted"
        })
        .or_default() += 1;
}

#[test]
fn the_verdict_is_that_of_trying_and_every_proposal_is_accepted() {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                scope.spawn(move || {
                    let mut counts = BTreeMap::new();
                    (worker..CASES)
                        .step_by(workers as usize)
                        .for_each(|seed| check(seed, &mut counts));
                    counts
                })
            })
            .collect();
        let mut all: BTreeMap<&str, usize> = BTreeMap::new();
        for thread in threads {
            for (what, count) in thread.join().unwrap() {
                *all.entry(what).or_default() += count;
            }
        }
        all
    });
    // Each rule is broken often enough, and enough is sound, for the comparison to mean something.
    for what in [
        "RL0501", "RL0502", "RL0503", "RL0504", "RL0505", "RL0506", "RL0801", "accepted", "searched",
    ] {
        assert!(counts.get(what).is_some_and(|count| *count > 100), "{what}: {counts:?}");
    }
    assert!(counts["proposals"] > 10_000 && counts["fixes"] > 3_000, "{counts:?}");
}
