use std::process::{Command, Stdio};

use crate::{assert_golden, project, rlpipe};

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let page = rlpipe(&project(), &["man", "--markdown"]).expect(0);
    assert_golden("docs/reference/cli.md", &page.output);
}

#[test]
fn each_verb_has_a_page_for_man() {
    let folder = tempfile::tempdir().unwrap();
    rlpipe(folder.path(), &["man", "--output", "man1"]).expect(0);
    let page = std::fs::read_to_string(folder.path().join("man1/rlpipe-validate.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("watch"), "{page}");
    assert!(folder.path().join("man1/rlpipe.1").exists());
    let first = rlpipe(folder.path(), &["man"]).expect(0);
    assert!(first.output.contains(".SH SYNOPSIS"), "{}", first.output);
}

#[test]
fn shells_can_read_their_completions() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])] {
        let script = rlpipe(folder.path(), &["completions", shell]).expect(0).output;
        assert!(script.contains("validate") && script.contains("watch"), "{shell}");
        let path = folder.path().join(shell);
        std::fs::write(&path, script).unwrap();
        let read = Command::new(shell)
            .args(check)
            .arg(&path)
            .stderr(Stdio::piped())
            .output();
        match read {
            Ok(read) => assert!(
                read.status.success(),
                "{shell}: {}",
                String::from_utf8_lossy(&read.stderr)
            ),
            Err(_) => eprintln!("there is no {shell} here: what it makes of its completions is not tested"),
        }
    }
}

#[test]
fn schemas_are_those_that_are_shipped() {
    for (arguments, file) in [
        (&["schema"][..], "pipeline"),
        (&["schema", "--row"], "dataset-row"),
        (&["schema", "--plugin"], "plugin"),
    ] {
        let shipped = std::fs::read_to_string(project().join(format!("schemas/{file}.schema.json"))).unwrap();
        let printed = rlpipe(&project(), arguments).expect(0).output;
        assert!(
            printed == shipped,
            "`rlpipe {}` is not `{file}.schema.json`",
            arguments.join(" ")
        );
    }
    rlpipe(&project(), &["schema", "--row", "--plugin"]).expect(2);
}
