//! Writes that are whole or not there.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rlpipe_core::data::ExportDtype;

use super::errors::{Named, RunError};

/// Replaces a file: written beside, synced, renamed, and the folder synced. On an error the old file stands.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    write_atomic_with(path, Some(bytes.len() as u64), |file| file.write_all(bytes))
}

/// Writes to a place that a person named. Behind a link the file that it names is replaced; what is no file, a device
/// or a pipe, is written to as it is.
pub fn write_to(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    // `/dev/stdout` names the file that output goes to, which already has some.
    let is_open = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"]
        .iter()
        .any(|open| path.starts_with(open));
    let named = || fs::read_link(path).map(|to| parent(path).join(to));
    let there = fs::canonicalize(path).or_else(|_| named());
    let path = match &there {
        Ok(there) if !is_open => there,
        _ => path,
    };
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() && (is_open || !found.is_file()) => fs::OpenOptions::new()
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(bytes))
            .named("write to", path),
        _ => write_atomic(path, bytes),
    }
}

/// The same for content that is made as it is written; `wanted` bytes, if that is known.
pub(super) fn write_atomic_with(
    path: &Path,
    wanted: Option<u64>,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), RunError> {
    let beside = beside(path);
    let written = || -> io::Result<()> {
        let mut writer = BufWriter::new(File::create(&beside)?);
        content(&mut writer)?;
        writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;
        fs::rename(&beside, path)
    };
    if let Err(source) = written() {
        // What was written of it takes up space that is likely wanted now.
        let _ = fs::remove_file(&beside);
        return Err(RunError::io("write", path, wanted, source));
    }
    sync_folder(parent(path))
}

/// Makes names that were added to or removed from a folder last.
pub(super) fn sync_folder(folder: &Path) -> Result<(), RunError> {
    File::open(folder)
        .and_then(|handle| handle.sync_all())
        .named("sync the folder", folder)
}

/// Makes a folder and those above it.
pub(super) fn make_folder(folder: &Path) -> Result<(), RunError> {
    fs::create_dir_all(folder).named("make the folder", folder)
}

/// An empty folder, in place of one that an earlier process left unfinished.
pub fn fresh_folder(folder: &Path) -> Result<(), RunError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RunError::io("remove", folder, None, error)),
        _ => make_folder(folder),
    }
}

/// Gives a finished folder its name: its files and itself are synced first.
pub fn publish_folder(partial: &Path, target: &Path) -> Result<(), RunError> {
    for name in names(partial)? {
        let path = partial.join(name);
        File::open(&path)
            .and_then(|file| file.sync_all())
            .named("sync", &path)?;
    }
    sync_folder(partial)?;
    fs::rename(partial, target).named("name the folder", target)?;
    sync_folder(parent(target))
}

/// Copies what is not weights from a model folder: config, tokenizer, and its chat template or the one in that file.
pub fn copy_texts(model: &Path, template: Option<&Path>, target: &Path) -> Result<(), RunError> {
    let weights = ["safetensors", "bin", "pt", "pth", "gguf", "h5", "msgpack"];
    for name in names(model)? {
        let path = model.join(&name);
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        if path.is_file() && !name.ends_with(".index.json") && !weights.contains(&extension) {
            copy_content(&path, &target.join(&name))?;
        }
    }
    if let Some(template) = template {
        // It goes before one in `tokenizer_config.json`.
        copy_content(template, &target.join("chat_template.jinja"))?;
    }
    Ok(())
}

/// Copies what a file holds and not its mode: a model folder may be read-only, and copies of it are written again.
fn copy_content(from: &Path, to: &Path) -> Result<(), RunError> {
    let content = fs::read(from).named("read", from)?;
    let wanted = content.len() as u64;
    fs::write(to, content).map_err(|source| RunError::io("write", to, Some(wanted), source))
}

/// Lets a model's `config.json` say in which type its weights were written. Older versions of transformers read
/// `torch_dtype`, newer ones `dtype` too.
pub fn name_dtype(config: &Path, dtype: ExportDtype) -> Result<(), RunError> {
    if dtype == ExportDtype::Source {
        return Ok(());
    }
    let text = fs::read(config).named("read", config)?;
    let mut keys: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&text)
        .map_err(io::Error::from)
        .named("read", config)?;
    if keys.contains_key("torch_dtype") || !keys.contains_key("dtype") {
        keys.insert("torch_dtype".to_owned(), dtype.name().into());
    }
    if keys.contains_key("dtype") {
        keys.insert("dtype".to_owned(), dtype.name().into());
    }
    let text = format!("{:#}\n", serde_json::Value::Object(keys));
    fs::write(config, text).named("write", config)
}

/// Names in a folder, sorted; those that are not UTF-8 are not ours. None of a folder that is not there.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, RunError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RunError::io("list the folder", folder, None, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry.named("list the folder", folder)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The content of a file; none where it is not there.
pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, RunError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RunError::io("read", path, None, error)),
    }
}

/// The step in names such as `step-12`, `step-12.jsonl`, `step-12.NODE.jsonl`.
pub(super) fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.split('.').next()?.parse().ok()
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    path.with_file_name(format!(".{name}.partial"))
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(folder.path()).unwrap(), ["plan.json"]);
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        write_atomic(&path, b"old").unwrap();
        let error = write_atomic_with(&path, Some(9), |file| {
            file.write_all(b"new")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("plan.json` (9 bytes): the disk is full")
        );
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()).unwrap(), ["plan.json"]);
    }

    #[test]
    fn links_and_pipes_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_to(&link, b"after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(fs::read_link(&link).unwrap(), file);
        fs::remove_file(&file).unwrap();
        write_to(&link, b"anew").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "anew");
        assert_eq!(fs::read_link(&link).unwrap(), file);

        // Files of memory lie among the devices.
        if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
            let file = memory.path().join("file");
            for text in ["once", "twice"] {
                write_to(&file, text.as_bytes()).unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), text);
            }
        }

        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write_to(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(!fs::metadata(&pipe).unwrap().is_file());
        assert_eq!(names(folder.path()).unwrap().len(), 3);
    }

    /// A model folder with weights and texts that are not weights.
    fn model(folder: &Path) {
        let spec = rlpipe_text::InitSpec::new(8, 1, 2, 8, 64, rlpipe_text::InitTokenizer::Bytes);
        rlpipe_text::init_folder(folder, &spec).unwrap();
        fs::write(folder.join("chat_template.jinja"), "{{ messages[0].content }}").unwrap();
        for weights in [
            "model-00001-of-00002.safetensors",
            "model.safetensors.index.json",
            "pytorch_model.bin",
        ] {
            fs::write(folder.join(weights), "old").unwrap();
        }
    }

    #[test]
    fn i9c_an_export_stops_at_every_stop_id_of_its_model() {
        let folders = tempfile::tempdir().unwrap();
        let (source, export) = (folders.path().join("model"), folders.path().join("export"));
        model(&source);
        let generation = "{\n  \"eos_token_id\": [1, 0, 65],\n  \"temperature\": 0.6\n}\n";
        fs::write(source.join("generation_config.json"), generation).unwrap();
        make_folder(&export).unwrap();
        copy_texts(&source, None, &export).unwrap();
        name_dtype(&export.join("config.json"), ExportDtype::Bfloat16).unwrap();
        let load = |folder: &Path| rlpipe_text::Tokenizer::load(folder).unwrap();
        assert_eq!(load(&source).stop_ids(), [1, 0, 65]);
        assert_eq!(load(&export).stop_ids(), [1, 0, 65]);
        assert_eq!(load(&export).fingerprint(), load(&source).fingerprint());
        let texts = names(&export).unwrap();
        assert!(
            texts
                .iter()
                .all(|name| !name.contains("model-") && !name.contains("pytorch")),
            "{texts:?}"
        );
        for name in texts.iter().filter(|name| *name != "config.json") {
            assert_eq!(
                fs::read(source.join(name)).unwrap(),
                fs::read(export.join(name)).unwrap(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_config_says_in_which_type_the_weights_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for (before, after) in [
            (
                r#"{"a":1e-6,"torch_dtype":"float16","b":2}"#,
                r#"{"a":1e-6,"torch_dtype":"bfloat16","b":2}"#,
            ),
            (r#"{"dtype":"float32"}"#, r#"{"dtype":"bfloat16"}"#),
            (r#"{"b":[1]}"#, r#"{"b":[1],"torch_dtype":"bfloat16"}"#),
        ] {
            fs::write(&path, before).unwrap();
            name_dtype(&path, ExportDtype::Source).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
            name_dtype(&path, ExportDtype::Bfloat16).unwrap();
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            let found = read(&fs::read_to_string(&path).unwrap());
            assert_eq!(found.to_string(), read(after).to_string());
        }
        fs::write(&path, "[]").unwrap();
        assert!(
            name_dtype(&path, ExportDtype::Float32)
                .unwrap_err()
                .to_string()
                .contains("config.json")
        );
    }

    #[test]
    fn steps_are_read_from_names() {
        assert_eq!(step_of("step-12"), Some(12));
        assert_eq!(step_of("step-12.marks.jsonl"), Some(12));
        assert_eq!(step_of(".step-12.partial"), None);
        assert_eq!(step_of("step-x.jsonl"), None);
    }

    #[test]
    fn texts_of_a_read_only_model_can_be_written_again() {
        use std::os::unix::fs::PermissionsExt;

        let folders = tempfile::tempdir().unwrap();
        let (source, export) = (folders.path().join("model"), folders.path().join("export"));
        model(&source);
        let other = folders.path().join("other.jinja");
        fs::write(&other, "other").unwrap();
        let texts = names(&source).unwrap().into_iter().map(|name| source.join(name));
        for path in texts.chain([other.clone()]) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        }
        make_folder(&export).unwrap();
        copy_texts(&source, Some(&other), &export).unwrap();
        // Root may write to any file, so the mode is looked at too.
        for name in names(&export).unwrap() {
            let mode = fs::metadata(export.join(&name)).unwrap().permissions().mode();
            assert_ne!(mode & 0o200, 0, "{name}: {mode:o}");
        }
        name_dtype(&export.join("config.json"), ExportDtype::Bfloat16).unwrap();
    }

    #[test]
    fn a_chat_template_from_elsewhere_goes_along() {
        let folder = tempfile::tempdir().unwrap();
        let [model, target] = ["model", "target"].map(|name| folder.path().join(name));
        for folder in [&model, &target] {
            fs::create_dir(folder).unwrap();
        }
        for name in [
            "config.json",
            "chat_template.jinja",
            "model.safetensors",
            "model.safetensors.index.json",
        ] {
            fs::write(model.join(name), "own").unwrap();
        }
        let other = folder.path().join("other.jinja");
        fs::write(&other, "other").unwrap();
        let template = || fs::read_to_string(target.join("chat_template.jinja")).unwrap();
        copy_texts(&model, None, &target).unwrap();
        assert_eq!(names(&target).unwrap(), ["chat_template.jinja", "config.json"]);
        assert_eq!(template(), "own");
        copy_texts(&model, Some(&other), &target).unwrap();
        assert_eq!(template(), "other");
    }
}
