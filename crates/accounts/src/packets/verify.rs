//! Checks a finished packet, from what anybody may read of it.

use anyhow::Context as _;
use qiang_core::Cents;
use qiang_core::packets::{Kind, Recipe, Seed};
use serde::Deserialize;

use super::view::GrabView;

/// What a packet that is over says of itself.
#[derive(Debug, Deserialize)]
pub struct Finished {
    pub packet_id: String,
    kind: String,
    shares: u32,
    commitment: String,
    nonce: String,
    /// These three are absent for those who may not see them.
    total_cents: Option<i64>,
    grabs: Option<Vec<GrabView>>,
    seed: Option<String>,
}

/// What was found right.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// Portions that were taken, each as the cut says.
    pub grabs: usize,
    /// The hash of the seed, for those who were shown one before.
    pub seed_hash: String,
    /// The whole cut.
    pub portions: Vec<i64>,
}

/// Checks that the packet is the one of its commitment, and that everybody got what the cut says.
pub fn verify(packet: &Finished) -> anyhow::Result<Verified> {
    let seed = packet.seed.as_ref().context(
        "the seed is not shown: the packet is not over yet, or you neither sent it nor grabbed of it",
    )?;
    let total = packet.total_cents.context("the total is not shown")?;
    let grabs = packet.grabs.as_ref().context("the grabs are not shown")?;
    let hash = |text: &str, what: &'static str| -> anyhow::Result<[u8; 32]> {
        let bytes = hex::decode(text).with_context(|| format!("the {what} is not hex"))?;
        <[u8; 32]>::try_from(bytes).ok().with_context(|| format!("the {what} has not 32 bytes"))
    };
    let (seed, commitment) = (Seed(hash(seed, "seed")?), hash(&packet.commitment, "commitment")?);
    let nonce = hex::decode(&packet.nonce).context("the nonce is not hex")?;
    let recipe = Recipe {
        packet: &packet.packet_id,
        kind: Kind::from_word(&packet.kind).context("neither lucky nor fixed")?,
        total: Cents::new(total),
        shares: packet.shares,
        nonce: &nonce,
        seed: &seed,
    };
    let taken = grabs.iter().map(|grab| (grab.portion, Cents::new(grab.amount_cents)));
    recipe.verify(&commitment, taken)?;
    let mut places: Vec<u32> = grabs.iter().map(|grab| grab.portion).collect();
    places.sort_unstable();
    places.dedup();
    anyhow::ensure!(places.len() == grabs.len(), "two grabs have the same portion");
    Ok(Verified {
        grabs: grabs.len(),
        seed_hash: hex::encode(seed.hash()),
        portions: recipe.cut()?.iter().map(|portion| portion.get()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The second vector of `docs/PACKETS.md`, with two grabs.
    fn finished() -> Value {
        let at = "2027-01-15T08:00:00.000Z";
        json!({
            "packet_id": "4611686018427387905-0123456789abcdef0123",
            "kind": "lucky", "shares": 10, "total_cents": 20_000,
            "nonce": "e681ade5969ce58f91e8b4a2",
            "seed": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "commitment": "22a6d127fb5e4dd557ad36dec3b01eafa74ea81d1a72a70dae7a09dc72e4c3f3",
            "grabs": [
                { "number": 1, "portion": 0, "user_id": "ann", "amount_cents": 524, "at": at },
                { "number": 2, "portion": 1, "user_id": "bob", "amount_cents": 1387, "at": at },
            ],
        })
    }

    fn check(packet: Value) -> anyhow::Result<Verified> {
        verify(&serde_json::from_value(packet).expect("a packet"))
    }

    #[test]
    fn a_packet_is_what_its_commitment_promised() {
        let verified = check(finished()).expect("it is right");
        assert_eq!((verified.grabs, verified.portions.len()), (2, 10));
        assert_eq!(
            verified.seed_hash,
            "3b976aa7bc3a29ffb427bc020706823ef94b02974aba43fa06f2acab118d22ad"
        );
    }

    #[test]
    fn whatever_was_changed_is_found() {
        for (field, value) in [
            ("packet_id", json!("4611686018427387906-0123456789abcdef0123")),
            ("kind", json!("fixed")),
            ("shares", json!(9)),
            ("total_cents", json!(20_001)),
            ("nonce", json!("e681ade5969ce58f91e8b4a3")),
            ("seed", json!("010102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")),
            (
                "commitment",
                json!("32a6d127fb5e4dd557ad36dec3b01eafa74ea81d1a72a70dae7a09dc72e4c3f3"),
            ),
        ] {
            let mut packet = finished();
            packet[field] = value;
            assert!(check(packet).is_err(), "{field}");
        }
        let mut packet = finished();
        packet["grabs"][1]["amount_cents"] = json!(1_388);
        assert!(check(packet).is_err(), "an amount");
        let mut packet = finished();
        packet["grabs"][1]["portion"] = json!(0);
        packet["grabs"][1]["amount_cents"] = json!(524);
        assert!(check(packet).is_err(), "a portion taken twice");
        let mut packet = finished();
        packet["seed"] = Value::Null;
        assert!(check(packet).is_err(), "no seed");
    }
}
