//! The public form of events: golden files, their schema, and what must never be in it.
//!
//! A golden file is what version 1 looks like for ever. `QIANG_WRITE_GOLDEN=1` writes those that are
//! missing, and never changes one.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use qiang_core::{
    Cents, Claim, ClaimId, Event, Flow, Identity, Kind, LimitBy, PaymentId, PoolChange, PoolId,
    PoolState, PriceStep, Reclaim, Refund, RefundReason, ReleaseReason, RequestId, State, Supply,
    Terms, Timestamp, UserId,
};
use qiang_delivery::public;
use qiang_testkit::servers::{SCHEMATHESIS, or_skip};
use serde_json::Value;

const T0: Timestamp = Timestamp::from_millis(1_800_000_000_123);
const SOURCE: &str = "/qiang";
/// Values of portions that stand for nothing else in an event.
const CUT: [i64; 3] = [777_771, 777_772, 777_773];

fn pool(change: PoolChange, version: u32) -> PoolState {
    let terms = Terms {
        kind: Kind::Sale,
        title: "茅台 \"53°\"".into(),
        sku: "MT-53".into(),
        supply: Supply::Units(100),
        limit_per_user: 2,
        limit_by: LimitBy::Identity,
        price: Cents::new(149_900),
        price_steps: vec![PriceStep { after_sold: 10, price: Cents::new(159_900) }],
        opens_at: T0,
        closes_at: Some(T0.plus_millis(3_600_000)),
        flow: Flow::Hold { hold_ms: 300_000, pay_ms: 1_800_000 },
        reclaim: Reclaim::Never,
        buckets: 1,
    };
    let closed_at = (version > 2).then_some(T0.plus_millis(60_000));
    let id = PoolId::new(12).expect("positive");
    PoolState { id, version, change, terms: Arc::new(terms), total: 105, closed_at, at: T0 }
}

fn packet() -> PoolState {
    let sale = pool(PoolChange::Opened, 1);
    let terms = Terms {
        kind: Kind::Packet,
        title: "恭喜发财".into(),
        sku: "packet".into(),
        supply: Supply::Portions(CUT.into_iter().map(Cents::new).collect()),
        price_steps: Vec::new(),
        flow: Flow::Instant,
        limit_by: LimitBy::User,
        ..(*sale.terms).clone()
    };
    terms.check().expect("terms an engine would take");
    let id = PoolId::new(13).expect("positive");
    PoolState { id, terms: Arc::new(terms), total: 3, ..sale }
}

fn held() -> Claim {
    Claim {
        kind: Kind::Sale,
        id: ClaimId { pool: PoolId::new(12).expect("positive"), number: 7 },
        user: UserId::new("ann").expect("a user"),
        identity: Some(Identity::new("secret-person").expect("an identity")),
        request: Some(RequestId::new("click-1").expect("an id")),
        quantity: 2,
        unit_price: Cents::new(149_900),
        portion: None,
        state: State::Held,
        version: 1,
        created_at: T0,
        changed_at: T0,
        hold_until: Some(T0.plus_millis(300_000)),
        pay_by: None,
        payment: None,
        replaces: None,
        reason: None,
    }
}

/// One event of every kind, and of every shape that differs.
fn examples() -> Vec<(&'static str, Event)> {
    let restocked =
        PoolChange::Restocked { units: 5, request: RequestId::new("restock-1").expect("an id") };
    let ordered = Claim {
        state: State::Ordered,
        version: 2,
        changed_at: T0.plus_millis(1_000),
        pay_by: Some(T0.plus_millis(1_801_000)),
        ..held()
    };
    let payment = PaymentId::new("支付-8861").expect("a payment");
    let paid = Claim {
        state: State::Paid,
        version: 3,
        changed_at: T0.plus_millis(2_000),
        payment: Some(payment.clone()),
        ..ordered.clone()
    };
    let revoked = Claim {
        state: State::Released,
        version: 4,
        changed_at: T0.plus_millis(3_000),
        reason: Some(ReleaseReason::Revoked),
        ..paid.clone()
    };
    let expired = Claim {
        state: State::Released,
        version: 2,
        changed_at: T0.plus_millis(300_000),
        reason: Some(ReleaseReason::HoldExpired),
        ..held()
    };
    let regranted = Claim {
        id: ClaimId { number: 8, ..held().id },
        state: State::Paid,
        payment: Some(payment.clone()),
        replaces: Some(7),
        ..held()
    };
    let grab = Claim {
        kind: Kind::Packet,
        id: ClaimId { pool: packet().id, number: 1 },
        identity: None,
        quantity: 1,
        unit_price: Cents::new(CUT[0]),
        portion: Some(0),
        state: State::Paid,
        hold_until: None,
        ..held()
    };
    let refund = Refund {
        order: held().id,
        payment,
        amount: Cents::new(299_800),
        reason: RefundReason::Late,
        at: T0,
    };
    vec![
        ("pool_opened", Event::Pool(pool(PoolChange::Opened, 1))),
        ("pool_restocked", Event::Pool(pool(restocked, 2))),
        ("pool_closed", Event::Pool(pool(PoolChange::Closed, 3))),
        ("pool_cleared", Event::Pool(pool(PoolChange::Cleared, 4))),
        ("packet_opened", Event::Pool(packet())),
        ("claim_granted", Event::Claim(held())),
        ("claim_ordered", Event::Claim(ordered)),
        ("claim_paid", Event::Claim(paid)),
        ("claim_released", Event::Claim(expired)),
        ("claim_revoked", Event::Claim(revoked)),
        ("claim_regranted", Event::Claim(regranted)),
        ("portion_granted", Event::Claim(grab)),
        ("refund_due", Event::Refund(refund)),
    ]
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"))
}

/// What is wrong with each of these by the schema in the repository, in the words of a library that is
/// not ours; `None` after saying that it is not there.
fn faults(events: &[Value]) -> Option<Vec<Vec<String>>> {
    const JUDGE: &str = "import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
judge = jsonschema.Draft202012Validator(schema)
print(json.dumps([[e.message for e in judge.iter_errors(x)] for x in json.load(sys.stdin)]))";
    let main = or_skip(SCHEMATHESIS.find().map_err(Into::into))?;
    let packages = main.ancestors().nth(3).expect("it is a file of a module of a package");
    let schema = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/events.schema.json");
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    python.args(["-c", JUDGE]).arg(schema).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().expect("python runs");
    let events = serde_json::to_vec(events).expect("JSON");
    child.stdin.take().expect("piped").write_all(&events).expect("it listens");
    let said = child.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{said:?}");
    Some(serde_json::from_slice(&said.stdout).expect("JSON"))
}

fn public_json(event: &Event) -> Vec<Value> {
    let events = public::of(event, SOURCE);
    events.iter().map(|event| serde_json::from_str(&event.json).expect("JSON")).collect()
}

#[test]
fn every_event_looks_as_it_always_did() {
    for (name, event) in examples() {
        let found = Value::Array(public_json(&event));
        assert!(
            found
                .as_array()
                .expect("a list")
                .iter()
                .all(|one| { one["partitionkey"] == event.pool().to_string() })
        );
        let path = golden(name);
        if !path.exists() && std::env::var_os("QIANG_WRITE_GOLDEN").is_some() {
            let text = serde_json::to_string_pretty(&found).expect("JSON");
            std::fs::write(&path, text + "\n").expect("written");
        }
        let text = std::fs::read_to_string(&path).expect("there is a golden file");
        let expected: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn every_event_keeps_to_the_schema() {
    let events: Vec<Value> = examples().iter().flat_map(|(_, event)| public_json(event)).collect();
    let Some(faults) = faults(&events) else { return };
    assert_eq!(faults.len(), events.len());
    for (event, faults) in events.iter().zip(faults) {
        assert_eq!(faults, Vec::<String>::new(), "{event}");
    }
}

#[test]
fn the_schema_refuses_what_is_no_event_of_ours() {
    let good = &public_json(&Event::Claim(held()))[0];
    let mut bad = Vec::new();
    for (path, value) in [
        ("/type", Value::from("qiang.claim.granted.v9")),
        ("/time", Value::from(1)),
        ("/data/state", Value::from("lost")),
        ("/data/claim_id", Value::from("12")),
        ("/data/version", Value::from(0)),
    ] {
        let mut one = good.clone();
        *one.pointer_mut(path).expect("it is there") = value;
        bad.push(one);
    }
    let mut leaking = good.clone();
    leaking["data"]["identity"] = Value::from("secret-person");
    bad.push(leaking);
    let mut cut = public_json(&Event::Pool(packet())).remove(0);
    cut["data"]["total_cents"] = Value::from(1);
    bad.push(cut);
    let Some(faults) = faults(&bad) else { return };
    for (event, faults) in bad.iter().zip(faults) {
        assert!(!faults.is_empty(), "{event}");
    }
}

#[test]
fn p71_no_public_event_shows_a_portion_that_nobody_took_nor_an_identity() {
    let sum = CUT.iter().sum::<i64>().to_string();
    for (name, event) in examples() {
        for json in public_json(&event) {
            let text = json.to_string();
            assert!(!text.contains("secret-person"), "{name}: {text}");
            assert!(!text.contains(&sum), "{name}: {text}");
            let taken = if name == "portion_granted" { &CUT[..1] } else { &[] };
            for value in CUT.iter().filter(|value| !taken.contains(value)) {
                assert!(!text.contains(&value.to_string()), "{name}: {text}");
            }
        }
    }
}

#[test]
fn ids_are_unique_and_a_refund_has_one_id_however_it_came_about() {
    let mut ids: Vec<String> = examples().iter().map(|(_, event)| event.id()).collect();
    let (all, revoked) = (ids.len(), examples().swap_remove(9).1);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all - 1, "of two ways a claim's second version can be, one comes true");
    let [released, refund] = &public_json(&revoked)[..] else { panic!("two events") };
    assert_eq!(released["type"], "qiang.claim.released.v1");
    assert_eq!(refund["type"], "qiang.refund.due.v1");
    let Event::Claim(claim) = revoked else { panic!("a claim") };
    let owed = Event::Refund(claim.revoked().expect("it was paid"));
    assert_eq!(refund["id"], owed.id());
    assert!(owed.id().is_ascii() && owed.id().len() <= 128);
}
