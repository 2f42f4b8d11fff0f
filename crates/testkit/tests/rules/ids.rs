//! Ids at the edges of what is allowed survive being stored.

use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Book, Claim, ClaimRequest, Command, Event, Identity, Kind, Outcome, PoolId, Reply, RequestId,
    Timestamp, UserId,
};
use qiang_testkit::rules::terms;

fn claim(book: &mut Book, wish: ClaimRequest) -> Outcome<Claim> {
    let (command, now) = (Command::Claim(wish), Timestamp::from_millis(0));
    match book.handle(&command, now, &mut |_| {}) {
        Reply::Claim(outcome) => outcome,
        other => panic!("a claim is answered with a claim, not {other:?}"),
    }
}

#[test]
fn the_longest_ids_are_kept_apart_and_whole() {
    let mut book = Book::new(3);
    let pool = PoolId::new(i64::MAX.unsigned_abs()).expect("the highest id");
    let open = Command::Open { pool, terms: Arc::new(terms(&["units=2000", "by=identity"])) };
    book.handle(&open, Timestamp::from_millis(0), &mut |_: &Event| {});
    let long = |prefix: &str, number: u32, len: usize| {
        let tail = number.to_string();
        format!("{prefix}{}{tail}", "长".repeat((len - prefix.len() - tail.len()) / 3))
    };
    // More text than one piece of memory holds.
    for number in 1..=2_000 {
        let wish = ClaimRequest {
            kind: Kind::Sale,
            pool,
            user: UserId::new(&long("u", number, 64)).expect("64 bytes"),
            identity: Some(Identity::new(&long("i", number, 64)).expect("64 bytes")),
            request: Some(RequestId::new(&long("r", number, 128)).expect("128 bytes")),
            quantity: NonZeroU32::MIN,
        };
        let Outcome::Done(done) = claim(&mut book, wish.clone()) else { panic!("refused") };
        assert_eq!((&done.user, &done.identity), (&wish.user, &wish.identity));
        assert_eq!(claim(&mut book, wish), Outcome::Replayed(done.clone()));
        assert_eq!(done.id.number, number);
    }
    let last = book.pool(pool).and_then(|pool| pool.claim(2_000)).expect("it was granted");
    assert_eq!(last.user.as_str(), long("u", 2_000, 64));
    assert_eq!(last.identity.map(|id| id.to_string()), Some(long("i", 2_000, 64)));
    assert_eq!(last.request.map(|id| id.to_string()), Some(long("r", 2_000, 128)));
}
