//! What of packs is kept with `activations: auto`, and what a card's cache leaves for it.

use rlpipe_core::diagnostic::Severity;
use rlpipe_core::kind::Role;
use rlpipe_runtime::compile::{ChosenActivations, MemoryPhase, Outcome, WorkerMemory, worker_memory};
use rlpipe_runtime::plan::{Plan, resolved};
use rlpipe_stages::KINDS;

use super::memory::{compiled, proposals, too_little};

const LEVELS: [&str; 3] = ["keep", "recompute_gated", "recompute_layers"];

/// A model whose packs take more than all else, and its only worker's memory where the trainer has `level`.
fn leveled(level: &str, settings: &[&str]) -> (Outcome, WorkerMemory) {
    let level = format!("nodes.trainer.activations={level}");
    let sizes = ["hidden_size=64", "heads=1", "intermediate_size=256", "layers=8"];
    let sizes = sizes.map(|size| format!("models.tiny.init.{size}"));
    let mut all: Vec<&str> = sizes.iter().map(String::as_str).collect();
    all.extend([level.as_str(), "nodes.buffer.prompts_per_step=256"]);
    all.extend(settings);
    let outcome = compiled(&all);
    let memory = worker_memory(outcome.pipeline.as_ref().unwrap(), None, &[]).remove(0);
    (outcome, memory)
}

/// Of so many bytes `auto` fills nine tenths.
fn filled(available: u64) -> u64 {
    available - available / 10
}

/// The least that there may be for `bytes` to be kept.
fn room(bytes: u64) -> u64 {
    let about = bytes / 9 * 10;
    (about..about + 20).find(|room| filled(*room) >= bytes).unwrap()
}

fn chosen(memory: &WorkerMemory) -> &ChosenActivations {
    assert_eq!(memory.activations.len(), 1);
    assert_eq!(memory.activations[0].node, "trainer");
    &memory.activations[0]
}

/// `auto` keeps all that nine tenths of what there is have room for, to the byte, on a processor and on a card whose
/// cache is of slots or of pages; what it takes is what that level takes; and where there is no room for any, the
/// finding says that there is none below.
#[test]
fn what_is_kept_is_as_much_as_there_is_room_for() {
    let host = (&[][..], "host_memory_per_worker");
    let slots = ["pools.local.accelerator=cuda", "models.tiny.dtype=float32"];
    let card = [
        "pools.local.accelerator=cuda",
        "nodes.engine.max_concurrent_rollouts=64",
    ];
    for (settings, key) in [
        host,
        (&slots, "memory_per_accelerator"),
        (&card, "memory_per_accelerator"),
    ] {
        let with = |level: &str, bytes: u64| {
            let bytes = format!("pools.local.{key}={bytes}");
            leveled(level, &[settings, &[bytes.as_str()]].concat())
        };
        // All slots are there in any of these sizes, so that what a level takes does not depend on them.
        let peaks = LEVELS.map(|level| with(level, 16 << 30).1.peak().unwrap().1);
        assert!(peaks[0] > peaks[1] && peaks[1] > peaks[2], "{peaks:?}");
        for (index, level) in LEVELS.into_iter().enumerate() {
            let (outcome, memory) = with("auto", room(peaks[index]));
            let found = chosen(&memory);
            assert_eq!(found.level.name(), level, "{settings:?}");
            assert_eq!(memory.peak().unwrap().1, peaks[index]);
            assert!(too_little(&outcome).is_none());
            let (_, below) = with("auto", room(peaks[index]) - 1);
            assert_eq!(chosen(&below).level.name(), LEVELS[(index + 1).min(2)]);
            let above: Vec<(&str, u64)> = LEVELS.into_iter().zip(peaks).take(index).collect();
            let too_large: Vec<(&str, u64)> = found
                .too_large
                .iter()
                .map(|(level, bytes)| (level.name(), *bytes))
                .collect();
            assert_eq!(too_large, above);
            // A level that is set stays, and is complained of; leaving it to rlpipe is what helps, where anything does.
            if index > 0 {
                let (outcome, memory) = with("keep", peaks[index]);
                assert_eq!(chosen(&memory).level.name(), "keep");
                let proposed = proposals(too_little(&outcome).unwrap());
                assert!(
                    proposed.contains(&"nodes.trainer.activations=auto".to_owned()),
                    "{proposed:?}"
                );
            }
        }
        let (outcome, memory) = with("auto", peaks[2] - 1);
        assert_eq!(chosen(&memory).level.name(), "recompute_layers");
        assert_eq!(memory.peak().unwrap().1, peaks[2]);
        let found = too_little(&outcome).unwrap();
        let note = "that is with `activations: recompute_layers` of `trainer`, which keeps least";
        assert!(found.notes.iter().any(|found| found == note), "{found:?}");
        assert!(!proposals(found).iter().any(|setting| setting.contains("activations")));
    }
}

/// A cache that takes its whole share leaves packs what `memory_fraction` leaves, whatever the size of the card.
#[test]
fn packs_of_a_card_get_what_its_cache_leaves() {
    let mut seen = std::collections::BTreeSet::new();
    for (fraction, step) in [("0.3", 30), ("0.9", 100)] {
        for mebibytes in (660..660 + 64 * step).step_by(step as usize) {
            let settings = [
                "pools.local.accelerator=cuda".to_owned(),
                "nodes.engine.max_context_tokens=2048".to_owned(),
                format!("nodes.engine.memory_fraction={fraction}"),
                format!("pools.local.memory_per_accelerator={mebibytes}MiB"),
            ];
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            let there = |level: &str| leveled(level, &settings).1;
            let needs = |memory: &WorkerMemory| {
                memory
                    .bytes_in(MemoryPhase::Head)
                    .max(memory.bytes_in(MemoryPhase::Backward))
            };
            let first = LEVELS
                .into_iter()
                .find(|level| needs(&there(level)) <= filled(mebibytes << 20));
            let auto = there("auto");
            assert_eq!(
                chosen(&auto).level.name(),
                first.unwrap_or("recompute_layers"),
                "{settings:?}"
            );
            assert_eq!(auto.parts, there(chosen(&auto).level.name()).parts);
            seen.insert((fraction, first));
        }
    }
    assert!(seen.len() >= 7, "{seen:?}");
}

/// A worker refuses to load a model whose cache would have less than a rollout needs, and so does its check: by the
/// byte, and also where that much is free beside the share of the cache.
#[test]
fn a_cache_with_less_than_a_rollout_needs_is_an_error() {
    let of = |fraction: &str, settings: &[&str]| {
        let fraction = format!("nodes.engine.memory_fraction={fraction}");
        let card = [
            "pools.local.accelerator=cuda",
            "pools.local.memory_per_accelerator=1GiB",
            &fraction,
        ];
        leveled("recompute_layers", &[&card, settings].concat())
    };
    // Three pages of a rollout of 128 tokens; eight slots of 128 tokens, and 40 bytes for each of 17 logits.
    let pages = (&["nodes.engine.max_context_tokens=128"][..], 3 * 64 * 2 * 8 * 64 * 2);
    let heads = "models.tiny.init.heads=4";
    let slots = (
        &["nodes.engine.max_context_tokens=128", heads][..],
        8 * (128 * 2 * 8 * 64 * 2 + 40 * 17),
    );
    for (settings, needs) in [pages, slots] {
        assert!(too_little(&of("0.2", settings).0).is_none());
        let (outcome, memory) = of("0.02", settings);
        let small = memory.small_cache.clone().unwrap();
        assert_eq!((small.model.as_str(), small.needs), ("tiny", needs));
        assert!(small.may_take < needs && memory.peak().unwrap().1 < 1 << 30);
        let found = too_little(&outcome).unwrap();
        assert_eq!(found.severity, Severity::Error);
        assert!(
            found.message.starts_with("the cache of `tiny` may take "),
            "{}",
            found.message
        );
    }
}

/// Without a number to hold it against, and without a network, all is kept.
#[test]
fn all_is_kept_where_nothing_is_known() {
    let (_, unknown) = leveled("auto", &["pools.local.accelerator=cuda"]);
    assert_eq!((chosen(&unknown).level.name(), unknown.available_bytes), ("keep", None));
    assert!(chosen(&unknown).too_large.is_empty());
}

/// The table is of the plan, where it decides what runs; settings that are written down again stay as they were, and
/// what a machine has room for does not make it another run.
#[test]
fn a_plan_runs_with_what_its_table_says() {
    let of = |bytes: u64| {
        let (outcome, _) = leveled("auto", &[&format!("pools.local.host_memory_per_worker={bytes}")]);
        let pipeline = outcome.pipeline.unwrap();
        let written = resolved(&pipeline).unwrap()["nodes"]["trainer"]["activations"].clone();
        assert_eq!(written, "auto");
        Plan::of(&pipeline).unwrap()
    };
    let least = leveled("recompute_layers", &[]).1.peak().unwrap().1;
    let (large, small) = (of(16 << 30), of(least));
    for (plan, level) in [(&large, "keep"), (&small, "recompute_layers")] {
        let trainer = plan.node("trainer").unwrap();
        assert_eq!(trainer.config["activations"], "auto");
        let runs = plan.with_activations(trainer).load(KINDS).unwrap().contract();
        assert!(
            matches!(runs.role, Role::Trainer { activations, .. } if activations.name() == level),
            "{level}"
        );
        let engine = plan.node("engine").unwrap();
        assert_eq!(plan.with_activations(engine).config, engine.config);
    }
    let mut moved = large.clone();
    moved.memory.clone_from(&small.memory);
    assert_eq!(moved.hash(), large.hash());
}
