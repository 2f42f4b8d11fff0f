//! A journal in memory that survives the writer, and fails when it is told to.

use std::sync::{Arc, Mutex, MutexGuard};

use qiang_core::Event;
use qiang_engine::{Decoder, Journal, JournalError, Recovered, Write};

/// What an append can meet. After each of them the writer is gone; the difference is whether
/// the write is there, and whether the writer could still speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    FailBefore,
    FailAfter,
    CrashBefore,
    CrashAfter,
}

pub(crate) const FAULTS: [Fault; 4] =
    [Fault::FailBefore, Fault::FailAfter, Fault::CrashBefore, Fault::CrashAfter];

/// A handle to the disk; the writer has one, the world another.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimJournal(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
pub(crate) struct Disk {
    batches: Vec<Stored>,
    parts: Vec<StoredPart>,
    last_seq: u64,
    appends: u64,
    /// The append, counted from the first ever, that meets the fault.
    pub(crate) fault: Option<(u64, Fault)>,
    pub(crate) hit: Option<Fault>,
    /// What every consumer has committed.
    pub(crate) committed: u64,
    pub(crate) trimmed: u32,
    pub(crate) kept_for_consumer: u32,
    pub(crate) long_snapshots: u32,
}

#[derive(Debug)]
struct Stored {
    first: u64,
    last: u64,
    events: Vec<u8>,
}

#[derive(Debug)]
struct StoredPart {
    snapshot: u64,
    base_seq: u64,
    number: u64,
    last: bool,
    events: Vec<u8>,
}

impl SimJournal {
    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("nobody panics with the disk in hand")
    }
}

impl Disk {
    pub(crate) fn appends(&self) -> u64 {
        self.appends
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The events behind `after`, or nothing if some of them are gone.
    pub(crate) fn read(&self, after: u64) -> Option<Vec<Event>> {
        let oldest = self.batches.first().map_or(self.last_seq + 1, |batch| batch.first);
        if oldest > after + 1 {
            return None;
        }
        let mut events = Vec::new();
        for batch in self.batches.iter().filter(|batch| batch.last > after) {
            let known = usize::try_from((after + 1).saturating_sub(batch.first)).expect("small");
            events.extend(decoded(&batch.events).into_iter().skip(known));
        }
        Some(events)
    }

    /// Whether a snapshot was begun that will never be finished after a crash now.
    pub(crate) fn in_mid_snapshot(&self) -> bool {
        self.parts.last().is_some_and(|part| !part.last)
    }

    fn complete(&self) -> Option<(u64, u64)> {
        self.parts.iter().rev().find(|part| part.last).map(|part| (part.snapshot, part.base_seq))
    }

    fn store(&mut self, write: &Write<'_>) {
        let complete_before = self.complete();
        if let Some(batch) = write.batch {
            assert_eq!(batch.first_seq, self.last_seq + 1, "positions are dense");
            let events = batch.events.to_vec();
            let count = decoded(&events).len() as u64;
            assert_eq!(batch.last_seq, self.last_seq + count, "every event has a position");
            self.last_seq = batch.last_seq;
            self.batches.push(Stored { first: batch.first_seq, last: batch.last_seq, events });
        }
        if let Some(part) = write.part {
            let newest = self.parts.iter().map(|part| part.snapshot).max().unwrap_or(0);
            if part.number == 0 {
                assert!(part.snapshot > newest, "no snapshot has the id of another");
            } else {
                let before = self.parts.last().expect("a part before this one");
                let expected = (before.snapshot, before.number + 1, before.base_seq, false);
                let got = (part.snapshot, part.number, part.base_seq, before.last);
                assert_eq!(got, expected, "parts follow each other");
            }
            self.parts.push(StoredPart {
                snapshot: part.snapshot,
                base_seq: part.base_seq,
                number: part.number,
                last: part.last,
                events: part.events.to_vec(),
            });
            if part.last {
                self.parts.retain(|other| other.snapshot == part.snapshot);
                self.long_snapshots += u32::from(part.number > 0);
            }
        }
        let covered = complete_before.map_or(0, |(_, base_seq)| base_seq);
        assert!(write.trim_through <= covered, "only what a complete snapshot stands for");
        assert!(write.trim_through <= self.committed, "only what every consumer has read");
        if write.trim_through < covered {
            self.kept_for_consumer += 1;
        }
        if self.batches.first().is_some_and(|batch| batch.last <= write.trim_through) {
            self.batches.remove(0);
            self.trimmed += 1;
        }
    }
}

impl Journal for SimJournal {
    fn recover(&mut self, event: &mut dyn FnMut(Event)) -> Result<Recovered, JournalError> {
        let disk = self.disk();
        let mut end = Recovered::default();
        let mut hand_over = |end: &mut Recovered, bytes: &[u8]| {
            for decoded in decoded(bytes) {
                end.at = end.at.max(decoded.at());
                event(decoded);
            }
        };
        if let Some((id, base_seq)) = disk.complete() {
            for part in disk.parts.iter().filter(|part| part.snapshot == id) {
                hand_over(&mut end, &part.events);
                end.snapshot_bytes += part.events.len() as u64;
            }
            (end.seq, end.snapshot_seq) = (base_seq, base_seq);
        }
        let covered = end.snapshot_seq;
        for batch in disk.batches.iter().filter(|batch| batch.last > covered) {
            assert_eq!(batch.first, end.seq + 1, "nothing is missing behind the snapshot");
            hand_over(&mut end, &batch.events);
            end.log_bytes += batch.events.len() as u64;
            end.seq = batch.last;
        }
        end.snapshot = disk.parts.iter().map(|part| part.snapshot).max().unwrap_or(0);
        Ok(end)
    }

    fn append(&mut self, write: &Write<'_>) -> Result<(), JournalError> {
        let mut disk = self.disk();
        assert_eq!(disk.hit, None, "a writer that failed once writes nothing more");
        disk.appends += 1;
        let fault =
            disk.fault.filter(|(append, _)| *append == disk.appends).map(|(_, fault)| fault);
        if !matches!(fault, Some(Fault::FailBefore | Fault::CrashBefore)) {
            disk.store(write);
        }
        disk.hit = fault;
        fault.map_or(Ok(()), |_| Err(JournalError::Injected("an append")))
    }
}

fn decoded(bytes: &[u8]) -> Vec<Event> {
    let events: Result<_, _> = Decoder::new(bytes).collect();
    events.expect("what was encoded can be decoded")
}
