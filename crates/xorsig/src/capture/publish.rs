//! Puts a complete file under its final name: durable first, visible after, never replacing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::CaptureError;

/// Where batches are staged and where they are published.
#[derive(Clone, Debug)]
pub struct Publisher {
    directory: PathBuf,
    staging: PathBuf,
    /// Makes temporary names unique among the writers that share a staging directory.
    prefix: String,
}

impl Publisher {
    /// Creates both directories where they are missing.
    ///
    /// # Errors
    /// [`CaptureError::Io`] if a directory cannot be created.
    pub fn new(directory: &Path, staging: &Path, prefix: String) -> Result<Self, CaptureError> {
        for path in [directory, staging] {
            fs::create_dir_all(path).map_err(CaptureError::io("create directory", path))?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            staging: staging.to_owned(),
            prefix,
        })
    }

    /// Where batches are published.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Publishes `bytes` as `name`: write and sync in staging, link, sync the directory.
    ///
    /// # Errors
    /// [`CaptureError::Io`]; of kind `AlreadyExists` when the name is taken.
    pub fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), CaptureError> {
        let staged = self.staging.join(format!("{}-{name}.tmp", self.prefix));
        let target = self.directory.join(name);
        let result = write_durably(&staged, bytes)
            .and_then(|()| self.place(&staged, &target, name, bytes))
            .and_then(|()| sync_directory(&self.directory));
        // The staged name is of no use any more, whether or not the batch was published.
        let removed = fs::remove_file(&staged);
        result.and_then(|()| removed.map_err(CaptureError::io("remove", &staged)))
    }

    /// Gives the staged file its final name, through a copy if it is on another file system.
    fn place(
        &self,
        staged: &Path,
        target: &Path,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), CaptureError> {
        match place_exclusively(staged, target) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let near = self.directory.join(format!(".{}-{name}.tmp", self.prefix));
                let result = write_durably(&near, bytes).and_then(|()| {
                    place_exclusively(&near, target).map_err(CaptureError::io("publish", target))
                });
                // Already gone when it was renamed rather than linked.
                let _ = fs::remove_file(&near);
                result
            }
            result => result.map_err(CaptureError::io("publish", target)),
        }
    }
}

/// Publishes `bytes` as `path` through a temporary neighbour.
///
/// # Errors
/// [`CaptureError::Io`]; of kind `AlreadyExists` when the path is taken.
pub fn publish_beside(path: &Path, bytes: &[u8]) -> Result<(), CaptureError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name() else {
        return Err(CaptureError::Invalid(format!(
            "{} names no file",
            path.display()
        )));
    };
    fs::create_dir_all(parent).map_err(CaptureError::io("create directory", parent))?;
    let hidden = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
    let staged = parent.join(hidden);
    let result = write_durably(&staged, bytes)
        .and_then(|()| place_exclusively(&staged, path).map_err(CaptureError::io("publish", path)));
    // Already gone when it was renamed rather than linked.
    let _ = fs::remove_file(&staged);
    result.and_then(|()| sync_directory(parent))
}

/// Writes a new file and waits until its bytes are on the disk.
fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), CaptureError> {
    let create = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    create().map_err(CaptureError::io("write", path))
}

fn sync_directory(path: &Path) -> Result<(), CaptureError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(CaptureError::io("sync directory", path))
}

/// Gives `from` the name `to`, which must be free: a hard link, or a rename that refuses to
/// replace where the file system has no links.
fn place_exclusively(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if has_no_links(&error) => rename_exclusively(from, to),
        result => result,
    }
}

fn has_no_links(error: &io::Error) -> bool {
    // FAT and some network and user-space file systems answer EPERM.
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS | libc::EMLINK)
    )
}

#[cfg(target_os = "linux")]
pub(super) fn rename_exclusively(from: &Path, to: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    let from = CString::new(from.as_os_str().as_bytes())?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    let (here, flags) = (libc::AT_FDCWD, libc::RENAME_NOREPLACE);
    // SAFETY: both paths are zero-terminated strings that outlive the call.
    let status = unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn rename_exclusively(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this file system has no hard links",
    ))
}
