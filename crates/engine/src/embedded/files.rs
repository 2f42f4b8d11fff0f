//! The files of the journal: whether they still have their names, and what to do if not.
//!
//! Whoever deletes or replaces a file takes its name away; whoever has it open goes on writing to
//! it, and what was written is lost when they close it. So it is copied first.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::wal;
use crate::Saved;

/// Copies beside a file of somebody else's; a number is added if there is one already.
const RESCUED: &str = "journal-rescued";
const MAX_RESCUED: u32 = 1_000;

/// A journal's file and its write-ahead log.
#[derive(Debug)]
pub(super) struct Files {
    journal: Named,
    wal: Named,
}

/// A file and its name.
#[derive(Debug)]
struct Named {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

/// What lies under a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Same,
    Nothing,
    Other,
}

impl Files {
    /// The files of a journal that is open.
    pub(super) fn of(journal: &Path) -> Option<Self> {
        Some(Self { journal: Named::at(journal.into())?, wal: Named::at(wal::beside(journal))? })
    }

    /// Whether both still have their names.
    pub(super) fn are_there(&self) -> bool {
        [&self.journal, &self.wal].iter().all(|file| file.look() == Found::Same)
    }

    /// Copies what was committed to where the next start finds it, or beside the files of
    /// somebody else.
    pub(super) fn save(&self, db: &Connection) -> Saved {
        let saved = || -> Result<Saved, Box<dyn std::error::Error + Send + Sync>> {
            let path = &self.journal.path;
            let folder = path.parent().ok_or("it has no folder")?;
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let copy = free_name(folder)?;
            db.execute("VACUUM INTO ?1", [copy.to_str().ok_or("its name is not text")?])?;
            File::open(&copy)?.sync_all()?;
            let found = (self.journal.look(), self.wal.look());
            // All of it is in the copy, and beside another file it would be taken for that one's.
            if found.1 == Found::Same {
                fs::remove_file(&self.wal.path)?;
            }
            let saved = if found.0 == Found::Other || found.1 == Found::Other {
                Saved::Aside(copy)
            } else {
                fs::rename(copy, path)?;
                Saved::InPlace
            };
            File::open(folder)?.sync_all()?;
            Ok(saved)
        };
        saved().unwrap_or_else(|why| Saved::Nowhere(why.to_string()))
    }
}

impl Named {
    fn at(path: PathBuf) -> Option<Self> {
        let device_and_inode = fs::metadata(&path).ok().map(|file| (file.dev(), file.ino()))?;
        Some(Self { path, device_and_inode })
    }

    fn look(&self) -> Found {
        match fs::metadata(&self.path) {
            Ok(file) if (file.dev(), file.ino()) != self.device_and_inode => Found::Other,
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Found::Nothing,
            // It may be there: whoever cannot look knows nothing.
            Ok(_) | Err(_) => Found::Same,
        }
    }
}

fn free_name(folder: &Path) -> Result<PathBuf, &'static str> {
    let names = (1..MAX_RESCUED).map(|number| match number {
        1 => format!("{RESCUED}.db"),
        _ => format!("{RESCUED}-{number}.db"),
    });
    let mut free = names.map(|name| folder.join(name)).filter(|path| !path.exists());
    free.next().ok_or("too many copies were saved there already")
}
