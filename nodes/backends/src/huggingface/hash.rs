//! The two hashes by which a hub names contents.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// What a content must hash to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Checksum {
    /// SHA-256, of large files.
    Sha256(String),
    /// The name that git gives a blob: SHA-1 of `blob SIZE\0` and the content.
    GitBlob(String),
}

/// A content on its way through a hash.
pub(super) enum Hasher {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl Checksum {
    /// A SHA-256 in lower-case hexadecimal.
    pub fn sha256(digits: &str) -> Option<Self> {
        is_hexadecimal(digits, 64).then(|| Self::Sha256(digits.to_owned()))
    }

    /// A git blob's name in lower-case hexadecimal.
    pub fn git_blob(digits: &str) -> Option<Self> {
        is_hexadecimal(digits, 40).then(|| Self::GitBlob(digits.to_owned()))
    }

    /// The digits, which are the blob's name in the cache.
    pub fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::GitBlob(digits) => digits,
        }
    }

    /// Hashes a content of so many bytes.
    pub fn hasher(&self, size_bytes: u64) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::GitBlob(_) => Hasher::GitBlob(Sha1::new_with_prefix(format!("blob {size_bytes}\0"))),
        }
    }
}

impl Hasher {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::GitBlob(hasher) => hasher.update(bytes),
        }
    }

    /// The digits of all of them.
    pub fn digits(self) -> String {
        match self {
            Self::Sha256(hasher) => hexadecimal(&hasher.finalize()),
            Self::GitBlob(hasher) => hexadecimal(&hasher.finalize()),
        }
    }
}

/// Whether a text is so many lower-case hexadecimal digits.
pub(super) fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// By `printf 'what is up, doc?' | git hash-object --stdin` (the example of the Git book) and `sha256sum`.
    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        let content = b"what is up, doc?";
        let cases = [
            Checksum::git_blob("bd9dbf5aae1a3862dd1526723246b20206e5fc37"),
            Checksum::sha256("af4e812d13b4eae6da91024f15f7679dae49d40aee3fb4c7216b56d04193f46c"),
        ];
        for checksum in cases {
            let checksum = checksum.unwrap();
            let mut hasher = checksum.hasher(content.len() as u64);
            let (first, second) = content.split_at(5);
            hasher.update(first);
            hasher.update(second);
            assert_eq!(hasher.digits(), checksum.digits());
        }
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        for text in [
            "",
            "bd9d",
            "../../../../../../../../../../../../etc/xx",
            "BD9DBF5AAE1A3862DD1526723246B20206E5FC37",
        ] {
            assert_eq!(Checksum::git_blob(text), None);
            assert_eq!(Checksum::sha256(text), None);
        }
    }
}
