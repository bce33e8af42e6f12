//! Paths to be read by people.

use std::path::{Component, Path, PathBuf};

/// A path without `name/..`, where `name` is not a link: through a link, `..` leads elsewhere than it reads. What is opened
/// is always the path as it was given.
pub fn shown_path(path: &Path) -> PathBuf {
    let mut shown = PathBuf::new();
    for component in path.components() {
        let named = matches!(shown.components().next_back(), Some(Component::Normal(_)));
        if component == Component::ParentDir && named && !shown.is_symlink() {
            shown.pop();
        } else {
            shown.push(component);
        }
    }
    if shown.as_os_str().is_empty() {
        shown.push(".");
    }
    shown
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn detours_are_left_out() {
        for (path, shown) in [
            ("/project/pipelines/../runs", "/project/runs"),
            ("/absent/a/b/../../c/./d", "/absent/c/d"),
            ("../runs", "../runs"),
            ("a/../../runs", "../runs"),
            ("/../runs", "/../runs"),
            ("absent/..", "."),
            ("/runs", "/runs"),
        ] {
            assert_eq!(shown_path(Path::new(path)), Path::new(shown), "{path}");
        }
    }

    #[test]
    fn a_link_is_no_detour() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("deep/elsewhere");
        std::fs::create_dir_all(&elsewhere).unwrap();
        let link = folder.path().join("pipelines");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let path = link.join("../runs");
        assert_eq!(shown_path(&path), path);
        assert_eq!(shown_path(&link.join("a/../../runs")), path);
        assert_eq!(shown_path(&elsewhere.join("../runs")), folder.path().join("deep/runs"));
    }
}
