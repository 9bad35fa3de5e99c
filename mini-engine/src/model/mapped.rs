//! Files read through memory mappings that live only as long as one read, so that what was read does not count against
//! the process for the rest of the load.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use super::error::{Error, Result};

/// An open file of known length.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    file: File,
    len_bytes: u64,
}

impl MappedFile {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, "open", error))?;
        let metadata = file.metadata().map_err(|error| Error::io(path, "read the length", error))?;
        if !metadata.is_file() {
            return Err(Error::input("file type", "a regular file", "something else").in_file(path.display()));
        }
        Ok(Self { path: path.to_owned(), file, len_bytes: metadata.len() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Maps a range of bytes. The range must lie in the file and not be empty.
    pub fn map(&self, range: Range<u64>) -> Result<Mmap> {
        let outside = || {
            Error::input("byte range", format!("inside the {} bytes of the file", self.len_bytes), format!("{range:?}"))
                .in_file(self.path.display())
        };
        if range.start >= range.end || range.end > self.len_bytes {
            return Err(outside());
        }
        let len = usize::try_from(range.end - range.start).map_err(|_| outside())?;
        // SAFETY: the range was inside the file when it was opened, the mapping is private and only read, and every value
        // read from it is checked. As with any mapped file, another process that shortens the file meanwhile can end this
        // one with SIGBUS; model files are not written while they are loaded.
        let map = unsafe { MmapOptions::new().offset(range.start).len(len).map_copy_read_only(&self.file) };
        map.map_err(|error| Error::io(&self.path, "map", error))
    }

    /// Maps the whole file.
    pub fn map_all(&self) -> Result<Mmap> {
        if self.len_bytes == 0 {
            return Err(Error::input("length", "at least 1 byte", "0").in_file(self.path.display()));
        }
        self.map(0..self.len_bytes)
    }
}

/// Reads a small file whole; refuses one of more than `bytes_max` before reading it.
pub fn read_small(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let file = MappedFile::open(path)?;
    if file.len_bytes > bytes_max {
        return Err(Error::input("length", format!("at most {bytes_max} bytes"), file.len_bytes.to_string())
            .in_file(path.display()));
    }
    let mut bytes = Vec::new();
    // The file may have grown since its length was read.
    file.file.take(bytes_max).read_to_end(&mut bytes).map_err(|error| Error::io(path, "read", error))?;
    Ok(bytes)
}
