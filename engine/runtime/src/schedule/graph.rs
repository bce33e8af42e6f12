//! The nodes of a plan, built, and put together into what a step needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rlpipe_core::kind::{
    AgentLoop, AnyConfig, BatchStage, Buffer, Evaluator, GroupStage, Kind, Role, Source, Stage, Target, Trainer,
    WarmUp, WeightSync,
};
use rlpipe_core::services::{ServiceError, Services};

use super::path::{Ahead, Path};
use crate::compile::REFILL_WITHOUT_FILTER;
use crate::plan::{Plan, PlannedNode};

/// Everything that takes part in a run.
pub struct Graph {
    /// Where training groups come from, in the order of the buffer's inputs.
    pub paths: Vec<Path>,
    /// Names of the buffer's inputs.
    pub inputs: Vec<String>,
    /// The buffer.
    pub buffer: Box<dyn Buffer>,
    /// Between buffer and trainer, in order.
    pub batch_stages: Vec<Named<Arc<dyn BatchStage>>>,
    /// The trainer.
    pub trainer: Named<Box<dyn Trainer>>,
    /// What the trainer begins with.
    pub warm_up: Option<Lessons>,
    /// Weight syncs.
    pub syncs: Vec<Named<Arc<dyn WeightSync>>>,
    /// Evaluations.
    pub evaluations: Vec<Evaluation>,
}

/// A warm-up, and what it learns from.
pub struct Lessons {
    /// Who learns.
    pub warm_up: Named<Box<dyn WarmUp>>,
    /// The examples.
    pub examples: Arc<dyn Source>,
}

/// A stage with its name and its pool.
pub struct Named<T> {
    /// The node's name.
    pub name: Arc<str>,
    /// The pool it runs in.
    pub pool: Option<String>,
    /// The stage.
    pub stage: T,
}

/// One evaluator with where its groups come from.
pub struct Evaluation {
    /// The evaluator.
    pub evaluator: Named<Arc<dyn Evaluator>>,
    /// Where its groups come from.
    pub path: Path,
    /// At most so many prompts.
    pub limit: Option<u64>,
}

/// Nodes that were built, by name, each taken out once by what it becomes part of.
struct Built<'a> {
    plan: &'a Plan,
    roles: BTreeMap<&'a str, Role>,
    pools: BTreeMap<&'a str, Option<String>>,
    sources: BTreeMap<&'a str, Arc<dyn Source>>,
    loops: BTreeMap<&'a str, Arc<dyn AgentLoop>>,
    groups: BTreeMap<&'a str, Arc<dyn GroupStage>>,
    batches: BTreeMap<&'a str, Arc<dyn BatchStage>>,
    buffers: BTreeMap<&'a str, Box<dyn Buffer>>,
    warm_ups: BTreeMap<&'a str, Box<dyn WarmUp>>,
    trainers: BTreeMap<&'a str, Box<dyn Trainer>>,
    syncs: BTreeMap<&'a str, Arc<dyn WeightSync>>,
    evaluators: BTreeMap<&'a str, Arc<dyn Evaluator>>,
}

/// Builds every node of the plan.
pub fn build(plan: &Plan, kinds: &[Kind], services: &dyn Services) -> Result<Graph, ServiceError> {
    let mut built = Built {
        plan,
        roles: BTreeMap::new(),
        pools: BTreeMap::new(),
        sources: BTreeMap::new(),
        loops: BTreeMap::new(),
        groups: BTreeMap::new(),
        batches: BTreeMap::new(),
        buffers: BTreeMap::new(),
        warm_ups: BTreeMap::new(),
        trainers: BTreeMap::new(),
        syncs: BTreeMap::new(),
        evaluators: BTreeMap::new(),
    };
    for node in &plan.nodes {
        let config = plan.with_activations(node).load(kinds)?;
        built.add(node, config.as_ref(), services)?;
    }
    built.graph()
}

impl<'a> Built<'a> {
    fn add(
        &mut self,
        node: &'a PlannedNode,
        config: &dyn AnyConfig,
        services: &dyn Services,
    ) -> Result<(), ServiceError> {
        let contract = config.contract();
        let name = node.name.as_str();
        let pool = contract.used(Target::Pool).map(str::to_owned);
        self.pools.insert(name, pool);
        self.roles.insert(name, contract.role);
        match config.build(name, services)? {
            Stage::Source(stage) => drop(self.sources.insert(name, stage)),
            Stage::Engine => {}
            Stage::AgentLoop(stage) => drop(self.loops.insert(name, stage)),
            Stage::Groups(stage) => drop(self.groups.insert(name, stage)),
            Stage::Buffer(stage) => drop(self.buffers.insert(name, stage)),
            Stage::Batch(stage) => drop(self.batches.insert(name, stage)),
            Stage::Trainer(stage) => drop(self.trainers.insert(name, stage)),
            Stage::WarmUp(stage) => drop(self.warm_ups.insert(name, stage)),
            Stage::WeightSync(stage) => drop(self.syncs.insert(name, stage)),
            Stage::Evaluator(stage) => drop(self.evaluators.insert(name, stage)),
        }
        Ok(())
    }

    fn graph(mut self) -> Result<Graph, ServiceError> {
        let (trainer_name, trainer) = self
            .trainers
            .pop_first()
            .ok_or_else(|| ServiceError("the plan has no trainer".to_owned()))?;
        let mut batch_stages = Vec::new();
        let mut at = self.input(trainer_name, "batch")?;
        while let Some(stage) = self.batches.get(at) {
            batch_stages.push(self.named(at, stage.clone()));
            at = self.input(at, "batch")?;
        }
        batch_stages.reverse();
        let buffer = self
            .buffers
            .remove(at)
            .ok_or_else(|| ServiceError(format!("`{at}` is no buffer")))?;
        let inputs = self.inputs(at, "groups");
        let paths = inputs.iter().map(|input| self.path(input)).collect::<Result<_, _>>()?;
        let warm_up = match self.inputs(trainer_name, "initial_weights").first() {
            Some(name) => {
                let source = self.source(self.input(name, "examples")?)?;
                let stage = self
                    .warm_ups
                    .remove(name)
                    .ok_or_else(|| ServiceError(format!("`{name}` is no warm-up")))?;
                Some(Lessons {
                    warm_up: self.named(name, stage),
                    examples: source,
                })
            }
            None => None,
        };
        let syncs = self
            .syncs
            .iter()
            .map(|(name, stage)| self.named(name, stage.clone()))
            .collect();
        let evaluations = self
            .evaluators
            .iter()
            .map(|(name, stage)| {
                let limit = match self.roles.get(name) {
                    Some(Role::Evaluator { limit, .. }) => limit.map(u64::from),
                    _ => None,
                };
                let path = self.path(self.input(name, "groups")?)?;
                Ok(Evaluation {
                    evaluator: self.named(name, stage.clone()),
                    path,
                    limit,
                })
            })
            .collect::<Result<_, ServiceError>>()?;
        let trainer = self.named(trainer_name, trainer);
        let inputs = inputs.into_iter().map(str::to_owned).collect();
        Ok(Graph {
            paths,
            inputs,
            buffer,
            batch_stages,
            trainer,
            warm_up,
            syncs,
            evaluations,
        })
    }

    /// From `end` back to a sampler.
    fn path(&self, end: &'a str) -> Result<Path, ServiceError> {
        let mut stages = Vec::new();
        let (mut max_refill, mut fill) = (None, false);
        let mut at = end;
        while let Some(stage) = self.groups.get(at) {
            if let Some(Role::Filter {
                max_refill: refill,
                fill: fills,
                ..
            }) = self.roles.get(at)
            {
                max_refill = Some(max_refill.unwrap_or(0).max(*refill));
                fill |= fills;
            }
            stages.push((Arc::from(at), stage.clone()));
            at = self.input(at, "groups")?;
        }
        stages.reverse();
        let agent_loop = self
            .loops
            .get(at)
            .ok_or_else(|| ServiceError(format!("`{at}` makes no groups")))?;
        let sampler = self.input(at, "prompts")?;
        let engine = self.input(at, "engine")?;
        Ok(Path {
            sampler: Arc::from(sampler),
            source: self.source(sampler)?,
            loop_name: Arc::from(at),
            agent_loop: agent_loop.clone(),
            stages,
            pool: self.pools.get(engine).cloned().flatten(),
            max_refill: max_refill.unwrap_or(REFILL_WITHOUT_FILTER),
            fill,
            ahead: Ahead::default(),
        })
    }

    fn source(&self, sampler: &str) -> Result<Arc<dyn Source>, ServiceError> {
        self.sources
            .get(sampler)
            .cloned()
            .ok_or_else(|| ServiceError(format!("`{sampler}` is no sampler")))
    }

    fn named<T>(&self, name: &str, stage: T) -> Named<T> {
        Named {
            name: Arc::from(name),
            pool: self.pools.get(name).cloned().flatten(),
            stage,
        }
    }

    fn inputs(&self, node: &str, port: &str) -> Vec<&'a str> {
        let edges = self.plan.node(node).and_then(|node| node.inputs.get(port));
        edges.into_iter().flatten().map(|edge| edge.node.as_str()).collect()
    }

    fn input(&self, node: &str, port: &str) -> Result<&'a str, ServiceError> {
        self.inputs(node, port)
            .first()
            .copied()
            .ok_or_else(|| ServiceError(format!("the plan connects nothing to the input `{port}` of `{node}`")))
    }
}
