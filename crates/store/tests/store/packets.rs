//! Packets are paid for first, credited once, and recycled once; and they are not written among the sales.

use qiang_core::packets::{Kind as PacketKind, Seed};
use qiang_core::{Cents, Event, Flow, Kind, Opened, Supply, Terms};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::accounts::{Account, MAX_BALANCE, Moved, Movement, Refusal, What};
use qiang_store::packets::{DayLimits, OPEN_JOB, Packet, Recycled, Sending, Sent, Status, Within};

use crate::fixtures::{Db, PAY_MS, Records, T0, granted, opened, pool_id, terms, user};

on_every_database!(
    a_packet_leaves_no_rows_among_the_sales_and_holds_nothing_up,
    a_packet_is_read_as_it_was_sent,
    p46_a_grab_is_credited_once_however_often_it_is_told,
    p42_what_is_left_goes_back_once_and_only_if_nothing_is_missing,
    an_empty_packet_is_due_at_once,
    a_grab_waits_for_an_account_that_is_full,
    p70_what_a_user_sends_on_a_day_is_counted_in_the_transaction,
    attempts_and_seeds_are_used_up,
    packets_are_listed_by_time_and_added_up,
);

async fn a_packet_leaves_no_rows_among_the_sales_and_holds_nothing_up(on: Dialect) {
    let db = Db::new(on).await;
    let cut = Supply::Portions([3, 2, 1].map(Cents::new).into());
    let packet = opened(1, Terms { kind: Kind::Packet, supply: cut, ..terms(Flow::Instant) });
    let sale = opened(2, terms(Flow::Order { pay_ms: PAY_MS }));
    // A grab of a packet that nobody sent moves no money, and holds nothing up.
    let grab = Event::Claim(granted(&packet, 1, "ann"));
    db.store.project("embedded", 0, 1, std::slice::from_ref(&grab)).await.expect("written");
    let claim = granted(&sale, 1, "ann");
    let events =
        [Event::Pool(packet), grab, Event::Pool(sale.clone()), Event::Claim(claim.clone())];
    db.store.project("embedded", 1, 5, &events).await.expect("written");
    db.store.upsert(&events).await.expect("written");
    assert_eq!(db.store.position(qiang_store::RECORDS, "embedded").await.expect("readable"), 5);
    let all = Records::of(&db.store).await;
    assert_eq!(all.sales.iter().map(|sale| sale.id).collect::<Vec<_>>(), [sale.id]);
    assert_eq!((all.claims, all.orders.len()), (vec![claim], 1));
}

/// A fixed packet of three shares, two of which have a cent more than the third.
fn fixed(id: u64, key: &str) -> Packet {
    Packet {
        pool: pool_id(id),
        random_part: "0123456789abcdef0123".to_owned(),
        request_key: key.to_owned(),
        request_hash: "hash".to_owned(),
        sender: user("ann"),
        kind: PacketKind::Fixed,
        total: Cents::new(302),
        shares: 3,
        nonce: vec![1, 0, 255],
        seed: Seed([7; 32]),
        commitment: [9; 32],
        greeting: "恭喜发财 🧧".to_owned(),
        cover: Some("dragon".to_owned()),
        recipients: Some(vec![user("bob"), user("猫 \"quoted\"")]),
        password_hash: Some("salt:code".to_owned()),
        created_at: T0,
        expires_at: T0.plus_millis(1_800_000),
        opened_at: None,
        grabs: 0,
        grabbed: Cents::ZERO,
        last_grab_at: None,
        refunded: Cents::ZERO,
        recycled_at: None,
    }
}

const LIMITS: DayLimits = DayLimits { day: 20_000, cents: Cents::new(1_000), packets: 3 };

async fn send(db: &Db, packet: &Packet) -> Sent {
    let sending = Sending { packet, limits: LIMITS, seed_id: None };
    db.store.send_packet(&sending, T0).await.expect("written")
}

async fn top_up(db: &Db, name: &str, cents: i64) {
    let what = What::Transfer {
        from: Account::Outside,
        to: Account::User(user(name)),
        amount: Cents::new(cents),
    };
    let key = format!("topup {name}");
    let movement = Movement { key: &key, request_hash: "hash", what };
    let moved = db.store.move_money(&[movement], T0).await.expect("written");
    assert!(matches!(moved[..], [Moved::Done(_)]), "{moved:?}");
}

/// What a user has, after all accounts were added up.
async fn has(db: &Db, account: Account) -> i64 {
    assert!(db.store.sums().await.expect("readable").add_up());
    db.store.balance(&account).await.expect("readable").posted.get()
}

async fn user_has(db: &Db, name: &str) -> i64 {
    has(db, Account::User(user(name))).await
}

/// The event that opened the packet's pool, and its grabs by these users.
fn events(packet: &Packet, users: &[&str]) -> Vec<Event> {
    let terms = Terms::clone(&packet.terms().expect("terms"));
    let pool = opened(packet.pool.get(), terms);
    let grabs: Vec<Event> =
        (1..).zip(users).map(|(number, name)| Event::Claim(granted(&pool, number, name))).collect();
    [vec![Event::Pool(pool)], grabs].concat()
}

async fn a_packet_is_read_as_it_was_sent(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 1_000).await;
    let packet = fixed(1, "a");
    assert_eq!(send(&db, &packet).await, Sent::Done);
    assert_eq!(db.store.packet(packet.pool).await.expect("readable"), Some(packet.clone()));
    assert_eq!(
        (user_has(&db, "ann").await, has(&db, Account::Packet(packet.pool)).await),
        (698, 302)
    );
    let job = db.store.job(OPEN_JOB, "1").await.expect("readable");
    assert!(job.is_some(), "the job that opens it is there");
    // The same request again is the same packet, whatever else it would have sent.
    let other = Packet { pool: pool_id(2), ..packet.clone() };
    assert_eq!(send(&db, &other).await, Sent::Before(Box::new(packet)));
    let none = fixed(3, "b");
    let none = Packet { sender: user("bob"), ..none };
    let refused = Refusal::InsufficientFunds { available: Cents::ZERO };
    assert_eq!(send(&db, &none).await, Sent::Refused(refused));
    assert_eq!(db.store.packet(none.pool).await.expect("readable"), None);
    assert_eq!(db.store.job(OPEN_JOB, "3").await.expect("readable"), None);
}

async fn p46_a_grab_is_credited_once_however_often_it_is_told(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 1_000).await;
    let packet = fixed(1, "a");
    send(&db, &packet).await;
    let all = events(&packet, &["bob", "cat"]);
    db.store.project("embedded", 0, 2, &all[..2]).await.expect("written");
    db.store.project("embedded", 2, 5, &all).await.expect("written");
    db.store.upsert(&all).await.expect("written");
    assert_eq!((user_has(&db, "bob").await, user_has(&db, "cat").await), (101, 101));
    assert_eq!(has(&db, Account::Packet(packet.pool)).await, 100);
    let seen = db.store.packet(packet.pool).await.expect("readable").expect("there");
    assert_eq!((seen.grabs, seen.grabbed, seen.status()), (2, Cents::new(202), Status::Open));
    assert_eq!((seen.opened_at, seen.last_grab_at), (Some(T0), Some(T0.plus_millis(2_000))));
    let grabs = db.store.grabs(packet.pool).await.expect("readable");
    let told: Vec<_> = grabs.iter().map(|g| (g.number, g.user.as_str(), g.portion)).collect();
    assert_eq!(told, [(1, "bob", 0), (2, "cat", 1)]);
    let grab = db.store.grab_of(packet.pool, &user("cat")).await.expect("readable");
    assert_eq!(grab.as_ref(), grabs.get(1));
}

async fn p42_what_is_left_goes_back_once_and_only_if_nothing_is_missing(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 1_000).await;
    let packet = fixed(1, "a");
    send(&db, &packet).await;
    db.store.project("embedded", 0, 2, &events(&packet, &["bob"])).await.expect("written");
    let (now, later) = (packet.expires_at, packet.expires_at.plus_millis(1));
    assert_eq!(db.store.due_packets(T0, 10).await.expect("readable"), []);
    assert_eq!(db.store.due_packets(now, 10).await.expect("readable").len(), 1);
    let recycle = |left: i64| db.store.recycle_packet(packet.pool, Cents::new(left), now, later);
    // A grab that the engine has decided and nobody has recorded.
    let missing = recycle(100).await.expect("readable");
    assert!(matches!(missing, Recycled::Missing { .. }), "{missing:?}");
    assert_eq!(user_has(&db, "ann").await, 698);
    let (one, two) = tokio::join!(recycle(201), recycle(201));
    let mut ended = [one.expect("written"), two.expect("written")];
    ended.sort_by_key(|ended| *ended == Recycled::Before);
    assert_eq!(ended, [Recycled::Done(Cents::new(201)), Recycled::Before]);
    assert_eq!(
        (user_has(&db, "ann").await, has(&db, Account::Packet(packet.pool)).await),
        (899, 0)
    );
    let seen = db.store.packet(packet.pool).await.expect("readable").expect("there");
    assert_eq!((seen.status(), seen.refunded), (Status::Recycled, Cents::new(201)));
    assert_eq!(db.store.due_packets(now, 10).await.expect("readable"), []);
    assert_eq!(db.store.due_packets(later, 10).await.expect("readable").len(), 1);
    db.store.postpone_packet(packet.pool, None).await.expect("written");
    assert_eq!(db.store.due_packets(later, 10).await.expect("readable"), []);
}

async fn an_empty_packet_is_due_at_once(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 1_000).await;
    let packet = fixed(1, "a");
    send(&db, &packet).await;
    let all = events(&packet, &["bob", "cat", "dan"]);
    db.store.project("embedded", 0, 4, &all).await.expect("written");
    let due = db.store.due_packets(T0.plus_millis(3_000), 10).await.expect("readable");
    assert_eq!(due.iter().map(Packet::status).collect::<Vec<_>>(), [Status::Empty]);
}

async fn a_grab_waits_for_an_account_that_is_full(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 1_000).await;
    top_up(&db, "bob", MAX_BALANCE.get()).await;
    let packet = fixed(1, "a");
    send(&db, &packet).await;
    db.store.project("embedded", 0, 2, &events(&packet, &["bob"])).await.expect("written");
    assert_eq!(has(&db, Account::Packet(packet.pool)).await, 302);
    assert_eq!(db.store.credit_waiting(T0).await.expect("written"), 1);
    let waits = db.store.waits_for_credit(packet.pool).await.expect("readable");
    assert_eq!(waits, Cents::new(101));
    let what = What::Transfer {
        from: Account::User(user("bob")),
        to: Account::User(user("cat")),
        amount: Cents::new(500),
    };
    let movement = Movement { key: "less", request_hash: "hash", what };
    db.store.move_money(&[movement], T0).await.expect("written");
    assert_eq!(db.store.credit_waiting(T0).await.expect("written"), 0);
    assert_eq!(has(&db, Account::Packet(packet.pool)).await, 201);
    assert_eq!(user_has(&db, "bob").await, MAX_BALANCE.get() - 500 + 101);
}

async fn p70_what_a_user_sends_on_a_day_is_counted_in_the_transaction(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 10_000).await;
    let mut sending = tokio::task::JoinSet::new();
    for id in 1..=8 {
        let store = db.store.clone();
        sending.spawn(async move {
            let packet = fixed(id, &id.to_string());
            let sending = Sending { packet: &packet, limits: LIMITS, seed_id: None };
            store.send_packet(&sending, T0).await.expect("written")
        });
    }
    let sent = sending.join_all().await;
    assert_eq!(sent.iter().filter(|sent| **sent == Sent::Done).count(), 3, "{sent:?}");
    assert_eq!(sent.iter().filter(|sent| **sent == Sent::OverDayLimit).count(), 5);
    assert_eq!(user_has(&db, "ann").await, 10_000 - 3 * 302);
    let packet = fixed(9, "next day");
    let limits = DayLimits { day: LIMITS.day + 1, ..LIMITS };
    let sending = Sending { packet: &packet, limits, seed_id: None };
    assert_eq!(db.store.send_packet(&sending, T0).await.expect("written"), Sent::Done);
    db.store.forget_packet_days(LIMITS.day + 100).await.expect("written");
}

async fn attempts_and_seeds_are_used_up(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 1_000).await;
    let (pool, bob) = (pool_id(1), user("bob"));
    let attempt = || db.store.begin_attempt(pool, &bob, 2);
    assert_eq!(attempt().await.expect("written"), Some(1));
    db.store.forget_attempt(pool, &bob).await.expect("written");
    assert_eq!(attempt().await.expect("written"), Some(1));
    assert_eq!(attempt().await.expect("written"), Some(2));
    assert_eq!(attempt().await.expect("written"), None);
    assert_eq!(db.store.begin_attempt(pool, &user("cat"), 2).await.expect("written"), Some(1));

    let seed = Seed([3; 32]);
    db.store.add_packet_seed("s", &user("ann"), &seed, T0).await.expect("written");
    assert_eq!(db.store.packet_seed("s", &bob).await.expect("readable"), None);
    assert_eq!(db.store.packet_seed("s", &user("ann")).await.expect("readable"), Some(seed));
    let (one, two) = (fixed(1, "a"), fixed(2, "b"));
    for (packet, expected) in [(&one, Sent::Done), (&two, Sent::NoSuchSeed)] {
        let sending = Sending { packet, limits: LIMITS, seed_id: Some("s") };
        assert_eq!(db.store.send_packet(&sending, T0).await.expect("written"), expected);
    }
    assert_eq!(user_has(&db, "ann").await, 698);
    // Seeds that nobody used are forgotten when others are drawn.
    db.store.add_packet_seed("old", &bob, &seed, T0).await.expect("written");
    let later = T0.plus_millis(3_600_001);
    db.store.add_packet_seed("new", &bob, &seed, later).await.expect("written");
    assert_eq!(db.store.packet_seed("old", &bob).await.expect("readable"), None);
}

async fn packets_are_listed_by_time_and_added_up(on: Dialect) {
    let db = Db::new(on).await;
    top_up(&db, "ann", 1_000).await;
    for (id, at) in [(1, 0), (2, 5), (3, 5)] {
        let packet = Packet { created_at: T0.plus_millis(at), ..fixed(id, &id.to_string()) };
        assert_eq!(send(&db, &packet).await, Sent::Done);
        db.store.upsert(&events(&packet, &["bob"])).await.expect("written");
    }
    let within = Within { from: T0, until: T0.plus_millis(10_000) };
    let (ann, bob) = (user("ann"), user("bob"));
    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = db.store.packets_sent(&ann, within, after, 1).await.expect("readable");
        let Some(packet) = page.first() else { break };
        seen.push(packet.pool.get());
        after = Some(Opened { at: packet.created_at, id: packet.pool });
    }
    assert_eq!(seen, [3, 2, 1]);
    let total = db.store.total_sent(&ann, within).await.expect("readable");
    assert_eq!((total.count, total.cents), (3, Cents::new(906)));
    let first = Within { from: T0, until: T0.plus_millis(5) };
    assert_eq!(db.store.total_sent(&ann, first).await.expect("readable").count, 1);
    assert_eq!(db.store.packets_sent(&ann, first, None, 9).await.expect("readable").len(), 1);
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = db.store.packets_received(&bob, within, after, 1).await.expect("readable");
        let Some(received) = page.first() else { break };
        assert_eq!((&received.sender, received.grab.amount), (&ann, Cents::new(101)));
        seen.push(received.grab.pool.get());
        after = Some(received.cursor());
    }
    assert_eq!(seen, [3, 2, 1]);
    let total = db.store.total_received(&bob, within).await.expect("readable");
    assert_eq!((total.count, total.cents), (3, Cents::new(303)));
    assert_eq!(db.store.total_received(&ann, within).await.expect("readable").count, 0);
    let page = db.store.packets_page(Some(pool_id(1)), 9).await.expect("readable");
    assert_eq!(page.iter().map(|packet| packet.pool.get()).collect::<Vec<_>>(), [2, 3]);
}
