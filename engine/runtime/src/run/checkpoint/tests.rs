#![allow(clippy::unwrap_used)]

use tempfile::TempDir;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct State {
    step: u64,
    reward: f64,
}

fn checkpoints() -> (TempDir, Checkpoints) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("checkpoints"));
    (folder, checkpoints)
}

fn identity() -> Identity {
    let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    Identity {
        plan_hash: "p1".into(),
        fingerprints: one("data of `prompts`", "d1"),
        threads: one("local.OMP_NUM_THREADS", "2"),
        versions: one("torch", "2.11.0"),
    }
}

/// What a worker does: writes its files and reports them.
fn save(folder: &Path, step: u64) -> Vec<SavedFile> {
    let files = [
        ("policy/model.safetensors", format!("weights of {step}")),
        ("rng.json", "{}".to_owned()),
    ];
    let report = |(name, content): (&str, String)| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &content).unwrap();
        SavedFile {
            name: name.into(),
            bytes: content.len() as u64,
            sha256: sha256(content.as_bytes()),
        }
    };
    files.map(report).to_vec()
}

fn write(checkpoints: &Checkpoints, step: u64, keep: usize) -> PathBuf {
    let partial = checkpoints.begin(step).unwrap();
    let files = save(partial.path(), step);
    partial
        .commit(&State { step, reward: 0.1 }, files, &identity(), keep)
        .unwrap()
}

fn newest(checkpoints: &Checkpoints) -> Result<Option<Checkpoint<State>>, RunError> {
    checkpoints.newest()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to)
        } else {
            assert!(fs::copy(entry.path(), to).unwrap() > 0)
        }
    }
}

#[test]
fn what_was_written_is_read_and_the_oldest_go() {
    let (_folder, checkpoints) = checkpoints();
    assert!(newest(&checkpoints).unwrap().is_none());
    for step in [5, 10, 15] {
        write(&checkpoints, step, 2);
    }
    assert_eq!(checkpoints.steps().unwrap(), [10, 15]);
    assert_eq!(names(&checkpoints.folder).unwrap(), ["step-10", "step-15"]);
    let read = newest(&checkpoints).unwrap().unwrap();
    assert_eq!(read.folder, checkpoints.folder.join("step-15"));
    assert_eq!(read.state, State { step: 15, reward: 0.1 });
    assert_eq!((read.manifest.step, &read.manifest.identity), (15, &identity()));
    let files: Vec<&str> = read.manifest.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(files, ["policy/model.safetensors", "rng.json", "state.json"]);
    write(&checkpoints, 100, 0);
    assert_eq!(checkpoints.steps().unwrap(), [100]);
}

#[test]
fn steps_are_ordered_as_numbers() {
    let (_folder, checkpoints) = checkpoints();
    for step in [9, 10] {
        write(&checkpoints, step, 2);
    }
    assert_eq!(newest(&checkpoints).unwrap().unwrap().state.step, 10);
}

/// Every state that a kill can leave: the partial folder with any number of the files written, the last one torn.
#[test]
fn whatever_a_kill_leaves_the_checkpoint_before_is_used() {
    let (scratch, checkpoints) = checkpoints();
    write(&checkpoints, 5, 2);
    let whole = write(&checkpoints, 10, 2);
    let model = scratch.path().join("whole");
    fs::rename(&whole, &model).unwrap();
    let order = ["policy/model.safetensors", "rng.json", "state.json", "manifest.json"];
    let partial = checkpoints.folder.join(".step-10.partial");
    for written in 0..=order.len() {
        for torn in [false, true] {
            fs::create_dir_all(partial.join("policy")).unwrap();
            for (index, name) in order[..written].iter().enumerate() {
                let bytes = fs::read(model.join(name)).unwrap();
                let length = if torn && index + 1 == written {
                    bytes.len() / 2
                } else {
                    bytes.len()
                };
                fs::write(partial.join(name), &bytes[..length]).unwrap();
            }
            assert_eq!(newest(&checkpoints).unwrap().unwrap().state.step, 5);
            assert!(!partial.exists());
        }
    }
    // Named, but what was to go is still there.
    copy(&model, &whole);
    copy(&model, &checkpoints.folder.join(".step-5.partial"));
    assert_eq!(newest(&checkpoints).unwrap().unwrap().state.step, 10);
    assert_eq!(names(&checkpoints.folder).unwrap(), ["step-10", "step-5"]);
}

#[test]
fn a_partial_folder_that_was_left_is_written_anew() {
    let (_folder, checkpoints) = checkpoints();
    let left = checkpoints.begin(5).unwrap();
    fs::write(left.path().join("old"), "old").unwrap();
    let path = write(&checkpoints, 5, 1);
    assert!(!path.join("old").exists());
    let error = checkpoints.begin(5).unwrap_err().to_string();
    assert!(error.contains("step-5` is there already"), "{error}");
}

#[test]
fn every_damaged_byte_of_the_newest_is_an_error_that_names_the_file() {
    let (_folder, checkpoints) = checkpoints();
    write(&checkpoints, 5, 2);
    let path = write(&checkpoints, 10, 2);
    for name in ["policy/model.safetensors", "rng.json", "state.json", "manifest.json"] {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        let expect = |what: &str| {
            let error = newest(&checkpoints).unwrap_err().to_string();
            assert!(error.contains("step-10` is damaged: `"), "{name}, {what}: {error}");
            assert!(
                name == "manifest.json" || error.contains(name),
                "{name}, {what}: {error}"
            );
            assert!(
                error.contains("delete that folder to resume from the checkpoint before it"),
                "{error}"
            );
        };
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            // Between tokens of the manifest's text a changed blank says the same.
            if name == "manifest.json" && whole[place].is_ascii_whitespace() {
                continue;
            }
            fs::write(&file, &bytes).unwrap();
            expect(&format!("byte {place}"));
        }
        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        expect("torn");
        fs::remove_file(&file).unwrap();
        expect("missing");
        fs::write(&file, &whole).unwrap();
        assert_eq!(newest(&checkpoints).unwrap().unwrap().state.step, 10);
    }
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(newest(&checkpoints).unwrap().unwrap().state.step, 5);
}

#[test]
fn a_folder_with_another_step_s_name_is_damaged() {
    let (_folder, checkpoints) = checkpoints();
    let path = write(&checkpoints, 5, 2);
    fs::rename(path, checkpoints.folder.join("step-6")).unwrap();
    let error = newest(&checkpoints).unwrap_err().to_string();
    assert!(error.contains("`manifest.json` is that of step 5"), "{error}");
}

#[test]
fn a_state_of_another_shape_is_told() {
    let (_folder, checkpoints) = checkpoints();
    write(&checkpoints, 5, 2);
    let error = checkpoints.newest::<Vec<u8>>().unwrap_err().to_string();
    assert!(
        error.contains("`state.json` does not fit this version of rlpipe"),
        "{error}"
    );
}

#[test]
fn what_was_reported_must_be_there() {
    let (_folder, checkpoints) = checkpoints();
    write(&checkpoints, 5, 2);
    let commit = |reward: f64, change: fn(&mut SavedFile)| {
        let partial = checkpoints.begin(10).unwrap();
        let mut files = save(partial.path(), 10);
        change(&mut files[1]);
        partial
            .commit(&State { step: 10, reward }, files, &identity(), 1)
            .unwrap_err()
            .to_string()
    };
    let error = commit(0.0, |file| file.bytes = 3);
    assert!(
        error.contains("`rng.json` has 2 bytes, but 3 were reported; the checkpoint before it"),
        "{error}"
    );
    assert!(commit(0.0, |file| file.name = "other".into()).starts_with("could not open `"));
    for name in ["../step-5/rng.json", "/etc/hostname", "", "state.json"] {
        let partial = checkpoints.begin(10).unwrap();
        let file = SavedFile {
            name: name.into(),
            bytes: 0,
            sha256: String::new(),
        };
        assert!(
            partial
                .commit(&State { step: 10, reward: 0.0 }, vec![file], &identity(), 1)
                .is_err(),
            "{name}"
        );
    }
    let error = commit(f64::NAN, |_| {});
    assert!(error.contains("`state.json` would not read back"), "{error}");
    assert_eq!(newest(&checkpoints).unwrap().unwrap().state.step, 5);
}

#[test]
fn only_the_same_run_goes_on() {
    let manifest = Manifest {
        format: FORMAT,
        step: 1,
        identity: identity(),
        files: Vec::new(),
    };
    let try_with = |change: fn(&mut Identity)| {
        let mut now = identity();
        change(&mut now);
        compatible(&manifest, &now).map_err(|error| error.to_string())
    };
    assert_eq!(try_with(|_| {}), Ok(Vec::new()));
    let error = try_with(|now| now.plan_hash = "p2".into()).unwrap_err();
    assert!(
        error.starts_with("cannot resume: the plan's hash was `p1` at the checkpoint and is `p2` now;"),
        "{error}"
    );
    assert!(
        error.contains("`run.work_dir`, `run.checkpoint`, `run.hf_export` and `run.total_steps`"),
        "{error}"
    );
    let error = try_with(|now| drop(now.fingerprints.insert("data of `prompts`".into(), "d2".into()))).unwrap_err();
    assert!(
        error.contains("the fingerprint of the data of `prompts` was `d1` at the checkpoint and is `d2`"),
        "{error}"
    );
    let error = try_with(|now| now.threads.clear()).unwrap_err();
    assert!(
        error.contains("the thread setting `local.OMP_NUM_THREADS` was `2` at the checkpoint"),
        "{error}"
    );
    let notices = try_with(|now| drop(now.versions.insert("torch".into(), "2.12.0".into()))).unwrap();
    assert_eq!(
        notices,
        ["`torch` was 2.11.0 at the checkpoint and is 2.12.0 now: results may differ"]
    );
}
