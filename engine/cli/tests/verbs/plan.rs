use std::path::Path;

use serde_json::Value;

use crate::{assert_golden, command, ended, project, rlpipe};

const QUICKSTART: &str = "pipelines/quickstart.yaml";

#[test]
fn a_plan_has_all_that_a_run_does_and_starts_nothing() {
    // Memory is that of a processor, and as much as it says, on any machine.
    let pool = ["pools.local.accelerator=cpu", "pools.local.host_memory_per_worker=8GiB"];
    let arguments = [
        "plan",
        QUICKSTART,
        "--set",
        "run.seed=3",
        "--set",
        pool[0],
        "--set",
        pool[1],
    ];
    let plan = rlpipe(&project(), &arguments).expect(0);
    assert_eq!(plan.errors, "");
    let program = Path::new(env!("CARGO_BIN_EXE_rlpipe")).with_file_name("rlpipe-worker");
    // Where a worker was built it lies beside.
    let output = plan.output.replace(&*program.to_string_lossy(), "rlpipe-worker");
    assert_golden("engine/cli/tests/verbs/golden/plan-quickstart.txt", &output);
}

#[test]
fn programs_that_judge_are_shown_without_values_of_the_environment() {
    let mut plan = command(&project(), &["plan", "pipelines/custom-reward.yaml"]);
    plan.args([
        "--set",
        "nodes.scored.judge.command.environment=[API_KEY]",
        "--format",
        "json",
    ]);
    plan.env("API_KEY", "sesame").env("MODEL_PATH", "m");
    plan.env("DATA_PATH", "d").env("EVAL_DATA_PATH", "e");
    let plan = ended(plan.output().unwrap()).expect(0);
    assert!(!plan.output.contains("sesame"), "{}", plan.output);
    let whole: Value = serde_json::from_str(&plan.output).unwrap();
    let processes = whole["processes"].as_array().unwrap();
    let what: Vec<&str> = processes
        .iter()
        .map(|process| process["what"].as_str().unwrap().split_once(' ').unwrap().0)
        .collect();
    assert_eq!(what, ["worker", "guard", "program", "program"]);
    assert_eq!(processes[0]["environment"]["RLPIPE_TOKEN"], Value::Null);
    assert_eq!(processes[0]["environment"]["OMP_NUM_THREADS"], "2");
    assert_eq!(processes[0]["passed_on"], Value::Null);
    let program = &processes[2];
    assert_eq!(program["program"], "python3");
    assert!(program["arguments"][0].as_str().unwrap().ends_with("gsm8k_reward.py"));
    assert_eq!(program["environment"]["RLPIPE_PLUGIN"], "1");
    let passed_on = program["passed_on"].as_array().unwrap();
    assert!(passed_on.contains(&"API_KEY".into()) && passed_on.contains(&"PATH".into()));
    assert_eq!(program["log"], "logs/judge-scored-0.log");

    let origins = &whole["origins"];
    let argument = &origins["nodes.scored.judge.command.environment[0]"];
    assert_eq!(argument["from"], "argument");
    let model = &origins["models.policy.path"];
    assert_eq!(
        (&model["from"], &model["value_from"]),
        (&"variable".into(), &"environment".into())
    );
    let cores = &origins["pools.one.cpus_per_worker"];
    assert_eq!(
        (&cores["name"], &cores["value_from"]),
        (&"CPUS_PER_WORKER".into(), &"declaration".into())
    );
    assert_eq!(origins["nodes.scored.on_error"]["from"], "file");
    assert_eq!(origins["nodes.trainer.cpu_offload"]["from"], "default");
    assert_eq!(whole["states"][0]["of"], "engine");
    assert_eq!(whole["plan"]["batch"]["rollouts_per_step"], 512);
}

#[test]
fn what_cannot_run_has_no_plan() {
    let plan = rlpipe(
        &project(),
        &["plan", QUICKSTART, "--set", "nodes.buffer.prompts_per_step=0"],
    )
    .expect(78);
    assert_eq!(plan.output, "");
    assert!(plan.errors.contains("error[RL02"), "{}", plan.errors);
}
