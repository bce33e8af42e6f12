//! The command that mends what a diagnostic tells of.

use rlpipe_core::diagnostic::Diagnostic;
use rlpipe_core::document::Format;

use super::Looked;
use crate::arguments::PipelineArguments;
use crate::output::shell_word;

/// What was given on the command line, to be given again; without one of the short forms, which another would contradict.
pub fn given(arguments: &PipelineArguments, without: &str) -> String {
    let files = arguments.files.iter();
    let mut words: Vec<String> = files.map(|file| shell_word(&file.display().to_string())).collect();
    let short = [
        ("--work-dir", arguments.work_dir.clone()),
        ("--num-workers", arguments.num_workers.map(|number| number.to_string())),
        ("--backend", arguments.backend.clone()),
    ];
    for (name, value) in short.into_iter().filter(|(name, _)| *name != without) {
        words.extend(
            value
                .into_iter()
                .flat_map(|value| [name.to_owned(), shell_word(&value)]),
        );
    }
    for set in &arguments.overrides {
        words.extend(["--set".to_owned(), shell_word(set)]);
    }
    words.join(" ")
}

/// Commands that mend it, the best first; where no command can, one that says more.
pub fn mends(looked: &Looked<'_>, diagnostic: &Diagnostic) -> Vec<String> {
    let given = given(looked.arguments, "");
    let run = |settings: &str| format!("rlpipe run {given} {settings}");
    let run_elsewhere = |folder: &str| {
        let given = self::given(looked.arguments, "--work-dir");
        format!("rlpipe run {given} --work-dir {folder}")
    };
    let names = literals(&diagnostic.message);
    let name = |index: usize| names.get(index).copied().unwrap_or_default();
    let fix = diagnostic.fix.as_ref();
    let in_file = |fix: &&rlpipe_core::diagnostic::Fix| {
        matches!(
            looked.outcome.sources.get(fix.range.source).format,
            Format::Yaml | Format::Toml
        )
    };
    if fix.is_some_and(|fix| in_file(&fix)) {
        return vec![format!("rlpipe validate --fix {given}")];
    }
    let certain = match diagnostic.code.id {
        "RL0602" => vec![format!("export {}=...{}", name(0), help(looked, name(0)))],
        "RL0603" => vec![format!(
            "export {}=...{}",
            name(0).split('=').next().unwrap_or_default(),
            help(looked, name(0))
        )],
        "RL0604" if diagnostic.message.contains("none is") => vec![format!("export {}=1", name(0))],
        "RL0604" if diagnostic.message.ends_with("one may be") => {
            names.iter().skip(1).map(|name| format!("unset {name}")).collect()
        }
        "RL0604" => {
            let unset = diagnostic.message.split(" set, but ").nth(1).unwrap_or_default();
            literals(unset)
                .iter()
                .map(|name| format!("export {name}=..."))
                .collect()
        }
        "RL0605" => vec![format!("unset {}", name(0))],
        "RL1101" if diagnostic.message.contains("this version runs one") && names.len() == 1 => {
            let given = self::given(looked.arguments, "--num-workers");
            let sets = format!("--set pools.{0}.nodes=1 --set pools.{0}.workers_per_node=1", name(0));
            vec![format!("rlpipe run {given} {sets}")]
        }
        "RL1102" if diagnostic.message.starts_with('`') && names.len() == 2 => vec![format!("export {}=...", name(0))],
        "RL1102" => {
            let path = names.last().copied().unwrap_or_default();
            let folder = std::path::Path::new(path).parent().unwrap_or(std::path::Path::new("."));
            vec![format!("ls {}", shell_word(&folder.display().to_string()))]
        }
        "RL1103" | "RL1107"
            if looked
                .pipeline
                .is_some_and(|pipeline| pipeline.hub_models().next().is_some()) =>
        {
            vec![format!("rlpipe download {given}")]
        }
        "RL1104" if diagnostic.message.contains("CUDA") => {
            vec![
                "nvidia-smi".to_owned(),
                run(&format!("--set pools.{}.accelerator=auto", name(0))),
            ]
        }
        "RL1104" => vec![run(&format!(
            "--set pools.{}.cpus_per_worker={}",
            name(0),
            looked.machine.cores
        ))],
        "RL1105" => vec!["make build".to_owned()],
        // Each note that begins so has a setting with which everything fits.
        "RL0705" | "RL1133" => {
            let settings = diagnostic
                .notes
                .iter()
                .filter_map(|note| note.strip_prefix("it fits with `"));
            settings.map(|setting| run(setting.trim_end_matches('`'))).collect()
        }
        "RL1106" => vec![
            "free -h".to_owned(),
            run(&format!("--set pools.{}.host_memory_per_worker=null", name(0))),
        ],
        "RL1120" if diagnostic.message.ends_with("is not executable") => {
            vec![format!("chmod +x {}", shell_word(name(0)))]
        }
        "RL1121" => names.iter().skip(1).map(|name| format!("export {name}=...")).collect(),
        "RL1131" => {
            let folder = shell_word(names.first().copied().unwrap_or_default());
            vec![
                format!("df -h {folder}"),
                format!("du -sh {folder}/*"),
                run_elsewhere("/another/disk/runs"),
            ]
        }
        "RL1132" => vec![run_elsewhere("another/folder")],
        _ => Vec::new(),
    };
    if certain.iter().any(|command| !command.ends_with(' ')) {
        return certain;
    }
    // The row, where there is one, is what must be changed.
    let place = looked.outcome.sources.place(diagnostic.primary.range);
    if diagnostic.code.id.starts_with("RL10") && place.file.ends_with(".jsonl") {
        let row = format!("sed -n {}p {}", place.line, shell_word(&place.file));
        return vec![row, format!("rlpipe explain {}", diagnostic.code.id)];
    }
    vec![format!("rlpipe explain {}", diagnostic.code.id)]
}

/// What a variable is for, as a comment of the shell.
fn help(looked: &Looked<'_>, name: &str) -> String {
    let vars = looked.pipeline.map(|pipeline| &pipeline.env.vars);
    let name = name.split('=').next().unwrap_or_default();
    let help = vars.and_then(|vars| vars.get(name)?.help.clone());
    help.map_or(String::new(), |help| format!("   # {help}"))
}

/// What stands in backticks.
fn literals(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_stand_in_backticks() {
        assert_eq!(literals("`A`, `B` are set, but at most one may be"), ["A", "B"]);
    }
}
