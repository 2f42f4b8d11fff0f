//! Random talk: commands that are right, wrong and no commands, in pipelines cut at random places.
//! Every command has one answer, of a shape it may have, in its place; a good client beside notices
//! nothing; and the books agree afterwards.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{Client, backend, command, open};

/// Pipelines said; each is one connection's.
const TALKS: usize = 120;

/// What a command can be answered, as far as one can tell without knowing the past.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    /// `[0|1|2, …]`
    Decision,
    /// An error.
    Wrong,
    /// A list of fields, or nothing.
    Fields,
    /// The text of this number.
    Echo(u32),
    /// Anything, once.
    Something,
}

#[derive(Debug, Clone)]
struct Said {
    words: Vec<Vec<u8>>,
    expected: Expected,
}

fn said<W: AsRef<[u8]>>(words: &[W], expected: Expected) -> Said {
    Said { words: words.iter().map(|word| word.as_ref().to_vec()).collect(), expected }
}

/// One command on one of the two sales, by one of few users, so that they meet.
fn any_command(sales: &[String; 2]) -> impl Strategy<Value = Said> + use<> {
    let sale = prop_oneof![
        4 => Just(sales[0].clone()),
        4 => Just(sales[1].clone()),
        1 => Just("31".to_owned()),
        1 => "[0-9a-z-]{0,6}",
    ];
    let claim = (sale.clone(), 0..40_u32).prop_map(|(sale, number)| format!("{sale}-{number}"));
    let user = (0..30_u32).prop_map(|number| format!("u{number}"));
    let bytes = || vec(any::<u8>(), 0..20);
    prop_oneof![
        6 => (sale.clone(), user.clone(), 1..4_u32, 0..50_u32).prop_map(|(sale, user, n, request)| {
            let mut words = vec!["CLAIM".to_owned(), sale, user, n.to_string()];
            words.extend((request >= 25).then(|| format!("r{request}")));
            said(&words, Expected::Decision)
        }),
        2 => (claim.clone(), user.clone()).prop_map(|(claim, user)| {
            said(&["ORDER".into(), claim, user], Expected::Decision)
        }),
        2 => claim.clone().prop_map(|claim| said(&["RELEASE".into(), claim], Expected::Decision)),
        2 => (claim.clone(), 0..60_u32).prop_map(|(claim, payment)| {
            let words = ["PAY".into(), claim, format!("p{payment}"), "9900".into()];
            said(&words, Expected::Decision)
        }),
        2 => sale.prop_map(|sale| said(&["POOL".into(), sale], Expected::Fields)),
        2 => claim.prop_map(|claim| said(&["SHOW".into(), claim], Expected::Fields)),
        3 => (0..1_000_000_u32).prop_map(|n| said(&["ECHO".into(), n.to_string()], Expected::Echo(n))),
        1 => Just(said(&["CLAIM"], Expected::Wrong)),
        1 => Just(said(&["CLAIM", &sales[0], "ann", "many"], Expected::Wrong)),
        1 => Just(said(&["CLAIM", &sales[0], ""], Expected::Wrong)),
        1 => Just(said(&["PAY", "1-1", "p", "-4"], Expected::Wrong)),
        1 => vec(bytes(), 1..6).prop_map(|words| {
            // A letter in front keeps it from being a command by accident.
            let mut words = words;
            words[0].insert(0, b'~');
            Said { words, expected: Expected::Wrong }
        }),
        1 => (prop::sample::select(vec!["CLIENT", "COMMAND", "INFO", "SELECT", "CONFIG", "PING"]), vec(bytes(), 0..4))
            .prop_map(|(name, rest)| {
                let words = [vec![name.as_bytes().to_vec()], rest].concat();
                Said { words, expected: Expected::Something }
            }),
    ]
}

fn check(answer: &Value, expected: Expected) {
    let is_error = answer.as_str().is_some_and(|text| text.starts_with('-'));
    let fine = match expected {
        Expected::Decision => matches!(answer[0].as_i64(), Some(0..=2)),
        Expected::Wrong => is_error,
        Expected::Fields => answer.is_array() || answer.is_null(),
        Expected::Echo(number) => *answer == json!(number.to_string()),
        Expected::Something => true,
    };
    assert!(fine, "{answer} for {expected:?}");
}

/// Says everything, in pieces cut at these places, and leaves in the way the last byte says.
async fn talk(mut client: Client, talk: Vec<Said>, cuts: Vec<prop::sample::Index>, end: Vec<u8>) {
    let mut bytes: Vec<u8> = talk.iter().flat_map(|said| command(&said.words)).collect();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    bytes.extend(end);
    let mut from = 0;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        // A server that heard enough may have closed behind the end.
        let _sent = client.stream.write_all(&bytes[from..cut]).await;
        tokio::task::yield_now().await;
        from = cut;
    }
    for said in &talk {
        check(&client.answer().await, said.expected);
    }
    // What comes behind was made up; whatever it is answered, it ends.
    let _half_closed = client.stream.shutdown().await;
    client.rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_is_answered_in_its_place_whatever_is_said() {
    let shop = open().await;
    let terms = json!({ "limit_per_user": 4, "flow": "hold" });
    let sales = [shop.sale(60, json!({})).await, shop.sale(60, terms).await];
    let quiet = shop.sale(1_000, json!({})).await;
    // The same talk in every run, or a failure could not be looked into.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = (
        vec(any_command(&sales), 1..60),
        vec(any::<prop::sample::Index>(), 0..12),
        prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..40), Just(b"*2\r\n$4\r\nECHO".to_vec())],
    );
    let mut good = backend(&shop).await;
    let mut talking = Vec::new();
    for number in 0..TALKS {
        let made = strategy.new_tree(&mut runner).expect("made").current();
        let client = backend(&shop).await;
        talking.push(tokio::spawn(talk(client, made.0, made.1, made.2)));
        assert_eq!(good.ask(&format!("CLAIM {quiet} good-{number}")).await[0], 1);
    }
    for one in talking {
        one.await.expect("no panic");
    }
    let taken = u64::try_from(TALKS).expect("few");
    assert_eq!(shop.tally(&quiet).await, [1_000 - taken, 0, taken, 0]);
    for sale in sales {
        let tally = shop.tally(&sale).await;
        assert_eq!(tally.iter().sum::<u64>(), 60, "{tally:?}");
        assert!(tally[0] < 60, "something was claimed");
    }
    shop.audit().await;
}
