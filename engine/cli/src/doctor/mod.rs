//! `rlpipe doctor`: all that would keep a pipeline from running here, by topic, with what was measured and what mends it.
//!
//! Every pass of the compiler runs, as before a run; its findings are sorted by topic. What a pass does not look at,
//! because it takes long or changes nothing of the verdict, is looked at here.

mod card;
mod here;
mod mend;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use rlpipe_core::diagnostic::{Diagnostic, Severity};
use rlpipe_runtime::compile::{Data, Machine, Outcome, Pipeline};
use serde_json::json;

use crate::arguments::{DoctorArguments, DoctorFormat, PipelineArguments};
use crate::run::outside;
use crate::validate::compiled;
use crate::{FAULTY, output};

/// What is looked at, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    File,
    Variables,
    Data,
    Models,
    Steps,
    Resources,
    Memory,
    Disk,
    Output,
    Programs,
    Worker,
}

impl Topic {
    const ALL: [Self; 11] = [
        Self::File,
        Self::Variables,
        Self::Data,
        Self::Models,
        Self::Steps,
        Self::Resources,
        Self::Memory,
        Self::Disk,
        Self::Output,
        Self::Programs,
        Self::Worker,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Variables => "variables",
            Self::Data => "data",
            Self::Models => "models",
            Self::Steps => "steps",
            Self::Resources => "resources",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Programs => "programs",
            Self::Worker => "worker",
        }
    }

    /// Where a diagnostic belongs.
    fn of(diagnostic: &Diagnostic) -> Self {
        match diagnostic.code.id {
            "RL1102" if diagnostic.message.starts_with("the model ") => Self::Models,
            "RL1102" if diagnostic.message.starts_with('`') => Self::Variables,
            "RL1102" | "RL1009" => Self::Data,
            "RL1101" | "RL1104" => Self::Resources,
            "RL1105" => Self::Worker,
            "RL0705" | "RL1106" | "RL1133" => Self::Memory,
            "RL1131" => Self::Disk,
            "RL1132" => Self::Output,
            "RL1103" | "RL1107" | "RL1108" | "RL1109" | "RL1110" => Self::Models,
            id => match &id[..4] {
                "RL04" | "RL05" => Self::Steps,
                "RL06" => Self::Variables,
                "RL07" => Self::Resources,
                "RL10" => Self::Data,
                "RL11" => Self::Programs,
                _ => Self::File,
            },
        }
    }
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Ok,
    Warning,
    Fault,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// One line of what was found.
struct Finding {
    topic: Topic,
    state: State,
    text: String,
    /// Where in the file, such as `pipeline.yaml:3:4`.
    place: Option<String>,
    /// The code that `rlpipe explain` knows.
    code: Option<&'static str>,
    /// What to know about it.
    notes: Vec<String>,
    /// Commands that mend it, or that show more.
    mends: Vec<String>,
}

impl Finding {
    fn new(topic: Topic, state: State, text: impl Into<String>) -> Self {
        Self {
            topic,
            state,
            text: text.into(),
            place: None,
            code: None,
            notes: Vec::new(),
            mends: Vec::new(),
        }
    }

    fn mend(mut self, command: impl Into<String>) -> Self {
        self.mends.push(command.into());
        self
    }
}

/// All that there is to look at.
struct Looked<'a> {
    outcome: &'a Outcome,
    pipeline: Option<&'a Pipeline>,
    data: &'a Data,
    machine: Machine,
    arguments: &'a PipelineArguments,
}

/// Looks at everything; 0 where a run could start.
pub fn doctor(arguments: &DoctorArguments) -> Result<ExitCode> {
    let mut outcome = compiled(&arguments.pipeline)?;
    let data = outside(&mut outcome, true, true)?;
    let looked = Looked {
        outcome: &outcome,
        pipeline: outcome.pipeline.as_ref(),
        data: &data,
        machine: Machine::this(),
        arguments: &arguments.pipeline,
    };
    let mut findings: Vec<Finding> = outcome
        .diagnostics
        .sorted()
        .into_iter()
        .map(|diagnostic| of_diagnostic(&looked, diagnostic))
        .collect();
    findings.extend(here::measured(&looked, &findings));
    findings.sort_by_key(|finding| {
        let topic = Topic::ALL.iter().position(|topic| *topic == finding.topic);
        (topic, std::cmp::Reverse(finding.state))
    });
    let faults = findings.iter().filter(|finding| finding.state == State::Fault).count();
    let warnings = findings
        .iter()
        .filter(|finding| finding.state == State::Warning)
        .count();
    match arguments.format {
        DoctorFormat::Text => output::print(&text(&findings, faults, warnings))?,
        DoctorFormat::Json => output::print(&json_of(&findings, faults))?,
    }
    Ok(if faults > 0 {
        ExitCode::from(FAULTY)
    } else {
        ExitCode::SUCCESS
    })
}

fn of_diagnostic(looked: &Looked<'_>, diagnostic: &Diagnostic) -> Finding {
    let state = match diagnostic.severity {
        Severity::Error => State::Fault,
        Severity::Warning => State::Warning,
    };
    let place = looked.outcome.sources.place(diagnostic.primary.range);
    let mut finding = Finding::new(Topic::of(diagnostic), state, diagnostic.message.clone());
    finding.place = Some(format!("{}:{}:{}", place.file, place.line, place.column));
    finding.code = Some(diagnostic.code.id);
    finding.notes.clone_from(&diagnostic.notes);
    finding.mends = mend::mends(looked, diagnostic);
    finding
}

fn text(findings: &[Finding], faults: usize, warnings: usize) -> String {
    let mut out = String::new();
    for finding in findings {
        let place = match (&finding.place, finding.code) {
            (Some(place), Some(code)) => format!("  [{code} {place}]"),
            _ => String::new(),
        };
        let lines = finding.text.trim_end().replace('\n', "\n                      ");
        let _ = writeln!(
            out,
            "{:9}  {:9}  {lines}{place}",
            finding.topic.name(),
            finding.state.name()
        );
        for note in &finding.notes {
            let _ = writeln!(
                out,
                "                        {}",
                note.replace('\n', "\n                        ")
            );
        }
        for command in &finding.mends {
            let _ = writeln!(out, "                        $ {command}");
        }
    }
    let verdict = if faults == 0 {
        "a run can start"
    } else {
        "a run cannot start"
    };
    let _ = writeln!(
        out,
        "\n{verdict}: {}, {}",
        output::counted(faults as u64, "fault"),
        output::counted(warnings as u64, "warning")
    );
    out
}

fn json_of(findings: &[Finding], faults: usize) -> String {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "topic": finding.topic.name(),
                "state": finding.state.name(),
                "text": finding.text,
                "place": finding.place,
                "code": finding.code,
                "notes": finding.notes,
                "mends": finding.mends,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "can_start": faults == 0, "findings": findings }))
}
