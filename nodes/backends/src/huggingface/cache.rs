//! A repository's folder in the Hugging Face cache, as `huggingface_hub` lays it out, so that each finds what the other
//! has fetched: `blobs/HASH` (and `HASH.incomplete`), `snapshots/COMMIT/FILE` (links to blobs), `refs/REVISION` (a commit).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::errors::{DownloadError, cache};
use super::hash::{Checksum, Hasher};

/// Read at a time when what is here already is hashed.
const READ_BYTES: usize = 1 << 20;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name, without folders.
    pub name: String,
    /// What it has.
    pub size_bytes: u64,
    /// What it hashes to.
    pub checksum: Checksum,
}

/// The folder of a repository.
pub(super) struct RepositoryFolder {
    pub path: PathBuf,
}

/// A file that is being written. What is in it has gone through the hash.
pub(super) struct Partial {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    /// Bytes that are here.
    pub done_bytes: u64,
    /// Held while it is written, by the way of `huggingface_hub`: its processes wait.
    _lock: File,
}

impl RepositoryFolder {
    /// Where a content is.
    fn blob(&self, entry: &Entry) -> PathBuf {
        self.path.join("blobs").join(entry.checksum.digits())
    }

    /// Whether the content of a file is here. Its name is its hash; it got that name when the hash was right.
    pub fn has(&self, entry: &Entry) -> bool {
        fs::metadata(self.blob(entry)).is_ok_and(|blob| blob.is_file() && blob.len() == entry.size_bytes)
    }

    /// Takes up a file where an earlier process left it.
    pub fn open(&self, entry: &Entry) -> Result<Partial, DownloadError> {
        let blob = self.blob(entry);
        make_folder(&self.path.join("blobs"))?;
        let lock = self.lock(entry)?;
        let path = blob.with_extension("incomplete");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut partial = Partial {
            file: options.open(&path).map_err(cache("open", &path))?,
            hasher: entry.checksum.hasher(entry.size_bytes),
            path,
            done_bytes: 0,
            _lock: lock,
        };
        let length = partial.file.metadata().map_err(cache("read", &partial.path))?.len();
        if length > entry.size_bytes {
            partial.restart(entry)?;
        } else {
            partial.hash_what_is_here()?;
        }
        Ok(partial)
    }

    fn lock(&self, entry: &Entry) -> Result<File, DownloadError> {
        let all = self.path.parent().unwrap_or(&self.path).join(".locks");
        let folder = all.join(self.path.file_name().unwrap_or_default());
        make_folder(&folder)?;
        let path = folder.join(format!("{}.lock", entry.checksum.digits()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(cache("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(DownloadError::Busy {
                file: entry.name.clone(),
                folder: self.path.clone(),
            }),
            Err(TryLockError::Error(source)) => Err(cache("lock", &path)(source)),
        }
    }

    /// Gives a whole file its place among the blobs; deletes it where its hash is another.
    pub fn finish(&self, partial: Partial, entry: &Entry) -> Result<(), DownloadError> {
        let Partial { path, file, hasher, .. } = partial;
        let found = hasher.digits();
        if found != entry.checksum.digits() {
            fs::remove_file(&path).map_err(cache("delete", &path))?;
            return Err(DownloadError::Checksum {
                file: entry.name.clone(),
                found,
                wanted: entry.checksum.digits().to_owned(),
            });
        }
        let blob = self.blob(entry);
        file.sync_all().map_err(cache("write", &path))?;
        fs::rename(&path, &blob).map_err(cache("rename to", &blob))?;
        sync(&self.path.join("blobs"))
    }

    /// Lets a commit's snapshot have a file whose content is here.
    pub fn link(&self, commit: &str, entry: &Entry) -> Result<(), DownloadError> {
        let folder = self.path.join("snapshots").join(commit);
        make_folder(&folder)?;
        let link = folder.join(&entry.name);
        let target = Path::new("../../blobs").join(entry.checksum.digits());
        if fs::read_link(&link).is_ok_and(|known| known == target) {
            return Ok(());
        }
        let beside = folder.join(format!(".{}.{}", entry.name, std::process::id()));
        let linked = std::os::unix::fs::symlink(target, &beside).and_then(|()| fs::rename(&beside, &link));
        linked.map_err(cache("make the link", &link))
    }

    /// Remembers which commit a branch or tag stands for.
    pub fn refer(&self, revision: &str, commit: &str) -> Result<(), DownloadError> {
        let path = self.path.join("refs").join(revision);
        let parent = path.parent().unwrap_or(&self.path);
        make_folder(parent)?;
        let beside = path.with_added_extension(std::process::id().to_string());
        let written = || -> io::Result<()> {
            let mut file = File::create(&beside)?;
            file.write_all(commit.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        };
        written().map_err(cache("write", &path))?;
        sync(parent)
    }
}

impl Partial {
    /// Forgets what is here.
    pub fn restart(&mut self, entry: &Entry) -> Result<(), DownloadError> {
        self.file.set_len(0).map_err(cache("write", &self.path))?;
        io::Seek::rewind(&mut self.file).map_err(cache("write", &self.path))?;
        self.hasher = entry.checksum.hasher(entry.size_bytes);
        self.done_bytes = 0;
        Ok(())
    }

    fn hash_what_is_here(&mut self) -> Result<(), DownloadError> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = self.file.read(&mut buffer).map_err(cache("read", &self.path))?;
            if read == 0 {
                return Ok(());
            }
            self.hasher.update(&buffer[..read]);
            self.done_bytes += read as u64;
        }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// They cannot be written. What of them was written is cut off again: all that is here has been hashed.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.file.set_len(self.done_bytes);
            return Err(error);
        }
        self.hasher.update(bytes);
        self.done_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn make_folder(folder: &Path) -> Result<(), DownloadError> {
    fs::create_dir_all(folder).map_err(cache("make the folder", folder))
}

/// Makes names that were given last.
fn sync(folder: &Path) -> Result<(), DownloadError> {
    File::open(folder)
        .and_then(|handle| handle.sync_all())
        .map_err(cache("sync the folder", folder))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A file that is written to the one disk of every system that is always full.
    pub fn on_a_full_disk(entry: &Entry) -> Partial {
        let path = PathBuf::from("/dev/full");
        Partial {
            file: OpenOptions::new().write(true).open(&path).unwrap(),
            _lock: File::open("/dev/null").unwrap(),
            path,
            hasher: entry.checksum.hasher(entry.size_bytes),
            done_bytes: 0,
        }
    }
}
