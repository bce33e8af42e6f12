use super::*;

fn filled(text: &str, variables: &[(&str, &str)]) -> (Parsed, Vec<Reference>) {
    let mut parsed = yaml(text);
    let mut seen = Vec::new();
    let working = parsed.sources.working();
    if let Some(tree) = &mut parsed.tree {
        interpolate(tree, &parsed.sources, &mut parsed.diagnostics, &mut |reference| {
            seen.push(reference.clone());
            let (_, text) = variables
                .iter()
                .find(|(name, text)| *name == reference.name && !text.is_empty())?;
            Some(Substitute {
                text: (*text).to_owned(),
                origin: working.clone(),
            })
        });
    }
    (parsed, seen)
}

#[test]
fn references_and_defaults_are_filled_in() {
    let (parsed, seen) = filled(
        "a: ${X}\nb: pre ${X} é ${Y:-d e} $Z $${X} $$ \nc: [\"${E:-}\", 1]\n${X}: k\n",
        &[("X", "x${X}"), ("E", "")],
    );
    let tree = parsed.tree();
    assert_eq!(
        tree.to_json(),
        json(r#"{"a":"x${X}","b":"pre x${X} é d e $Z ${X} $$","c":["",1],"${X}":"k"}"#)
    );
    assert!(tree.get("a").unwrap().loose && !tree.get("b").unwrap().loose);
    let found: Vec<_> = seen
        .iter()
        .map(|reference| (path_text(&reference.path), parsed.under(reference.range)))
        .collect();
    let expected = [("a", "${X}"), ("b", "${X}"), ("b", "${Y:-d e}"), ("c[0]", "${E:-}")]
        .map(|(path, text)| (path.to_owned(), text));
    assert_eq!(found, expected);
    assert_eq!(parsed.at("b").1, "pre ${X} é ${Y:-d e} $Z $${X} $$");
}

#[test]
fn a_reference_behind_an_escaped_one_points_at_itself() {
    let (parsed, seen) = filled("a: $${X} ${X} ${X}\n", &[("X", "1")]);
    assert_eq!(parsed.tree().to_json(), json(r#"{"a":"${X} 1 1"}"#));
    assert_eq!(
        seen.iter().map(|reference| reference.range.start).collect::<Vec<_>>(),
        [9, 14]
    );
    // Where escapes hide the reference, the whole leaf stands for it.
    let (parsed, seen) = filled("a: \"\\x24{X}\"\n", &[("X", "1")]);
    assert_eq!(parsed.under(seen[0].range), "\"\\x24{X}\"");
}

#[test]
fn a_missing_variable_leaves_the_value_open() {
    let (parsed, seen) = filled("a: ${X}\nb: p/${Y}\n", &[]);
    assert!(parsed.diagnostics.is_empty());
    assert_eq!(seen.len(), 2);
    let tree = parsed.tree.unwrap();
    assert_eq!(tree.get("a").unwrap().value, Value::Unresolved);
    assert_eq!(tree.get("b").unwrap().value, Value::Unresolved);
}

#[test]
fn malformed_references_are_reported() {
    let text = "a: x ${WORK-DIR} ${} y\nb: \"${1X}\"\nc: ${A:-${B}}\nd: ${A\né: ${A:=1}\n";
    let (parsed, _) = filled(text, &[]);
    assert_eq!(
        parsed.said(),
        [
            ("RL0105", "${WORK-DIR}"),
            ("RL0105", "${}"),
            ("RL0105", "${1X}"),
            ("RL0105", "${A:-${B}"),
            ("RL0105", "${A"),
            ("RL0105", "${A:=1}")
        ]
    );
    let mut parsed = toml("a = 'é ${1}'\n");
    let tree = parsed.tree.as_mut().unwrap();
    interpolate(tree, &parsed.sources, &mut parsed.diagnostics, &mut |_| None);
    assert_eq!(parsed.said(), [("RL0105", "${1}")]);
}

#[test]
fn paths_are_relative_to_where_they_come_from() {
    #[derive(serde::Deserialize)]
    struct Paths {
        file: PathText,
        default: PathText,
        variable: PathText,
        mixed: PathText,
        mixed_file: PathText,
        absolute: PathText,
    }
    let text =
        "file: ./data/x\ndefault: ${Q:-d}\nvariable: ${V}\nmixed: ${V}/${Q:-q}\nmixed_file: a/${V}\nabsolute: /x\n";
    let (parsed, _) = filled(text, &[("V", "v")]);
    let paths: Paths = decode(parsed.tree(), &[]).unwrap();
    assert_eq!(paths.file.as_str(), "/home/ada/runs/data/x");
    assert_eq!(paths.default.as_str(), "/home/ada/runs/d");
    assert_eq!(paths.variable.as_str(), "/home/ada/v");
    assert_eq!(paths.mixed.as_str(), "/home/ada/v/q");
    assert_eq!(paths.mixed_file.as_str(), "/home/ada/runs/a/v");
    assert_eq!(paths.absolute.as_path(), Path::new("/x"));
    let plain: PathText = serde_json::from_str("\"x/y\"").unwrap();
    assert_eq!(serde_json::to_string(&plain).unwrap(), "\"x/y\"");
}

#[test]
fn words_of_commands_are_paths_where_they_begin_so() {
    let text = "[python3, ./reward.py, ../lib/x, reward.py, -c, a/b, /x, \"${V}/y\", \"./${V}\"]\n";
    let (parsed, _) = filled(text, &[("V", "v")]);
    let words: Vec<CommandWord> = decode(parsed.tree(), &[]).unwrap();
    let words: Vec<&str> = words.iter().map(CommandWord::as_str).collect();
    assert_eq!(
        words,
        [
            "python3",
            "/home/ada/runs/reward.py",
            "/home/ada/runs/../lib/x",
            "reward.py",
            "-c",
            "a/b",
            "/x",
            "v/y",
            "/home/ada/runs/v"
        ]
    );
    let plain: CommandWord = serde_json::from_str("\"./x\"").unwrap();
    assert_eq!(serde_json::to_string(&plain).unwrap(), "\"./x\"");
}
