//! Files of tables, under hidden names until all of them are complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::MaterializeError;
use super::schema::Table;
use crate::capture::error::CaptureError;

/// The name of a table's file that is being written; the file is removed if it is not finished.
pub struct Unfinished(Paths);

/// The name of a complete file that is not visible yet; it is removed if it is not published.
pub struct Finished(Paths);

struct Paths {
    hidden: PathBuf,
    path: PathBuf,
}

impl Drop for Paths {
    fn drop(&mut self) {
        // Gone when the table was published.
        let _ = fs::remove_file(&self.hidden);
    }
}

impl Unfinished {
    /// Creates the file of `table` in the directory `output`.
    pub fn create(output: &Path, table: Table) -> Result<(File, Self), MaterializeError> {
        let name = table.file_name();
        let path = output.join(name);
        let hidden = output.join(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create(&hidden).map_err(CaptureError::io("create", &hidden))?;
        Ok((file, Self(Paths { hidden, path })))
    }

    /// The name that the table will have.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Makes the complete file durable.
    pub fn finish(self, file: &File) -> Result<Finished, MaterializeError> {
        file.sync_all()
            .map_err(CaptureError::io("sync", &self.0.hidden))?;
        Ok(Finished(self.0))
    }
}

impl Finished {
    /// Gives the table its name, in place of an older one.
    pub fn publish(self) -> Result<(), MaterializeError> {
        let Paths { hidden, path } = &self.0;
        fs::rename(hidden, path).map_err(CaptureError::io("publish", path))?;
        Ok(())
    }
}
