//! `rlpipe test`: what a pipeline's nodes make of groups that are given.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use rlpipe_core::data::Seed;
use rlpipe_core::diagnostic::{Diagnostics, Severity, codes, nearest, render_json};
use rlpipe_core::document::Sources;
use rlpipe_core::services::{CommandJudge, Engine, JudgeCommand, Learner, Rows, ServiceError, Services, Tokenizer};
use rlpipe_runtime::compile::{Outcome, Pipeline, Test, load_feeds};
use rlpipe_runtime::trial::{Failure, Row, Verdict, run};
use serde_json::{Value, json};

use crate::arguments::{Format, TestArguments, TestFormat};
use crate::programs::Programs;
use crate::validate::{compiled, show};
use crate::{FAILED, FAULTY, output};

/// Runs the tests that the arguments name, or all.
pub fn test(arguments: &TestArguments) -> Result<ExitCode> {
    let mut outcome = compiled(&arguments.pipeline)?;
    forgive_unset(&mut outcome);
    let Some(pipeline) = outcome.pipeline.take().filter(|_| !outcome.diagnostics.has_errors()) else {
        return faulty(&outcome, arguments.format);
    };
    let tests = match chosen(&pipeline, &arguments.names) {
        Ok(tests) => tests,
        Err(message) => {
            output::error(&format!("error: {message}\n"));
            return Ok(ExitCode::from(FAULTY));
        }
    };
    let feeds: Vec<_> = tests
        .iter()
        .map(|test| load_feeds(&pipeline, test, &mut outcome.sources, &mut outcome.diagnostics))
        .collect();
    if outcome.diagnostics.has_errors() {
        return faulty(&outcome, arguments.format);
    }
    if arguments.format == TestFormat::Full {
        show(&outcome, Format::Full)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the tests")?;
    let mut verdicts = Vec::new();
    for (test, feeds) in tests.into_iter().zip(feeds) {
        let bench = Bench::new(&pipeline)?;
        let verdict = runtime.block_on(async {
            let verdict = run(&pipeline, test, feeds, &bench).await;
            bench.programs.shutdown().await;
            verdict
        });
        let verdict = bench.with_notices(verdict);
        if arguments.format == TestFormat::Full {
            output::print(&text_of(&verdict, &outcome.sources))?;
        }
        verdicts.push(verdict);
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.failures.is_empty()).count();
    match arguments.format {
        TestFormat::Full => {
            let passed = verdicts.len() - failed;
            output::print(&format!("\n{passed} passed, {failed} failed\n"))?;
        }
        TestFormat::Json => output::print(&json_of(&verdicts, &outcome.diagnostics, &outcome.sources))?,
    }
    Ok(if failed > 0 {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

/// A variable that is not set is no fault of tests, where no node that they run has it: a reward is tried without the
/// paths of a model and its data.
fn forgive_unset(outcome: &mut Outcome) {
    let Some(pipeline) = &outcome.pipeline else { return };
    let routes = pipeline.tests.iter().map(|test| test.route(pipeline).order);
    let understood = |index: usize| pipeline.nodes[index].config.is_some();
    let is_unset = |code: &str| code == codes::RL0602.id;
    if pipeline.tests.iter().all(|test| test.config.is_some()) && routes.flatten().all(understood) {
        let kept = std::mem::take(&mut outcome.diagnostics).into_iter();
        outcome
            .diagnostics
            .extend(kept.filter(|found| !is_unset(found.code.id)));
    }
}

fn faulty(outcome: &Outcome, format: TestFormat) -> Result<ExitCode> {
    match format {
        TestFormat::Full => show(outcome, Format::Full)?,
        TestFormat::Json => output::print(&json_of(&[], &outcome.diagnostics, &outcome.sources))?,
    }
    Ok(ExitCode::from(FAULTY))
}

/// The tests of these names, in the order of the file; all where none is named.
fn chosen<'a>(pipeline: &'a Pipeline, names: &[String]) -> Result<Vec<&'a Test>, String> {
    if pipeline.tests.is_empty() {
        return Err(
            "there are no tests: write some into `tests`, or give a file that has them after the pipeline".to_owned(),
        );
    }
    let known = || pipeline.tests.iter().map(|test| test.name.as_str());
    if let Some(unknown) = names.iter().find(|name| !known().any(|known| known == *name)) {
        let hint = match nearest(unknown, known()).first() {
            Some(best) => format!("did you mean `{best}`?"),
            None => format!(
                "there are {}",
                known().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ),
        };
        return Err(format!("there is no test `{unknown}`; {hint}"));
    }
    Ok(pipeline
        .tests
        .iter()
        .filter(|test| names.is_empty() || names.contains(&test.name))
        .collect())
}

/// What nodes of a test may ask for: programs that judge, and nothing that needs a model.
struct Bench<'a> {
    pipeline: &'a Pipeline,
    seed: u64,
    programs: Programs,
    notices: Arc<Mutex<Vec<String>>>,
    /// Of the programs; goes with them.
    _logs: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    fn new(pipeline: &'a Pipeline) -> Result<Self> {
        let logs = tempfile::tempdir().context("cannot make a folder for the logs of programs")?;
        let notices: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = notices.clone();
        let notice = move |text: &str| {
            told.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(text.to_owned())
        };
        let seed = pipeline.run.as_ref().map_or(0, |run| run.seed);
        Ok(Self {
            pipeline,
            seed,
            programs: Programs::single(seed, logs.path().to_owned(), Arc::new(notice)),
            notices,
            _logs: logs,
        })
    }

    fn with_notices(&self, mut verdict: Verdict) -> Verdict {
        let told = std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner));
        verdict.notices.extend(told);
        verdict
    }
}

fn absent<T>(what: &str) -> Result<T, ServiceError> {
    Err(ServiceError(format!("a test has no {what}")))
}

impl Services for Bench<'_> {
    fn seed(&self) -> Seed {
        Seed::run(self.seed)
    }

    fn input(&self, node: &str, input: &str) -> Result<String, ServiceError> {
        let found = self
            .pipeline
            .find(node)
            .and_then(|index| self.pipeline.nodes[index].input(input));
        match found {
            Some(endpoint) => Ok(self.pipeline.nodes[endpoint.node].name.clone()),
            None => Err(ServiceError(format!(
                "the input `{input}` of `{node}` is not connected"
            ))),
        }
    }

    fn rows(&self, _: &str) -> Result<Arc<dyn Rows>, ServiceError> {
        absent("rows of samplers")
    }

    fn engine(&self, _: &str) -> Result<Arc<dyn Engine>, ServiceError> {
        absent("engine")
    }

    fn tokenizer(&self, _: &str) -> Result<Arc<dyn Tokenizer>, ServiceError> {
        absent("tokenizer")
    }

    fn learner(&self, _: &str) -> Result<Arc<dyn Learner>, ServiceError> {
        absent("learner")
    }

    fn command_judge(&self, node: &str, command: &JudgeCommand) -> Result<Arc<dyn CommandJudge>, ServiceError> {
        Ok(self.programs.start(node, command)?)
    }
}

/// A line for a test that has passed; all that is not as expected of another.
fn text_of(verdict: &Verdict, sources: &Sources) -> String {
    let word = if verdict.failures.is_empty() {
        "ok    "
    } else {
        "FAILED"
    };
    let mut out = format!("{word}  {}\n", verdict.name);
    for failure in &verdict.failures {
        let place = sources.place(failure.range);
        let _ = writeln!(
            out,
            "  {}:{}:{}: {}",
            place.file,
            place.line,
            place.column,
            indented(&failure.message)
        );
        table(&failure.rows, &mut out);
        for note in &failure.notes {
            let _ = writeln!(out, "    {}", indented(note));
        }
    }
    for notice in &verdict.notices {
        let _ = writeln!(out, "  {}", indented(notice));
    }
    out
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

/// Expected and got in columns, with a mark at lines that differ.
fn table(rows: &[Row], out: &mut String) {
    if rows.is_empty() {
        return;
    }
    let width = |of: fn(&Row) -> &str, title: &str| {
        let widths = rows.iter().map(|row| of(row).chars().count());
        widths.chain([title.len()]).max().unwrap_or(0)
    };
    let of = width(|row| &row.of, "");
    let expected = width(|row| &row.expected, "expected");
    let _ = writeln!(out, "      {:of$}  {:expected$}  got", "", "expected");
    for row in rows {
        let mark = if row.differs { '>' } else { ' ' };
        let _ = writeln!(
            out,
            "    {mark} {:of$}  {:expected$}  {}",
            row.of, row.expected, row.got
        );
    }
}

fn json_of(verdicts: &[Verdict], diagnostics: &Diagnostics, sources: &Sources) -> String {
    let row = |row: &Row| json!({ "of": row.of, "expected": row.expected, "got": row.got, "differs": row.differs });
    let failure = |failure: &Failure| {
        let place = sources.place(failure.range);
        json!({
            "file": place.file,
            "line": place.line,
            "column": place.column,
            "message": failure.message,
            "rows": failure.rows.iter().map(row).collect::<Vec<_>>(),
            "notes": failure.notes,
        })
    };
    let test = |verdict: &Verdict| {
        let place = sources.place(verdict.range);
        json!({
            "name": verdict.name,
            "file": place.file,
            "line": place.line,
            "passed": verdict.failures.is_empty(),
            "nodes": verdict.nodes,
            "failures": verdict.failures.iter().map(failure).collect::<Vec<_>>(),
            "notices": verdict.notices,
        })
    };
    let errors = diagnostics.iter().any(|found| found.severity == Severity::Error);
    let faults: Value = serde_json::from_str(&render_json(diagnostics, sources)).unwrap_or_default();
    let whole = json!({
        "passed": !errors && verdicts.iter().all(|verdict| verdict.failures.is_empty()),
        "tests": verdicts.iter().map(test).collect::<Vec<_>>(),
        "faults": faults,
    });
    format!("{whole:#}\n")
}
