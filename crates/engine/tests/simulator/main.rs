//! The writer in a simulated world: its own clock, and a journal that fails and crashes.
//!
//! A run is decided by its seed and takes about a millisecond. What must hold after every fault:
//! each answer that was given still stands; the recovered book is the oracle's after exactly the
//! events that were stored; asking again with the same request id gives one claim; consumers
//! find every event behind their position.

mod faults;
mod journal;
mod world;

use qiang_testkit::each_seed;

use self::world::{Met, Plan, World};

#[test]
fn faults_and_crashes_at_random() {
    each_seed(4_000, |seed| {
        World::new(seed, Plan::Random).run(60);
    });
}

#[test]
fn a_fault_at_every_append() {
    each_seed(25, |seed| {
        for fault in journal::FAULTS {
            let mut append = 1;
            while World::new(seed, Plan::At { append, fault }).run(40).faults > 0 {
                append += 1;
            }
            assert!(append > 5, "a run without appends shows nothing");
        }
    });
}

#[test]
fn without_faults_nothing_is_ever_unknown() {
    each_seed(300, |seed| {
        let met = World::new(seed, Plan::Calm).run(60);
        assert_eq!((met.faults, met.unknown, met.recoveries), (0, 0, 0));
    });
}

/// The worlds meet everything there is to meet; otherwise the tests above prove little.
#[test]
fn nothing_is_left_out() {
    let mut all = Met::default();
    for seed in 1..=200 {
        all.add(World::new(seed, Plan::Random).run(60));
    }
    let figures = [
        ("faults", all.faults, 200),
        ("commands of unknown outcome", all.unknown, 200),
        ("of those that had happened", all.unknown_done, 50),
        ("of those that had not happened", all.unknown_lost, 50),
        ("retries with a request id that met the first try", all.retried_repeats, 20),
        ("commands asked together", all.batches, 1_000),
        ("recoveries", all.recoveries, 500),
        ("recoveries in the middle of a snapshot", all.in_mid_snapshot, 50),
        ("recoveries from a snapshot", all.from_snapshot, 100),
        ("snapshots of several parts", all.long_snapshots, 200),
        ("batches trimmed", all.trimmed, 500),
        ("steps that kept what a slow consumer had not read", all.kept_for_consumer, 200),
        ("clocks set back", all.set_back, 100),
        ("claims expired in several batches", all.split_expiry, 5),
    ];
    for (what, times, enough) in figures {
        assert!(times >= enough, "{what}: only {times} of {enough}");
    }
}
