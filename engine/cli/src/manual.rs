//! `rlpipe completions` and `rlpipe man`: what the command line says of itself, for shells, `man` and the reference.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::Shell;

use crate::arguments::{Arguments, ManArguments};
use crate::output;

/// Prints the completion script of a shell.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "rlpipe", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual, or writes its pages.
pub fn manual(arguments: &ManArguments) -> Result<ExitCode> {
    let command = Arguments::command();
    if arguments.markdown {
        output::print(&markdown(command))?;
    } else if let Some(folder) = &arguments.output {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        clap_mangen::generate_to(command, folder)
            .with_context(|| format!("cannot write pages into `{}`", folder.display()))?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        output::print(&String::from_utf8(page)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every verb with its arguments.
fn markdown(mut command: Command) -> String {
    command.build();
    let mut page = String::from("# Command line\n\n`rlpipe VERB --help` prints the same.\n\n");
    let verbs = verbs(&command, "");
    for (name, verb) in &verbs {
        let _ = writeln!(page, "- [`{name}`](#{}): {}", name.replace(' ', "-"), about(verb));
    }
    for (name, verb) in verbs {
        let usage = verb.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        let _ = write!(page, "\n## {name}\n\n{}.\n\n```\n{usage}\n```\n", about(verb));
        let shown: Vec<&Arg> = verb
            .get_arguments()
            .filter(|argument| argument.get_id() != "help")
            .collect();
        if !shown.is_empty() {
            page.push_str("\n| argument | |\n|---|---|\n");
        }
        for argument in shown {
            let _ = writeln!(page, "| `{}` | {} |", written(argument), text(argument));
        }
    }
    page.push_str(
        "\n## Exit codes\n\n0, all is well; 1, a run failed, or what a verb writes could not be written; 2, wrong arguments; \
         78, the pipeline has faults or cannot be read; 130, interrupted.\n",
    );
    page
}

/// Verbs by name; one that has verbs of its own is named with each of them.
fn verbs<'a>(command: &'a Command, before: &str) -> Vec<(String, &'a Command)> {
    let own = command.get_subcommands().filter(|verb| verb.get_name() != "help");
    let named = own.flat_map(|verb| {
        let name = format!("{before}{}", verb.get_name());
        match verb.has_subcommands() {
            true => verbs(verb, &format!("{name} ")),
            false => vec![(name, verb)],
        }
    });
    named.collect()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn written(argument: &Arg) -> String {
    let values: Vec<String> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect();
    let many = argument
        .get_num_args()
        .is_some_and(|range| range.max_values() > 1 && argument.is_positional());
    let values = format!("{}{}", values.join(" "), if many { "..." } else { "" });
    match argument.get_long() {
        Some(long) if argument.get_action().takes_values() => format!("--{long} {values}"),
        Some(long) => format!("--{long}"),
        None => values,
    }
}

fn text(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    if !text.ends_with('.') {
        text.push('.');
    }
    let default: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    if argument.get_action().takes_values() {
        for value in argument
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
        {
            let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
            let _ = write!(text, "<br>`{}`{help}", value.get_name());
        }
        if !default.is_empty() {
            let _ = write!(text, "<br>Default: `{}`", default.join(" "));
        }
    }
    text.replace('|', "\\|")
}
