#![allow(clippy::unwrap_used)]
use rlpipe_core::document::path_text;

use super::*;

/// The place of the `|` in a text: kind of place, path, word.
fn place(marked: &str, format: Format) -> String {
    let cursor = marked.find('|').unwrap();
    let text = marked.replacen('|', "", 1);
    match scan(&text, format, Some(cursor)).spot {
        None => "none".to_owned(),
        Some(spot) => {
            let lacking = if spot.lacking_indent > 0 {
                format!(" +{}", spot.lacking_indent)
            } else {
                String::new()
            };
            format!(
                "{:?} {} <{}>{lacking}",
                spot.place,
                path_text(&spot.path),
                &text[spot.word]
            )
        }
    }
}

#[test]
fn places_in_yaml() {
    for (text, wanted) in [
        ("|", "Key  <>"),
        ("ver|", "Key  <ver>"),
        ("version: 1\n|", "Key  <>"),
        ("version: |", "Value version <>"),
        ("version:|", "none"),
        ("version: 1|", "Value version <1>"),
        ("version: 1 # |", "none"),
        ("# |", "none"),
        ("a: 1\n| # b", "Key  <>"),
        ("a: { b: c | }", "none"),
        ("nodes:\n  |", "Key nodes <>"),
        ("nodes:\n  a:\n    |", "Key nodes.a <>"),
        ("nodes:\n  a:\n    type: trainer\n    |", "Key nodes.a <>"),
        (
            "nodes:\n  a:\n    type: trainer\n    |\n  b:\n    type: x",
            "Key nodes.a <>",
        ),
        ("nodes:\n  a:\n    |\n    type: trainer\n", "Key nodes.a <>"),
        ("nodes:\n  a:\n    type: trainer\n|\n    pool: p", "Key nodes.a <> +4"),
        ("nodes:\n  a:\n    type: trainer\n  |", "Key nodes <>"),
        ("nodes:\n  a:\n    type: trainer\n|", "Key  <>"),
        (
            "nodes:\n  a:\n    type: trainer\n    opt|\n    pool: p",
            "Key nodes.a <opt>",
        ),
        ("nodes:\n  a:\n    loss:\n      |\n    pool: p", "Key nodes.a.loss <>"),
        (
            "nodes:\n  a:\n    loss:\n      kl: none\n      |",
            "Key nodes.a.loss <>",
        ),
        ("nodes:\n  a:\n    inputs: { |\n    pool: p", "Key nodes.a.inputs <>"),
        (
            "nodes:\n  a:\n    inputs: { gr|\n    pool: p",
            "Key nodes.a.inputs <gr>",
        ),
        (
            "nodes:\n  a:\n    inputs: { groups: |\n    pool: p",
            "Value nodes.a.inputs.groups <>",
        ),
        (
            "nodes:\n  a:\n    inputs: { groups: sc| }",
            "Value nodes.a.inputs.groups <sc>",
        ),
        (
            "nodes:\n  a:\n    inputs: { groups: [|] }",
            "Value nodes.a.inputs.groups[0] <>",
        ),
        (
            "nodes:\n  a:\n    inputs: { groups: [x, y|] }",
            "Value nodes.a.inputs.groups[1] <y>",
        ),
        ("nodes:\n  a: { type: x, | }", "Key nodes.a <>"),
        ("nodes:\n  a: { type: x,\n    po| }\n  b: 1", "Key nodes.a <po>"),
        ("a: \"${|", "Value a <${>"),
        ("a: { path: ${X|} }", "Value a.path <${X}>"),
        ("a: { path: ${X| }", "Value a.path <${X>"),
        ("a:\n  - |", "Value a[0] <>"),
        ("a:\n  - b: |", "Value a[0].b <>"),
        ("a:\n  - b: 1\n    |", "Key a[0] <>"),
        ("a:\n- b: 1\n- c: x|", "Value a[1].c <x>"),
        ("a: |-\n  b: |", "none"),
        ("a: 'b|c'", "Value a <bc>"),
        ("\"a\": b|", "Value a <b>"),
        ("a: b\r\nc: |\r\nd: e\r\n", "Value c <>"),
        ("é: ü|", "Value é <ü>"),
    ] {
        // A block scalar has the mark's character in it.
        let text = text.replacen("a: |-", "a: >-", 1);
        assert_eq!(place(&text, Format::Yaml), wanted, "{text:?}");
    }
}

#[test]
fn places_in_toml() {
    for (text, wanted) in [
        ("|", "Key  <>"),
        ("ver|", "Key  <ver>"),
        ("version = |", "Value version <>"),
        ("version = 1\n|\n", "Key  <>"),
        ("[nodes.|", "Header nodes <>"),
        ("[no|]", "Header  <no>"),
        ("[nodes.a]\n|", "Key nodes.a <>"),
        ("[nodes.a]\ntype = \"|\"", "Value nodes.a.type <>"),
        ("[nodes.a]\ntype = \"tr|\n[nodes.b]", "Value nodes.a.type <tr>"),
        ("[nodes.a]\ntype = tr|", "Value nodes.a.type <tr>"),
        ("[nodes.a]\ntype = \"trainer\"\n|\n\n[nodes.b]\n", "Key nodes.a <>"),
        ("[nodes.a]\nloss.|", "Key nodes.a.loss <>"),
        ("[nodes.a]\nloss.kl = \"|\"", "Value nodes.a.loss.kl <>"),
        ("[nodes.a]\nloss = { |", "Key nodes.a.loss <>"),
        ("[nodes.a]\nloss = { kl = \"no|\" }", "Value nodes.a.loss.kl <no>"),
        (
            "[nodes.a]\ninputs = { groups = [\"|\"] }",
            "Value nodes.a.inputs.groups[0] <>",
        ),
        (
            "[nodes.a]\ninputs = { groups = [\n  \"x\",\n  |\n] }",
            "Value nodes.a.inputs.groups[1] <>",
        ),
        ("[nodes.a]\nloss = {\npool = \"|\"", "Value nodes.a.pool <>"),
        ("[[env.rules]]\n|", "Key env.rules[0] <>"),
        (
            "[[env.rules]]\nat_most_one = []\n[[env.rules]]\nal|",
            "Key env.rules[1] <al>",
        ),
        ("a = 1 # |", "none"),
        ("a = \"${|\"", "Value a <${>"),
    ] {
        assert_eq!(place(text, Format::Toml), wanted, "{text:?}");
    }
}

#[test]
fn a_whole_text_is_read_as_the_compiler_reads_it() {
    let pipelines = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines")).unwrap();
    let mut compared = 0;
    for path in pipelines
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
    {
        let format = Format::of_file(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut sources = rlpipe_core::document::Sources::default();
        let id = sources.add_file(&path, text.as_str());
        let parsed = rlpipe_core::document::parse(&sources, id, &mut Default::default()).unwrap();
        let (keys, wanted) = (keys_of(&scan(&text, format, None).tree), keys_of(&parsed));
        let other = keys.iter().zip(&wanted).find(|(found, wanted)| found != wanted);
        assert_eq!((other, keys.len()), (None, wanted.len()), "{}", path.display());
        compared += 1;
    }
    assert!(compared > 5, "{compared}");
}

/// Every key with its place, and every text.
fn keys_of(tree: &Tree) -> Vec<String> {
    fn walk(tree: &Tree, path: &str, found: &mut Vec<String>) {
        for entry in tree.entries() {
            let path = format!("{path}.{}", entry.key);
            found.push(format!("{path} at {}..{}", entry.key_range.start, entry.key_range.end));
            walk(&entry.value, &path, found);
        }
        for (index, element) in tree.elements().iter().enumerate() {
            walk(element, &format!("{path}[{index}]"), found);
        }
    }
    let mut found = Vec::new();
    walk(tree, "", &mut found);
    found.sort();
    found
}
