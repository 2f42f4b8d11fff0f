//! Packets are cut so that every cent is there, and so that anybody can check it: the numbers of
//! the page `docs/PACKETS.md`, and a verifier in another language.

mod other_verifier;

use qiang_core::Cents;
use qiang_core::packets::{Kind, MAX_SHARE, MAX_SHARES, Mismatch, Recipe, Seed};

/// A seed for each number, and for each number another.
fn seed(number: u64) -> Seed {
    let mut bytes = [0; 32];
    for (place, byte) in (0_u8..).zip(&mut bytes) {
        *byte = number.to_le_bytes()[usize::from(place % 8)].wrapping_mul(31).wrapping_add(place);
    }
    Seed(bytes)
}

fn recipe<'a>(kind: Kind, total: i64, shares: u32, nonce: &'a [u8], seed: &'a Seed) -> Recipe<'a> {
    Recipe {
        packet: "4611686018427387905-0123456789abcdef0123",
        kind,
        total: Cents::new(total),
        shares,
        nonce,
        seed,
    }
}

fn cut(kind: Kind, total: i64, shares: u32, number: u64) -> Vec<i64> {
    let portions = recipe(kind, total, shares, b"", &seed(number)).cut().expect("it can be cut");
    portions.iter().map(|portion| portion.get()).collect()
}

fn assert_whole(portions: &[i64], total: i64, shares: u32) {
    assert_eq!(portions.len(), shares as usize, "{total} in {shares}");
    assert_eq!(portions.iter().sum::<i64>(), total, "{total} in {shares}");
    assert!(portions.iter().all(|portion| *portion >= 1), "{total} in {shares}: {portions:?}");
}

#[test]
fn p44_every_small_cut_adds_up_and_leaves_nobody_without_a_cent() {
    for shares in 1..=50 {
        for total in i64::from(shares)..=200 {
            for number in 0..3 {
                assert_whole(&cut(Kind::Lucky, total, shares, number), total, shares);
            }
            assert_whole(&cut(Kind::Fixed, total, shares, 0), total, shares);
        }
    }
}

#[test]
fn p44_samples_of_the_whole_range_add_up() {
    let most = MAX_SHARE.get();
    for number in 0..2_000_u64 {
        let pick = seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).0;
        let word = u64::from_le_bytes(pick[..8].try_into().expect("8 bytes"));
        let shares = u32::try_from(word % u64::from(MAX_SHARES)).expect("small") + 1;
        // As many small totals as large ones.
        let range = (most - i64::from(shares)) >> (number % 30);
        let total = i64::from(shares) + i64::try_from(word >> 1).expect("63 bits") % (range + 1);
        assert_whole(&cut(Kind::Lucky, total, shares, number), total, shares);
        assert_whole(&cut(Kind::Fixed, total, shares, number), total, shares);
    }
    for shares in [1, 2, 499, 500] {
        assert_whole(&cut(Kind::Lucky, i64::from(shares), shares, 1), i64::from(shares), shares);
        assert_whole(&cut(Kind::Lucky, most, shares, 1), most, shares);
        let total = most * i64::from(shares);
        assert_whole(&cut(Kind::Fixed, total, shares, 1), total, shares);
    }
}

#[test]
fn p47_cents_that_cannot_be_divided_go_one_by_one_to_the_first() {
    let portions = cut(Kind::Fixed, 100, 18, 0);
    assert_eq!(portions, [[6; 10].as_slice(), &[5; 8]].concat());
    assert_eq!(cut(Kind::Fixed, 90, 18, 0), [5; 18]);
}

#[test]
fn what_cannot_be_cut_is_said() {
    let seed = seed(0);
    let fault = |kind, total, shares, nonce: &[u8]| {
        recipe(kind, total, shares, nonce, &seed).cut().expect_err("it cannot be cut").field
    };
    let most = MAX_SHARE.get();
    for kind in [Kind::Lucky, Kind::Fixed] {
        assert_eq!(fault(kind, 10, 0, b""), "shares");
        assert_eq!(fault(kind, 1_000, 501, b""), "shares");
        assert_eq!(fault(kind, 9, 10, b""), "total_cents");
        assert_eq!(fault(kind, 0, 1, b""), "total_cents");
        assert_eq!(fault(kind, i64::MIN, 1, b""), "total_cents");
        assert_eq!(fault(kind, i64::MAX, 500, b""), "total_cents");
        assert_eq!(fault(kind, 10, 2, &[0; 65]), "nonce");
    }
    assert_eq!(fault(Kind::Lucky, most + 1, 2, b""), "total_cents");
    assert_eq!(fault(Kind::Fixed, 2 * most + 1, 2, b""), "total_cents");
}

/// The vectors of docs/PACKETS.md. They never change.
#[test]
fn the_vectors_of_the_page_hold() {
    let page = include_str!("../../../../docs/PACKETS.md");
    let mut counting = [0; 32];
    (0_u8..).zip(&mut counting).for_each(|(place, byte)| *byte = place);
    let (zeros, counting) = (Seed([0; 32]), Seed(counting));
    let vectors = [
        recipe(Kind::Lucky, 1_000, 5, b"", &zeros),
        recipe(Kind::Lucky, 20_000, 10, "恭喜发财".as_bytes(), &counting),
        recipe(Kind::Lucky, 12, 10, b"", &counting),
        recipe(Kind::Fixed, 100, 18, b"", &counting),
    ];
    for vector in vectors {
        let portions: Vec<String> =
            vector.cut().expect("it can be cut").iter().map(|c| c.get().to_string()).collect();
        let expected = format!(
            "total {} · shares {} · kind {} · nonce `{}` · seed `{}`\n\n    commitment {}\n    portions   {}\n",
            vector.total.get(),
            vector.shares,
            vector.kind.as_str(),
            hex::encode(vector.nonce),
            hex::encode(vector.seed.0),
            hex::encode(vector.commitment()),
            portions.join(" "),
        );
        assert!(page.contains(&expected), "docs/PACKETS.md lacks:\n{expected}");
    }
    let hash = format!("hash of that seed `{}`", hex::encode(counting.hash()));
    assert!(page.contains(&hash), "docs/PACKETS.md lacks: {hash}");
}

#[test]
fn a_packet_that_was_changed_is_noticed() {
    let (seed, other) = (seed(1), seed(2));
    let honest = recipe(Kind::Lucky, 5_000, 7, b"mine", &seed);
    let (commitment, cut) = (honest.commitment(), honest.cut().expect("it can be cut"));
    let taken = || (0..).zip(cut.iter().copied());
    assert_eq!(honest.verify(&commitment, taken()), Ok(()));
    assert_eq!(honest.verify(&commitment, []), Ok(()));

    let changed = [
        Recipe { packet: "another", ..honest },
        Recipe { total: Cents::new(5_001), ..honest },
        Recipe { shares: 8, ..honest },
        Recipe { kind: Kind::Fixed, ..honest },
        Recipe { nonce: b"nine", ..honest },
        Recipe { seed: &other, ..honest },
    ];
    for recipe in changed {
        assert_eq!(recipe.verify(&commitment, []), Err(Mismatch::Commitment), "{recipe:?}");
    }
    let found = Cents::new(cut[3].get() + 1);
    let wrong = Mismatch::Portion { portion: 3, found, expected: cut[3] };
    assert_eq!(honest.verify(&commitment, [(3, found)]), Err(wrong));
    let none = Mismatch::NoSuchPortion { portion: 7 };
    assert_eq!(honest.verify(&commitment, [(7, Cents::new(1))]), Err(none));
}

#[test]
fn nothing_shows_a_seed_by_accident() {
    let shown = format!("{:?}", recipe(Kind::Lucky, 10, 2, b"", &Seed([0xab; 32])));
    assert!(shown.contains("Seed(…)") && !shown.contains("171"), "{shown}");
}
