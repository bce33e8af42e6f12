//! Judgers that ask programs, add up and route.

use std::sync::Arc;
use std::time::Duration;

use rlpipe_core::data::{DropReason, Group, Message, Rollout, Row, Verdict};
use rlpipe_core::kind::{Role, Stage, StageError};

use super::fakes::{World, config, rollout, stage};

fn group(responses: &[&str], row: Row) -> Group {
    let said = |text: &&str| Rollout {
        response: (*text).to_owned(),
        ..rollout(&[1])
    };
    Group {
        id: 5,
        sampler: "prompts".into(),
        row: Arc::new(row),
        rollouts: responses.iter().map(said).collect(),
    }
}

fn row(source: &str) -> Row {
    Row {
        line: 12,
        prompt: vec![Message::new("user", "how long?")],
        data_source: source.to_owned(),
        ground_truth: Some("7".to_owned()),
        columns: serde_json::json!({ "level": 3 }).as_object().unwrap().clone(),
        ..Row::default()
    }
}

async fn judged(text: &str, group: Group, world: &World) -> Result<Verdict, StageError> {
    match stage("scored", &format!("type: judger\n{text}"), world) {
        Stage::Groups(stage) => stage.process(group, &world.context("scored", 4)).await,
        _ => panic!("a judger works on groups"),
    }
}

fn kept(verdict: Result<Verdict, StageError>) -> Group {
    match verdict.unwrap() {
        Verdict::Keep(group) => group,
        dropped => panic!("{dropped:?}"),
    }
}

fn rewards(group: &Group) -> Vec<Option<f64>> {
    group.rollouts.iter().map(Rollout::reward).collect()
}

const COMMAND: &str =
    "judge: { command: { run: [./judge, --strict], config: { a: 1 }, samples_per_message: 8, timeout: 500ms } }";

#[tokio::test]
async fn a_program_is_asked_with_all_that_is_known() {
    let world = World::default();
    let group = kept(judged(COMMAND, group(&["one", "three"], row("sums")), &world).await);
    assert_eq!(rewards(&group), [Some(3.0), Some(5.0)]);
    assert_eq!(group.rollouts[0].score.as_ref().unwrap().parts["words"], 1.0);
    let commands = world.judge.commands.lock().unwrap();
    let [(node, command)] = commands.as_slice() else {
        panic!("{commands:?}")
    };
    assert_eq!(
        (node.as_str(), command.keys.join(".").as_str()),
        ("scored", "judge.command")
    );
    assert!(
        command.run[0].ends_with("/judge") && command.run[1] == "--strict",
        "{:?}",
        command.run
    );
    assert_eq!(
        (command.samples_per_message, command.timeout),
        (8, Duration::from_millis(500))
    );
    assert_eq!(
        (command.start_timeout, command.max_restarts),
        (Duration::from_secs(60), 3)
    );
    let asked = world.judge.asked.lock().unwrap();
    assert_eq!(asked[0].prompt[0].role(), "user");
    assert_eq!(asked[0].columns["level"], 3);
    assert_eq!(
        (asked[0].ground_truth.as_deref(), asked[0].data_source.as_str()),
        (Some("7"), "sums")
    );
}

/// A reward that changes over the run, such as a penalty that grows, needs to know how far the run is.
#[tokio::test]
async fn i71_a_program_is_told_the_step_and_a_seed_of_each_sample() {
    let seeds = |world: &World| -> Vec<u64> { world.judge.asked.lock().unwrap().iter().map(|one| one.seed).collect() };
    let (first, second) = (World::default(), World::default());
    for world in [&first, &second] {
        kept(judged(COMMAND, group(&["a", "a"], row("")), world).await);
        let asked = world.judge.asked.lock().unwrap();
        assert!(asked.iter().all(|sample| (sample.step, sample.total_steps) == (4, 10)));
    }
    assert_eq!(seeds(&first), seeds(&second));
    assert_ne!(seeds(&first)[0], seeds(&first)[1]);
    assert!(seeds(&first).iter().all(|seed| *seed < 1 << 53));
}

#[tokio::test]
async fn i10_an_error_of_a_program_goes_as_the_pipeline_says_and_is_never_a_reward() {
    let world = World::default();
    let group = || group(&["one", "raise", "pass"], row(""));
    let said = "`scored`: response 2 to line 12 of the data: it says: ValueError";
    let error = judged(COMMAND, group(), &world).await.unwrap_err().to_string();
    assert_eq!(error, said);
    match judged(&format!("{COMMAND}\non_error: drop_group"), group(), &world)
        .await
        .unwrap()
    {
        Verdict::Drop(_, DropReason::Failed(reason)) => assert_eq!(reason, said),
        other => panic!("{other:?}"),
    }
    let abstained = kept(judged(&format!("{COMMAND}\non_error: abstain"), group(), &world).await);
    assert_eq!(rewards(&abstained), [Some(3.0), None, None]);
    let errors: Vec<Option<&str>> = abstained
        .rollouts
        .iter()
        .map(|rollout| rollout.score.as_ref().unwrap().error.as_deref())
        .collect();
    assert_eq!(
        errors,
        [None, Some(said), None],
        "an error is told from a judge that abstains"
    );
}

#[tokio::test]
async fn a_program_that_is_of_no_use_ends_the_run_whatever_the_pipeline_says_of_errors() {
    let world = World::default();
    for on_error in ["fail", "drop_group", "abstain"] {
        let text = format!("{COMMAND}\non_error: {on_error}");
        let error = judged(&text, group(&["gone"], row("")), &world)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(error, "`scored`: the program is of no use");
    }
}

const SUM: &str = "
judge:
  weighted_sum:
    right: { judge: number, weight: 0.7 }
    short: { judge: { command: { run: [./judge] } }, weight: -0.1 }
";

/// What is logged and what is trained are the same number: the weighted one.
#[tokio::test]
async fn i18_the_reward_is_the_weighted_sum_and_its_parts_are_kept() {
    let world = World::default();
    let judged = kept(judged(SUM, group(&["it is 7", "7 of 8", "pass"], row("")), &world).await);
    let found = rewards(&judged);
    assert!((found[0].unwrap() - (0.7 - 0.1 * 7.0)).abs() < 1e-12);
    assert!((found[1].unwrap() - (0.0 - 0.1 * 6.0)).abs() < 1e-12);
    assert_eq!(found[2], None, "one that abstains leaves the sum unknown");
    let score = judged.rollouts[0].score.as_ref().unwrap();
    assert_eq!(
        score.parsed.as_deref(),
        Some("7"),
        "the form is that of the judge that counts most"
    );
    let parts: Vec<(&str, f64)> = score
        .parts
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    assert_eq!(parts, [("right", 1.0), ("short", 7.0), ("short/words", 1.0)]);
}

#[tokio::test]
async fn a_sum_errs_where_one_of_its_judges_does() {
    let world = World::default();
    let error = judged(SUM, group(&["raise"], row("")), &world)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("`scored`: the judge `short`: response 1 to line 12"),
        "{error}"
    );
    let huge = "judge: { weighted_sum: { a: { judge: { command: { run: [./judge] } }, weight: 1e308 } } }";
    let error = judged(huge, group(&["so long"], row("")), &world)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("too large to be a number"), "{error}");
}

const ROUTE: &str = "
judge:
  route:
    sums: number
    essays: { weighted_sum: { short: { judge: { command: { run: [./judge] } }, weight: 2 } } }
";

#[tokio::test]
async fn i19_each_source_has_its_judge_and_an_unknown_one_is_an_error() {
    let world = World::default();
    assert_eq!(
        rewards(&kept(judged(ROUTE, group(&["so 7"], row("sums")), &world).await)),
        [Some(1.0)]
    );
    assert_eq!(
        rewards(&kept(judged(ROUTE, group(&["so 7"], row("essays")), &world).await)),
        [Some(8.0)]
    );
    let error = judged(ROUTE, group(&["so 7"], row("poems")), &world)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "`scored`: line 12 of the data is from `poems`, and `route` has judges for `essays`, `sums` only"
    );
}

/// Rows of GSM8K as they are published write thousands with a comma; responses may or may not.
#[tokio::test]
async fn commas_of_a_ground_truth_do_not_matter_to_gsm8k() {
    let world = World::default();
    let row = Row {
        ground_truth: Some("1,234".to_owned()),
        ..row("sums")
    };
    let group = group(&["#### 1234", "#### 1,234", "#### 1.234"], row);
    let scored = kept(judged("judge: gsm8k", group, &world).await);
    assert_eq!(rewards(&scored), [Some(1.0), Some(1.0), Some(0.0)]);
}

#[test]
fn passes_see_programs_sources_and_needs() {
    for (text, needed, sources, keys) in [
        ("judge: number", 1, None, &[][..]),
        (COMMAND, 0, None, &["judge.command"][..]),
        (SUM, 1, None, &["judge.weighted_sum.short.judge.command"][..]),
        (
            ROUTE,
            1,
            Some(vec!["essays", "sums"]),
            &["judge.route.essays.weighted_sum.short.judge.command"][..],
        ),
        (
            "judge: { route: { a: number, b: gsm8k } }",
            2,
            Some(vec!["a", "b"]),
            &[][..],
        ),
    ] {
        let (_, config) = config(&format!("type: judger\n{text}"));
        let Role::Judger {
            truths,
            sources: found,
            commands,
            errors_are_fatal,
            ..
        } = config.contract().role
        else {
            panic!("{text}");
        };
        assert_eq!((truths.len(), errors_are_fatal), (needed, true), "{text}");
        let of_route = text.contains("route");
        assert!(
            truths.iter().all(|truth| truth.source.is_some() == of_route),
            "{truths:?}"
        );
        assert_eq!(
            found,
            sources.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>()),
            "{text}"
        );
        let found: Vec<String> = commands.iter().map(|command| command.keys.join(".")).collect();
        assert_eq!(found, keys, "{text}");
    }
}

/// Least and most by hand: each part gives 0 to 1, times its weight.
#[test]
fn a_judge_knows_the_rewards_that_it_can_give() {
    for (judge, range, ends) in [
        ("number", Some((0.0, 1.0)), true),
        ("{ command: { run: [a] } }", None, false),
        (
            "{ weighted_sum: { a: { judge: number, weight: 0.5 } } }",
            Some((0.0, 0.5)),
            true,
        ),
        (
            "{ weighted_sum: { a: { judge: number, weight: 0.5 }, b: { judge: exact, weight: -2 } } }",
            Some((-2.0, 0.5)),
            false,
        ),
        (
            "{ weighted_sum: { a: { judge: number, weight: 1 }, b: { judge: { command: { run: [a] } }, weight: 0 } } }",
            Some((0.0, 1.0)),
            true,
        ),
        (
            "{ weighted_sum: { a: { judge: number, weight: 1 }, b: { judge: { command: { run: [a] } }, weight: 1 } } }",
            None,
            false,
        ),
        ("{ route: { x: number, y: gsm8k } }", Some((0.0, 1.0)), true),
        (
            "{ route: { x: number, y: { weighted_sum: { a: { judge: number, weight: 3 } } } } }",
            Some((0.0, 3.0)),
            false,
        ),
        ("{ route: { x: number, y: { command: { run: [a] } } } }", None, false),
    ] {
        let (_, config) = config(&format!("type: judger\njudge: {judge}"));
        let Role::Judger {
            reward_range,
            rewards_are_ends,
            ..
        } = config.contract().role
        else {
            panic!("{judge}");
        };
        assert_eq!((reward_range, rewards_are_ends), (range, ends), "{judge}");
    }
}
