use proptest::prelude::*;

use super::*;

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let text = prop_oneof![
        ".{0,12}",
        "[-+0-9._eExob:]{1,8}",
        "[ \t\n\r#:,{}\\[\\]&*!|>%@'\"$~?-]{1,6}",
        prop::sample::select(vec![
            "yes", "no", "on", "null", "~", "true", "010", "1e3", "${x}", "$${x}", ".inf", "=", "<<", ""
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>()
            .prop_filter("JSON has finite numbers only", |value| value.is_finite())
            .prop_map(Into::into),
        text.clone().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::vec((text.clone(), inner), 0..4).prop_map(|entries| {
                serde_json::Value::Object(entries.into_iter().filter(|(key, _)| key != "<<").collect())
            }),
        ]
    })
}

/// Every range lies in the text, on whole characters, and within the range of what holds it.
fn check_ranges(parsed: &Parsed, tree: &Tree) {
    let text = &*parsed.sources.get(tree.range.source).text;
    for range in tree.entries().iter().map(|entry| entry.key_range).chain([tree.range]) {
        assert!(
            text.get(range.start as usize..range.end as usize).is_some(),
            "{range:?} in {text:?}"
        );
    }
    for child in tree.entries().iter().map(|entry| &entry.value).chain(tree.elements()) {
        check_ranges(parsed, child);
    }
}

fn survives(file: &str, text: &str) {
    let mut parsed = parsed(file, text);
    let sources = parsed.sources.clone();
    if let Some(tree) = &mut parsed.tree {
        let mut diagnostics = Diagnostics::default();
        interpolate(tree, &sources, &mut diagnostics, &mut |_| None);
    }
    if let Some(tree) = &parsed.tree {
        check_ranges(&parsed, tree);
        let _ = decode::<std::collections::BTreeMap<String, Vec<f64>>>(tree, &[]);
    }
    let rendered = crate::diagnostic::render_full(&parsed.diagnostics, &parsed.sources, false);
    assert_eq!(rendered.is_empty(), parsed.diagnostics.is_empty());
    crate::diagnostic::render_json(&parsed.diagnostics, &parsed.sources);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back_the_same(value in any_json()) {
        let text = to_yaml(&value);
        let mut parsed = yaml(&text);
        prop_assert!(parsed.diagnostics.is_empty(), "{text}\n{:?}", parsed.said());
        let tree = parsed.tree.as_mut().unwrap();
        interpolate(tree, &parsed.sources, &mut parsed.diagnostics, &mut |_| None);
        prop_assert!(parsed.diagnostics.is_empty(), "{text}");
        let read = parsed.tree.unwrap().to_json();
        prop_assert_eq!(&read, &value, "{}", text);
        prop_assert_eq!(to_yaml(&read), text);
    }

    #[test]
    fn no_text_is_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        survives("a.yaml", &text);
        survives("a.toml", &text);
    }

    #[test]
    fn no_near_yaml_is_too_odd(text in "([a-cé]: |- |[{}\\[\\],:&*!|>'\"#%@~$\n\t ]|\\$\\{[A-C:-]{0,3}\\}?|x|01|\r\n|\u{feff}|<<: \\*a|&a ){0,40}") {
        survives("a.yaml", &text);
        survives("a.toml", &text);
        let mut sources = Sources::default();
        let _ = set_argument(&mut sources, &text);
    }
}

#[test]
fn values_that_other_writers_break() {
    let value = json(
        r#"{"lr":1e-6,"yes":"yes","zero":"010","exponent":"1e3","reference":"${x}","both":"$${x} $","large":1e300,
        "one":1.0,"text":"multi\nline\n","long":"x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x",
        "empty":["",{},[]],"tab":"a\tb","colon":"a: b","hash":"a #b","null":null,"nulls":"null","é":"é\u0001"}"#,
    );
    let text = to_yaml(&value);
    assert!(text.starts_with("lr: 1.0e-6\n\"yes\": \"yes\"\n"), "{text}");
    let mut parsed = yaml(&text);
    interpolate(
        parsed.tree.as_mut().unwrap(),
        &parsed.sources,
        &mut parsed.diagnostics,
        &mut |_| None,
    );
    assert_eq!(parsed.tree().to_json(), value);
}
