//! Runs commands in order on the thread that owns torch.
//!
//! Generation goes on between commands. What changes or reads weights waits until nothing is in flight; SetVersion does
//! not, and Abort and Shutdown also pass what waits.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rlpipe_wire::v1;
use rlpipe_wire::v1::from_worker::Event;
use rlpipe_wire::v1::to_worker::Command;
use tokio::sync::mpsc::UnboundedSender;

use crate::device::Accelerator;
use crate::error::caught;
use crate::memory::Peak;
use crate::policy::Policy;
use crate::weights::Written;
use crate::{Error, Result, ceilings, fail, store};

/// A driver sends the requests of a step one by one. A worker that is about to generate waits for the next for so long, and for
/// all of them for no longer than the other: prompts that came together run in one pack, and their samples end together.
const NEXT_REQUEST: Duration = Duration::from_micros(500);
const ALL_REQUESTS: Duration = Duration::from_millis(30);

/// The models of one device.
#[derive(Debug)]
pub struct Worker {
    accelerator: Accelerator,
    policies: BTreeMap<String, Policy>,
    peak: Peak,
}

/// Runs commands until Shutdown or until the sender is gone.
pub fn run(mut worker: Worker, commands: &Receiver<v1::ToWorker>, events: &UnboundedSender<v1::FromWorker>) {
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() && !worker.is_generating() {
            match commands.recv() {
                Ok(command) => waiting.push_back(command),
                Err(_) => return,
            }
        }
        waiting.extend(commands.try_iter());
        if !worker.is_generating() {
            gather(&mut waiting, commands);
        }
        let mut answers = Vec::new();
        let flow = worker.turn(&mut waiting, &mut answers);
        for answer in answers {
            // Without a receiver the wire thread is ending the process.
            let _ = events.send(answer);
        }
        if flow.is_break() {
            return;
        }
    }
}

/// Waits for more requests where the first thing to do is one.
fn gather(waiting: &mut VecDeque<v1::ToWorker>, commands: &Receiver<v1::ToWorker>) {
    let first = Instant::now();
    while waiting.front().is_some_and(is_generate)
        && waiting.back().is_some_and(is_generate)
        && first.elapsed() < ALL_REQUESTS
        && let Ok(next) = commands.recv_timeout(NEXT_REQUEST)
    {
        waiting.push_back(next);
    }
}

impl Worker {
    /// A worker without models.
    pub fn new(accelerator: Accelerator) -> Self {
        Self {
            accelerator,
            policies: BTreeMap::new(),
            peak: Peak::default(),
        }
    }

    /// Whether any engine has something in flight.
    pub fn is_generating(&self) -> bool {
        self.policies.values().any(Policy::is_generating)
    }

    /// Accepts what may be generated of `waiting`, or runs one command, which is to be answered before the next; then one
    /// block of each engine. Breaks after Shutdown.
    pub fn turn(&mut self, waiting: &mut VecDeque<v1::ToWorker>, answers: &mut Vec<v1::FromWorker>) -> ControlFlow<()> {
        while let Some(at) = waiting.iter().position(passes) {
            let Some(v1::ToWorker { id, command }) = waiting.remove(at) else {
                break;
            };
            if let Some(Command::Abort(abort)) = &command {
                for &aborted in &abort.ids {
                    let generated = self.abort(aborted, waiting);
                    answers.extend(generated.map(|generated| answer(aborted, Event::Generated(generated))));
                }
            }
            answers.push(answer(id, Event::Done(v1::Done {})));
            if let Some(Command::Shutdown(_)) = command {
                return ControlFlow::Break(());
            }
        }
        while let Some(next) = waiting.front() {
            let beside_generation = matches!(next.command, Some(Command::Generate(_) | Command::SetVersion(_)));
            if self.is_generating() && !beside_generation {
                break;
            }
            let Some(v1::ToWorker { id, command }) = waiting.pop_front() else {
                break;
            };
            if let Some(Command::Generate(command)) = command {
                let model = command.model.clone();
                let accepted = caught(|| self.policy(&model)?.generate(id, command));
                answers.extend(accepted.err().map(|error| answer(id, failed(error))));
            } else {
                let started = Instant::now();
                let event = caught(|| self.execute(command)).unwrap_or_else(failed);
                let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                answers.push(v1::FromWorker {
                    // Nothing stands for what was not executed.
                    took_us: took_us.max(1),
                    ..answer(id, event)
                });
                self.peak.look(self.accelerator.device);
                break;
            }
        }
        for policy in self.policies.values_mut().filter(|policy| policy.is_generating()) {
            match caught(|| policy.advance()) {
                Ok(finished) => {
                    // Not after every block: what was asked of the card stays with the allocator.
                    if !finished.is_empty() {
                        self.peak.look(self.accelerator.device);
                    }
                    let event = |result: Result<_>| result.map_or_else(failed, Event::Generated);
                    answers.extend(finished.into_iter().map(|(id, result)| answer(id, event(result))));
                }
                Err(error) => {
                    let lost = policy.engine.as_mut().map(|engine| engine.clear()).unwrap_or_default();
                    answers.extend(lost.into_iter().map(|id| answer(id, failed(error.clone()))));
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// What an aborted Generate has, be it in flight or still waiting.
    fn abort(&mut self, id: u64, waiting: &mut VecDeque<v1::ToWorker>) -> Option<v1::Generated> {
        let in_flight = self
            .policies
            .values_mut()
            .find_map(|policy| policy.engine.as_mut()?.abort(id));
        if in_flight.is_some() {
            return in_flight;
        }
        let is_it = |next: &v1::ToWorker| next.id == id && matches!(next.command, Some(Command::Generate(_)));
        let at = waiting.iter().position(is_it)?;
        let Some(Command::Generate(command)) = waiting.remove(at)?.command else {
            return None;
        };
        let nothing = v1::Sample {
            finish_reason: v1::FinishReason::Aborted.into(),
            ..Default::default()
        };
        Some(v1::Generated {
            samples: vec![nothing; command.seeds.len()],
        })
    }

    fn policy(&mut self, name: &str) -> Result<&mut Policy> {
        let names: Vec<String> = self.policies.keys().map(|name| format!("`{name}`")).collect();
        match self.policies.get_mut(name) {
            Some(policy) => Ok(policy),
            None => fail!("model `{name}` is not loaded; loaded are: {}", names.join(", ")),
        }
    }

    fn execute(&mut self, command: Option<Command>) -> Result<Event> {
        let done = Event::Done(v1::Done {});
        match command {
            Some(Command::Load(command)) => self.load(&command).map(Event::Loaded),
            Some(Command::LogProbs(command)) => self.policy(&command.model)?.logprobs(&command).map(Event::LogProbs),
            Some(Command::StartTraining(command)) => {
                let Some(settings) = command.optimizer else {
                    fail!("StartTraining comes without an optimizer")
                };
                self.policy(&command.model)?.start_training(settings)?;
                Ok(done)
            }
            Some(Command::TrainPack(command)) => self
                .policy(&command.model)?
                .train_pack(&command)
                .map(Event::PackTrained),
            Some(Command::OptimizerStep(command)) => self
                .policy(&command.model)?
                .optimizer_step(command.learning_rate)
                .map(Event::OptimizerStepped),
            Some(Command::SetVersion(command)) => {
                self.policy(&command.model)?.set_version(command.version);
                Ok(done)
            }
            Some(Command::Freeze(command)) => {
                self.policy(&command.model)?.freeze();
                Ok(done)
            }
            Some(Command::Save(command)) => Ok(saved(store::save(Path::new(&command.folder), &self.policies)?)),
            Some(Command::Restore(command)) => {
                store::restore(Path::new(&command.folder), &mut self.policies)?;
                Ok(done)
            }
            Some(Command::Ceilings(_)) => Ok(Event::Ceilings(ceilings::measure(self.accelerator.device))),
            Some(Command::Memory(_)) => Ok(Event::MemoryPeak(self.peak.report())),
            Some(Command::Export(command)) => Ok(saved(vec![
                self.policy(&command.model)?
                    .export(Path::new(&command.folder), &command.dtype)?,
            ])),
            Some(Command::Generate(_) | Command::Abort(_) | Command::Shutdown(_)) | None => {
                fail!("this worker does not know the command; are driver and worker of one version?")
            }
        }
    }

    fn load(&mut self, command: &v1::Load) -> Result<v1::Loaded> {
        if self.policies.contains_key(&command.model) {
            fail!("model `{}` is loaded already", command.model);
        }
        let policy = Policy::load(command, &self.accelerator)?;
        let loaded = policy.describe(&self.accelerator.name);
        tracing::info!(
            model = command.model,
            parameters = loaded.parameters,
            slots = loaded.slots,
            "loaded"
        );
        self.policies.insert(command.model.clone(), policy);
        Ok(loaded)
    }
}

fn is_generate(next: &v1::ToWorker) -> bool {
    matches!(next.command, Some(Command::Generate(_)))
}

fn passes(next: &v1::ToWorker) -> bool {
    matches!(next.command, Some(Command::Abort(_) | Command::Shutdown(_)))
}

/// Of what was not executed by itself.
fn answer(id: u64, event: Event) -> v1::FromWorker {
    v1::FromWorker {
        id,
        event: Some(event),
        took_us: 0,
    }
}

fn failed(error: Error) -> Event {
    tracing::warn!(%error, "a command failed");
    Event::Failed(v1::Failed { message: error.0 })
}

fn saved(files: Vec<Written>) -> Event {
    let file = |Written { name, bytes, sha256 }| v1::File { name, bytes, sha256 };
    Event::Saved(v1::Saved {
        files: files.into_iter().map(file).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What was answered in the same turn was not computed in that time.
    #[test]
    fn only_a_command_that_ran_has_a_time() {
        let absent = || "absent".to_owned();
        let commands = [
            Command::Abort(v1::Abort { ids: vec![7] }),
            Command::Generate(v1::Generate {
                model: absent(),
                ..Default::default()
            }),
            Command::Load(v1::Load {
                model: absent(),
                folder: absent(),
                ..Default::default()
            }),
        ];
        let (to, commands_of) = std::sync::mpsc::channel();
        for (id, command) in (1..).zip(commands) {
            let command = Some(command);
            to.send(v1::ToWorker { id, command }).unwrap();
        }
        drop(to);
        let (events, mut answers) = tokio::sync::mpsc::unbounded_channel();
        let worker = Worker::new(crate::device::open("cpu").unwrap());
        run(worker, &commands_of, &events);
        let mut ran = BTreeMap::new();
        while let Ok(answer) = answers.try_recv() {
            ran.insert(answer.id, answer.took_us > 0);
        }
        assert_eq!(ran, BTreeMap::from([(1, false), (2, false), (3, true)]));
    }
}
