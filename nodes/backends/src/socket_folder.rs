//! The folder of the workers' socket, and those that killed drivers have left behind.
//!
//! A driver holds a lock in its folder, which goes when its process dies, however it dies. A process id in the folder's
//! name would not do: containers that share a temporary folder have ids of their own.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;

/// What such folders are called.
pub const PREFIX: &str = "rlpipe-";
/// The socket.
pub const SOCKET: &str = "driver";
/// Locked for as long as the driver lives.
const LOCK: &str = "lock";
/// The lock, before it is locked.
const NEW_LOCK: &str = "lock.new";

/// A fresh folder, open to this user only. It goes when it is dropped.
#[derive(Debug)]
pub struct SocketFolder {
    folder: TempDir,
    _lock: File,
}

impl SocketFolder {
    /// Makes one below this folder, and takes away those of drivers that are gone.
    pub fn make_below(parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        // It gets its name when it is locked: a lock that nobody holds always means a driver that is gone.
        let new = folder.path().join(NEW_LOCK);
        let lock = File::create(&new)?;
        lock.lock()?;
        fs::rename(&new, folder.path().join(LOCK))?;
        let owner = fs::metadata(folder.path())?.uid();
        clear(parent, owner);
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Takes away the folders of this user's drivers that are gone. What cannot be looked at or removed is no harm.
fn clear(parent: &Path, owner: u32) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let folder = entry.path();
        // Of a link this tells of the link itself, so that none is followed.
        let ours = entry
            .metadata()
            .is_ok_and(|folder| folder.is_dir() && folder.uid() == owner);
        let Some(lock) = ours.then(|| File::open(folder.join(LOCK)).ok()).flatten() else {
            continue;
        };
        if lock.try_lock().is_ok() {
            // Nothing but what a driver makes: the folder stays where there is more. The lock is last, so that what is
            // left by an error is tried again.
            let _ = fs::remove_file(folder.join(SOCKET));
            let _ = fs::remove_file(folder.join(LOCK));
            let _ = fs::remove_dir(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    /// What a killed driver leaves: its socket, and a lock that nobody holds.
    fn abandoned(parent: &Path) -> PathBuf {
        let folder = SocketFolder::make_below(parent).unwrap();
        drop(UnixListener::bind(folder.path().join(SOCKET)).unwrap());
        let SocketFolder { folder, _lock } = folder;
        folder.keep()
    }

    #[test]
    fn folders_of_drivers_that_are_gone_are_taken_away() {
        let parent = tempfile::tempdir().unwrap();
        let gone = [abandoned(parent.path()), abandoned(parent.path())];
        assert!(
            !gone[0].exists(),
            "the second driver took away what the first one had left"
        );
        let alive = SocketFolder::make_below(parent.path()).unwrap();
        assert!(!gone[1].exists());
        let other = SocketFolder::make_below(parent.path()).unwrap();
        assert!(alive.path().join(LOCK).exists() && other.path().join(LOCK).exists());
        drop((alive, other));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_no_driver_made_stays() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        // Without a lock it may be one that another driver is about to lock.
        fs::create_dir(at("rlpipe-new")).unwrap();
        fs::create_dir(at("rlpipe-more")).unwrap();
        fs::write(at("rlpipe-more").join(LOCK), "").unwrap();
        fs::write(at("rlpipe-more").join("results"), "mine").unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere").join(LOCK), "").unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at("rlpipe-link")).unwrap();
        drop(SocketFolder::make_below(parent.path()).unwrap());
        assert!(at("rlpipe-new").exists() && at("rlpipe-more").join("results").exists());
        assert!(at("elsewhere").join(LOCK).exists() && at("rlpipe-link").is_symlink());
    }

    #[test]
    fn folders_of_another_user_stay() {
        let parent = tempfile::tempdir().unwrap();
        let theirs = abandoned(parent.path());
        let owner = fs::metadata(&theirs).unwrap().uid();
        clear(parent.path(), owner + 1);
        assert!(theirs.join(SOCKET).exists());
        clear(parent.path(), owner);
        assert!(!theirs.exists());
    }
}
