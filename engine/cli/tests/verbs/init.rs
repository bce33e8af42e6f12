use std::path::Path;

use crate::{project, rlpipe};

fn templates(folder: &Path) -> Vec<String> {
    let list = rlpipe(folder, &["init", "--list"]).expect(0).output;
    list.lines()
        .map(|line| line.split_once("  ").unwrap().0.to_owned())
        .collect()
}

#[test]
fn each_template_is_valid_in_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let templates = templates(folder.path());
    assert!(templates.len() >= 5, "{templates:?}");
    let schema = std::fs::read_to_string(project().join("schemas/pipeline.schema.json")).unwrap();
    for template in &templates {
        for format in ["yaml", "toml"] {
            let place = folder.path().join(format!("{template}-{format}"));
            std::fs::create_dir(&place).unwrap();
            let file = format!("mine.{format}");
            rlpipe(&place, &["init", template, "--output", &file]).expect(0);
            let text = std::fs::read_to_string(place.join(&file)).unwrap();
            assert!(
                !text.contains("../") && !text.contains("pipelines/"),
                "{template}: {text}"
            );
            let first = match format {
                "yaml" => "# yaml-language-server: $schema=pipeline.schema.json\n",
                _ => "#:schema pipeline.schema.json\n",
            };
            assert!(text.starts_with(first), "{template}: {text}");
            let written = std::fs::read_to_string(place.join("pipeline.schema.json")).unwrap();
            assert!(written == schema, "{template}: the schema is not the shipped one");
            let checked = rlpipe(&place, &["validate", &file]).expect(0);
            assert!(
                checked.errors.starts_with("`mine` is valid") && checked.errors.lines().count() == 1,
                "{template}: {}",
                checked.errors
            );
        }
    }
}

#[test]
fn both_formats_of_a_template_are_the_same_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let resolved = |name: &str| {
        let printed = rlpipe(folder.path(), &["validate", "--print", name]).expect(0).output;
        let values = printed
            .lines()
            .map(|line| line.split("  #").next().unwrap().trim_end().to_owned());
        values.collect::<Vec<_>>()
    };
    for template in templates(folder.path()) {
        for format in ["yaml", "toml"] {
            rlpipe(
                folder.path(),
                &["init", &template, "--output", &format!("same.{format}")],
            )
            .expect(0);
        }
        assert_eq!(resolved("same.yaml"), resolved("same.toml"), "{template}");
        for format in ["yaml", "toml"] {
            std::fs::remove_file(folder.path().join(format!("same.{format}"))).unwrap();
        }
    }
}

#[test]
fn the_quickstart_has_its_data() {
    let folder = tempfile::tempdir().unwrap();
    rlpipe(folder.path(), &["init"]).expect(0);
    let checked = rlpipe(folder.path(), &["validate", "--data", "quickstart.yaml"]).expect(0);
    assert!(
        checked.errors.contains("`prompts`: 2300 of 2300 rows"),
        "{}",
        checked.errors
    );
}

#[test]
fn nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("gsm8k_reward.py");
    std::fs::write(&mine, "mine").unwrap();
    let refused = rlpipe(folder.path(), &["init", "custom-reward"]).expect(1);
    assert!(
        refused.errors.contains("`gsm8k_reward.py` is there already"),
        "{}",
        refused.errors
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "something was written"
    );
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");

    rlpipe(folder.path(), &["init", "gsm8k", "--output", "new/run.yaml"]).expect(0);
    let again = rlpipe(folder.path(), &["init", "gsm8k", "--output", "new/run.yaml"]).expect(1);
    assert!(again.errors.contains("nothing is overwritten"), "{}", again.errors);
    // The schema that is there is the same: it is left as it is.
    rlpipe(folder.path(), &["init", "gsm8k", "--output", "new/other.yaml"]).expect(0);
}

#[test]
fn an_unknown_template_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = rlpipe(folder.path(), &["init", "gms8k"]).expect(2);
    assert!(refused.errors.contains("did you mean `gsm8k`?"), "{}", refused.errors);
}
