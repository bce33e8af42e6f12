//! What those who take from a sampler want of its rows.

use std::collections::BTreeSet;

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::{PortType, Role, Target, Truth};

use crate::compile::pipeline::{Node, Pipeline};

/// What those who take from a sampler want of its rows.
#[derive(Clone)]
pub struct Needs {
    /// The model whose tokenizer reads them.
    pub model: String,
    /// Ground truths that judgers need, with the judger's name.
    pub truths: Vec<(String, Truth)>,
    /// They are answered.
    pub prompts: bool,
    /// They are learnt from.
    pub examples: bool,
    /// Bound on the prompt.
    pub max_prompt_tokens: Option<u32>,
    /// Bound on prompt and answer.
    pub max_example_tokens: Option<u32>,
    /// Judgers that can judge some values of `data_source` only, with these.
    pub judged_sources: Vec<(String, BTreeSet<String>)>,
}

/// What is wanted of a sampler's rows; none where nobody takes any.
pub fn needs(
    pipeline: &Pipeline,
    sampler: usize,
    declared: Option<u32>,
    diagnostics: &mut Diagnostics,
) -> Option<Needs> {
    let mut needs = Needs {
        model: String::new(),
        truths: Vec::new(),
        prompts: false,
        examples: false,
        max_prompt_tokens: declared,
        max_example_tokens: None,
        judged_sources: Vec::new(),
    };
    let mut model: Option<(String, Range)> = None;
    for (_, node, contract) in pipeline.live() {
        for endpoint in node
            .inputs
            .values()
            .flatten()
            .filter(|endpoint| endpoint.node == sampler)
        {
            let reads = match (&contract.role, endpoint.port_type) {
                (Role::AgentLoop { max_new_tokens, .. }, PortType::Prompts) => {
                    let engine = &pipeline.nodes[node.input("engine")?.node];
                    needs.prompts = true;
                    if let Some(Role::Engine { max_context_tokens, .. }) = engine.contract.as_ref().map(|c| &c.role) {
                        let room = max_context_tokens.saturating_sub(*max_new_tokens);
                        needs.max_prompt_tokens = Some(needs.max_prompt_tokens.map_or(room, |bound| bound.min(room)));
                    }
                    model_of(engine)?
                }
                (
                    Role::SftTrainer {
                        max_tokens_per_pack, ..
                    },
                    PortType::Examples,
                ) => {
                    needs.examples = true;
                    needs.max_example_tokens = Some(*max_tokens_per_pack);
                    model_of(node)?
                }
                _ => continue,
            };
            match &model {
                Some((known, range)) if *known != reads => diagnostics.push(
                    Diagnostic::error(
                        &codes::RL0316,
                        endpoint.range,
                        format!(
                            "`{}` feeds the models `{known}` and `{reads}`",
                            pipeline.nodes[sampler].name
                        ),
                    )
                    .label_text("for one of them")
                    .label(*range, "for the other")
                    .note("their tokenizers differ: give each its own sampler of the same data set"),
                ),
                _ => model = Some((reads, endpoint.range)),
            }
        }
    }
    needs.model = model?.0;
    for (node, role) in judgers(pipeline, sampler).filter(|_| needs.prompts) {
        if let Role::Judger { truths, sources, .. } = role {
            needs
                .truths
                .extend(truths.iter().map(|truth| (node.name.clone(), truth.clone())));
            let known = sources
                .iter()
                .map(|list| (node.name.clone(), list.iter().cloned().collect()));
            needs.judged_sources.extend(known);
        }
    }
    Some(needs)
}

/// The model that a node uses.
pub fn model_of(node: &Node) -> Option<String> {
    node.contract.as_ref()?.used(Target::Model).map(str::to_owned)
}

/// Live judgers that the sampler's rows come to.
fn judgers(pipeline: &Pipeline, sampler: usize) -> impl Iterator<Item = (&Node, &Role)> {
    pipeline
        .live()
        .filter(move |(index, _, contract)| {
            matches!(contract.role, Role::Judger { .. }) && pipeline.upstream(*index).contains(&sampler)
        })
        .map(|(_, node, contract)| (node, &contract.role))
}
