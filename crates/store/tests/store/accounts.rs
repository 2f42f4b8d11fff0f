//! Money moves once, is never there twice, and never runs out below zero, whoever else is at it.

use std::collections::HashSet;

use qiang_core::{Cents, Timestamp};
use qiang_sql::{Dialect, Statement, on_every_database};
use qiang_store::Store;
use qiang_store::accounts::{
    Account, Balance, Entry, MAX_BALANCE, Moved, Movement, Refusal, TransferKind, What,
};

use crate::fixtures::{Db, Lcg, T0, pool_id, user};

on_every_database!(
    money_moves_once_and_the_statement_says_so,
    a_hold_is_over_once,
    a_hold_can_be_posted_in_part_and_expires,
    what_cannot_be_is_refused,
    movements_of_a_batch_follow_each_other,
    p46_a_batch_that_comes_again_posts_nothing_twice,
    p48_a_hold_counts_and_is_resolved_once_by_whoever_is_first,
    p48_no_sql_makes_a_balance_negative,
    p49_a_hundred_sends_on_one_balance_never_overdraw,
    p49_random_transfers_among_few_collide_and_nobody_hears_of_it,
);

fn of(name: &str) -> Account {
    Account::User(user(name))
}

fn cents(cents: i64) -> Cents {
    Cents::new(cents)
}

fn movement<'a>(key: &'a str, what: What<'a>) -> Movement<'a> {
    Movement { key, request_hash: "hash", what }
}

fn transfer(from: Account, to: Account, amount: i64) -> What<'static> {
    What::Transfer { from, to, amount: cents(amount) }
}

fn hold(from: &str, to: &str, amount: i64, expires_at: Option<Timestamp>) -> What<'static> {
    What::Hold { from: of(from), to: of(to), amount: cents(amount), expires_at }
}

async fn one(store: &Store, key: &str, what: What<'_>) -> Moved {
    at(store, key, what, T0).await
}

async fn at(store: &Store, key: &str, what: What<'_>, now: Timestamp) -> Moved {
    let mut moved = store.move_money(&[movement(key, what)], now).await.expect("it works");
    moved.pop().expect("one answer for one movement")
}

async fn done(store: &Store, key: &str, what: What<'_>) {
    let moved = one(store, key, what).await;
    assert!(matches!(moved, Moved::Done(_)), "{key}: {moved:?}");
}

/// Gives somebody money.
async fn top_up(store: &Store, name: &str, amount: i64) {
    done(store, &format!("topup/{name}"), transfer(Account::Outside, of(name), amount)).await;
}

/// Posted and held.
async fn balance(store: &Store, name: &str) -> [i64; 2] {
    let Balance { posted, held, .. } = store.balance(&of(name)).await.expect("readable");
    [posted.get(), held.get()]
}

async fn assert_adds_up(store: &Store) {
    let sums = store.sums().await.expect("readable");
    assert!(sums.add_up(), "{sums:?}");
}

/// Every statement is without gaps, and each of its balances follows from the one before.
async fn assert_statement(store: &Store, account: &Account) -> Vec<Entry> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = store.entries(account, before, 7).await.expect("readable");
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        all.extend(page);
    }
    all.reverse();
    let (mut seq, mut sum) = (0, 0);
    for entry in &all {
        (seq, sum) = (seq + 1, sum + entry.amount.get());
        assert_eq!((entry.seq, entry.balance_after.get()), (seq, sum), "{account}");
    }
    let balance = store.balance(account).await.expect("readable");
    assert_eq!((balance.posted.get(), balance.version), (sum, seq), "{account}");
    all
}

async fn money_moves_once_and_the_statement_says_so(on: Dialect) {
    let db = Db::new(on).await;
    let store = &db.store;
    assert_eq!(store.balance(&of("ann")).await.expect("readable"), Balance::default());
    top_up(store, "ann", 1_000).await;
    let sent = one(store, "t1", transfer(of("ann"), of("bob"), 300)).await;
    let Moved::Done(sent) = sent else { panic!("{sent:?}") };
    // Asking again changes nothing; asking for something else under the same key is refused.
    let again = one(store, "t1", transfer(of("ann"), of("bob"), 300)).await;
    assert_eq!(again, Moved::Replayed(sent.clone()));
    let other =
        Movement { request_hash: "other", ..movement("t1", transfer(of("ann"), of("bob"), 1)) };
    let other = store.move_money(&[other], T0).await.expect("it works");
    assert_eq!(other, [Moved::Refused(Refusal::KeyReused)]);
    assert_eq!(store.transfer("t1").await.expect("readable"), Some(sent));
    assert_eq!(store.transfer("t2").await.expect("readable"), None);

    done(store, "w1", transfer(of("bob"), Account::Outside, 100)).await;
    let packet = Account::Packet(pool_id(7));
    done(store, "packet:7:fund", transfer(of("ann"), packet.clone(), 700)).await;
    assert_eq!(balance(store, "ann").await, [0, 0]);
    assert_eq!(balance(store, "bob").await, [200, 0]);
    let outside = assert_statement(store, &Account::Outside).await;
    assert_eq!(outside.last().map(|entry| entry.balance_after), Some(cents(-900)));
    assert_statement(store, &packet).await;
    let ann = assert_statement(store, &of("ann")).await;
    let shown: Vec<_> = ann
        .iter()
        .map(|e| (e.transfer.as_str(), e.other.to_string(), e.amount.get(), e.at))
        .collect();
    let expected = [
        ("topup/ann", "outside".to_owned(), 1_000, T0),
        ("t1", "user:bob".to_owned(), -300, T0),
        ("packet:7:fund", "packet:7".to_owned(), -700, T0),
    ];
    assert_eq!(shown, expected);
    assert_adds_up(store).await;
}

async fn a_hold_is_over_once(on: Dialect) {
    let db = Db::new(on).await;
    let store = &db.store;
    top_up(store, "ann", 1_000).await;
    done(store, "h1", hold("ann", "bob", 600, None)).await;
    assert_eq!(balance(store, "ann").await, [1_000, 600]);
    // What is held is not available.
    let short = Moved::Refused(Refusal::InsufficientFunds { available: cents(400) });
    assert_eq!(one(store, "t1", transfer(of("ann"), of("bob"), 401)).await, short);
    assert_eq!(one(store, "h2", hold("ann", "bob", 401, None)).await, short);
    done(store, "p1", What::Post { hold: "h1", amount: None }).await;
    assert_eq!(balance(store, "ann").await, [400, 0]);
    assert_eq!(balance(store, "bob").await, [600, 0]);
    let over = Moved::Refused(Refusal::HoldOver { by: TransferKind::Post });
    assert_eq!(one(store, "p2", What::Post { hold: "h1", amount: None }).await, over);
    assert_eq!(one(store, "v1", What::Void { hold: "h1" }).await, over);
    assert_eq!(one(store, "e1", What::Expire { hold: "h1" }).await, over);

    done(store, "h3", hold("ann", "bob", 400, None)).await;
    done(store, "v3", What::Void { hold: "h3" }).await;
    let over = Moved::Refused(Refusal::HoldOver { by: TransferKind::Void });
    assert_eq!(one(store, "p3", What::Post { hold: "h3", amount: None }).await, over);
    assert_eq!(balance(store, "ann").await, [400, 0]);
    assert_statement(store, &of("ann")).await;
    assert_adds_up(store).await;
}

async fn a_hold_can_be_posted_in_part_and_expires(on: Dialect) {
    let db = Db::new(on).await;
    let store = &db.store;
    top_up(store, "ann", 1_000).await;
    done(store, "h1", hold("ann", "bob", 600, None)).await;
    for (amount, refusal) in [
        (601, Refusal::AboveHold { held: cents(600) }),
        (0, Refusal::BadAmount),
        (-1, Refusal::BadAmount),
    ] {
        let post = What::Post { hold: "h1", amount: Some(cents(amount)) };
        assert_eq!(one(store, "p1", post).await, Moved::Refused(refusal));
    }
    done(store, "p1", What::Post { hold: "h1", amount: Some(cents(250)) }).await;
    assert_eq!(balance(store, "ann").await, [750, 0]);
    assert_eq!(balance(store, "bob").await, [250, 0]);

    let end = T0.plus_millis(1_000);
    done(store, "h2", hold("ann", "bob", 750, Some(end))).await;
    done(store, "h3", hold("bob", "ann", 1, None)).await;
    let early = Moved::Refused(Refusal::HoldNotExpired);
    assert_eq!(one(store, "e2", What::Expire { hold: "h2" }).await, early);
    assert_eq!(one(store, "e3", What::Expire { hold: "h3" }).await, early);
    assert!(store.due_holds(T0, 10).await.expect("readable").is_empty());
    assert_eq!(store.due_holds(end, 10).await.expect("readable"), ["h2"]);
    let late = at(store, "p2", What::Post { hold: "h2", amount: None }, end).await;
    assert_eq!(late, Moved::Refused(Refusal::HoldExpired));
    let expired = at(store, "e2", What::Expire { hold: "h2" }, end).await;
    assert!(matches!(expired, Moved::Done(_)), "{expired:?}");
    assert!(store.due_holds(end, 10).await.expect("readable").is_empty());
    assert_eq!(balance(store, "ann").await, [750, 0]);
    assert_adds_up(store).await;
}

async fn what_cannot_be_is_refused(on: Dialect) {
    let db = Db::new(on).await;
    let store = &db.store;
    top_up(store, "ann", 100).await;
    let most = MAX_BALANCE.get();
    for amount in [0, -1, i64::MIN, most + 1, i64::MAX] {
        let moved = one(store, "t", transfer(of("ann"), of("bob"), amount)).await;
        assert_eq!(moved, Moved::Refused(Refusal::BadAmount), "{amount}");
        let moved = one(store, "t", hold("ann", "bob", amount, None)).await;
        assert_eq!(moved, Moved::Refused(Refusal::BadAmount), "{amount}");
    }
    let moved = one(store, "t", transfer(of("ann"), of("ann"), 1)).await;
    assert_eq!(moved, Moved::Refused(Refusal::SameAccount));
    // The key of something that is no hold.
    for key in ["nothing", "topup/ann"] {
        let moved = one(store, "v", What::Void { hold: key }).await;
        assert_eq!(moved, Moved::Refused(Refusal::NoSuchHold), "{key}");
    }
    let moved = one(store, "t", transfer(Account::Outside, of("ann"), most)).await;
    assert_eq!(moved, Moved::Refused(Refusal::TooMuch));
    done(store, "t", transfer(Account::Outside, of("ann"), most - 100)).await;
    assert_eq!(balance(store, "ann").await, [most, 0]);
    // Names are told apart by every byte.
    top_up(store, "Ann", 5).await;
    top_up(store, "ann ", 6).await;
    assert_eq!(balance(store, "Ann").await, [5, 0]);
    assert_eq!(balance(store, "ann ").await, [6, 0]);
    assert_adds_up(store).await;
}

async fn movements_of_a_batch_follow_each_other(on: Dialect) {
    let db = Db::new(on).await;
    let batch = [
        movement("1", transfer(Account::Outside, of("ann"), 100)),
        movement("2", transfer(of("ann"), of("bob"), 60)),
        movement("3", transfer(of("ann"), of("bob"), 60)),
        movement("2", transfer(of("ann"), of("bob"), 60)),
        movement("4", hold("bob", "eve", 50, None)),
        movement("5", What::Post { hold: "4", amount: Some(cents(20)) }),
        movement("6", What::Void { hold: "4" }),
        movement("7", transfer(of("bob"), of("eve"), 40)),
    ];
    let moved = db.store.move_money(&batch, T0).await.expect("it works");
    let words: Vec<String> = moved
        .iter()
        .map(|moved| match moved {
            Moved::Done(_) => "done".to_owned(),
            Moved::Replayed(_) => "replayed".to_owned(),
            Moved::Refused(refusal) => format!("{refusal:?}"),
        })
        .collect();
    let short = "InsufficientFunds { available: Cents(40) }";
    let over = "HoldOver { by: Post }";
    assert_eq!(words, ["done", "done", short, "replayed", "done", "done", over, "done"]);
    assert_eq!(balance(&db.store, "bob").await, [0, 0]);
    assert_eq!(balance(&db.store, "eve").await, [60, 0]);
    for name in ["ann", "bob", "eve"] {
        assert_statement(&db.store, &of(name)).await;
    }
    assert_adds_up(&db.store).await;
}

async fn p46_a_batch_that_comes_again_posts_nothing_twice(on: Dialect) {
    let db = Db::new(on).await;
    let packet = Account::Packet(pool_id(7));
    done(&db.store, "packet:7:fund", transfer(Account::Outside, packet.clone(), 300 * 10)).await;
    let keys: Vec<String> = (0..300).map(|grab| format!("packet:7:grab:{grab}")).collect();
    let grabs: Vec<Movement<'_>> = (0..)
        .zip(&keys)
        .map(|(grab, key)| {
            movement(key, transfer(packet.clone(), of(&format!("u{}", grab % 50)), 10))
        })
        .collect();
    let first = db.store.move_money(&grabs, T0).await.expect("it works");
    assert!(first.iter().all(|moved| matches!(moved, Moved::Done(_))));
    let second = db.store.move_money(&grabs, T0).await.expect("it works");
    assert!(second.iter().all(|moved| matches!(moved, Moved::Replayed(_))));
    for name in (0..50).map(|user| format!("u{user}")) {
        assert_eq!(balance(&db.store, &name).await, [60, 0]);
    }
    assert_eq!(assert_statement(&db.store, &packet).await.len(), 301);
    assert_adds_up(&db.store).await;
}

async fn p48_a_hold_counts_and_is_resolved_once_by_whoever_is_first(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db.store, "ann", 1_000).await;
    done(&db.store, "hold", hold("ann", "bob", 1_000, Some(T0.plus_millis(1)))).await;
    let tasks = (0..64).map(|number: u64| {
        let store = db.store.clone();
        tokio::spawn(async move {
            let (what, now) = match number % 3 {
                0 => (What::Post { hold: "hold", amount: None }, T0),
                1 => (What::Void { hold: "hold" }, T0),
                _ => (What::Expire { hold: "hold" }, T0.plus_millis(1)),
            };
            at(&store, &format!("end/{number}"), what, now).await
        })
    });
    let mut ended = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        match task.await.expect("no panic") {
            Moved::Done(transfer) => ended.push(transfer.kind),
            Moved::Refused(Refusal::HoldOver { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ended.len(), 1, "{ended:?}");
    let posted = if ended == [TransferKind::Post] { 1_000 } else { 0 };
    assert_eq!(balance(&db.store, "ann").await, [1_000 - posted, 0]);
    assert_eq!(balance(&db.store, "bob").await, [posted, 0]);
    assert_adds_up(&db.store).await;
}

async fn p48_no_sql_makes_a_balance_negative(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db.store, "ann", 1_000).await;
    done(&db.store, "hold", hold("ann", "bob", 400, None)).await;
    let before = "UPDATE accounts SET posted = posted WHERE account = 'user:ann'";
    db.tamper(before, &[]).await;
    for sql in [
        "UPDATE accounts SET posted = posted - 601 WHERE account = 'user:ann'",
        "UPDATE accounts SET held = held + 601 WHERE account = 'user:ann'",
        "UPDATE accounts SET held = -1 WHERE account = 'user:ann'",
        "UPDATE accounts SET held = -1 WHERE account = 'outside'",
        "UPDATE accounts SET posted = 1000000000001 WHERE account = 'user:ann'",
        "INSERT INTO accounts (account, created_at, posted, held, version) VALUES ('user:x', 0, -1, 0, 0)",
        "INSERT INTO accounts (account, created_at, posted, held, version) VALUES ('user:ann', 0, 0, 0, 0)",
        "UPDATE transfers SET amount = 0 WHERE transfer_key = 'hold'",
        "UPDATE transfers SET amount = -5 WHERE transfer_key = 'hold'",
        "UPDATE entries SET balance_after = -1 WHERE account = 'user:ann'",
    ] {
        let refused = db.behind.execute(&Statement::built(sql.to_owned()), &[]).await;
        assert!(refused.is_err(), "{sql}");
    }
    // A hold is over once, also for whoever does not ask the rules.
    let end = |key: &str| {
        Statement::built(format!(
            "INSERT INTO transfers (transfer_key, request_hash, kind, debit, credit, amount, pending_key, created_at)
             VALUES ('{key}', '', 'void', 'user:ann', 'user:bob', 400, 'hold', 0)"
        ))
    };
    db.behind.execute(&end("first"), &[]).await.expect("the first end");
    let second = db.behind.execute(&end("second"), &[]).await.expect_err("a second end");
    assert!(second.is_duplicate());
    assert_eq!(balance(&db.store, "ann").await, [1_000, 400]);
}

async fn p49_a_hundred_sends_on_one_balance_never_overdraw(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db.store, "ann", 1_050).await;
    let tasks = (0..100).map(|number| {
        let store = db.store.clone();
        tokio::spawn(async move {
            one(&store, &format!("send/{number}"), transfer(of("ann"), of("bob"), 50)).await
        })
    });
    let (mut sent, mut short) = (0, 0);
    for task in tasks.collect::<Vec<_>>() {
        match task.await.expect("no panic") {
            Moved::Done(_) => sent += 1,
            // It only ever means that the money is gone.
            Moved::Refused(Refusal::InsufficientFunds { available }) => {
                assert_eq!(available, Cents::ZERO);
                short += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((sent, short), (21, 79));
    assert_eq!(balance(&db.store, "ann").await, [0, 0]);
    assert_eq!(balance(&db.store, "bob").await, [1_050, 0]);
    assert_statement(&db.store, &of("ann")).await;
    assert_adds_up(&db.store).await;
}

async fn p49_random_transfers_among_few_collide_and_nobody_hears_of_it(on: Dialect) {
    const NAMES: [&str; 4] = ["ann", "bob", "eve", "zoe"];
    let db = Db::new(on).await;
    for name in NAMES {
        top_up(&db.store, name, 10_000).await;
    }
    let tasks = (0..12).map(|worker: u64| {
        let store = db.store.clone();
        tokio::spawn(async move {
            let mut dice = Lcg(worker);
            let mut refused = HashSet::new();
            for round in 0..12 {
                let keys: Vec<String> = (0..3).map(|n| format!("{worker}/{round}/{n}")).collect();
                // Also accounts that nobody has had yet, which are made in the middle of it.
                let mut pick = || match dice.below(6) {
                    place @ 0..4 => of(NAMES[place]),
                    _ => of(&format!("new-{}", dice.below(8))),
                };
                let batch: Vec<Movement<'_>> =
                    keys.iter().map(|key| movement(key, transfer(pick(), pick(), 7))).collect();
                for moved in store.move_money(&batch, T0).await.expect("no collision is told") {
                    if let Moved::Refused(refusal) = moved {
                        refused.insert(format!("{refusal:?}"));
                    }
                }
            }
            refused
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        for refusal in task.await.expect("no panic") {
            let is_money = refusal.starts_with("InsufficientFunds") || refusal == "SameAccount";
            assert!(is_money, "{refusal}");
        }
    }
    for name in NAMES {
        assert_statement(&db.store, &of(name)).await;
    }
    assert_adds_up(&db.store).await;
}
