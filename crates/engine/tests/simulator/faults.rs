//! Single faults, told as stories.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use qiang_core::{Command, Flow, Outcome, PoolId, Reply, Timestamp};
use qiang_engine::{Error, Job, Question, Replies, Writer, WriterOptions};
use qiang_testkit::contract::{sale, wish};
use tokio::sync::oneshot;

use super::journal::{Fault, SimJournal};
use super::world::SimClock;

type SimWriter = Writer<SimJournal, SimClock>;

fn started(journal: &SimJournal) -> SimWriter {
    journal.disk().hit = None;
    let options = WriterOptions { seed: 1, snapshot_bytes: 1 << 20 };
    let (consumed, stats) = (Arc::default(), Arc::default());
    Writer::recover(journal.clone(), SimClock::default(), options, consumed, stats)
        .expect("what was stored can be read")
}

/// Asks everything in one step. `None` is an answer that never came.
fn ask(writer: &mut SimWriter, commands: Vec<Command>) -> Vec<Option<Result<Reply, Error>>> {
    let (mut jobs, mut answers) = (Vec::new(), Vec::new());
    for command in commands {
        let (to, answer) = oneshot::channel();
        jobs.push(Job::Ask(Question::One(command), to));
        answers.push(answer);
    }
    let _poisoned = writer.step(&mut jobs);
    drop(jobs);
    let answer = |mut answer: oneshot::Receiver<_>| answer.try_recv().ok();
    answers.into_iter().map(answer).map(|answer| answer.map(|a| a.map(Replies::one))).collect()
}

fn pool() -> PoolId {
    PoolId::new(1).expect("positive")
}

fn open() -> Command {
    Command::Open { pool: pool(), terms: Arc::new(sale(5, Flow::Instant)) }
}

fn claim(user: &str) -> Command {
    Command::Claim(wish(pool(), user, Some("r")))
}

#[test]
fn an_unknown_outcome_asked_again_is_one_claim() {
    for (fault, happened) in [(Fault::FailBefore, false), (Fault::FailAfter, true)] {
        let journal = SimJournal::default();
        let mut writer = started(&journal);
        ask(&mut writer, vec![open()]);
        journal.disk().fault = Some((2, fault));
        let answers = ask(&mut writer, vec![claim("ann"), claim("bob")]);
        assert_eq!(answers, [Some(Err(Error::OutcomeUnknown)), Some(Err(Error::OutcomeUnknown))]);
        let mut writer = started(&journal);
        for answer in ask(&mut writer, vec![claim("ann"), claim("bob")]) {
            let Some(Ok(Reply::Claim(outcome))) = answer else { panic!("{answer:?}") };
            assert_eq!(matches!(outcome, Outcome::Replayed(_)), happened, "{outcome:?}");
            assert_eq!(matches!(outcome, Outcome::Done(_)), !happened, "{outcome:?}");
        }
        let view = writer.book().pool(pool()).expect("it is open").view();
        assert_eq!((view.available, view.claims), (3, 2));
    }
}

#[test]
fn a_poisoned_writer_decides_nothing_more() {
    let journal = SimJournal::default();
    let mut writer = started(&journal);
    ask(&mut writer, vec![open()]);
    journal.disk().fault = Some((2, Fault::FailBefore));
    ask(&mut writer, vec![claim("ann")]);
    let stored = journal.disk().last_seq();
    journal.disk().hit = None;
    let (to, mut answer) = oneshot::channel();
    let mut jobs = vec![Job::Ask(Question::One(claim("bob")), to)];
    let again = catch_unwind(AssertUnwindSafe(|| writer.step(&mut jobs).is_ok()));
    assert!(again.is_err(), "stepping on would answer on what may be lost");
    drop(jobs);
    assert!(answer.try_recv().is_err(), "nobody is told anything");
    assert_eq!(journal.disk().last_seq(), stored);
}

#[test]
fn of_a_long_queue_what_was_stored_is_answered_and_the_rest_is_not() {
    let journal = SimJournal::default();
    let two = NonZeroUsize::new(2).expect("positive");
    let mut writer = started(&journal).in_steps_of(two, two);
    ask(&mut writer, vec![open()]);
    journal.disk().fault = Some((3, Fault::FailAfter));
    let users = ["ann", "bob", "cyd", "dan", "eve"];
    let answers = ask(&mut writer, users.map(claim).into());
    let granted = |answer: &Option<Result<Reply, Error>>| {
        matches!(answer, Some(Ok(Reply::Claim(Outcome::Done(_)))))
    };
    assert!(answers[..2].iter().all(granted), "the first batch was stored");
    assert_eq!(answers[2..4], [Some(Err(Error::OutcomeUnknown)), Some(Err(Error::OutcomeUnknown))]);
    assert_eq!(answers[4], None, "the third was never begun");
    let writer = started(&journal);
    assert_eq!(writer.book().pool(pool()).expect("it is open").view().claims, 4);
}

#[test]
fn a_look_sees_nothing_that_is_not_durable() {
    let journal = SimJournal::default();
    let mut writer = started(&journal);
    ask(&mut writer, vec![open()]);
    for (append, seen) in [(9, Some((1, 2))), (3, None)] {
        journal.disk().fault = Some((append, Fault::FailBefore));
        let (to, _answer) = oneshot::channel();
        let (tell, mut told) = oneshot::channel();
        let look = Box::new(move |book: &qiang_core::Book, position: qiang_engine::Position| {
            let claims = book.pool(pool()).map_or(0, |pool| pool.view().claims);
            tell.send((claims, position.seq)).expect("somebody listens");
        });
        let user = format!("user{append}");
        let _poisoned =
            writer.step(&mut vec![Job::Look(look), Job::Ask(Question::One(claim(&user)), to)]);
        assert_eq!(told.try_recv().ok(), seen);
    }
}

#[test]
fn refusals_do_not_touch_the_journal() {
    let journal = SimJournal::default();
    let mut writer = started(&journal);
    let mut commands = vec![open()];
    commands.extend((0..5).map(|user| claim(&format!("user{user}"))));
    ask(&mut writer, commands);
    let appends = journal.disk().appends();
    let answers = ask(&mut writer, (5..500).map(|user| claim(&format!("user{user}"))).collect());
    assert_eq!(answers.len(), 495);
    let refused =
        |answer: &Option<_>| matches!(answer, Some(Ok(Reply::Claim(Outcome::Refused(_)))));
    assert!(answers.iter().all(refused));
    assert_eq!(journal.disk().appends(), appends);
}

#[test]
fn deadlines_decide_before_those_who_ask_at_the_same_moment() {
    let journal = SimJournal::default();
    let clock = SimClock::default();
    let options = WriterOptions { seed: 1, snapshot_bytes: 1 << 20 };
    let (consumed, stats) = (Arc::default(), Arc::default());
    let mut writer = Writer::recover(journal, clock.clone(), options, consumed, stats)
        .expect("nothing is stored");
    let terms = Arc::new(sale(1, Flow::Hold { hold_ms: 50, pay_ms: 50 }));
    ask(&mut writer, vec![Command::Open { pool: pool(), terms }, claim("ann")]);
    assert_eq!(writer.patience().map(|wait| wait.as_millis()), Some(50));
    clock.set(Timestamp::from_millis(49));
    assert_eq!(writer.patience().map(|wait| wait.as_millis()), Some(1));
    let early = ask(&mut writer, vec![claim("bob")]);
    assert!(matches!(early[0], Some(Ok(Reply::Claim(Outcome::Refused(_))))));
    clock.set(Timestamp::from_millis(50));
    assert_eq!(writer.patience().map(|wait| wait.as_millis()), Some(0));
    let in_time = ask(&mut writer, vec![claim("bob")]);
    assert!(matches!(in_time[0], Some(Ok(Reply::Claim(Outcome::Done(_))))));
}
