//! Digests of weights that were hashed before, kept in the user's cache, so that a server with a large model does not hash it at
//! every start.
//!
//! An entry is found by the identity of the open files: device, inode, length, times of the last change of content and of
//! metadata. A file that is written to, replaced or copied is hashed again. Who may set the clock and write the cache can fool
//! it; the audit therefore never asks it and hashes what it loads.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::{Checkpoint, smollm2};

/// Folder in the cache.
const FOLDER: &str = "digests";
/// A file changed less than this before it was hashed could be changed again within the same tick of its clock.
const SETTLED: Duration = Duration::from_secs(2);

/// The place of one model's digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    path: PathBuf,
    changed: SystemTime,
}

impl Known {
    /// The place for a checkpoint's weights. `None` where they are in no file, or where there is no cache folder.
    pub fn of(checkpoint: &Checkpoint) -> Option<Self> {
        Self::in_folder(checkpoint, smollm2::cache_folder().ok()?.join(FOLDER))
    }

    fn in_folder(checkpoint: &Checkpoint, folder: PathBuf) -> Option<Self> {
        let files = checkpoint.tensors.files();
        let mut hasher = blake3::Hasher::new();
        hasher.update(checkpoint.config.canonical_text().as_bytes());
        let mut changed = None;
        for file in files {
            let stamp = Stamp::of(&file.metadata().ok()?)?;
            hasher.update(stamp.text.as_bytes());
            changed = changed.max(Some(stamp.changed));
        }
        Some(Self { path: folder.join(hasher.finalize().to_hex().as_str()), changed: changed? })
    }

    /// The digest, if these very files were hashed before.
    pub fn find(&self) -> Option<blake3::Hash> {
        blake3::Hash::from_hex(fs::read_to_string(&self.path).ok()?.trim()).ok()
    }

    /// Keeps the digest that loading gave, unless a file changed meanwhile or only just before. A cache that cannot be written
    /// costs time later and nothing else.
    pub fn remember(&self, checkpoint: &Checkpoint, digest: blake3::Hash) {
        let settled = SystemTime::now().duration_since(self.changed).is_ok_and(|age| age > SETTLED);
        let Some(folder) = self.path.parent() else { return };
        if !settled || Self::in_folder(checkpoint, folder.to_owned()).as_ref() != Some(self) {
            return;
        }
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            let file = tempfile::NamedTempFile::new_in(folder)?;
            fs::write(file.path(), digest.to_hex().as_str())?;
            file.persist(&self.path).map(drop).map_err(|error| error.error)
        };
        if let Err(error) = write() {
            tracing::info!(%error, path = %self.path.display(), "the digest of the weights is not kept");
        }
    }
}

/// What tells one state of a file from another without reading it.
struct Stamp {
    text: String,
    changed: SystemTime,
}

impl Stamp {
    #[cfg(unix)]
    fn of(metadata: &fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let changed = Duration::new(metadata.ctime().try_into().ok()?, metadata.ctime_nsec().try_into().ok()?);
        let text = format!(
            "file {} {} {} {} {} {changed:?}\n",
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec()
        );
        Some(Self { text, changed: SystemTime::UNIX_EPOCH + changed })
    }

    #[cfg(not(unix))]
    fn of(_: &fs::Metadata) -> Option<Self> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::Source;

    fn copy(folder: &Path) -> PathBuf {
        let path = folder.join("model.gguf");
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/llama/model.gguf"), &path).unwrap();
        path
    }

    fn known(path: &Path, cache: &Path) -> (Checkpoint, Known) {
        let checkpoint = Source::Path(path.to_owned()).open().unwrap();
        let known = Known::in_folder(&checkpoint, cache.to_owned()).unwrap();
        (checkpoint, known)
    }

    #[test]
    fn a_digest_is_found_until_the_file_changes() {
        let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = copy(folder.path());
        let digest = blake3::hash(b"weights");
        let (checkpoint, mut place) = known(&path, cache.path());
        // Too fresh to be sure.
        place.remember(&checkpoint, digest);
        assert_eq!(place.find(), None);
        let fresh = place.clone();
        place.changed -= SETTLED * 2;
        assert_ne!(place, fresh);
        // What the files say counts, not what the caller says.
        place.remember(&checkpoint, digest);
        assert_eq!(place.find(), None);
        std::thread::sleep(SETTLED + Duration::from_millis(100));
        fresh.remember(&checkpoint, digest);
        assert_eq!(known(&path, cache.path()).1.find(), Some(digest));
        // One byte is written, of the same value: its content is the same, but nobody has looked.
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        assert_eq!(known(&path, cache.path()).1.find(), None);
        let other = tempfile::tempdir().unwrap();
        assert_eq!(known(&copy(other.path()), cache.path()).1.find(), None);
    }

    #[test]
    fn a_model_without_files_has_no_place() {
        assert_eq!(Known::of(&Source::parse("tiny").unwrap().open().unwrap()), None);
    }
}
