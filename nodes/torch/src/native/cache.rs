//! A folder of compiled kernels, so that only the first process compiles them.
//!
//! An entry is named by the SHA-256 of all that it was made from, and begins with the SHA-256 of the rest of it. It appears
//! under its name whole. One that is not what it says is made anew; a folder that cannot be written to is a warning.

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::Result;

const DIGEST_BYTES: usize = 32;

/// Where compiled kernels are kept; nowhere when there is no folder.
#[derive(Debug, Clone)]
pub struct Cache(pub Option<PathBuf>);

impl Cache {
    /// RLPIPE_KERNEL_CACHE, else `rlpipe/kernels` in XDG_CACHE_HOME or in `~/.cache`.
    pub fn of_the_user() -> Self {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let caches = || variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        Self(variable("RLPIPE_KERNEL_CACHE").or_else(|| caches().map(|folder| folder.join("rlpipe/kernels"))))
    }

    /// The entry made by `compiler` from `source` with `options`, or what `make` makes, which is kept.
    pub fn get_or_make(
        &self,
        compiler: &str,
        source: &str,
        options: &[String],
        make: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let Some(folder) = &self.0 else { return make() };
        let path = folder.join(name(compiler, source, options));
        match read(&path) {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(file = %path.display(), %error, "a compiled kernel is made anew"),
        }
        let bytes = make()?;
        if let Err(error) = write(folder, &path, &bytes) {
            tracing::warn!(folder = %folder.display(), %error, "compiled kernels cannot be kept");
        }
        Ok(bytes)
    }
}

fn name(compiler: &str, source: &str, options: &[String]) -> String {
    let mut hasher = Sha256::new();
    for part in [compiler, source].into_iter().chain(options.iter().map(String::as_str)) {
        // Lengths keep the parts apart.
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digits: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}.cubin")
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    match bytes.split_at_checked(DIGEST_BYTES) {
        Some((digest, rest)) if Sha256::digest(rest)[..] == *digest => Ok(rest.to_vec()),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the file is damaged")),
    }
}

fn write(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Two processes may write the same entry at a time.
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    let written =
        fs::write(&partial, [&Sha256::digest(bytes)[..], bytes].concat()).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Error;

    fn get(cache: &Cache, options: &[String], made: &str) -> String {
        let bytes = cache.get_or_make("nvrtc 1.2", "source", options, || Ok(made.as_bytes().to_vec()));
        String::from_utf8(bytes.unwrap()).unwrap()
    }

    #[test]
    fn what_was_made_is_found_again_by_all_that_it_was_made_from() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache(Some(folder.path().join("deep/er")));
        let options = ["-DA=1".to_owned()];
        assert_eq!(get(&cache, &options, "first"), "first");
        assert_eq!(get(&cache, &options, "second"), "first");
        assert_eq!(get(&cache, &[], "third"), "third");
        let all = [
            name("a", "b", &["c".to_owned()]),
            name("a", "bc", &[]),
            name("ab", "", &["c".to_owned()]),
            name("a", "b", &["c".to_owned(), String::new()]),
        ];
        assert!((1..4).all(|at| !all[..at].contains(&all[at])));
    }

    #[test]
    fn a_damaged_entry_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache(Some(folder.path().to_owned()));
        for damage in [&b""[..], b"short", &[0; 100]] {
            get(&cache, &[], "good");
            let path = folder.path().join(name("nvrtc 1.2", "source", &[]));
            fs::write(&path, damage).unwrap();
            assert_eq!(get(&cache, &[], "anew"), "anew");
            assert_eq!(get(&cache, &[], "not asked"), "anew");
            fs::remove_file(path).unwrap();
        }
        let path = folder.path().join(name("nvrtc 1.2", "source", &[]));
        fs::create_dir(&path).unwrap();
        assert_eq!(get(&cache, &[], "a folder in its place"), "a folder in its place");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn without_a_folder_to_write_to_all_is_made_and_a_fault_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "no folder").unwrap();
        for cache in [Cache(None), Cache(Some(file.join("kernels")))] {
            assert_eq!(get(&cache, &[], "once"), "once");
            assert_eq!(get(&cache, &[], "twice"), "twice");
        }
        let cache = Cache(Some(folder.path().to_owned()));
        let failed = cache.get_or_make("nvrtc 1.2", "source", &[], || Err(Error("bad source".to_owned())));
        assert_eq!(failed.unwrap_err().0, "bad source");
        assert_eq!(get(&cache, &[], "good"), "good");
    }
}
