//! A disk of a server's own, small enough to be filled: what a full disk does to a real server.
//!
//! It is a file system in memory that the server's keeper mounts, and takes away with the server's
//! folder. Only root may mount; where that is not possible a server has no disk of its own, and whoever
//! wants to fill one is told so.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::keeper::{DISK, LastSignal, Line, Process};

/// Written at a time while a disk is filled, and at last by the byte.
const PIECES: [usize; 2] = [64 * 1024, 1];
/// What a disk is filled with.
const FILLING: &str = "filling";

/// A mounted one; gone with its server.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Whether this process may mount one.
    pub fn is_possible() -> bool {
        let tried = Process::new("disk", &std::env::temp_dir(), LastSignal::Kill);
        tried.and_then(|process| Self::mount(&process, 1)).is_ok()
    }

    /// Mounts one in the folder of a server.
    pub(super) fn mount(process: &Process, megabytes: u32) -> Result<Self> {
        let folder = process.folder().join(DISK);
        fs::create_dir(&folder)?;
        let size = format!("size={megabytes}m");
        process
            .prepare(Line::new("mount").args(["-t", "tmpfs", "-o", &size, DISK]).arg(&folder))?;
        Ok(Self { folder })
    }

    /// Where it is mounted.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves no byte free.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::options().create(true).append(true).open(self.folder.join(FILLING))?;
        for piece in PIECES {
            loop {
                match file.write_all(&vec![0; piece]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("a disk cannot be filled"),
                }
            }
        }
        Ok(())
    }

    /// Takes away what it was filled with.
    pub fn make_room(&self) -> Result<()> {
        match fs::remove_file(self.folder.join(FILLING)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
