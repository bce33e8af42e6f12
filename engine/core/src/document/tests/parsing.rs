use super::*;
use crate::diagnostic::apply_fixes;

#[test]
fn yaml_ranges_cover_exactly_what_is_written() {
    let text = "# é\nname: démo # ü\n'k': \"a\\n\"\nblock: |\n  one\n  two\nlist:\n- 1\n- - x y\n  - 3\nflow: {a: [1, {}, ], b: {c: 'é'} } # c\nempty:\nlast: ~\n";
    let parsed = yaml(text);
    assert_eq!(
        parsed.tree().to_json(),
        json(
            r#"{"name":"démo","k":"a\n","block":"one\ntwo\n","list":[1,["x y",3]],
            "flow":{"a":[1,{}],"b":{"c":"é"}},"empty":null,"last":null}"#
        )
    );
    assert_eq!(parsed.at("name"), ("name", "démo"));
    assert_eq!(parsed.at("k"), ("'k'", "\"a\\n\""));
    assert_eq!(parsed.at("block"), ("block", "one\n  two"));
    assert_eq!(parsed.at("list"), ("list", "- 1\n- - x y\n  - 3"));
    assert_eq!(parsed.at("list.1.0"), ("", "x y"));
    assert_eq!(parsed.at("flow"), ("flow", "{a: [1, {}, ], b: {c: 'é'} }"));
    assert_eq!(parsed.at("flow.a"), ("a", "[1, {}, ]"));
    assert_eq!(parsed.at("flow.a.1"), ("", "{}"));
    assert_eq!(parsed.at("flow.b.c"), ("c", "'é'"));
    assert_eq!(parsed.at("empty"), ("empty", ""));
    assert_eq!(parsed.at("last"), ("last", "~"));
    let place = parsed
        .sources
        .place(parsed.tree().get("flow").unwrap().get("b").unwrap().range);
    assert_eq!(
        (place.line, place.column, place.end_line, place.end_column),
        (11, 25, 11, 33)
    );
}

#[test]
fn toml_ranges_cover_exactly_what_is_written() {
    let text =
        "name = 'démo'\n[nodes.a]\ntype = \"x\" # ü\nlist = [1, {y = 2.5}]\noptim.betas = [0.9]\nday = 2026-01-01\n";
    let parsed = toml(text);
    assert_eq!(
        parsed.tree().to_json(),
        json(
            r#"{"name":"démo","nodes":{"a":{"type":"x","list":[1,{"y":2.5}],"optim":{"betas":[0.9]},"day":"2026-01-01"}}}"#
        )
    );
    assert_eq!(parsed.at("name"), ("name", "'démo'"));
    assert_eq!(parsed.at("nodes.a").0, "a");
    assert_eq!(parsed.at("nodes.a.type"), ("type", "\"x\""));
    assert_eq!(parsed.at("nodes.a.list"), ("list", "[1, {y = 2.5}]"));
    assert_eq!(parsed.at("nodes.a.list.1.y"), ("y", "2.5"));
    assert_eq!(parsed.at("nodes.a.optim.betas.0"), ("", "0.9"));
}

#[test]
fn anchors_and_merge_keys_point_at_what_is_written() {
    let parsed = yaml("base: &b {lr: 0.1, z: {q: 1}}\nc:\n  <<: *b\n  lr: 2\nd: *b\ne: {<<: *b, y: 1}\n");
    assert_eq!(
        parsed.tree().get("c").unwrap().to_json(),
        json(r#"{"lr":2,"z":{"q":1}}"#)
    );
    assert_eq!(parsed.at("c.lr"), ("lr", "2"));
    assert_eq!(parsed.at("c.z"), ("z", "{q: 1}"));
    assert_eq!(parsed.at("c").1, "<<: *b\n  lr: 2");
    assert_eq!(parsed.at("d"), ("d", "{lr: 0.1, z: {q: 1}}"));
    assert_eq!(parsed.at("e").1, "{<<: *b, y: 1}");
}

#[test]
fn yaml_scalars_take_the_type_that_people_expect() {
    let values = [
        ("true", "true"),
        ("True", r#""True""#),
        ("yes", r#""yes""#),
        ("on", r#""on""#),
        ("1e-6", "1e-6"),
        ("0x10", "16"),
        ("0o10", "8"),
        ("1_000", r#""1_000""#),
        ("1:30", r#""1:30""#),
        ("2026-01-01", r#""2026-01-01""#),
        ("16GiB", r#""16GiB""#),
        ("'010'", r#""010""#),
        ("!!str 010", r#""010""#),
        ("0.5", "0.5"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("nan", r#""nan""#),
    ];
    for (written, value) in values {
        let parsed = yaml(&format!("v: {written}\n"));
        if written.starts_with("!!") {
            // The tag is no part of the value, so a text with a zero is still taken for a number.
            assert_eq!(parsed.said(), [("RL0104", "010")]);
            continue;
        }
        assert_eq!(parsed.tree().get("v").unwrap().to_json(), json(value), "{written}");
    }
}

#[test]
fn syntax_errors() {
    let cases = [
        ("a:\n\tb: 1\n", "b"),
        ("é: x: c\n", ":"),
        ("a: @x\n", "@"),
        ("a: [1,\n2", "["),
        ("a: 'x\n", "'"),
        ("a: *nope\n", "*"),
        ("a: !foo xé\n", "xé"),
        ("a: 1\n---\nb: 2\n", ""),
        ("~: a\n", "~"),
        ("? [a]\n: b\n", "["),
        ("\u{feff}é: [1\n", "["),
        ("é: 1\r\nb: @\r\n", "@"),
    ];
    for (text, under) in cases {
        let parsed = yaml(text);
        assert!(parsed.tree.is_none(), "{text:?}");
        assert_eq!(parsed.said(), [("RL0101", under)], "{text:?}");
    }
    let cases = [
        ("a = \n", ""),
        ("x = 'é'\n[t\nu = 1\n", ""),
        ("a = é\n", "é"),
        ("a = yes\n", "yes"),
        ("= 1\n", ""),
    ];
    for (text, under) in cases {
        let parsed = toml(text);
        assert!(parsed.tree.is_none(), "{text:?}");
        assert_eq!(parsed.said(), [("RL0101", under)], "{text:?}");
    }
}

#[test]
fn duplicate_keys_are_all_reported_and_the_first_counts() {
    let parsed = yaml("a: 1\nb: {é: 1, é: 2}\na: 2\n");
    assert_eq!(parsed.said(), [("RL0102", "é"), ("RL0102", "a")]);
    assert_eq!(parsed.tree.as_ref().unwrap().to_json(), json(r#"{"a":1,"b":{"é":1}}"#));
    let last = parsed.diagnostics.iter().last().unwrap();
    assert_eq!((last.primary.range.start, last.labels[0].range.start), (23, 0));

    let parsed = toml("a = 1\na = 2\nb = {c = 1, c = 2}\n[d]\nx = 1\n[d]\ny = 2\n");
    assert_eq!(parsed.said(), [("RL0102", "a"), ("RL0102", "c"), ("RL0102", "d")]);
    assert_eq!(parsed.tree.as_ref().unwrap().get("a").unwrap().to_json(), json("1"));
}

#[test]
fn unquoted_references_are_all_reported_and_reading_goes_on() {
    let text = "é: ${A}\nb: { path: ${DATA}/ü, n: [${N:-8}, 3] } # ${C}\nc: {d: \"${D}\"}\nc: 1\n";
    let parsed = yaml(text);
    assert_eq!(
        parsed.said(),
        [("RL0103", "${DATA}/ü"), ("RL0103", "${N:-8}"), ("RL0102", "c")]
    );
    let tree = parsed.tree.as_ref().unwrap();
    assert_eq!(
        tree.to_json(),
        json(r#"{"é":"${A}","b":{"path":"${DATA}/ü","n":["${N:-8}",3]},"c":{"d":"${D}"}}"#)
    );
    assert_eq!(parsed.at("b"), ("b", "{ path: ${DATA}/ü, n: [${N:-8}, 3] }"));
    assert_eq!(parsed.at("b.path"), ("path", "${DATA}/ü"));
    assert_eq!(parsed.at("b.n.0").1, "${N:-8}");
    assert_eq!(parsed.at("b.n.1").1, "3");
    assert_eq!(parsed.at("c.d").1, "\"${D}\"");

    let fixes: Vec<_> = parsed
        .diagnostics
        .iter()
        .filter_map(|found| found.fix.as_ref())
        .collect();
    let fixed = yaml(&apply_fixes(text, &fixes));
    assert_eq!(fixed.said(), [("RL0102", "c")]);
    assert_eq!(fixed.tree.unwrap().to_json(), tree.to_json());

    let broken = yaml("b: {a: ${A}}\nc: @\n");
    assert_eq!(broken.said(), [("RL0103", "${A}"), ("RL0101", "@")]);
    // A syntax error elsewhere is not blamed on a reference.
    assert_eq!(yaml("c: @\nb: {a: ${A}}\n").said(), [("RL0101", "@")]);
    assert_eq!(toml("a = ${A}\n").said()[0].0, "RL0101");
}

#[test]
fn leading_zeros_are_asked_about() {
    for text in ["v: 010\n", "v: [-007]\n"] {
        assert_eq!(yaml(text).only().code.id, "RL0104");
    }
    let parsed = yaml("v: 010 # é\n");
    let found = parsed.only();
    assert_eq!(parsed.said(), [("RL0104", "010")]);
    assert_eq!(
        apply_fixes("v: 010 # é\n", &[found.fix.as_ref().unwrap()]),
        "v: 10 # é\n"
    );
    assert_eq!(parsed.tree.as_ref().unwrap().get("v").unwrap().value, Value::Unresolved);
    assert!(yaml("v: 0\nw: 0.5\nx: -0\ny: 00:10\nz: '00'\n").diagnostics.is_empty());
    let parsed = toml("a = 010 # é\n");
    assert_eq!(parsed.said(), [("RL0104", "010")]);
    assert_eq!(
        apply_fixes("a = 010\n", &[parsed.only().fix.as_ref().unwrap()]),
        "a = 10\n"
    );
}

#[test]
fn numbers_that_cannot_be_held() {
    let numbers = [
        ".inf",
        "-.INF",
        ".nan",
        "1e400",
        "9223372036854775808",
        "123456789012345678901234567890",
        "0xffffffffffffffff",
    ];
    for written in numbers {
        assert_eq!(yaml(&format!("é: [{written}]\n")).said(), [("RL0111", written)]);
    }
    for written in ["inf", "nan", "1e400", "9223372036854775808"] {
        assert_eq!(toml(&format!("a = [{written}]\n")).said(), [("RL0111", written)]);
    }
}

#[test]
fn large_and_deep_documents_are_refused() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(yaml(&nested(MAXIMUM_DEPTH)).diagnostics.is_empty());
    for depth in [MAXIMUM_DEPTH + 1, 300, 10_000] {
        assert_eq!(yaml(&nested(depth)).only().code.id, "RL0112", "{depth}");
        assert_eq!(
            toml(&format!("a = {}", nested(depth))).only().code.id,
            "RL0112",
            "{depth}"
        );
        assert_eq!(
            toml(&format!("{}x = 1", "a.".repeat(depth))).only().code.id,
            "RL0112",
            "{depth}"
        );
    }
    let block: String = (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(yaml(&block).only().code.id, "RL0112");
    let bomb: String = ('b'..='j')
        .zip('a'..)
        .map(|(name, below)| format!("{name}: &{name} [{}]\n", vec![format!("*{below}"); 10].join(", ")))
        .collect();
    assert_eq!(yaml(&format!("a: &a [x]\n{bomb}")).only().code.id, "RL0112");
    let large = "a: [x, y, z]\n".repeat(400_000);
    assert!(large.len() > 5_000_000);
    assert_eq!(yaml(&large).only().code.id, "RL0112");
    assert_eq!(toml(&large).only().code.id, "RL0112");
}

#[test]
fn a_text_just_below_the_limit_is_read() {
    let text: String = (0..20_000)
        .map(|index| format!("key_{index}: {{ a: {:_<90}é, b: [é, 1.5] }}\n", "x"))
        .collect();
    assert!(text.len() > 2_000_000, "{}", text.len());
    let parsed = yaml(&text);
    assert_eq!(parsed.tree().entries().len(), 20_000);
    assert_eq!(parsed.at("key_19999.b"), ("b", "[é, 1.5]"));
}

#[test]
fn texts_with_nothing_in_them() {
    for text in ["", "# only\n", "\n\n", "---\n"] {
        assert_eq!(yaml(text).tree().value, Value::Null, "{text:?}");
    }
    assert_eq!(toml("# only\n").tree().value, Value::Map(Vec::new()));
}

#[test]
fn overlays_merge_mappings_and_replace_the_rest() {
    let mut sources = Sources::new("/home/ada");
    let mut diagnostics = Diagnostics::default();
    let mut tree = |name: &str, text: &str| {
        let id = sources.add_file(Path::new(name), text);
        parse(&sources, id, &mut diagnostics).unwrap()
    };
    let base = tree("base.yaml", "a: {x: 1, y: [1, 2], p: q}\nb: 1\n");
    let overlay = tree("over.toml", "c = 3\n[a]\ny = [3]\nz = 4\n");
    let merged = merge(base, overlay);
    let argument = set_argument(&mut sources, "a.x = {é: 2}").unwrap();
    let merged = merge(merged, argument);
    assert_eq!(
        merged.to_json(),
        json(r#"{"a":{"x":{"é":2},"y":[3],"p":"q","z":4},"b":1,"c":3}"#)
    );
    let name = |path: &str| {
        let range = merged.at(&segments(path)).tree.range;
        (sources.get(range.source).name.as_str(), sources.text(range))
    };
    assert_eq!(name("b"), ("base.yaml", "1"));
    assert_eq!(name("a.y"), ("over.toml", "[3]"));
    assert_eq!(name("a.x.é"), ("--set a.x = {é: 2}", "2"));
    let key = merged.at(&segments("a.y")).key_range.unwrap();
    assert_eq!(
        (sources.get(key.source).name.as_str(), sources.text(key)),
        ("over.toml", "y")
    );
    assert_eq!(
        merged.get("a").unwrap().get("p").unwrap().origin,
        Origin::File(Path::new("/home/ada").into())
    );
    assert_eq!(
        merged.get("a").unwrap().get("x").unwrap().origin,
        Origin::Working(Path::new("/home/ada").into())
    );
}

#[test]
fn null_in_an_overlay_takes_a_key_out() {
    let mut sources = Sources::default();
    let mut diagnostics = Diagnostics::default();
    let mut tree = |text: &str| {
        let id = sources.add_file(Path::new("a.yaml"), text);
        parse(&sources, id, &mut diagnostics).unwrap()
    };
    let (base, overlay) = (
        tree("a: {x: 1, y: {z: 2}}\nb: 1\n"),
        tree("a: {y: null, w: null}\nb: ~\n"),
    );
    let merged = merge(base, overlay);
    // What the base does not have stays as it is written.
    assert_eq!(merged.to_json(), json(r#"{"a":{"x":1,"w":null}}"#));
    let argument = set_argument(&mut sources, "a=null").unwrap();
    assert_eq!(merge(merged, argument).to_json(), json("{}"));
}

#[test]
fn bad_arguments() {
    let cases = [
        ("nodes.trainer", "RL0106", "nodes.trainer"),
        ("a..b=1", "RL0106", "="),
        ("=1", "RL0106", "="),
        ("a.0=1", "RL0106", "0"),
        ("a[0]=1", "RL0106", "a[0]"),
        ("a.b=", "RL0106", "="),
        ("é.b=[1, 2", "RL0106", "["),
        ("é={a: 1, a: 2}", "RL0102", "a"),
        ("a={b: ${X}}", "RL0103", "${X}"),
        ("é=010", "RL0104", "010"),
    ];
    for (argument, code, under) in cases {
        let mut sources = Sources::default();
        let found = set_argument(&mut sources, argument).unwrap_err();
        assert_eq!(found.code.id, code, "{argument}");
        if argument != "a..b=1" && argument != "=1" {
            assert_eq!(sources.text(found.primary.range), under, "{argument}");
        }
        assert_eq!(
            sources.get(found.primary.range.source).name,
            format!("--set {argument}")
        );
    }
    let mut sources = Sources::default();
    let tree = set_argument(&mut sources, "run.x=a=b").unwrap();
    assert_eq!(tree.to_json(), json(r#"{"run":{"x":"a=b"}}"#));
    assert_eq!(
        set_argument(&mut sources, "x='010'").unwrap().to_json(),
        json(r#"{"x":"010"}"#)
    );
}

#[test]
fn values_can_be_taken_out() {
    let mut tree = yaml("a: {b: [1, 2, 3], c: 4}\n").tree.unwrap();
    assert_eq!(tree.remove(&segments("a.b.1")).unwrap().to_json(), json("2"));
    assert!(tree.remove(&segments("a.b.9")).is_none());
    assert!(tree.remove(&segments("a.c.d")).is_none());
    assert!(tree.remove(&segments("a.c")).is_some());
    assert_eq!(tree.to_json(), json(r#"{"a":{"b":[1,3]}}"#));
    assert_eq!(path_text(&segments("optim.betas.1")), "optim.betas[1]");
}

#[test]
fn the_examples_of_the_codes_have_what_they_explain() {
    for code in
        ["RL0101", "RL0102", "RL0103", "RL0104", "RL0105", "RL0111"].map(|id| crate::diagnostic::code(id).unwrap())
    {
        let mut parsed = yaml(code.explanation.example);
        if let Some(tree) = &mut parsed.tree {
            interpolate(tree, &parsed.sources, &mut parsed.diagnostics, &mut |_| None);
        }
        assert_eq!(parsed.only().code, code);
    }
}
