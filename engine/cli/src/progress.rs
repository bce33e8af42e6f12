//! How far a run is, on standard error: bars on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rlpipe_core::data::Metrics;
use rlpipe_core::services::Observer;
use rlpipe_runtime::schedule::{Event, Reporter};

use crate::arguments::ProgressMode;
use crate::output;
use crate::run::phase_line;

/// Where lines are shown, one says how far a run is at least so often.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// Shows what a run tells.
pub struct Progress {
    mode: ProgressMode,
    bars: Option<Bars>,
    /// The step that is under way, for the inner bar.
    total: u64,
    last_line: Mutex<Instant>,
}

struct Bars {
    all: MultiProgress,
    steps: ProgressBar,
    inner: ProgressBar,
    /// What the inner bar counts now.
    inner_of: Mutex<String>,
}

impl Progress {
    /// `total`: train steps in the whole run.
    pub fn new(mode: ProgressMode, total: u64) -> Self {
        let mode = match mode {
            ProgressMode::Auto if std::io::stderr().is_terminal() => ProgressMode::Bars,
            ProgressMode::Auto => ProgressMode::Lines,
            other => other,
        };
        Self {
            mode,
            bars: (mode == ProgressMode::Bars).then(|| Bars::new(total)),
            total,
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// One line that stays.
    pub fn line(&self, text: &str) {
        *self.last_line.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        match &self.bars {
            Some(bars) => drop(bars.all.println(text)),
            None if self.mode == ProgressMode::None => {}
            None => output::error(&format!("{text}\n")),
        }
    }

    /// Takes the bars away.
    pub fn clear(&self) {
        if let Some(bars) = &self.bars {
            bars.steps.finish_and_clear();
            bars.inner.finish_and_clear();
            let _ = bars.all.clear();
        }
    }
}

impl Bars {
    fn new(total: u64) -> Self {
        let all = MultiProgress::new();
        let style = |template: &str| {
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> ")
        };
        let steps = all.add(ProgressBar::new(total));
        steps.set_style(style("step {pos}/{len} [{bar:30}] {msg} ETA {eta}"));
        let inner = all.add(ProgressBar::new(0));
        inner.set_style(style("  {prefix} {pos}/{len} [{bar:20}]"));
        steps.enable_steady_tick(Duration::from_millis(500));
        Self {
            all,
            steps,
            inner,
            inner_of: Mutex::default(),
        }
    }
}

impl Observer for Progress {
    fn progress(&self, node: &str, what: &str, done: u64, total: u64) {
        let Some(bars) = &self.bars else {
            let last_line = *self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
            if self.mode == ProgressMode::Lines && last_line.elapsed() >= LONGEST_SILENCE {
                self.line(&format!("`{node}`: {what} {done}/{total}"));
            }
            return;
        };
        let name = format!("{node}: {what}");
        let mut inner_of = bars.inner_of.lock().unwrap_or_else(PoisonError::into_inner);
        if *inner_of != name {
            bars.inner.set_prefix(name.clone());
            *inner_of = name;
        }
        bars.inner.set_length(total);
        bars.inner.set_position(done);
    }

    fn notice(&self, node: &str, text: &str) {
        self.line(&format!("`{node}`: {text}"));
    }
}

impl Reporter for Progress {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Phase { .. } => {
                if self.mode == ProgressMode::Phases {
                    self.line(&phase_line(event).unwrap_or_default());
                }
            }
            Event::Step { step, metrics, .. } => {
                if let Some(bars) = &self.bars {
                    bars.steps.set_position(*step);
                    bars.steps.set_message(message(metrics));
                }
                if self.bars.is_none() || has_evaluation(metrics) {
                    self.line(&format!("step {step}/{}  {}", self.total, message(metrics)));
                }
            }
        }
    }
}

fn has_evaluation(metrics: &Metrics) -> bool {
    metrics.0.keys().any(|name| name.starts_with("eval/"))
}

/// The few numbers that matter, in one line.
fn message(metrics: &Metrics) -> String {
    let mut parts = Vec::new();
    let mut add = |label: &str, name: &str, digits: usize| {
        if let Some(value) = metrics.get(name) {
            parts.push(format!("{label} {value:.digits$}"));
        }
    };
    add("reward", "reward/mean", 3);
    add("length", "response_len/mean", 1);
    add("loss", "loss", 4);
    add("grad norm", "grad_norm", 3);
    add("sft loss", "sft/loss_last_epoch", 3);
    for (name, value) in metrics
        .0
        .iter()
        .filter(|(name, _)| name.starts_with("eval/") && name.ends_with("accuracy"))
    {
        parts.push(format!("{name} {value:.3}"));
    }
    let counts = [
        ("groups/filtered", "filtered"),
        ("groups/filled", "filled"),
        ("groups/failed", "failed"),
        ("optimizer/skipped", "steps skipped"),
    ];
    for (name, label) in counts {
        if let Some(count) = metrics.get(name).filter(|count| *count > 0.0) {
            parts.push(format!("{count} {label}"));
        }
    }
    if let Some(rate) = metrics.get("throughput/rollout_tok_s") {
        parts.push(format!("{rate:.0} tok/s"));
    }
    if let Some(seconds) = metrics.get("time/step_s") {
        parts.push(format!("{seconds:.2} s"));
    }
    parts.join("  ")
}
