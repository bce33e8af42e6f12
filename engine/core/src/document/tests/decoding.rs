use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::kind::Choice;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trainer {
    lr: f64,
    steps: u32,
    #[serde(default)]
    offload: bool,
    #[serde(default)]
    name: String,
    #[serde(default)]
    interval: Option<u8>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    optim: Option<Optim>,
    #[serde(default)]
    produce: Produce,
    #[serde(default)]
    weights: BTreeMap<String, f64>,
    #[serde(default)]
    rules: Vec<Optim>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Optim {
    betas: [f64; 2],
    #[serde(default)]
    eps: f64,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Produce {
    #[default]
    Sync,
    Async(Optim),
    Tail {
        groups: u32,
    },
}

/// Path, text under the range, and what is wrong, in words.
fn faults<T: serde::de::DeserializeOwned + std::fmt::Debug>(parsed: &Parsed) -> Vec<(String, &str, String)> {
    let faults = decode::<T>(parsed.tree.as_ref().unwrap(), &["type"]).unwrap_err();
    faults
        .into_iter()
        .map(|fault| {
            (
                path_text(&fault.path),
                parsed.under(fault.range),
                fault.what.to_string(),
            )
        })
        .collect()
}

fn one<T: serde::de::DeserializeOwned + std::fmt::Debug>(text: &str) -> (String, String, String) {
    let parsed = yaml(text);
    let mut found = faults::<T>(&parsed);
    assert_eq!(found.len(), 1, "{found:?}");
    let (path, under, what) = found.remove(0);
    (path, under.to_owned(), what)
}

fn triple(path: &str, under: &str, what: &str) -> (String, String, String) {
    (path.to_owned(), under.to_owned(), what.to_owned())
}

#[test]
fn a_config_is_decoded() {
    let text = "type: trainer\nlr: 1e-6\nsteps: 2\ninterval: 4\noptim: {betas: [1, 0.5]}\nproduce: {tail: {groups: 3}}\nweights: {a: 2}\n";
    let trainer: Trainer = decode(yaml(text).tree(), &["type"]).unwrap();
    assert_eq!(trainer.interval, Some(4));
    assert_eq!(
        trainer.optim,
        Some(Optim {
            betas: [1.0, 0.5],
            eps: 0.0
        })
    );
    assert_eq!(trainer.produce, Produce::Tail { groups: 3 });
    assert_eq!(trainer.weights["a"], 2.0);
    for produce in ["sync", "{sync: {}}", "{sync: null}"] {
        let text = format!("lr: 1\nsteps: 2\nproduce: {produce}\n");
        assert_eq!(
            decode::<Trainer>(yaml(&text).tree(), &[]).unwrap().produce,
            Produce::Sync
        );
    }
}

#[test]
fn each_fault_has_its_path_range_and_words() {
    let with = |rest: &str| one::<Trainer>(&format!("é: &x 1\nlr: 0.1\nsteps: 1\n{rest}\n").replace("é: &x 1\n", ""));
    assert_eq!(
        with("offload: yes"),
        triple("offload", "yes", "expected `true` or `false`, found text `yes`")
    );
    assert_eq!(
        with("name: 12"),
        triple(
            "name",
            "12",
            "expected text, found the number `12`, which needs quotes to be text"
        )
    );
    assert_eq!(
        with("interval: 300"),
        triple(
            "interval",
            "300",
            "expected a whole number from 0 to 255, found the number `300`"
        )
    );
    assert_eq!(with("tags: é"), triple("tags", "é", "expected a list, found text `é`"));
    assert_eq!(
        with("tags: [a, {}]"),
        triple("tags[1]", "{}", "expected text, found a mapping")
    );
    assert_eq!(
        with("optim:\n  betas: [0.9, x]"),
        triple("optim.betas[1]", "x", "expected a number, found text `x`")
    );
    assert_eq!(
        with("optim:\n  betas: [1]"),
        triple("optim.betas", "betas", "expected 2 elements, found 1")
    );
    assert_eq!(
        with("optim:\n  eps: 1"),
        triple("optim", "optim", "the key `betas` is missing")
    );
    assert_eq!(
        with("optim: []"),
        triple("optim", "optim", "expected a mapping, found a list")
    );
    assert_eq!(with("lrr: 2"), triple("lrr", "lrr", "unknown key `lrr`"));
    assert_eq!(
        with("produce: now"),
        triple("produce", "now", "`now` is not one of `sync`, `async`, `tail`")
    );
    assert_eq!(
        with("produce: {now: {}}"),
        triple("produce.now", "now", "`now` is not one of `sync`, `async`, `tail`")
    );
    assert_eq!(
        with("produce: 3"),
        triple(
            "produce",
            "3",
            "expected one of `sync`, `async`, `tail`, found the number `3`"
        )
    );
    assert_eq!(
        with("produce: {sync: {a: 1}}"),
        triple("produce.sync.a", "a", "unknown key `a`")
    );
    assert_eq!(
        with("produce: {sync: 4}"),
        triple("produce.sync", "4", "expected no settings, found the number `4`")
    );
    assert_eq!(
        with("produce: async"),
        triple("produce", "async", "the key `betas` is missing")
    );
    assert_eq!(
        with("produce: {async: {}}"),
        triple("produce.async", "async", "the key `betas` is missing")
    );
    assert_eq!(
        with("produce: {sync: {}, tail: {groups: 1}}"),
        triple(
            "produce",
            "produce",
            "expected one choice, found 2: keep one of `sync`, `tail`"
        )
    );
    assert_eq!(
        with("weights: {é: x}"),
        triple("weights.é", "x", "expected a number, found text `x`")
    );
    assert_eq!(
        with("rules:\n- betas: [1, 2]\n- eps: 1"),
        triple("rules[1]", "eps", "the key `betas` is missing")
    );
    assert_eq!(
        one::<Trainer>("lr: ~\nsteps: 1\n"),
        triple("lr", "~", "expected a number, found nothing")
    );
    assert_eq!(
        one::<Trainer>("lr:\nsteps: 1\n"),
        triple("lr", "lr", "expected a number, found nothing")
    );
    assert_eq!(
        one::<Trainer>("lr: 1\nsteps: -1\n").2,
        "expected a whole number from 0 to 4294967295, found the number `-1`"
    );
    assert_eq!(
        one::<Trainer>("lr: 1\nsteps: 2.0\n").2,
        "expected a whole number, found the number `2.0`"
    );
    assert_eq!(
        one::<Trainer>("- 1\n"),
        triple("", "- 1", "expected a mapping, found a list")
    );
}

#[test]
fn all_faults_of_one_tree_come_at_once() {
    let text = "lr: fast\nlrr: 1\nintervall: 2\noffload: 1\ntags: [a, 1, 2]\nproduce: {tail: {groups: x, more: 1}}\n\
                optim: {eps: y}\nrules: [{betas: [1, z], q: 1}, {betas: [1, 2]}, {eps: w}]\n";
    let parsed = yaml(text);
    let found: Vec<_> = faults::<Trainer>(&parsed)
        .into_iter()
        .map(|(path, under, _)| (path, under))
        .collect();
    let expected = [
        ("lr", "fast"),
        ("lrr", "lrr"),
        ("intervall", "intervall"),
        ("offload", "1"),
        ("tags[1]", "1"),
        ("tags[2]", "2"),
        ("produce.tail.groups", "x"),
        ("optim.eps", "y"),
        ("optim", "optim"),
        ("rules[0].betas[1]", "z"),
        ("rules[0].q", "q"),
        ("rules[2].eps", "w"),
        ("rules[2]", "{eps: w}"),
        ("", "lr"),
    ];
    // The last is the whole, which lacks `steps`.
    assert_eq!(found, expected.map(|(path, under)| (path.to_owned(), under)));

    let parsed = toml("lr = 'fast'\nintervall = 2\n[optim]\nbetas = [1, 'é']\n");
    let found: Vec<_> = faults::<Trainer>(&parsed)
        .into_iter()
        .map(|(path, under, _)| (path, under))
        .collect();
    assert_eq!(
        found[..3],
        [
            ("lr".into(), "'fast'"),
            ("intervall".into(), "intervall"),
            ("optim.betas[1]".into(), "'é'")
        ]
    );
    assert_eq!(found.len(), 4);
}

#[test]
fn several_missing_keys_are_all_named() {
    let parsed = yaml("name: x\noptim: {}\n");
    let missing: Vec<_> = faults::<Trainer>(&parsed)
        .into_iter()
        .map(|(path, _, what)| (path, what))
        .collect();
    let expected = [("optim", "betas"), ("", "lr"), ("", "steps")]
        .map(|(path, key)| (path.to_owned(), format!("the key `{key}` is missing")));
    assert_eq!(missing, expected);
}

#[test]
fn loose_text_takes_the_wanted_type() {
    let mut parsed = yaml(
        "lr: ${V}\nsteps: ${V}\noffload: ${B}\nname: ${V}\ninterval: ${V}\nweights: {a: \"${V}\"}\nproduce: ${P}\n",
    );
    let working = parsed.sources.working();
    let tree = parsed.tree.as_mut().unwrap();
    let values = |name: &str| match name {
        "V" => "8",
        "B" => "true",
        _ => "sync",
    };
    interpolate(tree, &parsed.sources, &mut parsed.diagnostics, &mut |reference| {
        Some(Substitute {
            text: values(&reference.name).to_owned(),
            origin: working.clone(),
        })
    });
    let trainer: Trainer = decode(parsed.tree(), &[]).unwrap();
    assert_eq!(
        (trainer.lr, trainer.steps, trainer.offload, trainer.name.as_str()),
        (8.0, 8, true, "8")
    );
    assert_eq!(
        (trainer.interval, trainer.weights["a"], trainer.produce),
        (Some(8), 8.0, Produce::Sync)
    );

    // Text that was written stays text, and a loose one that does not fit is a fault.
    assert_eq!(
        one::<Trainer>("lr: '8'\nsteps: 1\n").2,
        "expected a number, found text `8`"
    );
    let mut parsed = yaml("lr: 1\nsteps: ${V}\n");
    interpolate(
        parsed.tree.as_mut().unwrap(),
        &parsed.sources,
        &mut parsed.diagnostics,
        &mut |_| {
            Some(Substitute {
                text: "eight".into(),
                origin: working.clone(),
            })
        },
    );
    assert_eq!(faults::<Trainer>(&parsed)[0].1, "${V}");
}

#[test]
fn unresolved_values_bring_no_fault_of_their_own() {
    let open = |text: &str| {
        let mut parsed = yaml(text);
        interpolate(
            parsed.tree.as_mut().unwrap(),
            &parsed.sources,
            &mut parsed.diagnostics,
            &mut |_| None,
        );
        let found = faults::<Trainer>(&parsed)
            .into_iter()
            .map(|(path, under, _)| (path, under.to_owned()));
        found.collect::<Vec<_>>()
    };
    assert_eq!(open("lr: ${X}\nsteps: 1\n"), []);
    assert_eq!(
        open("lr: 1\nsteps: ${X}\noptim: ${X}\nproduce: ${X}\ntags: ${X}\nrules: [\"${X}\"]\nweights: ${X}\n"),
        []
    );
    assert_eq!(
        open("lr: 1\nsteps: ${X}\nnam: 1\n"),
        [("nam".to_owned(), "nam".to_owned())]
    );
    assert_eq!(open("steps: ${X}\noptim: {betas: \"${X}\", é: 1}\n").len(), 2);
}

#[derive(Debug, PartialEq, Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Estimator {
    None,
    Grpo(Grpo),
    Gae(Gae),
}

#[derive(Debug, Default, PartialEq, Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Grpo {
    eps: f64,
}

#[derive(Debug, PartialEq, Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Gae {
    lambda: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advantage {
    estimator: Choice<Estimator>,
    #[serde(default)]
    scale: f64,
}

#[test]
fn choices_through_a_wrapper_keep_exact_paths() {
    let read = |text: &str| decode::<Advantage>(yaml(text).tree(), &[]).unwrap();
    assert_eq!(
        read("estimator: grpo\n").estimator.0,
        Estimator::Grpo(Grpo { eps: 0.0 })
    );
    assert_eq!(read("estimator: {none: {}}\nscale: 2\n").scale, 2.0);
    let cases = [
        ("estimator: {grpo: {eps: x}}", "estimator.grpo.eps", "x"),
        ("estimator: {grpo: {ep: 1}}", "estimator.grpo.ep", "ep"),
        ("estimator: {grop: {}}", "estimator.grop", "grop"),
        ("estimator: grop", "estimator", "grop"),
        ("estimator: gae", "estimator", "gae"),
        ("estimator:\n  gae:\n    {}", "estimator.gae", "gae"),
        ("estimator: {grpo: {}, none: {}}", "estimator", "estimator"),
        ("estimator: {}", "estimator", "estimator"),
        ("estimator: 3", "estimator", "3"),
    ];
    for (text, path, under) in cases {
        let text = format!("{text}\nscale: y\n");
        let parsed = yaml(&text);
        let found: Vec<_> = faults::<Advantage>(&parsed)
            .into_iter()
            .map(|(path, under, _)| (path, under))
            .collect();
        assert_eq!(found, [(path.to_owned(), under), ("scale".to_owned(), "y")], "{text}");
    }
}

#[test]
fn messages_name_the_value() {
    let message = |text: &str| decode::<Trainer>(yaml(text).tree(), &[]).unwrap_err()[0].message();
    assert_eq!(
        message("lr: fast\nsteps: 1\n"),
        "`lr`: expected a number, found text `fast`"
    );
    assert_eq!(message("lr: 1\n"), "the key `steps` is missing");
    assert_eq!(message("lr: 1\nsteps: 1\nq: 1\n"), "unknown key `q`");
    assert_eq!(
        message("lr: 1\nsteps: 1\nproduce: {now: 1}\n"),
        "`produce`: `now` is not one of `sync`, `async`, `tail`"
    );
}

#[test]
fn an_overlay_replaces_a_choice_and_a_file_may_not_make_two() {
    #[derive(Debug, PartialEq, Deserialize, serde::Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Kl {
        K2(Term),
        K3(Term),
    }
    #[derive(Debug, Default, PartialEq, Deserialize, serde::Serialize, schemars::JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Term {
        coefficient: f64,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct Loss {
        kl: Choice<Kl>,
    }

    let read = |base: &str, overlay: &str| {
        let (mut sources, mut diagnostics) = (Sources::new("/"), Diagnostics::default());
        let mut tree = |text: &str| {
            let id = sources.add_file(Path::new("a.yaml"), text);
            parse(&sources, id, &mut diagnostics).unwrap()
        };
        let (base, overlay) = (tree(base), tree(overlay));
        decode::<Loss>(&merge(base, overlay), &[]).map(|loss| loss.kl.0)
    };
    let base = "kl: { k3: { coefficient: 0.5 } }";
    assert_eq!(
        read(base, "kl: { k2: { coefficient: 0.1 } }"),
        Ok(Kl::K2(Term { coefficient: 0.1 }))
    );
    assert_eq!(read(base, "kl: k2"), Ok(Kl::K2(Term::default())));
    assert_eq!(
        read(base, "kl: { k3: { coefficient: 0.1 } }"),
        Ok(Kl::K3(Term { coefficient: 0.1 }))
    );
    let two = read("kl: { k2: {}, k3: {} }", "kl: {}").unwrap_err();
    assert!(two[0].message().contains("keep one of"), "{}", two[0].message());
}
