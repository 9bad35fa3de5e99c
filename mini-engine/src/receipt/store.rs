//! Receipts on disk: written whole or not at all, named by their digest where they go to a folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Digest;
use super::schema::Receipt;

/// Writes a receipt to a path, replacing what is there.
pub fn write(receipt: &Receipt, path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // A receipt is there to be shown around, so it gets the permissions of any new file rather than those of a private one.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.prefix(".receipt-").tempfile_in(folder)?;
    file.write_all(receipt.to_json().as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Where a folder keeps the receipt of a digest.
pub fn path(folder: &Path, digest: Digest) -> PathBuf {
    folder.join(format!("{digest}.json"))
}

/// Writes a receipt into a folder under its digest. Equal answers share one file.
pub fn write_to_folder(receipt: &Receipt, folder: &Path) -> std::io::Result<PathBuf> {
    let path = path(folder, receipt.digest);
    write(receipt, &path)?;
    Ok(path)
}
