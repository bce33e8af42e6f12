//! What is to be said of a model's chat template and tokenizer, and of what a data set has for them: RL1020 to RL1027.

use std::collections::BTreeSet;

use rlpipe_core::data::{Message, Row};
use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes};
use rlpipe_core::document::Range;
use rlpipe_core::kind::Role;
use rlpipe_text::{Chat, Tokenizer};
use serde_json::Value;

use super::Data;
use super::needs::model_of;
use crate::compile::pipeline::Pipeline;

/// Stands for an answer; no template changes it.
const ANSWER: &str = "the answer";

/// Looks at the rows of one data set.
pub struct Lint<'a> {
    tokenizer: &'a Tokenizer,
    /// The model's name.
    model: &'a str,
    /// Where the sampler names its data.
    place: Range,
    /// Where the model names its template, or else its folder.
    template_place: Range,
    /// Whether answers are trained.
    examples: bool,
    special_tokens: Vec<(u32, String)>,
    /// How special tokens begin: most texts have none of these.
    openings: Vec<char>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Lint<'a> {
    /// Of a sampler that names its data at `place` and is read by `model`.
    pub fn new(pipeline: &Pipeline, tokenizer: &'a Tokenizer, model: &'a str, examples: bool, place: Range) -> Self {
        let special_tokens = tokenizer.special_tokens();
        let openings: BTreeSet<char> = special_tokens
            .iter()
            .filter_map(|(_, token)| token.chars().next())
            .collect();
        Self {
            tokenizer,
            model,
            place,
            template_place: template_place(pipeline, model).unwrap_or(place),
            examples,
            special_tokens,
            openings: openings.into_iter().collect(),
            diagnostics: Vec::new(),
        }
    }

    /// A special token that a message of the row spells out.
    pub fn spelt_out(&self, row: &Row) -> Option<String> {
        let spelt = |message: &Message| {
            let text = message.text();
            if !text.contains(self.openings.as_slice()) {
                return None;
            }
            let found = self
                .special_tokens
                .iter()
                .find(|(_, token)| text.contains(token.as_str()));
            found.map(|(_, token)| token.clone())
        };
        row.prompt.iter().find_map(spelt)
    }

    /// What was found. So many rows spell out special tokens; the first of them has this line and token.
    pub fn conclude(mut self, spelt_out: u64, first: Option<(u64, String)>, diagnostics: &mut Diagnostics) {
        if let Some((line, token)) = first {
            let rows = if spelt_out == 1 { "row has" } else { "rows have" };
            let message = format!("{spelt_out} {rows} a special token of `{}` in a message", self.model);
            self.diagnostics.push(
                Diagnostic::warning(&codes::RL1026, self.place, message)
                    .label_text(format!("the first is line {line}, with `{token}`"))
                    .note("it is read as that token, not as text: it can end the turn it stands in"),
            );
        }
        // Samplers of one model find the same in its template.
        let known = |found: &Diagnostic| {
            let same = |known: &Diagnostic| known.code == found.code && known.primary.range == found.primary.range;
            diagnostics.iter().any(same)
        };
        let new: Vec<Diagnostic> = self.diagnostics.into_iter().filter(|found| !known(found)).collect();
        diagnostics.extend(new);
    }

    fn warn(&mut self, code: &'static rlpipe_core::diagnostic::Code, message: String, note: &str) {
        self.diagnostics.push(
            Diagnostic::warning(code, self.template_place, message)
                .label_text("the template of this model")
                .note(note),
        );
    }

    /// The first row shows what the template does.
    pub fn first(&mut self, row: &Row, tools: Option<&[Value]>, documents: Option<&[Value]>) {
        let chat = Chat {
            tools,
            documents,
            ..Chat::prompt(&row.prompt)
        };
        let Ok(prompt) = self.tokenizer.render(&chat) else {
            return;
        };
        self.tokens(&row.prompt_ids, &prompt);
        let mut answered = row.prompt.clone();
        answered.push(Message::new("assistant", ANSWER));
        let answered = Chat {
            messages: &answered,
            add_generation_prompt: false,
            ..chat
        };
        // A template may want another conversation than one that ends with an answer.
        let Ok(whole) = self.tokenizer.render(&answered) else {
            return;
        };
        if let Some((before, after)) = whole.rsplit_once(ANSWER) {
            let closed = self.tokenizer.render(&Chat {
                add_generation_prompt: false,
                ..chat
            });
            self.opening(&prompt, before, closed.is_ok_and(|closed| closed == prompt));
            self.ending(after);
        }
    }

    /// The tokens of a prompt against its text.
    fn tokens(&mut self, ids: &[u32], text: &str) {
        if let (Some(bos), [first, second, ..]) = (self.tokenizer.bos_id(), ids)
            && [*first, *second] == [bos; 2]
        {
            let message = format!(
                "prompts of `{}` begin with the token that begins a text twice",
                self.model
            );
            self.warn(
                &codes::RL1024,
                message,
                "take it out of the data, or out of the template",
            );
        }
        let Ok(decoded) = self.tokenizer.decode(ids, false) else {
            return;
        };
        if decoded != text {
            let same = decoded
                .chars()
                .zip(text.chars())
                .take_while(|(left, right)| left == right)
                .count();
            let from = |text: &str| text.chars().skip(same.saturating_sub(10)).take(30).collect::<String>();
            let message = format!(
                "the tokens of the first prompt for `{}` are the text {:?} where the template wrote {:?}",
                self.model,
                from(&decoded),
                from(text)
            );
            let note = "the model reads the former; where it was trained so, nothing needs to be done";
            self.warn(&codes::RL1025, message, note);
        }
    }

    /// What stands before an answer against the prompt; `unopened` where no turn was opened for it.
    fn opening(&mut self, prompt: &str, before: &str, unopened: bool) {
        let between = before.strip_prefix(prompt);
        if unopened && between != Some("") {
            let message = format!(
                "the chat template of `{}` does not open the assistant's turn",
                self.model
            );
            let wrote = between.map_or_else(|| before.to_owned(), str::to_owned);
            let note = format!("before an answer it writes {wrote:?}, and at the end of a prompt nothing");
            self.warn(&codes::RL1021, message, &note);
            return;
        }
        let message = match between {
            Some("") => return,
            Some(between) => format!(
                "the chat template of `{}` writes {between:?} between prompt and answer, and examples are trained without",
                self.model
            ),
            None => format!(
                "the chat template of `{}` writes a prompt otherwise where an answer follows",
                self.model
            ),
        };
        if self.examples {
            self.warn(
                &codes::RL1022,
                message,
                "set its variables in `chat_template` so that both agree",
            );
        }
    }

    /// The first special token after an answer ends it.
    fn ending(&mut self, after: &str) {
        let ids = self.tokenizer.encode(after).unwrap_or_default();
        let name = |id: u32| {
            self.special_tokens
                .iter()
                .find(|(known, _)| *known == id)
                .map(|(_, token)| token.clone())
        };
        let Some((end, token)) = ids.iter().find_map(|&id| Some((id, name(id)?))) else {
            return;
        };
        let (stop_ids, trained_end) = (self.tokenizer.stop_ids(), self.tokenizer.eos_id());
        let trained = name(trained_end).unwrap_or_else(|| format!("token {trained_end}"));
        let message = if !stop_ids.contains(&end) {
            format!(
                "the chat template of `{}` ends an answer with `{token}`, which does not stop it",
                self.model
            )
        } else if self.examples && trained_end != end {
            format!(
                "the chat template of `{}` ends an answer with `{token}`, and examples are trained to end with `{trained}`",
                self.model
            )
        } else {
            return;
        };
        let note = format!("its stop tokens are {stop_ids:?}, and `{token}` is {end}");
        self.warn(&codes::RL1023, message, &note);
    }
}

/// Whether the model has a template; if not, that is said once.
pub fn has_template(pipeline: &Pipeline, tokenizer: &Tokenizer, model: &str, diagnostics: &mut Diagnostics) -> bool {
    let place = pipeline.models.get(model).map(|section| section.key_range);
    let known = |found: &Diagnostic| found.code == &codes::RL1020 && Some(found.primary.range) == place;
    if let Some(place) = place.filter(|_| !tokenizer.has_template() && !diagnostics.iter().any(known)) {
        diagnostics.push(
            Diagnostic::error(
                &codes::RL1020,
                place,
                format!("the model `{model}` has no chat template"),
            )
            .label_text("nothing says how it reads messages")
            .note("name a file with one: `chat_template: { file: ... }`"),
        );
    }
    tokenizer.has_template()
}

/// Stop strings that are never found.
pub fn check_stop_strings(pipeline: &Pipeline, data: &Data, diagnostics: &mut Diagnostics) {
    for (_, node, contract) in pipeline.live() {
        let Role::AgentLoop { stop_strings, .. } = &contract.role else {
            continue;
        };
        let engine = node.input("engine").map(|engine| &pipeline.nodes[engine.node]);
        let Some(model) = engine.and_then(model_of) else {
            continue;
        };
        let Some(tokenizer) = data.tokenizers.get(&model).filter(|_| !stop_strings.is_empty()) else {
            continue;
        };
        let place = node.range_of(&["sampling", "stop"]);
        if tokenizer.token_bytes(0).is_none() {
            let message = format!("stop strings cannot be looked for in responses of `{model}`");
            diagnostics.push(
                Diagnostic::error(&codes::RL1027, place, message)
                    .label_text("asked for here")
                    .note("its tokenizer's decoder joins tokens in ways of its own: they do not stand for bytes"),
            );
        }
        for (id, token) in tokenizer.special_tokens() {
            if let Some(stop) = stop_strings.iter().find(|stop| stop.contains(&token)) {
                let message =
                    format!("the stop string {stop:?} is never found: `{token}` is a special token of `{model}`");
                let note = if tokenizer.stop_ids().contains(&id) {
                    "it ends a response anyway: take it out here".to_owned()
                } else {
                    format!("add its id, {id}, to `eos_token_id` in the model's `generation_config.json`")
                };
                diagnostics.push(
                    Diagnostic::warning(&codes::RL1027, place, message)
                        .label_text("special tokens are no part of a response's text")
                        .note(note),
                );
            }
        }
    }
}

fn template_place(pipeline: &Pipeline, model: &str) -> Option<Range> {
    let place = pipeline.range_of(&["models", model, "chat_template"]);
    place.or_else(|| Some(pipeline.models.get(model)?.key_range))
}
