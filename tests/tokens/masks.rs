//! What is trained is what was drawn, or what an example answers: no token of it is made anew, guessed or left out.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rlpipe_core::data::{Batch, FinishReason, Group, Sequence};
use rlpipe_core::kind::{GroupTask, Stage};
use rlpipe_tests::project;
use serde_json::{Map, Value, json};

use crate::world::World;

fn goldens() -> BTreeMap<String, Value> {
    let path = project().join("tests/golden/templates/masks.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn of(golden: &Value) -> World {
    let row = json!({ "prompt": golden["messages"], "answer": "It is 5.", "reward_model": { "ground_truth": 5 } });
    World::new(
        golden["family"].as_str().unwrap(),
        golden["variables"].as_object().unwrap(),
        &[row],
    )
}

/// What `sft_trainer` gives to the learner.
async fn examples(world: &World) -> Vec<Sequence> {
    let (Stage::Source(lessons), Stage::WarmUp(mut warm_up)) = (world.stage("lessons"), world.stage("warm_up")) else {
        panic!("not what they were");
    };
    warm_up.run(lessons.as_ref(), &world.context("warm_up")).await.unwrap();
    world.trained()
}

/// What `agent_loop` makes of what was drawn, and what `trainer` then gives to the learner.
async fn rollouts(world: &World) -> (Group, Vec<Sequence>) {
    let (Stage::AgentLoop(answers), Stage::Trainer(mut trainer)) = (world.stage("answers"), world.stage("trainer"))
    else {
        panic!("not what they were");
    };
    let task = GroupTask {
        id: 0,
        sampler: "prompts".into(),
        row: world.data.rows["prompts"].row(0).unwrap(),
        samples: world.drawn.len() as u32,
    };
    let mut group = answers.run(task, &world.context("answers")).await.unwrap();
    for (index, rollout) in group.rollouts.iter_mut().enumerate() {
        rollout.advantage = Some(index as f64 - 0.5);
    }
    let batch = Batch {
        groups: vec![group.clone()],
    };
    trainer.train(&batch, &world.context("trainer")).await.unwrap();
    (group, world.trained())
}

/// Text of the tokens that are given and of those that are trained.
fn texts(world: &World, sequence: &Sequence) -> (String, String) {
    let (given, response) = sequence.ids.split_at(sequence.prompt_tokens as usize);
    assert_eq!(sequence.mask.len(), response.len());
    let trained: Vec<u32> = response
        .iter()
        .zip(&sequence.mask)
        .filter(|(_, trained)| **trained)
        .map(|(&id, _)| id)
        .collect();
    let text = |ids: &[u32]| world.tokenizer().decode(ids, false).unwrap();
    (text(given), text(&trained))
}

async fn assert_examples_are_as_golden(chosen: impl Fn(&str) -> bool) {
    let (mut seen, goldens) = (0, goldens());
    for (name, golden) in goldens.iter().filter(|(name, _)| chosen(name)) {
        let world = of(golden);
        let sequences = examples(&world).await;
        let [sequence] = sequences.as_slice() else {
            panic!("{name}: {} examples", sequences.len())
        };
        let (given, trained) = texts(&world, sequence);
        assert_eq!(
            (given.as_str(), trained.as_str()),
            (golden["prompt"].as_str().unwrap(), golden["trained"].as_str().unwrap())
        );
        seen += 1;
    }
    assert!(seen >= 2, "{seen} goldens");
}

/// Decoding what was drawn and encoding it again gives other tokens; the log-probs would belong to none of them.
#[tokio::test]
async fn i1_trained_ids_are_those_that_were_drawn() {
    let mut world = of(&goldens()["qwen2_5"]);
    let encode = |text: &str| world.tokenizer().encode(text).unwrap();
    let (he, llo, hello) = (encode("he"), encode("llo"), encode("hello"));
    assert_eq!((he.len(), llo.len(), hello.len()), (1, 1, 1));
    let end = world.tokenizer().eos_id();
    let split = vec![he[0], llo[0], end];
    let bytes: Vec<u32> = "hello"
        .bytes()
        .map(|byte| encode(&char::from(byte).to_string())[0])
        .collect();
    world.drawn = vec![
        (split.clone(), FinishReason::Stop, 0),
        (bytes.clone(), FinishReason::Length, 0),
    ];
    let (group, sequences) = rollouts(&world).await;
    for (rollout, (drawn, ..)) in group.rollouts.iter().zip(&world.drawn) {
        assert_eq!(&rollout.response_ids, drawn);
        assert_eq!(rollout.response, "hello");
        assert_ne!(&world.tokenizer().encode(&rollout.response).unwrap(), drawn);
    }
    let prompt = &world.data.rows["prompts"].row(0).unwrap().prompt_ids;
    let trained: Vec<Vec<u32>> = sequences.iter().map(|sequence| sequence.ids.clone()).collect();
    assert_eq!(
        trained,
        [
            [prompt.as_slice(), &split].concat(),
            [prompt.as_slice(), &bytes].concat()
        ]
    );
}

/// A stop string ends the text, not the tokens: those up to the one that completes it were drawn and are trained.
#[tokio::test]
async fn a_stop_string_is_trained_and_not_shown() {
    let mut world = of(&goldens()["qwen2_5"]);
    let ids = world.tokenizer().encode("It is 5.\n\n").unwrap();
    assert_eq!(ids.len(), 9, "the line breaks are one token");
    world.drawn = vec![
        (ids.clone(), FinishReason::Stop, 2),
        (ids.clone(), FinishReason::Length, 0),
    ];
    let (group, sequences) = rollouts(&world).await;
    assert_eq!(world.asked.lock().unwrap()[0].stop_strings, ["\n\n"]);
    assert_eq!(
        [&group.rollouts[0].response, &group.rollouts[1].response],
        ["It is 5.", "It is 5.\n\n"]
    );
    assert!(
        sequences
            .iter()
            .all(|sequence| sequence.ids.ends_with(&ids) && sequence.mask == vec![true; 9])
    );
}

#[tokio::test]
async fn i5_nothing_of_the_qwen_template_is_trained() {
    assert_examples_are_as_golden(|name| name.starts_with("qwen2_5")).await;
}

#[tokio::test]
async fn i6_the_prompt_has_the_system_message_of_the_row() {
    assert_examples_are_as_golden(|name| name.contains("own system")).await;
}

#[tokio::test]
async fn i8_the_stop_token_is_trained_and_the_opening_is_not() {
    assert_examples_are_as_golden(|name| name.contains("no thinking")).await;
    for name in ["qwen2_5", "qwen3, no thinking"] {
        let golden = &goldens()[name];
        let mut world = of(golden);
        let end = world.tokenizer().eos_id();
        let ids = [world.tokenizer().encode("It is 5.").unwrap(), vec![end]].concat();
        world.drawn = vec![(ids, FinishReason::Stop, 0)];
        let (_, sequences) = rollouts(&world).await;
        let (given, trained) = texts(&world, &sequences[0]);
        assert_eq!(
            (given.as_str(), trained.as_str()),
            (golden["prompt"].as_str().unwrap(), "It is 5.<|im_end|>")
        );
        assert_eq!(given.ends_with("<think>\n\n</think>\n\n"), name.starts_with("qwen3"));
        assert_eq!(sequences[0].ids.last(), Some(&end));
    }
}

/// The token that fills up may be the one that ends: a mask that looks for it would leave the end out.
#[tokio::test]
async fn i9_mask_comes_from_lengths_when_pad_is_eos() {
    let mut world = of(&goldens()["qwen2_5"]);
    let end = world.tokenizer().eos_id();
    assert_eq!(world.tokenizer().pad_id(), end);
    let text = world.tokenizer().encode("It is 5.").unwrap();
    world.drawn = vec![
        ([text.as_slice(), &[end]].concat(), FinishReason::Stop, 0),
        // Below `min_new_tokens` the end is a token like any other.
        ([&[end, end], text.as_slice(), &[end]].concat(), FinishReason::Stop, 0),
    ];
    let (group, sequences) = rollouts(&world).await;
    for (sequence, (drawn, ..)) in sequences.iter().zip(&world.drawn) {
        assert_eq!(sequence.mask, vec![true; drawn.len()]);
        assert_eq!(sequence.trained_tokens(), drawn.len());
    }
    assert!(
        group
            .rollouts
            .iter()
            .all(|rollout| rollout.mask.len() == rollout.response_ids.len())
    );
    let world = of(&goldens()["qwen2_5"]);
    let [example] = &examples(&world).await[..] else {
        panic!("one example")
    };
    assert_eq!(example.trained_tokens(), text.len() + 1);
}

/// What the property below should find, for templates that are known.
#[test]
fn i2_templates_that_write_between_prompt_and_answer_are_told() {
    let user = [json!({ "role": "user", "content": "2 + 3?" })];
    for (family, thinking, told) in [
        ("qwen2_5", true, false),
        ("qwen3", true, true),
        ("qwen3", false, false),
        ("deepseek_r1_distill", true, true),
        ("llama3_1", true, false),
    ] {
        let variables = Map::from_iter([("enable_thinking".to_owned(), json!(thinking))]);
        let row = json!({ "prompt": user, "answer": "It is 5.", "reward_model": { "ground_truth": 5 } });
        let world = World::new(family, &variables, &[row]);
        assert_eq!(world.codes().contains(&"RL1022"), told, "{family} {:?}", world.codes());
    }
}

fn said() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "2 + 3?",
        " So ",
        "<think>\nadd\n</think>\n\n5",
        "</think>",
        "é\n",
        "hello",
    ])
    .prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Templates rewrite what was said before (Qwen3 takes thinking out of earlier turns). A prompt and an answer that are
    /// put together are what the template writes, or that is said.
    #[test]
    fn i2_prompt_and_answer_are_what_the_template_writes_or_it_is_said(
        family in prop::sample::select(vec!["qwen2_5", "qwen3", "llama3_1", "deepseek_r1_distill"]),
        system in prop::option::of(said()),
        turns in prop::collection::vec((said(), said()), 0..3),
        last in said(),
        thinking in any::<bool>(),
    ) {
        let message = |role: &str, content: &str| json!({ "role": role, "content": content });
        let mut messages: Vec<Value> = system.iter().map(|text| message("system", text)).collect();
        for (user, assistant) in &turns {
            messages.extend([message("user", user), message("assistant", assistant)]);
        }
        messages.push(message("user", &last));
        let variables = Map::from_iter([("enable_thinking".to_owned(), json!(thinking))]);
        let row = json!({ "prompt": messages, "answer": "It is 5.", "reward_model": { "ground_truth": 5 } });
        let world = World::new(family, &variables, &[row]);

        let chat = |messages: &[Value], prompt: bool| {
            let messages: Vec<_> = messages.iter().map(|one| serde_json::from_value(one.clone()).unwrap()).collect();
            let chat = rlpipe_text::Chat { messages: &messages, add_generation_prompt: prompt, ..Default::default() };
            world.tokenizer().render(&chat).unwrap()
        };
        let prompt = chat(&messages, true);
        let answered = [messages.as_slice(), &[message("assistant", "It is 5.")]].concat();
        let is_prefix = chat(&answered, false).starts_with(&format!("{prompt}It is 5."));
        prop_assert_eq!(!is_prefix, world.codes().contains(&"RL1022"), "{} {:?}", family, world.codes());
        let ids = &world.data.rows["lessons"].row(0).unwrap().prompt_ids;
        prop_assert_eq!(world.tokenizer().decode(ids, false).unwrap(), prompt);
    }
}
