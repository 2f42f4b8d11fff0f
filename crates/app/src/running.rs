//! A note in the data folder that says where the server of that folder listens, so that
//! `qiang audit` and its kin find it.

use std::fmt;
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

/// Where a server listens, and how it wants to be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub tls: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.address)
    }
}

/// Leaves the note.
pub fn leave_note(data: &Path, place: Place) -> Result<Note, Error> {
    let path = data.join(FILE);
    // Just the address where there is no TLS, as it always was.
    let note = if place.tls { place.to_string() } else { place.address.to_string() };
    let written =
        std::fs::create_dir_all(data).and_then(|()| std::fs::write(&path, format!("{note}\n")));
    match written {
        Ok(()) => Ok(Note { path }),
        Err(source) => Err(Error { path, source }),
    }
}

/// Where the server of a folder listens, or last did.
#[must_use]
pub fn place(data: &Path) -> Option<Place> {
    let note = std::fs::read_to_string(data.join(FILE)).ok()?;
    let (address, tls) = match note.trim().strip_prefix("https://") {
        Some(address) => (address, true),
        None => (note.trim(), false),
    };
    Some(Place { address: address.parse().ok()?, tls })
}

impl Drop for Note {
    fn drop(&mut self) {
        // If it stays it does no harm.
        let _gone = std::fs::remove_file(&self.path);
    }
}
