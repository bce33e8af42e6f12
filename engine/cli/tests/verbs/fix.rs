use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use crate::{project, rlpipe};

fn quickstart() -> String {
    std::fs::read_to_string(project().join("pipelines/quickstart.yaml")).unwrap()
}

#[test]
fn fixes_are_applied_in_every_file_until_nothing_is_left_to_fix() {
    let folder = tempfile::tempdir().unwrap();
    let text = quickstart()
        .replace("examples_per_step", "batch_size")
        .replace("type: trainer", "type: trianer");
    let text = text.replace("max_tokens_per_pack: 4096", "max_token_per_pack: 4096");
    let overlay = "nodes:\n  buffer: { promts_per_step: 16 }\n";
    std::fs::write(folder.path().join("base.yaml"), &text).unwrap();
    let mine = folder.path().join("mine.yaml");
    std::fs::write(folder.path().join("real.yaml"), overlay).unwrap();
    std::os::unix::fs::symlink("real.yaml", &mine).unwrap();
    std::fs::set_permissions(&mine, Permissions::from_mode(0o640)).unwrap();
    // The setting of the trainer is seen only once its kind is right.
    let fixed = rlpipe(folder.path(), &["validate", "--fix", "base.yaml", "mine.yaml"]).expect(0);
    for said in [
        "mine.yaml:2:13: `promts_per_step` is `prompts_per_step` now\n",
        "`batch_size` is `examples_per_step` now\n",
        "`trianer` is `trainer` now\n",
        "`max_token_per_pack` is `max_tokens_per_pack` now\n",
        "4 fixes applied\n",
        "`quickstart` is valid",
    ] {
        assert!(fixed.errors.contains(said), "{said}: {}", fixed.errors);
    }
    assert_eq!(
        std::fs::read_to_string(folder.path().join("base.yaml")).unwrap(),
        quickstart()
    );
    assert_eq!(
        std::fs::read_to_string(&mine).unwrap(),
        overlay.replace("promts", "prompts")
    );
    assert!(mine.is_symlink());
    assert_eq!(mine.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let again = rlpipe(folder.path(), &["validate", "--fix", "base.yaml", "mine.yaml"]).expect(0);
    assert!(again.errors.starts_with("nothing to fix\n"), "{}", again.errors);
}

#[test]
fn an_argument_is_for_the_user_to_change() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.yaml"), quickstart()).unwrap();
    let arguments = ["validate", "--fix", "p.yaml", "--set", "nodes.trainer.max_grad_nrm=3"];
    let left = rlpipe(folder.path(), &arguments).expect(78);
    let said = "`--set nodes.trainer.max_grad_nrm=3` is for you to change: `--set nodes.trainer.max_grad_norm=3`\n";
    assert!(left.errors.contains(said), "{}", left.errors);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("p.yaml")).unwrap(),
        quickstart()
    );
}

#[test]
fn an_old_name_works_and_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let old = quickstart().replace("examples_per_step", "batch_size");
    std::fs::write(folder.path().join("old.yaml"), old).unwrap();
    let checked = rlpipe(folder.path(), &["validate", "old.yaml", "--format", "concise"]).expect(0);
    let said = "old.yaml:20:5: warning[RL0212]: `batch_size` in `nodes.warm_up` is called `examples_per_step` now\n";
    assert!(checked.errors.starts_with(said), "{}", checked.errors);
    let print = |set: &[&str]| {
        let arguments = [&["validate", "--print", "old.yaml"], set].concat();
        rlpipe(folder.path(), &arguments).expect(0).output
    };
    let line = |text: String| {
        let found = text
            .lines()
            .find(|line| line.contains("examples_per_step"))
            .map(str::to_owned);
        found.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line(print(&[])), "examples_per_step: 64 # old.yaml:20");
    // The later text counts, whichever name each has.
    let set = "nodes.warm_up.examples_per_step=32";
    assert_eq!(
        line(print(&["--set", set])),
        format!("examples_per_step: 32 # --set {set}")
    );
    std::fs::write(folder.path().join("old.yaml"), quickstart()).unwrap();
    let set = "nodes.warm_up.batch_size=16";
    assert_eq!(
        line(print(&["--set", set])),
        format!("examples_per_step: 16 # --set {set}")
    );
}
