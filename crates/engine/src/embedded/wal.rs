//! Tells damage in the write-ahead log from what a crash leaves there, before SQLite looks.
//!
//! To SQLite the log ends at the first frame that does not fit. That is right for a write that a
//! crash cut off, and loses everything behind a flipped bit without a word. A crash cuts off the
//! last transaction only, because each is synced before the next begins; so whole transactions
//! behind a frame that does not fit are damage. Nothing is changed here, so that it can be mended.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::sqlite::corrupt;
use crate::JournalError;

const HEAD_BYTES: usize = 32;
const FRAME_HEAD_BYTES: usize = 24;
const MAX_PAGE_BYTES: u32 = 1 << 16;
/// SQLite writes the lowest bit according to the byte order of its checksums.
const MAGIC: u32 = 0x377f_0682;
/// The end of a write that was cut off, and of one that was cut off before and not yet written
/// over: a crash leaves no more.
const LEFT_BY_A_CRASH: usize = 2;

/// The write-ahead log of a journal.
pub(super) fn beside(journal: &Path) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push("-wal");
    path.into()
}

/// Looks through the log beside a journal that nobody has open. A log that is not there, or
/// cannot be read, is left to SQLite.
pub(super) fn check(journal: &Path) -> Result<(), JournalError> {
    let Ok(file) = File::open(beside(journal)) else { return Ok(()) };
    let mut log = BufReader::new(file);
    let mut head = [0; HEAD_BYTES];
    if log.read_exact(&mut head).is_err() || head == [0; HEAD_BYTES] {
        return Ok(());
    }
    let Some(frames) = Frames::new(log, &head) else {
        let what = "its checksum does not fit";
        return Err(corrupt(journal, "the head of its write-ahead log", what));
    };
    let (mut seen, mut end, mut behind) = (0_u64, None, 0);
    for frame in frames {
        seen += 1;
        match end {
            None if frame.fits => {}
            None => end = Some(seen),
            Some(_) => behind += usize::from(frame.fits && frame.commits),
        }
    }
    match end {
        Some(end) if behind > LEFT_BY_A_CRASH => {
            let place = format!("frame {end} of its write-ahead log");
            let what =
                format!("its checksum does not fit, and {behind} whole transactions lie behind it");
            Err(corrupt(journal, &place, &what))
        }
        _ => Ok(()),
    }
}

/// One page as a transaction wrote it.
struct Frame {
    /// It belongs to this log, and follows the frame before it.
    fits: bool,
    /// It is the last of its transaction.
    commits: bool,
}

/// The frames of a log, in order, until the file ends.
struct Frames<R> {
    log: R,
    word: fn([u8; 4]) -> u32,
    salts: [u8; 8],
    /// As stored by the frame before.
    sum: [u32; 2],
    frame: Vec<u8>,
}

impl<R: Read> Frames<R> {
    /// `None` if the head does not fit itself.
    fn new(log: R, head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let magic = big(&head[0..4]);
        let word = if magic & 1 == 1 { u32::from_be_bytes } else { u32::from_le_bytes };
        let page_bytes = big(&head[8..12]);
        let stored = [big(&head[24..28]), big(&head[28..32])];
        let whole = magic & !1 == MAGIC
            && page_bytes.is_power_of_two()
            && (512..=MAX_PAGE_BYTES).contains(&page_bytes)
            && add([0, 0], &head[..24], word) == stored;
        let salts = head[16..24].try_into().expect("eight bytes");
        let frame = vec![0; FRAME_HEAD_BYTES + page_bytes as usize];
        whole.then_some(Self { log, word, salts, sum: stored, frame })
    }
}

impl<R: Read> Iterator for Frames<R> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        self.log.read_exact(&mut self.frame).ok()?;
        let (head, page) = self.frame.split_at(FRAME_HEAD_BYTES);
        let sum = add(add(self.sum, &head[..8], self.word), page, self.word);
        self.sum = [big(&head[16..20]), big(&head[20..24])];
        let fits = head[8..16] == self.salts && sum == self.sum;
        Some(Frame { fits, commits: big(&head[4..8]) > 0 })
    }
}

/// SQLite's running checksum over pairs of words.
fn add([mut one, mut two]: [u32; 2], bytes: &[u8], word: fn([u8; 4]) -> u32) -> [u32; 2] {
    for pair in bytes.chunks_exact(8) {
        let (left, right) = pair.split_at(4);
        one = one.wrapping_add(word(four(left))).wrapping_add(two);
        two = two.wrapping_add(word(four(right))).wrapping_add(one);
    }
    [one, two]
}

fn big(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(four(bytes))
}

fn four(bytes: &[u8]) -> [u8; 4] {
    bytes.try_into().expect("four bytes")
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;

    const ROWS: u32 = 12;

    /// A log of some transactions, as a killed process leaves it, and where each ends.
    fn left_behind() -> (TempDir, PathBuf, Vec<u8>, Vec<usize>) {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("journal.db");
        let log = folder.path().join("journal.db-wal");
        let db = Connection::open(&journal).expect("a database");
        let mode = "PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x);";
        db.execute_batch(mode).expect("set up");
        let mut ends = Vec::new();
        for row in 0..ROWS {
            db.execute("INSERT INTO t VALUES (zeroblob(?1))", [1 + row * 900]).expect("written");
            ends.push(std::fs::read(&log).expect("a log").len());
        }
        let bytes = std::fs::read(&log).expect("a log");
        // Whoever leaves in good order would take the log away.
        std::fs::copy(&journal, folder.path().join("killed.db")).expect("copied");
        drop(db);
        let journal = folder.path().join("killed.db");
        std::fs::write(folder.path().join("killed.db-wal"), &bytes).expect("written");
        (folder, journal, bytes, ends)
    }

    fn check_with(journal: &Path, bytes: &[u8]) -> Result<(), String> {
        std::fs::write(journal.with_file_name("killed.db-wal"), bytes).expect("written");
        check(journal).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_crash_leaves_is_no_damage() {
        let (_folder, journal, bytes, ends) = left_behind();
        assert_eq!(check_with(&journal, &bytes), Ok(()));
        let before_last = ends[ends.len() - 2];
        for length in (0..bytes.len()).step_by(97) {
            assert_eq!(check_with(&journal, &bytes[..length]), Ok(()), "cut at {length}");
        }
        // The last write came only in part, in any order.
        for from in (before_last..bytes.len()).step_by(101) {
            let mut torn = bytes.clone();
            torn[from..(from + 512).min(bytes.len())].fill(0);
            assert_eq!(check_with(&journal, &torn), Ok(()), "torn at {from}");
        }
        std::fs::remove_file(journal.with_file_name("killed.db-wal")).expect("ours");
        assert!(check(&journal).is_ok());
    }

    #[test]
    fn a_flipped_bit_with_transactions_behind_it_is_found() {
        let (_folder, journal, bytes, ends) = left_behind();
        let sure = ends[ends.len() - 2 - LEFT_BY_A_CRASH];
        for place in (0..sure).step_by(37) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            let said = check_with(&journal, &damaged).expect_err("damage");
            assert!(said.contains("of its write-ahead log"), "{place}: {said}");
        }
    }

    #[test]
    fn a_log_that_started_over_may_have_old_frames_behind_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("journal.db");
        let db = Connection::open(&journal).expect("a database");
        let mode = "PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x);";
        db.execute_batch(mode).expect("set up");
        for round in 0..5 {
            for row in 0..20 - 4 * round {
                db.execute("INSERT INTO t VALUES (zeroblob(?1))", [row * 500]).expect("written");
                check(&journal).expect("no damage");
            }
            db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).expect("copied");
        }
    }
}
