//! RL06: environment variables, where they are referred to, and the rules among them.

use std::collections::{BTreeMap, BTreeSet};

use rlpipe_core::diagnostic::{Diagnostic, Diagnostics, codes, nearest};
use rlpipe_core::document::{
    Format, Origin, Range, Reference, Segment, Sources, Substitute, Tree, decode, interpolate,
};

use super::Request;
use super::config::{EnvConfig, Rule, VarConfig, VarKind};
use super::faults::{first_causes, report};
use super::pipeline::Pipeline;
use super::read::quoted;

/// What became of the variables.
#[derive(Default)]
pub struct Variables {
    /// The section as it was decoded.
    pub config: EnvConfig,
    /// By name.
    pub by_name: BTreeMap<String, Variable>,
    /// Where variables are referred to.
    pub references: Vec<Reference>,
    /// References to variables without a value.
    pub missing: Vec<Reference>,
}

/// One declared variable.
pub struct Variable {
    /// Where its name stands.
    pub key_range: Range,
    /// Its value: the environment's, or the default.
    pub value: Option<String>,
    /// Whether the environment has it.
    pub is_set: bool,
    /// What is wrong with the value.
    pub fault: Option<String>,
    /// Where the fault is, if it lies in the file.
    pub fault_range: Option<Range>,
}

/// Decodes `env`, and fills in every reference in the rest of the tree.
pub fn fill_in(tree: &mut Tree, request: &Request<'_>, sources: &Sources, diagnostics: &mut Diagnostics) -> Variables {
    let env = tree.remove(&[Segment::from("env")]);
    let mut variables = Variables::default();
    let empty = Tree::new(
        tree.range,
        rlpipe_core::document::Value::Map(Vec::new()),
        tree.origin.clone(),
    );
    let section = env.as_ref().unwrap_or(&empty);
    match decode::<EnvConfig>(section, &[]) {
        Ok(config) => variables.config = config,
        Err(faults) => {
            // Variables that are right must not look undeclared because another is wrong.
            for entry in section.get("vars").map(Tree::entries).unwrap_or_default() {
                if let Ok(config) = decode::<VarConfig>(&entry.value, &[]) {
                    variables.config.vars.insert(entry.key.clone(), config);
                }
            }
            for fault in first_causes(&faults) {
                diagnostics.push(report(fault, &["env"], section, &|tree| {
                    decode::<EnvConfig>(tree, &[]).err()
                }));
            }
        }
    }
    declare(&mut variables, section, request);
    rules(&variables, section, diagnostics);

    let mut references = Vec::new();
    let mut missing = Vec::new();
    interpolate(tree, sources, diagnostics, &mut |reference| {
        references.push(reference.clone());
        let variable = variables.by_name.get(&reference.name)?;
        if variable.fault.is_some() {
            // What the value does wrong where it is used only follows.
            return None;
        }
        if let Some(text) = &variable.value {
            let origin = if variable.is_set {
                sources.working()
            } else {
                default_origin(section, &reference.name)?
            };
            return Some(Substitute {
                text: text.clone(),
                origin,
            });
        }
        if reference.default.is_none() {
            missing.push(reference.clone());
        }
        None
    });
    missing.retain(|reference| !leave_out(reference, &variables, tree, sources));
    variables.references = references;
    variables.missing = missing;
    undeclared(&variables, section, tree, sources, diagnostics);
    if let Some(env) = env {
        restore(tree, env);
    }
    variables
}

/// Takes out the setting that an optional variable without a value is all of; false where it is needed all the same.
fn leave_out(reference: &Reference, variables: &Variables, tree: &mut Tree, sources: &Sources) -> bool {
    let optional = (variables.config.vars.get(&reference.name)).is_some_and(|config| config.optional);
    if !optional || !matches!(reference.path.last(), Some(Segment::Key(_))) {
        return false;
    }
    let written = tree.at(&reference.path).tree.range;
    let text = &sources.get(written.source).text[written.start as usize..written.end as usize];
    let is_whole = text.trim_matches(['"', '\'']) == format!("${{{}}}", reference.name);
    is_whole && tree.remove(&reference.path).is_some()
}

/// Puts `env` back, so that later passes and the origin of values can see it.
fn restore(tree: &mut Tree, env: Tree) {
    if let rlpipe_core::document::Value::Map(entries) = &mut tree.value {
        let range = env.range;
        entries.push(rlpipe_core::document::Entry {
            key: "env".to_owned(),
            key_range: range,
            value: env,
        });
    }
}

fn default_origin(section: &Tree, name: &str) -> Option<Origin> {
    let found = section.get("vars")?.get(name)?.get("default")?;
    Some(found.origin.clone())
}

fn declare(variables: &mut Variables, section: &Tree, request: &Request<'_>) {
    for (name, config) in &variables.config.vars {
        let at = |path: &[&str]| {
            let mut segments = vec![Segment::from("vars"), Segment::from(name.as_str())];
            segments.extend(path.iter().map(|key| Segment::from(*key)));
            section.at(&segments)
        };
        let from_environment = (request.environment)(name).filter(|value| !value.is_empty());
        let is_set = from_environment.is_some();
        let value = from_environment.or_else(|| config.default.as_ref().map(|default| default.0.clone()));
        let fault = value.as_deref().and_then(|value| value_fault(config, value));
        let variable = Variable {
            key_range: at(&[]).key_range.unwrap_or(at(&[]).tree.range),
            fault_range: (!is_set && fault.is_some()).then(|| at(&["default"]).tree.range),
            value,
            is_set,
            fault,
        };
        variables.by_name.insert(name.clone(), variable);
    }
}

/// What is wrong with a value, as the end of a sentence.
fn value_fault(config: &VarConfig, value: &str) -> Option<String> {
    let contradict = matches!((config.min, config.max), (Some(min), Some(max)) if min > max);
    let bounds = |number: f64| {
        if contradict {
            // RL04 reports the bounds.
            return None;
        }
        if config.min.is_some_and(|min| number < min) {
            return config.min.map(|min| format!("is below its smallest value {min}"));
        }
        if config.max.is_some_and(|max| number > max) {
            return config.max.map(|max| format!("is above its largest value {max}"));
        }
        None
    };
    match config.kind {
        VarKind::Path | VarKind::Dir | VarKind::File | VarKind::Text => None,
        VarKind::Int => match value.parse::<i64>() {
            Ok(number) => bounds(number as f64),
            Err(_) => Some("is not a whole number".to_owned()),
        },
        VarKind::Float => match value.parse::<f64>() {
            Ok(number) if number.is_finite() => bounds(number),
            _ => Some("is not a number".to_owned()),
        },
        VarKind::Choice if config.of.iter().any(|choice| choice == value) => None,
        VarKind::Choice => Some(format!("is not one of {}", quoted(&config.of))),
        VarKind::Flag if flag(value).is_some() => None,
        VarKind::Flag => Some("is neither `1`, `true`, `0` nor `false`".to_owned()),
    }
}

fn flag(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Whether a variable counts as set in a rule.
fn counts(variables: &Variables, name: &str) -> bool {
    let Some(variable) = variables.by_name.get(name) else {
        return false;
    };
    let is_flag = variables
        .config
        .vars
        .get(name)
        .is_some_and(|config| config.kind == VarKind::Flag);
    match &variable.value {
        Some(value) if is_flag => flag(value) == Some(true),
        Some(_) => variable.is_set,
        None => false,
    }
}

fn rules(variables: &Variables, section: &Tree, diagnostics: &mut Diagnostics) {
    for (index, rule) in variables.config.rules.iter().enumerate() {
        let range = section.at(&[Segment::from("rules"), Segment::from(index)]).tree.range;
        for name in rule
            .names()
            .iter()
            .filter(|name| !variables.by_name.contains_key(*name))
        {
            diagnostics.push(
                Diagnostic::error(&codes::RL0601, range, format!("`{name}` is not declared in `env.vars`"))
                    .note("a rule speaks of declared variables only"),
            );
        }
        let set: Vec<&String> = rule.names().iter().filter(|name| counts(variables, name)).collect();
        let broken = match rule {
            _ if rule.names().is_empty() => "this rule names no variable".to_owned(),
            Rule::AtMostOne(_) if set.len() > 1 => {
                format!("{} are set, but at most one may be", quoted(&set))
            }
            Rule::ExactlyOne(names) if set.is_empty() => format!("one of {} must be set, and none is", quoted(names)),
            Rule::ExactlyOne(_) if set.len() > 1 => format!("{} are set, but only one may be", quoted(&set)),
            Rule::AllOrNone(names) if !set.is_empty() && set.len() < names.len() => {
                let unset: Vec<&String> = names.iter().filter(|name| !counts(variables, name)).collect();
                format!("{} is set, but {} is not", quoted(&set), quoted(&unset))
            }
            _ => continue,
        };
        let way_out = match (rule, set.first(), rule.names().first()) {
            (_, _, None) => "name those that it is about, or take it out".to_owned(),
            (Rule::AllOrNone(_), _, _) => "set all of them, or none".to_owned(),
            (_, None, Some(first)) => format!("set one, such as `export {first}=...`"),
            (_, Some(first), _) => format!("unset all but one, such as `unset {first}`"),
        };
        let diagnostic = Diagnostic::error(&codes::RL0604, range, broken).label_text("this rule is broken");
        diagnostics.push(diagnostic.note(way_out));
    }
}

fn undeclared(variables: &Variables, section: &Tree, tree: &Tree, sources: &Sources, diagnostics: &mut Diagnostics) {
    let mut reported = BTreeSet::new();
    for reference in &variables.references {
        let name = &reference.name;
        if variables.by_name.contains_key(name) || !reported.insert(name.clone()) {
            continue;
        }
        let mut diagnostic = Diagnostic::error(
            &codes::RL0601,
            reference.range,
            format!("`{name}` is not declared in `env.vars`"),
        )
        .label_text("undeclared variable");
        let near = nearest(name, variables.by_name.keys().map(String::as_str));
        if let Some(best) = near.first() {
            let written = sources.text(reference.range).replacen(name.as_str(), best, 1);
            diagnostic = diagnostic.fix(format!("did you mean `{best}`?"), reference.range, written);
        } else if let Some((range, text)) = declaration(name, section, tree, sources) {
            diagnostic = diagnostic.fix(format!("declare `{name}`"), range, text);
        }
        diagnostics.push(diagnostic);
    }
}

/// Where and how to declare a variable, in a file in block style.
fn declaration(name: &str, section: &Tree, tree: &Tree, sources: &Sources) -> Option<(Range, String)> {
    let at = |range: Range| Range {
        end: range.start,
        ..range
    };
    let (place, is_first) = match section.get("vars").and_then(|vars| vars.entries().first()) {
        Some(first) => (at(first.key_range), false),
        None if section.entries().is_empty() => (
            at(tree.entry("run").or_else(|| tree.entries().first())?.key_range),
            true,
        ),
        None => return None,
    };
    let source = sources.get(place.source);
    let line_start = source.text[..place.start as usize]
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let before = &source.text[line_start..place.start as usize];
    let in_block = before.chars().all(|character| character == ' ');
    match (source.format, is_first) {
        (Format::Yaml, true) if before.is_empty() => {
            Some((place, format!("env:\n  vars:\n    {name}: {{ kind: text }}\n")))
        }
        (Format::Yaml, false) if in_block => Some((place, format!("{name}: {{ kind: text }}\n{before}"))),
        (Format::Toml, false) if in_block => Some((place, format!("{name} = {{ kind = \"text\" }}\n{before}"))),
        (Format::Toml, true) => {
            let end = source.text.len() as u32;
            let gap = if source.text.ends_with('\n') { "" } else { "\n" };
            let place = Range::new(place.source, end, end);
            Some((place, format!("{gap}\n[env.vars]\n{name} = {{ kind = \"text\" }}\n")))
        }
        _ => None,
    }
}

/// Reports what live nodes miss, values of the wrong kind, and flags that contradict the engine.
pub fn check(pipeline: &Pipeline, sources: &Sources, diagnostics: &mut Diagnostics) {
    let variables = &pipeline.variables;
    let mut reported = BTreeSet::new();
    for reference in &variables.missing {
        if !is_needed(pipeline, reference) || !reported.insert(reference.name.clone()) {
            continue;
        }
        let name = &reference.name;
        let mut diagnostic = Diagnostic::error(
            &codes::RL0602,
            reference.range,
            format!("the variable `{name}` is not set"),
        )
        .label_text("needed here");
        if let Some(variable) = variables.by_name.get(name) {
            let help = variables
                .config
                .vars
                .get(name)
                .and_then(|config| config.help.as_deref());
            diagnostic = diagnostic
                .label(
                    variable.key_range,
                    help.map_or("declared here".to_owned(), |help| format!("declared here: {help}")),
                )
                .note(format!("set it, such as `export {name}=...`, or give it a `default`"));
        }
        diagnostics.push(diagnostic);
    }
    for (name, variable) in &variables.by_name {
        let (Some(fault), Some(value)) = (&variable.fault, &variable.value) else {
            continue;
        };
        let reference = variables.references.iter().find(|reference| reference.name == *name);
        let range = variable.fault_range.unwrap_or(variable.key_range);
        let shown = match is_secret(name) {
            true => format!("`{name}` (its value is not shown)"),
            false => format!("`{name}={value}`"),
        };
        let mut diagnostic = Diagnostic::error(&codes::RL0603, range, format!("{shown} {fault}"));
        if variable.is_set {
            diagnostic = diagnostic.label_text("declared here").note(format!(
                "the value comes from the environment: `export {name}=...` changes it"
            ));
        } else {
            diagnostic = diagnostic.label_text("the default");
        }
        if let Some(reference) = reference {
            diagnostic = diagnostic.label(reference.range, "used here");
        }
        diagnostics.push(diagnostic);
    }
    unused(pipeline, sources, diagnostics);
    backend_flags(pipeline, sources, diagnostics);
}

/// Whether anything that runs needs the value.
fn is_needed(pipeline: &Pipeline, reference: &Reference) -> bool {
    match reference.path.as_slice() {
        [Segment::Key(section), Segment::Key(name), ..] if section == "nodes" => {
            pipeline.find(name).is_none_or(|index| pipeline.nodes[index].live)
        }
        _ => true,
    }
}

/// Whether a text refers to a variable: where an overlay or an argument has replaced a reference, the file still does.
fn is_referred_to(name: &str, sources: &Sources) -> bool {
    let start = format!("${{{name}");
    let texts = sources.iter().map(|(_, source)| &*source.text);
    let mut ends = texts.flat_map(|text| text.match_indices(&start).map(|(at, found)| &text[at + found.len()..]));
    ends.any(|end| end.starts_with(['}', ':']))
}

fn unused(pipeline: &Pipeline, sources: &Sources, diagnostics: &mut Diagnostics) {
    let variables = &pipeline.variables;
    let unknown = || {
        variables
            .references
            .iter()
            .filter(|reference| !variables.by_name.contains_key(&reference.name))
    };
    for (name, variable) in &variables.by_name {
        let is_whole = sources.iter().count() == 1;
        let referred = variables.references.iter().any(|reference| reference.name == *name)
            || (!is_whole && is_referred_to(name, sources));
        // What is meant for it has another name; that was reported.
        let misspelt = unknown().any(|reference| !nearest(&reference.name, [name.as_str()]).is_empty());
        let ruled = variables.config.rules.iter().any(|rule| rule.names().contains(name));
        if !referred && !misspelt && !ruled && backend_of_flag(name).is_none() {
            diagnostics.push(
                Diagnostic::warning(
                    &codes::RL0606,
                    variable.key_range,
                    format!("`{name}` is declared and not used"),
                )
                .label_text("nothing refers to it")
                .note(format!("refer to it as `${{{name}}}`, or take it out")),
            );
        }
    }
}

/// XTuner's flags, which choose the rollout backend there.
fn backend_of_flag(name: &str) -> Option<&'static str> {
    match name {
        "XTUNER_USE_SGLANG" => Some("sglang"),
        "XTUNER_USE_LMDEPLOY" => Some("lmdeploy"),
        "XTUNER_USE_VLLM" => Some("vllm"),
        _ => None,
    }
}

fn backend_flags(pipeline: &Pipeline, sources: &Sources, diagnostics: &mut Diagnostics) {
    for (name, variable) in &pipeline.variables.by_name {
        let Some(wanted) = backend_of_flag(name).filter(|_| counts(&pipeline.variables, name)) else {
            continue;
        };
        let engines = pipeline.nodes.iter().filter(|node| node.live);
        for engine in engines.filter(|node| node.kind.is_some_and(|kind| kind.name == "rollout_engine")) {
            let range = engine.range_of(&["backend"]);
            let written = sources.text(range);
            let backend = engine.tree.get("backend").and_then(Tree::as_text).unwrap_or("torch");
            if backend == wanted {
                continue;
            }
            let from = if written.contains("${") {
                format!(" through `{written}`")
            } else {
                String::new()
            };
            diagnostics.push(
                Diagnostic::error(
                    &codes::RL0605,
                    range,
                    format!(
                        "`{name}` is set, but `{}` generates with `{backend}`{from}",
                        engine.name
                    ),
                )
                .label_text("not what the flag asks for")
                .label(variable.key_range, format!("this flag asks for `{wanted}`"))
                .note(format!("`unset {name}`: this version generates with `torch`")),
            );
        }
    }
}

/// Whether a variable's value is nothing to be shown on a screen.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "KEY"]
        .iter()
        .any(|part| name.contains(part))
}
