//! Results: a table for people, JSON for programs. `benches/peers` prints the same JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use rlpipe_backends::Ceilings;
use rlpipe_runtime::run::write_to;
use serde::Serialize;
use serde_json::{Map, Value};

use super::arguments::{BenchFormat, ShownArguments};
use super::roofline::Work;
use super::statistics::Spread;
use crate::output;

/// What a benchmark found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which one, such as `generate`.
    pub bench: &'static str,
    /// What was measured.
    pub program: Program,
    /// What it ran on: a card's name, or `cpu`.
    pub device: String,
    /// Versions of what is below it.
    pub versions: BTreeMap<&'static str, String>,
    /// That it computed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// What it computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelLine>,
    /// What was asked for.
    pub settings: Map<String, Value>,
    /// Times, and what was done in them.
    pub measured: Vec<Measured>,
    /// Of medians, by what is divided by what.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ratios: BTreeMap<String, f64>,
    /// What the device can do at best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<CeilingsLine>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// As given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
}

/// A program and its version.
#[derive(Debug, Clone, Serialize)]
pub struct Program {
    name: &'static str,
    version: &'static str,
}

impl Program {
    /// This one.
    pub fn this() -> Self {
        Self {
            name: "rlpipe",
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// A model in a few words.
#[derive(Debug, Clone, Serialize)]
pub struct ModelLine {
    /// Its name.
    pub name: String,
    /// `random`, or `folder`.
    pub weights: &'static str,
    /// How many weights.
    pub parameters: u64,
    /// What it computes in.
    pub dtype: String,
}

/// The device's ceilings.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CeilingsLine {
    copy_bytes_per_s: f64,
    bfloat16_product_operations_per_s: f64,
    float32_product_operations_per_s: f64,
}

impl From<Ceilings> for CeilingsLine {
    fn from(ceilings: Ceilings) -> Self {
        Self {
            copy_bytes_per_s: ceilings.copy_bytes_per_s,
            bfloat16_product_operations_per_s: ceilings.bfloat16_product_operations_per_s,
            float32_product_operations_per_s: ceilings.float32_product_operations_per_s,
        }
    }
}

impl CeilingsLine {
    fn product(&self, dtype: &str) -> f64 {
        match dtype {
            // Tensor cores are as fast in either.
            "bfloat16" | "float16" => self.bfloat16_product_operations_per_s,
            _ => self.float32_product_operations_per_s,
        }
    }
}

/// Something that was timed.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// What it is called.
    pub name: String,
    /// How long a run took.
    pub seconds: Spread,
    /// How long the first took, which is in nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up_s: Option<f64>,
    /// What a run did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<Done>,
    /// What it took of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub achieved: Option<Achieved>,
    /// Of the whole step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// How much a run did.
#[derive(Debug, Clone, Serialize)]
pub struct Done {
    /// Of what, such as `tokens`.
    pub unit: &'static str,
    /// In a run; where runs differ, the median.
    pub amount: f64,
    /// In a second.
    pub per_second: Spread,
}

/// The least that the work needs of the device, and what that is of what the device can do.
#[derive(Debug, Clone, Serialize)]
pub struct Achieved {
    bytes: u64,
    operations: u64,
    bytes_per_s: f64,
    operations_per_s: f64,
    /// Of the device's copy.
    share_of_copy: f64,
    /// Of the device's product in the compute type.
    share_of_product: f64,
    /// The least time at the device's ceilings, where neither waits for the other.
    least_s: f64,
}

impl Measured {
    /// Runs that all did as much. None where there was no run.
    pub fn of(name: &str, seconds: &[f64], warm_up_s: Option<f64>, unit: &'static str, amount: f64) -> Option<Self> {
        let rates: Vec<f64> = seconds.iter().map(|seconds| amount / seconds).collect();
        Some(Self {
            warm_up_s,
            done: Some(Done {
                unit,
                amount,
                per_second: Spread::of(&rates)?,
            }),
            ..Self::time(name, seconds)?
        })
    }

    /// Time alone.
    pub fn time(name: &str, seconds: &[f64]) -> Option<Self> {
        Some(Self {
            name: name.to_owned(),
            seconds: Spread::of(seconds)?,
            warm_up_s: None,
            done: None,
            achieved: None,
            share: None,
        })
    }

    /// Held against what the device can do.
    #[must_use]
    pub fn against(mut self, work: Work, ceilings: &CeilingsLine, dtype: &str) -> Self {
        let (bytes, operations) = (work.bytes as f64, work.operations as f64);
        let (copy, product) = (ceilings.copy_bytes_per_s, ceilings.product(dtype));
        let median = self.seconds.median;
        self.achieved = Some(Achieved {
            bytes: work.bytes,
            operations: work.operations,
            bytes_per_s: bytes / median,
            operations_per_s: operations / median,
            share_of_copy: bytes / median / copy,
            share_of_product: operations / median / product,
            least_s: (bytes / copy).max(operations / product),
        });
        self
    }
}

impl Report {
    /// Of something that the driver does by itself.
    pub fn of_driver(bench: &'static str, program: Program, date: Option<&String>) -> Self {
        Self {
            bench,
            program,
            device: "cpu".to_owned(),
            versions: BTreeMap::new(),
            threads: None,
            model: None,
            settings: Map::new(),
            measured: Vec::new(),
            ratios: BTreeMap::new(),
            ceilings: None,
            notes: Vec::new(),
            date: date.cloned(),
        }
    }

    /// Prints it as was asked for, then writes the file: what was measured is seen, whatever becomes of the file.
    pub fn show(&self, shown: &ShownArguments) -> Result<()> {
        let json = || serde_json::to_string_pretty(self).map(|text| format!("{text}\n"));
        match shown.format {
            BenchFormat::Json => output::print(&json()?)?,
            BenchFormat::Text => output::print(&self.text())?,
        }
        if let Some(path) = &shown.output {
            write_to(path, json()?.as_bytes())
                .with_context(|| format!("cannot write the results to `{}`", path.display()))?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let on = match self.threads {
            Some(threads) => format!("{}, {}", self.device, output::counted(threads.into(), "thread")),
            None => self.device.clone(),
        };
        let _ = write!(out, "bench {} on {on}", self.bench);
        if let Some(model) = &self.model {
            let weights = match model.weights {
                "random" => ", random weights",
                _ => "",
            };
            let millions = model.parameters as f64 / 1e6;
            let _ = write!(
                out,
                ": `{}`, {millions:.1} M parameters in {}{weights}",
                model.name, model.dtype
            );
        }
        let versions = self
            .versions
            .iter()
            .map(|(name, version)| format!(", {name} {version}"));
        let (name, version) = (self.program.name, self.program.version);
        let _ = writeln!(out, "\n{name} {version}{}", versions.collect::<String>());
        let settings = self.settings.iter().map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            value => format!("{name} {value}"),
        });
        let _ = writeln!(out, "{}\n", settings.collect::<Vec<_>>().join(", "));
        out.push_str(&table(&self.rows()));
        let achieved = self
            .measured
            .iter()
            .filter_map(|one| Some((one, one.achieved.as_ref()?)));
        let achieved: Vec<Vec<String>> = achieved.map(|(one, achieved)| achieved_row(one, achieved)).collect();
        if !achieved.is_empty() {
            let head = [
                "",
                "at least",
                "",
                "achieved",
                "",
                "of the device's best",
                "",
                "at its best",
            ];
            let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(achieved);
            let _ = write!(out, "\n{}", table(&rows.collect::<Vec<_>>()));
        }
        if let Some(ceilings) = &self.ceilings {
            let _ = writeln!(
                out,
                "\nthe device's best: copy {}, product {} in bfloat16, {} in float32",
                scaled(ceilings.copy_bytes_per_s, "B/s"),
                scaled(ceilings.bfloat16_product_operations_per_s, "operations/s"),
                scaled(ceilings.float32_product_operations_per_s, "operations/s")
            );
        }
        for (name, ratio) in &self.ratios {
            let _ = writeln!(out, "{name}: {ratio:.2}");
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let has_shares = self.measured.iter().any(|one| one.share.is_some());
        let mut head = vec![
            "",
            "median",
            "min",
            "max",
            "quartiles",
            "runs",
            "warm-up",
            "in a second",
        ];
        if has_shares {
            head.push("of the step");
        }
        let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for one in &self.measured {
            let spread = &one.seconds;
            let quartiles = [spread.lower_quartile, spread.upper_quartile].map(time);
            let done = one.done.as_ref().map_or_else(String::new, |done| {
                format!("{} {}", grouped(done.per_second.median), done.unit)
            });
            let mut row = vec![
                one.name.clone(),
                time(spread.median),
                time(spread.min),
                time(spread.max),
                quartiles.join(" to "),
                spread.runs.to_string(),
                one.warm_up_s.map_or_else(String::new, time),
                done,
            ];
            if has_shares {
                row.push(one.share.map_or_else(String::new, percent));
            }
            rows.push(row);
        }
        rows
    }
}

fn achieved_row(one: &Measured, achieved: &Achieved) -> Vec<String> {
    vec![
        one.name.clone(),
        scaled(achieved.bytes as f64, "B"),
        scaled(achieved.operations as f64, "operations"),
        scaled(achieved.bytes_per_s, "B/s"),
        scaled(achieved.operations_per_s, "operations/s"),
        format!("{} of copy", percent(achieved.share_of_copy)),
        format!("{} of product", percent(achieved.share_of_product)),
        time(achieved.least_s),
    ]
}

/// Columns as wide as what is in them; those that are empty are left out.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let lengths = rows.iter().filter_map(|row| Some(row.get(column)?.chars().count()));
        lengths.max().unwrap_or(0)
    };
    let is_empty = |column: usize| {
        rows.iter()
            .skip(1)
            .all(|row| row.get(column).is_none_or(String::is_empty))
    };
    let shown: Vec<(usize, usize)> = (0..columns)
        .filter(|column| !is_empty(*column))
        .map(|column| (column, width(column)))
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (place, (column, width)) in shown.iter().enumerate() {
            let cell = row.get(*column).map_or("", String::as_str);
            let _ = match place {
                0 => write!(line, "{cell:width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// A time, with the unit that fits it.
fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.001 => format!("{:.1} us", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.3} s"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Four digits and a prefix: 4.302 TB/s.
fn scaled(value: f64, unit: &str) -> String {
    let steps = ["", "k", "M", "G", "T", "P", "E"];
    let (mut value, mut at) = (value, 0);
    while value >= 1000.0 && at + 1 < steps.len() {
        value /= 1000.0;
        at += 1;
    }
    let digits = match value {
        value if value < 10.0 => 3,
        value if value < 100.0 => 2,
        _ => 1,
    };
    // `TB/s`, but `T operations/s`.
    let space = if at > 0 && unit.contains("operations") { " " } else { "" };
    format!("{value:.digits$} {}{space}{unit}", steps[at])
}

/// 1234567.8 as 1,234,568; small numbers with a digit behind the point.
fn grouped(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_written_to_be_read() {
        assert_eq!(scaled(4.302e12, "B/s"), "4.302 TB/s");
        assert_eq!(scaled(790.1e12, "operations/s"), "790.1 T operations/s");
        assert_eq!(scaled(12.0, "B"), "12.00 B");
        assert_eq!(grouped(1_234_567.8), "1,234,568");
        assert_eq!(grouped(999.6), "1,000");
        assert_eq!(grouped(12.34), "12.3");
        assert_eq!(
            (time(1.5), time(0.0205), time(4.2e-5)),
            ("1.500 s".into(), "20.5 ms".into(), "42.0 us".into())
        );
    }

    #[test]
    fn columns_line_up_and_empty_ones_are_left_out() {
        let rows = [
            ["", "median", "x", "a"],
            ["short", "1", "", "22"],
            ["much longer", "100", "", "3"],
        ];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
            .collect();
        assert_eq!(
            table(&rows),
            "             median   a\nshort             1  22\nmuch longer     100   3\n"
        );
    }

    #[test]
    fn what_is_achieved_is_held_against_the_ceilings() {
        let ceilings = CeilingsLine {
            copy_bytes_per_s: 100.0,
            bfloat16_product_operations_per_s: 1000.0,
            float32_product_operations_per_s: 500.0,
        };
        let work = Work {
            bytes: 50,
            operations: 1000,
        };
        let measured = Measured::of("x", &[4.0, 2.0, 2.0], None, "tokens", 8.0).unwrap();
        assert!((measured.done.as_ref().unwrap().per_second.median - 4.0).abs() < 1e-15);
        let achieved = measured.clone().against(work, &ceilings, "bfloat16").achieved.unwrap();
        assert_eq!((achieved.bytes_per_s, achieved.operations_per_s), (25.0, 500.0));
        assert_eq!((achieved.share_of_copy, achieved.share_of_product), (0.25, 0.5));
        assert!((achieved.least_s - 1.0).abs() < 1e-15);
        let achieved = measured.against(work, &ceilings, "float32").achieved.unwrap();
        assert!((achieved.least_s - 2.0).abs() < 1e-15);
    }
}
