//! The reference pages in `docs/reference/`, made of what the program itself shows.

use std::fmt::Write as _;

use rlpipe_core::diagnostic::Code;
use rlpipe_core::kind::Kind;
use rlpipe_runtime::compile::{Setting, describe_ports, kind_settings, section_settings};

/// Every code with its explanation.
pub fn codes_page(codes: &[&Code]) -> String {
    let mut page = String::from(
        "# Codes\n\nWhat `rlpipe validate` and `rlpipe run` find, and `rlpipe explain CODE` explains. \
         RL09 and some others are warnings: the pipeline runs.\n",
    );
    let mut hundred = "";
    for code in codes {
        let (of_code, _) = code.id.split_at(4);
        if of_code != hundred {
            hundred = of_code;
            let _ = write!(page, "\n## {hundred}: {}\n", about(hundred));
        }
        let text = &code.explanation;
        let language = if text.example.starts_with("rlpipe") {
            "console"
        } else if text.example.starts_with('{') {
            "json"
        } else {
            "yaml"
        };
        let _ = write!(
            page,
            "\n### {}: {}\n\n{}\n\n**Why.** {}\n\n```{language}\n{}```\n\n**What to do.** {}\n",
            code.id, code.title, text.meaning, text.why, text.example, text.fix
        );
    }
    page
}

/// Every check, with whose rule or fault it carries over.
pub fn checks_page(codes: &[&Code]) -> String {
    let mut page = String::from(
        "# Checks\n\nEvery code is a check. The passes run in this order and none stops another; [codes.md](codes.md) explains each \
         code. The last column says where a check comes from: a rule that another system has in its code, or a fault \
         that its users reported, by repository and number.\n\n\
         | code | what is found | pass | origin |\n|---|---|---|---|\n",
    );
    let cell = |text: &str| text.replace('|', "\\|");
    for code in codes {
        let (hundred, _) = code.id.split_at(4);
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            code.id,
            cell(code.title),
            about(hundred),
            cell(&code.origin.join("; "))
        );
    }
    page
}

fn about(hundred: &str) -> &'static str {
    match hundred {
        "RL01" => "syntax",
        "RL02" => "kinds and settings",
        "RL03" => "the graph",
        "RL04" => "intervals and bounds",
        "RL05" => "batch arithmetic",
        "RL06" => "the environment",
        "RL07" => "resources",
        "RL08" => "liveness: can a step wait for ever",
        "RL09" => "legal, but probably not what is meant",
        "RL10" => "data (with `--data`, and before a run)",
        "RL11" => "the world outside (with `--environment`, and before a run)",
        _ => "others",
    }
}

/// Every kind with its ports and settings.
pub fn kinds_page(kinds: &[Kind]) -> String {
    let mut page = String::from(
        "# Kinds\n\nA node is `type: KIND`, its `inputs`, and its settings. `rlpipe kinds KIND` prints the same.\n\n",
    );
    for kind in kinds {
        let _ = writeln!(page, "- [`{}`](#{}): {}", kind.name, kind.name, kind.summary);
    }
    for kind in kinds {
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n```yaml\n{}```\n",
            kind.name, kind.summary, kind.example
        );
        let ports = describe_ports(kind);
        if !ports.is_empty() {
            let _ = write!(page, "\n```text\n{}```\n", ports.trim_start());
        }
        table(&kind_settings(kind), &mut page);
    }
    page
}

/// Everything of a pipeline file but its nodes.
pub fn pipeline_page() -> String {
    let mut page = String::from(
        "# Pipeline files\n\nA file has `version: 1`, a `name`, and the sections below; nodes are in [kinds.md](kinds.md). \
         `NAME` is a name of your choice.\n\n",
    );
    let sections = section_settings();
    for (place, _) in &sections {
        let anchor = place.to_lowercase().replace('.', "");
        let _ = writeln!(page, "- [`{place}`](#{anchor}): {}", about_section(place));
    }
    for (place, settings) in &sections {
        let _ = write!(page, "\n## {place}\n\n{}.\n", capitalized(about_section(place)));
        table(settings, &mut page);
    }
    page
}

fn about_section(place: &str) -> &'static str {
    match place {
        "run" => "where and how long the pipeline runs",
        "pools.NAME" => "workers with the same equipment; nodes name the pool that they run in",
        "models.NAME" => "a model; give exactly one of `path`, `hub` and `init`",
        "env.vars.NAME" => "an environment variable that the file takes: `${NAME}` or `${NAME:-default}`, in any value",
        "env.rules" => "what must hold among the variables; each rule is a mapping with one of these keys",
        "tests.NAME" => "a test, which `rlpipe test` runs; [testing.md](../testing.md) shows how",
        "tests.NAME.feed.NODE" => "what enters a node; give exactly one of `groups`, `batch` and `rollouts`",
        "tests.NAME.feed.NODE.groups" => "each element of `groups` or `batch`: a prompt with responses",
        "tests.NAME.expect.NODE" => "what must come out of a node; what is left out is not looked at",
        "tests.NAME.expect.NODE.groups" => "each element of `groups`, `batch` or `dropped`",
        _ => "others",
    }
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next()
        .map(|first| first.to_uppercase().collect::<String>() + rest.as_str())
        .unwrap_or_default()
}

fn table(settings: &[Setting], page: &mut String) {
    page.push_str("\n| setting | type | default | |\n|---|---|---|---|\n");
    for setting in settings {
        rows("", setting, page);
    }
}

/// A row for a setting, and for each setting below it.
fn rows(parent: &str, setting: &Setting, page: &mut String) {
    let path = format!("{parent}{}", setting.key);
    let default = match (&setting.default, setting.required) {
        (Some(default), _) => format!("`{default}`"),
        (None, true) => "required".to_owned(),
        (None, false) => String::new(),
    };
    let names: Vec<String> = setting.choices.iter().map(|(name, _, _)| format!("`{name}`")).collect();
    let kind = if names.is_empty() {
        setting.type_text.clone()
    } else {
        names.join(", ")
    };
    let mut text = setting.description.clone();
    for (name, description, _) in setting
        .choices
        .iter()
        .filter(|(_, description, _)| !description.is_empty())
    {
        let _ = write!(text, "<br>`{name}`: {description}");
    }
    let _ = writeln!(page, "| `{path}` | {kind} | {default} | {} |", text.replace('|', "\\|"));
    for below in &setting.settings {
        rows(&format!("{path}."), below, page);
    }
    for (name, _, settings) in &setting.choices {
        for below in settings {
            rows(&format!("{path}.{name}."), below, page);
        }
    }
}
