//! A note in the data folder that says where the server of that folder listens, so that
//! `qiang audit` and its kin find it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The note's name in the data folder.
const FILE: &str = "server.addr";

/// The note could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct Error {
    path: PathBuf,
    source: std::io::Error,
}

/// Takes the note away again when the server ends. After a kill it stays, and means nothing:
/// the lock on the folder tells whether somebody is there.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
}

/// Leaves the note.
pub fn leave_note(data: &Path, address: SocketAddr) -> Result<Note, Error> {
    let path = data.join(FILE);
    let written =
        std::fs::create_dir_all(data).and_then(|()| std::fs::write(&path, format!("{address}\n")));
    match written {
        Ok(()) => Ok(Note { path }),
        Err(source) => Err(Error { path, source }),
    }
}

/// Where the server of a folder listens, or last did.
#[must_use]
pub fn address(data: &Path) -> Option<SocketAddr> {
    std::fs::read_to_string(data.join(FILE)).ok()?.trim().parse().ok()
}

impl Drop for Note {
    fn drop(&mut self) {
        // If it stays it does no harm.
        let _gone = std::fs::remove_file(&self.path);
    }
}
