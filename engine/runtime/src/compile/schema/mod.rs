//! The JSON Schema of a pipeline file, for editors, and the descriptions of kinds, both made of the same types.
//!
//! Draft-07, since editors know no later one well. A node has its `type` as an enum, an `if`/`then` for each kind, and
//! beside them an `anyOf` that accepts everything: it rejects nothing, and tells editors that do not follow `if` which
//! keys there are.

mod describe;
mod finish;
mod snippets;
mod tidy;

use rlpipe_core::document::{Format, Source, Sources, Tree, parse};
use rlpipe_core::kind::{Arity, Contract, Input, Kind};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::config::{EnvConfig, ModelConfig, PoolConfig, RunConfig};
use super::read::VERSION;
use super::trials::TestConfig;

pub use describe::{Setting, describe_kind, describe_ports, flow, kind_settings, section_settings, setting};
pub use tidy::is_choice;

/// The schema, made of the kinds.
pub fn pipeline_schema(kinds: &[Kind]) -> Value {
    let mut generator = generator();
    let bodies: Vec<String> = kinds.iter().map(|kind| kind_name(kind, &mut generator)).collect();
    let run = reference_to::<RunConfig>(&mut generator);
    let pool = reference_to::<PoolConfig>(&mut generator);
    let model = reference_to::<ModelConfig>(&mut generator);
    let test = reference_to::<TestConfig>(&mut generator);
    let mut definitions = definitions(generator);
    for (kind, name) in kinds.iter().zip(&bodies) {
        if let Some(body) = definitions.get_mut(name) {
            complete_body(kind, body);
        }
    }
    definitions.insert("Node".to_owned(), node(kinds, &bodies));
    // Variables are declared, not filled in, in `env`: nothing there may refer to one.
    let mut environment = self::generator();
    let env = reference_to::<EnvConfig>(&mut environment);
    for (name, mut definition) in environment.take_definitions(true) {
        tidy::tidy(&mut definition);
        definitions.insert(name, definition);
    }
    for (name, definition) in tidy::reference_definitions() {
        definitions.insert(name, definition);
    }
    for (reference, title) in [(&run, "run"), (&pool, "pool"), (&model, "model"), (&env, "env")] {
        if let Some(Value::Object(definition)) = definition_of(reference, &mut definitions) {
            definition.insert("title".to_owned(), title.into());
        }
    }
    if let Some(Value::Object(definition)) = definition_of(&run, &mut definitions) {
        definition.insert("defaultSnippets".to_owned(), snippets::of_run());
    }
    snippets::put_into(definition_of(&pool, &mut definitions), snippets::of_pool());
    snippets::put_into(definition_of(&model, &mut definitions), snippets::of_model());
    snippets::put_into(definitions.get_mut("VarConfig"), snippets::of_variable());
    let named = |schema: Value, what: &str, snippets: Value| {
        let mut named = json!({
            "description": what,
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z0-9_-]+$" },
            "additionalProperties": schema,
        });
        if snippets.is_array() {
            named["defaultSnippets"] = snippets;
        }
        named
    };
    let pools = snippets::named("local", snippets::of_pool());
    let models = snippets::named("policy", snippets::of_model());
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "rlpipe pipeline",
        "description": "A reinforcement-learning run as a graph of typed nodes.",
        "type": "object",
        "properties": {
            "version": { "description": "Version of the format.", "enum": [VERSION] },
            "name": {
                "description": "Name of the run, and of its folder: letters, digits, `-`, `_` and `.`.",
                "anyOf": [
                    { "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$" },
                    { "$ref": tidy::REFERENCE_IN_TEXT },
                ],
            },
            "env": env,
            "run": run,
            "pools": named(pool, "Pools of workers by name: what nodes run on.", pools),
            "models": named(model, "Models by name.", models),
            "nodes": named(
                json!({ "$ref": "#/definitions/Node" }),
                "Nodes by name: the graph, joined by their `inputs`.",
                Value::Null,
            ),
            "tests": {
                "description": TESTS,
                "type": "object",
                "additionalProperties": test,
                "examples": [{
                    "right_and_wrong": {
                        "feed": {
                            "scored": { "groups": [{ "prompt": "2 + 2", "ground_truth": "4", "responses": ["4", "5"] }] },
                        },
                        "expect": { "scored": { "groups": [{ "rewards": [1, 0] }] } },
                    },
                }],
            },
        },
        "required": ["version", "name", "run", "pools", "models", "nodes"],
        "additionalProperties": false,
        "definitions": definitions,
    });
    finish::finish(&mut schema);
    schema
}

/// The definition that a reference stands for.
fn definition_of<'a>(reference: &Value, definitions: &'a mut Map<String, Value>) -> Option<&'a mut Value> {
    let name = reference.get("$ref")?.as_str()?.rsplit('/').next()?;
    definitions.get_mut(name)
}

/// What the section `tests` is.
const TESTS: &str = "Tests by name, which `rlpipe test` runs: what is put into nodes, and what must come out.";

fn generator() -> SchemaGenerator {
    SchemaSettings::draft07().into_generator()
}

fn reference_to<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// The name of the definition of a kind's config.
fn kind_name(kind: &Kind, generator: &mut SchemaGenerator) -> String {
    let schema = (kind.schema)(generator);
    let reference = schema.get("$ref").and_then(Value::as_str).unwrap_or_default();
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

/// All definitions, made fit for editors, with references to variables wherever a scalar is wanted.
fn definitions(mut generator: SchemaGenerator) -> Map<String, Value> {
    let mut definitions = generator.take_definitions(true);
    for definition in definitions.values_mut() {
        tidy::tidy(definition);
        tidy::allow_references(definition);
    }
    definitions
}

/// Adds what the compiler itself reads to the settings of a kind: `type` and `inputs`.
fn complete_body(kind: &Kind, body: &mut Value) {
    let Value::Object(body) = body else { return };
    let mut properties = Map::new();
    properties.insert(
        "type".to_owned(),
        json!({ "description": "What kind of node it is.", "const": kind.name }),
    );
    let mut required = vec![json!("type")];
    if let Some(contract) = contract_of_example(kind)
        && !contract.inputs.is_empty()
    {
        if contract.inputs.iter().any(|input| input.arity != Arity::Optional) {
            required.push(json!("inputs"));
        }
        properties.insert("inputs".to_owned(), inputs(kind, &contract.inputs));
    }
    if let Some(Value::Object(settings)) = body.remove("properties") {
        properties.extend(settings);
    }
    if let Some(Value::Array(settings)) = body.remove("required") {
        required.extend(settings);
    }
    body.insert("description".to_owned(), kind.summary.into());
    body.insert("title".to_owned(), kind.name.into());
    body.insert("properties".to_owned(), Value::Object(properties));
    body.insert("required".to_owned(), Value::Array(required));
}

fn inputs(kind: &Kind, inputs: &[Input]) -> Value {
    let example = example(kind).map(|tree| tree.to_json()).unwrap_or_default();
    let properties: Map<String, Value> = inputs
        .iter()
        .map(|input| {
            let description = input_text(input);
            let mut schema = match input.arity {
                Arity::Many => json!({
                    "description": description,
                    "type": ["array", "string"],
                    "items": { "type": "string" },
                    "minItems": 1,
                }),
                Arity::One | Arity::Optional => json!({ "description": description, "type": "string" }),
            };
            if let Some(example) = example["inputs"].get(input.name) {
                schema["examples"] = json!([example]);
            }
            (input.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = inputs
        .iter()
        .filter(|input| input.arity != Arity::Optional)
        .map(|input| input.name)
        .collect();
    json!({
        "description": "Where its inputs come from: names of nodes, or `node.port`.",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// What an input takes, in a few words.
fn input_text(input: &Input) -> String {
    let many = match input.arity {
        Arity::One => "A node that gives",
        Arity::Optional => "A node that gives",
        Arity::Many => "One or more nodes that give",
    };
    let may_be_left_out = match input.arity {
        Arity::Optional => " May be left out.",
        Arity::One | Arity::Many => "",
    };
    format!("{many} `{}`.{may_be_left_out}", input.port_type)
}

/// The contract of the kind's own example: ports do not depend on settings.
pub fn contract_of_example(kind: &Kind) -> Option<Contract> {
    (kind.decode)(&example(kind)?).ok().map(|config| config.contract())
}

/// The kind's example.
pub fn example(kind: &Kind) -> Option<Tree> {
    let mut sources = Sources::default();
    let id = sources.add(Source {
        name: kind.name.to_owned(),
        text: kind.example.into(),
        format: Format::BuiltIn,
        folder: None,
    });
    parse(&sources, id, &mut Default::default())
}

/// Any node: which settings it has depends on its `type`.
fn node(kinds: &[Kind], bodies: &[String]) -> Value {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let summaries: Vec<&str> = kinds.iter().map(|kind| kind.summary).collect();
    let body = |name: &String| json!({ "$ref": format!("#/definitions/{name}") });
    let of_kind: Vec<Value> = kinds
        .iter()
        .zip(bodies)
        .map(|(kind, name)| {
            json!({
                "if": { "properties": { "type": { "const": kind.name } }, "required": ["type"] },
                "then": body(name),
            })
        })
        .collect();
    let hint: Vec<Value> = bodies.iter().map(body).chain([Value::Bool(true)]).collect();
    json!({
        "title": "node",
        "description": "A node of the graph.",
        "type": "object",
        "properties": {
            "type": {
                "description": "What kind of node it is.",
                "enum": names,
                "enumDescriptions": summaries,
                "markdownEnumDescriptions": summaries,
            },
        },
        "required": ["type"],
        "allOf": of_kind,
        "anyOf": hint,
        "additionalProperties": true,
        "if": { "type": "object", "required": ["type"], "additionalProperties": true },
        "else": snippets::of_nodes(kinds),
    })
}
