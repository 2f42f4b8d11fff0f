//! `verify.py` was written from docs/PACKETS.md alone. It agrees with the rules.

use std::io::Write as _;
use std::process::{Command, Stdio};

use qiang_core::Cents;
use qiang_core::packets::{Kind, Recipe};
use serde_json::{Value, json};

use super::seed;

const VERIFIER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packets/verify.py");

/// What the verifier says of each packet.
fn verdicts(packets: &[Value]) -> Vec<Value> {
    let mut python = Command::new("python3")
        .arg(VERIFIER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs python3");
    let lines: String = packets.iter().map(|packet| format!("{packet}\n")).collect();
    let mut stdin = python.stdin.take().expect("it is piped");
    // It writes while it reads, so one thread for each.
    let writing = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = python.wait_with_output().expect("it ends");
    writing.join().expect("no panic").expect("it reads everything");
    assert!(output.status.success(), "the verifier failed");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A packet as the API shows it when it is over, some of it taken.
fn packet(number: u64) -> Value {
    let shares = u32::try_from(number * 7 % 500).expect("small") + 1;
    let total = i64::from(shares) + i64::try_from(number * number * 97 % 3_000_000).expect("small");
    let nonce =
        number.to_be_bytes().repeat(8)[..usize::try_from(number % 65).expect("small")].to_vec();
    let id = format!("{number}-packet");
    let kind = if number.is_multiple_of(5) { Kind::Fixed } else { Kind::Lucky };
    let recipe = Recipe {
        packet: &id,
        kind,
        total: Cents::new(total),
        shares,
        nonce: &nonce,
        seed: &seed(number),
    };
    let cut = recipe.cut().expect("it can be cut");
    let taken = cut.iter().enumerate().take(cut.len().div_ceil(2));
    json!({
        "id": id,
        "kind": kind.as_str(),
        "total_cents": total,
        "shares": shares,
        "nonce": hex::encode(&nonce),
        "seed": hex::encode(recipe.seed.0),
        "commitment": hex::encode(recipe.commitment()),
        "grabs": taken
            .map(|(portion, cents)| json!({"portion": portion, "amount_cents": cents.get()}))
            .collect::<Vec<_>>(),
    })
}

#[test]
fn a_verifier_written_from_the_page_agrees_on_a_thousand_packets() {
    let packets: Vec<Value> = (0..1_000).map(packet).collect();
    let verdicts = verdicts(&packets);
    assert_eq!(verdicts.len(), packets.len());
    for (verdict, packet) in verdicts.iter().zip(&packets) {
        assert_eq!(*verdict, true, "{packet}");
    }
}

#[test]
fn it_notices_one_changed_byte() {
    let change = |field: &str| {
        let mut packet = packet(31);
        let text = packet[field].as_str().expect("text").to_owned();
        let first = if text.starts_with('0') { '1' } else { '0' };
        packet[field] = format!("{first}{}", &text[1..]).into();
        packet
    };
    let mut packets: Vec<Value> = ["id", "seed", "nonce", "commitment"].map(change).to_vec();
    for field in ["total_cents", "shares"] {
        let mut packet = packet(31);
        packet[field] = (packet[field].as_i64().expect("a number") + 1).into();
        packets.push(packet);
    }
    let mut packet = packet(31);
    let cents = packet["grabs"][2]["amount_cents"].as_i64().expect("a number");
    packet["grabs"][2]["amount_cents"] = (cents ^ 1).into();
    packets.push(packet);
    for (verdict, packet) in verdicts(&packets).iter().zip(&packets) {
        assert!(verdict.is_string(), "{packet} passed");
    }
}
