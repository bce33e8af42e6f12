//! From a plan to what a step needs.

use std::collections::BTreeSet;

use rlpipe_stages::KINDS;

use super::super::graph::build;
use super::fakes::{EVALUATED, FILTERED, PLAIN, World, plan, rows};
use crate::plan::Plan;

/// Everything there is, each node before those it takes from.
const BACKWARDS: &str = "
  evaluator: { type: evaluator, inputs: { groups: marks }, every_steps: 2, limit: 2 }
  marks: { type: judger, inputs: { groups: tries }, judge: number }
  tries: { type: agent_loop, inputs: { prompts: held_out.prompts, engine: engine }, sampling: { max_new_tokens: 4 } }
  held_out: { type: sampler, dataset: { path: held-out.jsonl } }
  frozen: { type: reference, inputs: { batch: buffer }, pool: local, model: tiny }
  buffer: { type: replay_buffer, inputs: { groups: [picky] }, prompts_per_step: 4 }
  picky: { type: filter, inputs: { groups: varied }, keep: { spread_reward: { above: 0.5 } }, max_refill: 7, when_exhausted: fill }
  varied: { type: filter, inputs: { groups: scored }, keep: spread_reward, max_refill: 2 }
  scored: { type: judger, inputs: { groups: answers }, judge: number }
  answers: { type: agent_loop, inputs: { prompts: prompts.prompts, engine: engine }, sampling: { max_new_tokens: 4 } }
  prompts: { type: sampler, dataset: { path: rows.jsonl }, samples_per_prompt: 4, max_prompt_tokens: 8 }
  warm_up: { type: sft_trainer, inputs: { examples: lessons.examples }, pool: local, model: tiny, examples_per_step: 2, optimizer: { adamw: { lr: 0.1 } } }
  lessons: { type: sampler, dataset: { path: lessons.jsonl } }
";

fn backwards() -> World {
    let overrides = [
        "nodes.advantages.inputs.batch=frozen",
        "nodes.trainer.inputs.initial_weights=warm_up",
    ];
    let all = ["prompts", "held_out", "lessons"].map(|sampler| (sampler, rows("mm")));
    World::new(plan(BACKWARDS, &overrides), &all)
}

fn check_order(plan: &Plan) {
    let mut placed = BTreeSet::new();
    for node in &plan.nodes {
        for edge in node.inputs.values().flatten() {
            assert!(
                placed.contains(&edge.node),
                "`{}` comes before `{}`",
                node.name,
                edge.node
            );
        }
        assert!(placed.insert(node.name.clone()), "`{}` is there twice", node.name);
    }
}

#[test]
fn each_node_comes_after_those_it_takes_from() {
    let world = backwards();
    check_order(&world.plan);
    assert_eq!(world.plan.nodes.len(), 17);
    let forwards = plan(&format!("{FILTERED}{EVALUATED}"), &[]);
    check_order(&forwards);
    assert_eq!(forwards.nodes.len(), 13);
}

#[test]
fn nodes_that_only_a_disabled_evaluator_needs_are_left_out() {
    let plan = plan(&format!("{PLAIN}{EVALUATED}"), &["nodes.evaluator.enabled=false"]);
    check_order(&plan);
    for name in ["evaluator", "marks", "tries", "held_out"] {
        assert!(plan.node(name).is_none(), "{name}");
    }
    assert!(plan.node("engine").is_some() && plan.clock("evaluator").is_none());
    // Their rows are not even asked for.
    let world = World::new(plan, &[("prompts", rows("m"))]);
    assert!(world.graph().evaluations.is_empty());
}

#[test]
fn a_graph_has_every_part_where_it_belongs() {
    let graph = backwards().graph();
    assert_eq!(graph.inputs, ["picky"]);
    let path = &graph.paths[0];
    assert_eq!(
        (&*path.sampler, &*path.loop_name, path.pool.as_deref()),
        ("prompts", "answers", Some("local"))
    );
    assert_eq!(path.source.samples_per_prompt(), 4);
    let stages: Vec<&str> = path.stages.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        stages,
        ["scored", "varied", "picky"],
        "in the order in which groups pass"
    );
    assert_eq!(
        (path.max_refill, path.fill),
        (7, true),
        "the most patient filter counts"
    );

    let between: Vec<&str> = graph.batch_stages.iter().map(|node| &*node.name).collect();
    assert_eq!(between, ["frozen", "advantages"]);
    assert_eq!(
        (&*graph.trainer.name, graph.trainer.pool.as_deref()),
        ("trainer", Some("local"))
    );
    assert_eq!(graph.buffer.prompts_per_step(), 4);
    let lessons = graph.warm_up.as_ref().unwrap();
    assert_eq!((&*lessons.warm_up.name, lessons.examples.rows()), ("warm_up", 2));
    assert_eq!(graph.syncs.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["sync"]);

    let evaluation = &graph.evaluations[0];
    assert_eq!((&*evaluation.evaluator.name, evaluation.limit), ("evaluator", Some(2)));
    assert_eq!(
        (&*evaluation.path.sampler, evaluation.path.stages.len()),
        ("held_out", 1)
    );
}

#[test]
fn a_path_without_a_filter_asks_again_four_times_and_fills_nothing() {
    let graph = World::new(plan(PLAIN, &[]), &[("prompts", rows("m"))]).graph();
    assert_eq!((graph.paths[0].max_refill, graph.paths[0].fill), (4, false));
    assert!(graph.warm_up.is_none() && graph.evaluations.is_empty());
}

#[test]
fn a_plan_survives_being_written_and_read() {
    let mut world = backwards();
    let text = serde_json::to_string(&world.plan).unwrap();
    let read: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (serde_json::to_string(&read).unwrap(), read.hash()),
        (text, world.plan.hash())
    );
    world.plan = read;
    assert_eq!(world.graph().paths[0].stages.len(), 3);
}

#[test]
fn a_plan_that_does_not_hold_together_is_refused_with_what_is_missing() {
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut world = World::new(plan(PLAIN, &[]), &[("prompts", rows("m"))]);
        change(&mut world.plan);
        build(&world.plan, KINDS, &world).err().unwrap().to_string()
    };
    let without = |name: &'static str| broken(&|plan| plan.nodes.retain(|node| node.name != name));
    assert_eq!(without("trainer"), "the plan has no trainer");
    assert_eq!(without("buffer"), "`buffer` is no buffer");
    assert_eq!(without("prompts"), "`prompts` is no sampler");
    let unconnected = broken(&|plan| {
        let scored = plan.nodes.iter_mut().find(|node| node.name == "scored");
        scored.unwrap().inputs.clear();
    });
    assert_eq!(
        unconnected,
        "the plan connects nothing to the input `groups` of `scored`"
    );
    let unknown = broken(&|plan| plan.nodes[0].kind = "oracle".to_owned());
    assert!(unknown.ends_with("this rlpipe has no kind `oracle`"), "{unknown}");
}
