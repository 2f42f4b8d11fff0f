//! The writer on a real journal in very small steps: snapshots of many parts that are cut off
//! anywhere, old ones half deleted, batches trimmed in between.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qiang_core::Timestamp;
use qiang_engine::{
    Clock, Job, LogReader, ManualClock, Question, Replies, SqliteJournal, Writer, WriterOptions,
};
use qiang_testkit::{Generator, Oracle, each_seed};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fixture::events;

type RealWriter = Writer<SqliteJournal, Arc<ManualClock>>;

fn start(folder: &Path, clock: &Arc<ManualClock>, consumed: &Arc<AtomicU64>) -> RealWriter {
    let journal = SqliteJournal::open(folder).expect("the folder is fine");
    let options = WriterOptions { seed: 1, snapshot_bytes: 100 };
    let consumed = Arc::clone(consumed);
    let writer = Writer::recover(journal, Arc::clone(clock), options, consumed, Arc::default());
    let size = |count| NonZeroUsize::new(count).expect("positive");
    writer.expect("what was stored can be read").in_steps_of(size(3), size(2))
}

fn count(folder: &Path, sql: &str) -> u32 {
    let db = Connection::open(SqliteJournal::path_in(folder)).expect("the journal is there");
    db.query_row(sql, [], |row| row.get(0)).expect("it can be asked")
}

#[test]
fn a_snapshot_that_was_cut_off_is_as_if_never_begun() {
    let (unfinished, trimmed) = (AtomicU64::new(0), AtomicU64::new(0));
    each_seed(12, |seed| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let consumed = Arc::<AtomicU64>::default();
        let mut writer = start(folder.path(), &clock, &consumed);
        let (mut generator, mut oracle) = (Generator::new(seed), Oracle::default());
        let mut now = clock.now();
        for _ in 0..60 {
            let ticked = generator.tick(&oracle, clock.now());
            clock.advance_millis(ticked.millis() - clock.now().millis());
            now = now.max(ticked);
            oracle.expire(now);
            let (mut jobs, mut wanted) = (Vec::new(), Vec::new());
            for _ in 0..generator.random().below(4) {
                let command = generator.command(&oracle);
                let (to, answer) = oneshot::channel();
                wanted.push((oracle.handle(&command, now), answer));
                jobs.push(Job::Ask(Question::One(command), to));
            }
            writer.step(&mut jobs).expect("nothing fails here");
            for (wanted, mut answer) in wanted {
                assert_eq!(answer.try_recv(), Ok(Ok(Replies::One(wanted))));
            }
            if generator.random().percent(50) {
                let mut reader = LogReader::open(folder.path()).expect("the journal is there");
                let at = consumed.load(Ordering::Acquire);
                let unread = events(&mut reader, at);
                assert_eq!(unread, oracle.log()[usize::try_from(at).expect("small")..]);
                let read = u64::from(generator.random().below(10)).min(unread.len() as u64);
                consumed.fetch_add(read, Ordering::AcqRel);
            }
            if generator.random().percent(20) {
                drop(writer);
                let newest = "SELECT coalesce(max(id), 0) FROM snapshot";
                let cut_off = format!(
                    "SELECT count(DISTINCT id) FROM snapshot WHERE id = ({newest})
                     AND id NOT IN (SELECT id FROM snapshot WHERE last)"
                );
                let cut_off = count(folder.path(), &cut_off);
                unfinished.fetch_add(cut_off.into(), Ordering::Relaxed);
                writer = start(folder.path(), &clock, &consumed);
                now = oracle.log().iter().map(qiang_core::Event::at).max().unwrap_or_default();
                assert_eq!(writer.position().seq, oracle.log().len() as u64);
            }
            for id in oracle.pools() {
                let pool = writer.book().pool(id).expect("both have it");
                assert_eq!(Some(pool.view()), oracle.view(id));
                let claims: Vec<_> = (1..).map_while(|number| pool.claim(number)).collect();
                assert_eq!(claims, oracle.claims(id));
            }
        }
        drop(writer);
        let oldest = "SELECT coalesce(min(first_seq), 1) FROM batch";
        trimmed.fetch_add(u64::from(count(folder.path(), oldest)) - 1, Ordering::Relaxed);
        let kept = "SELECT count(DISTINCT id) FROM snapshot";
        assert!(count(folder.path(), kept) <= 3, "old snapshots go away");
    });
    if std::env::var("QIANG_SEED").is_err() {
        assert!(unfinished.into_inner() > 10, "snapshots were cut off");
        assert!(trimmed.into_inner() > 100, "batches were trimmed");
    }
}
