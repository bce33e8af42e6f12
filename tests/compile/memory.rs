//! What workers are reckoned to hold in memory: by hand for a small model, in order in each setting, and mended by what is
//! proposed. Whole runs are held against it in `tests/run/memory.rs`.

use std::path::PathBuf;

use rlpipe_core::diagnostic::{Diagnostic, Severity};
use rlpipe_core::kind::ByteSize;
use rlpipe_runtime::compile::{
    Longest, Machine, MemoryDevice, MemoryPhase, Outcome, Tally, WorkerMemory, worker_memory,
};
use rlpipe_tests::{compile_files, compile_text};

pub fn compiled(settings: &[&str]) -> Outcome {
    let outcome = compile_files(&[PathBuf::from("tests/ui/base/base.yaml")], settings);
    assert!(outcome.pipeline.is_some());
    outcome
}

fn machine(card: Option<u64>) -> Machine {
    Machine {
        nvidia_card: card.is_some(),
        card_memory: card.map(ByteSize),
        cores: 4,
        memory: Some(ByteSize(16 << 30)),
        bfloat16: true,
        float16: true,
        free_disk: |_| None,
        worker: Ok(()),
    }
}

fn memory(settings: &[&str]) -> WorkerMemory {
    let workers = worker_memory(&compiled(settings).pipeline.unwrap(), Some(&machine(None)), &[]);
    assert_eq!(workers.len(), 1);
    workers.into_iter().next().unwrap()
}

fn part(memory: &WorkerMemory, name: &str) -> u64 {
    let mut named = memory.parts.iter().filter(|part| part.name == name);
    named
        .next()
        .unwrap_or_else(|| panic!("no `{name}` in {memory:#?}"))
        .bytes
}

/// Hidden 32, one layer, two heads of 16, intermediate 64, tied; 14 characters and 3 special tokens. Prompts of 16 and
/// responses of 8 tokens in a context of 32; 16 prompts of 8 samples a step; float32.
#[test]
fn parts_of_a_small_model_are_those_worked_out_by_hand() {
    let memory = memory(&[]);
    // 17 x 32 embeddings; two norms of 32; four projections of 32 x 32; three of 32 x 64; the last norm.
    let parameters = 544 + 64 + 4096 + 6144 + 32;
    assert_eq!(parameters, 10_880);
    let expected = [
        ("weights", parameters * 4),
        ("gradients", parameters * 4),
        ("optimizer moments", parameters * 8),
        // 2048 positions of 8 cosines and 8 sines.
        ("rotary tables", 2048 * 16 * 4),
        // Gate and up, 128 x 32, are the largest tensor.
        ("a tensor to be written", 4096 * 8),
        // Keys and values of 32 numbers in float32, 32 slots of 32 tokens.
        ("key-value cache of 32 slots", 2 * 32 * 4 * 32 * 32),
        ("logits of all slots", 32 * 17 * 4),
        ("drawing tokens", 32 * 17 * 28),
        // Evaluation has one sample of a prompt: 32 prompts of 16 tokens, and the logits after each.
        ("states of 32 prompts", 32 * (16 * 256 + 17 * 4)),
        // 128 rollouts of 24 tokens are less than the default pack. Of each token: twice the stream, each normed (4 x 32),
        // both gates (2 x 64), two scales; queries, keys, values and the output of attention (4 x 32); of each place of the
        // padded attention, a quarter more: a sum for each of two heads. Beside the layer four times 32 numbers, and cosine
        // and sine of 16.
        (
            "activations of 3072 tokens",
            3072 * (256 * 4 + 8) + 3072 * 128 * 4 + 3840 * 2 * 4 + 3072 * (4 * 32 * 4 + 2 * 16 * 4),
        ),
        // Small tensors come from the heap.
        ("freed memory in the heap", 6_739_968 * 3 / 10),
        // 8 of 8 + 16 / 2 tokens are responses.
        ("logits of 1536 tokens", 1536 * (17 * 12 + 32 * 4)),
        // Of padded attention: the output and its gradient, queries (twice), keys and values, both spread, and three gradients
        // as wide, two of which are gathered (12 x 32), less both gates.
        ("backward pass of a layer", 3840 * 384 * 4 - 3072 * 128 * 4),
    ];
    for (name, bytes) in expected {
        assert_eq!(part(&memory, name), bytes, "{name}");
    }
    assert_eq!(memory.device, MemoryDevice::Host);
    assert_eq!(memory.available_bytes, Some(16 << 30));
    let phase = |phase| memory.bytes_in(phase);
    let lasting = 137 * (1 << 20) + parameters * 16 + 131_072 + 262_144 + 2176;
    assert_eq!(
        phase(MemoryPhase::Backward),
        lasting + 6_739_968 + 6_739_968 * 3 / 10 + 4_325_376
    );
    assert_eq!(
        memory.peak(),
        Some((MemoryPhase::Backward, phase(MemoryPhase::Backward)))
    );
}

/// What is kept shrinks from level to level, and what is computed again is there one layer at a time.
#[test]
fn less_is_kept_where_more_is_computed_again() {
    let of = |level: &str, dtype: &str| {
        let (level, dtype) = (
            format!("nodes.trainer.activations={level}"),
            format!("models.tiny.dtype={dtype}"),
        );
        memory(&["models.tiny.init.layers=4", &level, &dtype])
    };
    for dtype in ["float32", "bfloat16"] {
        let kept = |level| part(&of(level, dtype), "activations of 3072 tokens");
        assert_eq!(kept("auto"), kept("keep"));
        assert!(kept("keep") > kept("recompute_gated") && kept("recompute_gated") > kept("recompute_layers"));
        let again = |level| part(&of(level, dtype), "backward pass of a layer");
        let layer = |level| (kept("keep") - kept(level)) / 4;
        for level in ["recompute_gated", "recompute_layers"] {
            assert_eq!(again(level) - again("keep"), layer(level), "{dtype} {level}");
        }
        let peak = |level| of(level, dtype).bytes_in(MemoryPhase::Backward);
        assert!(peak("keep") > peak("recompute_gated") && peak("recompute_gated") > peak("recompute_layers"));
    }
}

/// Once the data was read, its longest rows count instead of their bounds.
#[test]
fn rows_that_were_read_bound_packs_and_prompts() {
    let warm_up = "nodes.warm_up={ type: sft_trainer, inputs: { examples: prompts.examples }, pool: local, model: tiny, \
                   examples_per_step: 4, optimizer: { adamw: { lr: 1e-3 } } }";
    let settings = [warm_up, "nodes.trainer.inputs.initial_weights=warm_up"];
    let pipeline = compiled(&settings).pipeline.unwrap();
    let tally = |sampler: &str, prompt, example| Tally {
        sampler: sampler.to_owned(),
        dataset: None,
        read: 1,
        unwanted: 0,
        over_long: 0,
        used: 1,
        most_held: 1,
        longest: Longest { prompt, example },
    };
    let of = |tallies: &[Tally]| worker_memory(&pipeline, Some(&machine(None)), tallies).remove(0);
    let before = of(&[]);
    // Four examples may be as long as the model reads.
    assert!(part(&before, "activations of 8192 tokens") > 0);
    let after = of(&[tally("prompts", 6, 10), tally("tests", 4, 4)]);
    // 128 rollouts of 6 + 8 tokens are more than four examples of 10.
    assert!(part(&after, "activations of 1792 tokens") > 0);
    assert_eq!(part(&after, "states of 32 prompts"), 32 * (6 * 256 + 17 * 4));
}

#[test]
fn half_types_have_a_master_copy_and_narrower_weights_and_cache() {
    for dtype in ["models.tiny.dtype=bfloat16", "models.tiny.dtype=float16"] {
        let memory = memory(&[dtype]);
        assert_eq!(part(&memory, "weights"), 10_880 * 2);
        assert_eq!(part(&memory, "fp32 master weights"), 10_880 * 4);
        assert_eq!(part(&memory, "optimizer moments"), 10_880 * 8);
        assert_eq!(part(&memory, "key-value cache of 32 slots"), 2 * 32 * 2 * 32 * 32);
    }
}

#[test]
fn own_weights_of_an_engine_and_a_frozen_copy_are_parts() {
    let own = memory(&["nodes.sync.every_steps=2"]);
    assert_eq!(part(&own, "engine's own weights"), 10_880 * 4);
    let reference = "nodes.frozen={ type: reference, inputs: { batch: buffer }, pool: local, model: tiny }";
    let frozen = memory(&[reference, "nodes.advantages.inputs.batch=frozen"]);
    assert_eq!(part(&frozen, "frozen copy"), 10_880 * 4);
    assert!(frozen.bytes_in(MemoryPhase::Logprobs) > frozen.bytes_in(MemoryPhase::Load));
}

/// More of anything never takes less.
#[test]
fn memory_grows_with_each_setting() {
    let settings: [(&str, &[u64]); 11] = [
        ("nodes.trainer.max_tokens_per_pack", &[64, 128, 1000, 2048, 65_536]),
        ("nodes.trainer.loss.logprob_chunk_tokens", &[1, 64, 512, 4096]),
        ("nodes.engine.max_concurrent_rollouts", &[1, 8, 32, 100, 1024]),
        ("nodes.engine.max_context_tokens", &[24, 32, 512, 2048]),
        ("nodes.answers.sampling.max_new_tokens", &[1, 4, 8, 16]),
        ("nodes.prompts.max_prompt_tokens", &[1, 8, 16, 24]),
        ("nodes.prompts.samples_per_prompt", &[2, 4, 8, 16]),
        ("nodes.buffer.prompts_per_step", &[4, 16, 64]),
        ("models.tiny.init.layers", &[1, 2, 8]),
        ("models.tiny.init.hidden_size", &[32, 64, 256]),
        ("models.tiny.init.intermediate_size", &[64, 100, 1000]),
    ];
    for dtype in ["float32", "bfloat16"] {
        let dtype = format!("models.tiny.dtype={dtype}");
        for (setting, values) in settings {
            let of = |value: &u64| memory(&[&dtype, &format!("{setting}={value}")]);
            let found: Vec<WorkerMemory> = values.iter().map(of).collect();
            for pair in found.windows(2) {
                for phase in MemoryPhase::ALL {
                    // Larger groups share the state of a prompt.
                    if setting == "nodes.prompts.samples_per_prompt" && phase == MemoryPhase::Prompts {
                        continue;
                    }
                    let (less, more) = (pair[0].bytes_in(phase), pair[1].bytes_in(phase));
                    assert!(less <= more, "{setting}, {phase:?}: {less} {more}");
                }
            }
        }
    }
}

/// Of two nodes that train, the one whose packs take most in all counts: logits, too, and not what is kept alone.
#[test]
fn of_two_packs_the_one_that_takes_most_counts() {
    let warm_up = "nodes.warm_up={ type: sft_trainer, inputs: { examples: prompts.examples }, pool: local, \
                   model: tiny, examples_per_step: 4, max_tokens_per_pack: 1000, logprob_chunk_tokens: 1000, \
                   optimizer: { adamw: { lr: 1e-3 } } }";
    let settings = |chunk: &str, characters: &str| {
        let chunk = format!("nodes.trainer.loss.logprob_chunk_tokens={chunk}");
        let characters = format!("models.tiny.init.tokenizer.characters=\"{characters}\"");
        memory(&[
            warm_up,
            "nodes.trainer.inputs.initial_weights=warm_up",
            "nodes.trainer.max_tokens_per_pack=1200",
            &chunk,
            &characters,
        ])
    };
    // With many logits those of 1000 tokens are more than 200 tokens more of a small layer.
    let many: String = ('\u{4e00}'..'\u{5e00}').collect();
    let logits = settings("8", &format!("0123456789+-= {many}"));
    assert!(part(&logits, "activations of 1000 tokens") > 0 && part(&logits, "logits of 1000 tokens") > 0);
    let kept = settings("8", "0123456789+-= ");
    assert!(part(&kept, "activations of 1200 tokens") > 0 && part(&kept, "logits of 8 tokens") > 0);
}

pub fn too_little(outcome: &Outcome) -> Option<&Diagnostic> {
    outcome.diagnostics.iter().find(|found| found.code.id == "RL0705")
}

/// The `PATH=VALUE` of each setting that a finding proposes.
pub fn proposals(found: &Diagnostic) -> Vec<String> {
    let fix = found.fix.iter().map(|fix| {
        let path = fix.title.split('`').nth(1).unwrap();
        format!("{path}={}", fix.replacement)
    });
    let notes = found.notes.iter().filter_map(|note| {
        let (_, setting) = note.split_once("--set ")?;
        Some(setting.trim_end_matches('`').to_owned())
    });
    fix.chain(notes).collect()
}

/// For many models, packs and sizes of memory: what is proposed is accepted, and what is not complained of fits.
#[test]
fn each_proposed_value_is_accepted_when_applied() {
    let (mut applied, mut errors, mut warnings) = (0, 0, 0);
    for hidden in [64, 256] {
        for layers in [2, 12] {
            for pack in [2048, 16_384] {
                for (chunk, level) in [(512, "auto"), (512, "keep"), (4096, "auto"), (4096, "recompute_gated")] {
                    for mebibytes in [128, 150, 180, 240, 400, 800, 1600] {
                        let settings = [
                            format!("nodes.trainer.activations={level}"),
                            format!("models.tiny.init.hidden_size={hidden}"),
                            format!("models.tiny.init.intermediate_size={}", 3 * hidden),
                            format!("models.tiny.init.layers={layers}"),
                            format!("nodes.trainer.max_tokens_per_pack={pack}"),
                            format!("nodes.trainer.loss.logprob_chunk_tokens={chunk}"),
                            "nodes.buffer.prompts_per_step=256".to_owned(),
                            "nodes.engine.max_context_tokens=512".to_owned(),
                            format!("pools.local.host_memory_per_worker={mebibytes}MiB"),
                        ];
                        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                        let outcome = compiled(&settings);
                        let memory = worker_memory(outcome.pipeline.as_ref().unwrap(), None, &[]).remove(0);
                        let fits = memory.peak().unwrap().1 <= mebibytes << 20;
                        let Some(found) = too_little(&outcome) else {
                            assert!(fits, "{settings:?}");
                            continue;
                        };
                        assert!(!fits, "{settings:?}");
                        match found.severity {
                            Severity::Error => errors += 1,
                            Severity::Warning => warnings += 1,
                        }
                        for proposal in proposals(found) {
                            let again = compiled(&[&settings[..], &[proposal.as_str()]].concat());
                            assert!(too_little(&again).is_none(), "{settings:?} with {proposal}");
                            applied += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(
        applied >= 20 && errors > 5 && warnings > 20,
        "{applied} {errors} {warnings}"
    );
}

/// A laptop checks for a cluster: the pool says what its cards have.
#[test]
fn a_pool_for_cards_is_checked_without_one() {
    let on = |size: &str| {
        let size = format!("pools.local.memory_per_accelerator={size}");
        compiled(&["pools.local.accelerator=cuda", &size])
    };
    assert!(too_little(&on("80GiB")).is_none());
    let small = on("512MiB");
    assert!(too_little(&small).is_some_and(|found| found.message.contains("`memory_per_accelerator` is 512MiB")));
    let unknown = worker_memory(
        &compiled(&["pools.local.accelerator=auto"]).pipeline.unwrap(),
        None,
        &[],
    )
    .remove(0);
    assert_eq!(unknown.peak(), None);
    assert!(unknown.not_checked[0].contains("`accelerator: auto`"), "{unknown:?}");
}

/// The engine takes what `memory_fraction` leaves, at most 1024 slots, in eights, as the worker does.
#[test]
fn slots_of_a_card_follow_from_its_memory() {
    let settings = [
        "pools.local.accelerator=auto",
        "nodes.engine.max_context_tokens=2048",
        "models.tiny.init.layers=12",
    ];
    let pipeline = compiled(&settings).pipeline.unwrap();
    let slots = |card: u64| {
        let memory = worker_memory(&pipeline, Some(&machine(Some(card))), &[]).remove(0);
        assert_eq!(memory.device, MemoryDevice::Accelerator);
        let names = memory
            .parts
            .iter()
            .filter_map(|part| part.name.strip_prefix("key-value cache of "));
        names
            .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
            .next()
            .unwrap_or(0u64)
    };
    assert_eq!(slots(80 << 30), 1024);
    // Parameters: 544 + 12 x 10304 + 32. The context, weights twice (bfloat16 and float32) and the rotary tables are
    // taken; of four fifths of the rest, 12 bytes a parameter are held back, for a gradient and two moments; a slot has
    // 12 layers of keys and values, 64 numbers of two bytes, for 2048 tokens, and 40 bytes for each of 17 logits.
    let (parameters, card) = (544 + 12 * 10_304 + 32, 2u64 << 30);
    let free = card - (640 << 20) - parameters * 6 - 2 * 2048 * 16 * 2;
    let usable = (free as f64 * 0.8) as u64 - 12 * parameters;
    assert_eq!(slots(card), usable / (12 * 64 * 2 * 2048 + 40 * 17) / 8 * 8);
    assert!(slots(card) < 1024);
}

/// With heads that there are kernels for the cache is of pages, which are all that slots could fill, or what fits.
#[test]
fn pages_of_a_card_follow_from_its_memory() {
    let settings = [
        "pools.local.accelerator=auto",
        "nodes.engine.max_context_tokens=100",
        "models.tiny.init.hidden_size=64",
    ];
    let pipeline = compiled(&settings).pipeline.unwrap();
    let memory = |card: u64| worker_memory(&pipeline, Some(&machine(Some(card))), &[]).remove(0);
    // 1024 slots of two pages of 64 tokens, and one more where a prompt ends inside a page; keys and values of 64
    // numbers of two bytes.
    let page = 64 * 2 * 64 * 2;
    let large = memory(80 << 30);
    assert_eq!(part(&large, "key-value cache of 3072 pages"), 3072 * page);
    // Logits, gates and the rest of 1024 rows; two numbers of pages a slot.
    let steps = 1024 * (4 * 17 + 2 * (2 * 64 + 8 * 64));
    assert_eq!(part(&large, "states of steps"), steps + 1024 * 2 * 4);
    assert!(large.parts.iter().all(|part| !part.name.contains("drawing")));
    // Embeddings, the layer, the last norm.
    let parameters = 17 * 64 + 2 * 64 + 4 * 64 * 64 + 3 * 64 * 64 + 64;
    let card = (640 << 20) + (8 << 20);
    let free = card - (640 << 20) - parameters * 6 - 4 * 2048 * 32;
    let pages = ((free as f64 * 0.8) as u64 - 12 * parameters - steps) / page;
    assert!(pages < 3072);
    assert_eq!(
        part(&memory(card), &format!("key-value cache of {pages} pages")),
        pages * page
    );
}

#[test]
fn a_folder_is_only_read_where_the_world_is_looked_at() {
    let folder = rlpipe_tests::project().join("tests/golden/models/qwen3");
    let base = std::fs::read_to_string(rlpipe_tests::project().join("tests/ui/base/base.yaml")).unwrap();
    let (start, rest) = base.split_once("    init:\n").unwrap();
    let (_, end) = rest
        .split_once("tokenizer: { characters: \"0123456789+-= \" }\n")
        .unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let with = |path: &str| {
        let text = format!("{start}    path: {path}\n{end}");
        compile_text(scratch.path(), "base.yaml", &text).pipeline.unwrap()
    };
    let pipeline = with(&folder.display().to_string());
    let before = worker_memory(&pipeline, None, &[]).remove(0);
    assert_eq!(before.peak(), None);
    assert!(
        before.not_checked[0].starts_with("the model `tiny`: its `config.json`"),
        "{before:?}"
    );
    let after = worker_memory(&pipeline, Some(&machine(None)), &[]).remove(0);
    assert!(after.not_checked.is_empty() && after.peak().is_some(), "{after:?}");
    // Of the file itself, which is read whole.
    let bytes = std::fs::metadata(folder.join("model.safetensors")).unwrap().len();
    assert_eq!(part(&after, "a file of weights"), bytes);
    let missing = worker_memory(&with("nowhere"), Some(&machine(None)), &[]).remove(0);
    assert!(missing.not_checked[0].contains("cannot read"), "{missing:?}");
}
