//! The connection breaks at the commit. Whether it came before the commit or after it, there is
//! one effect, and the answer that belongs to it; and where nobody can know, nothing is claimed.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use qiang_core::{Flow, Outcome};
use qiang_engine::Error;
use qiang_engine::sql::{Engine, Options};
use qiang_sql::{Database, Dialect, Limits, on_every_database};
use qiang_testkit::contract::wish;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::asking::Asking as _;
use super::fixture::{World, events, open_sale, options, pool, soon};

/// What the thief does to a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Theft {
    /// Nothing.
    None,
    /// It never reaches the server.
    Commit,
    /// The server carries it out, and the answer is lost.
    Answer,
    /// The answer is lost, and so is everything after it.
    Everything,
}

/// Stands between an engine and its server, and knows a commit when it sees one.
#[derive(Debug)]
struct Thief {
    plan: AtomicU8,
    stolen: AtomicU32,
}

impl Thief {
    /// The thief, and the URL that leads through it.
    async fn start(url: &str) -> (Arc<Self>, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let own = listener.local_addr().expect("it is bound").port();
        let (_, place) = url.split_once('@').expect("a user in the URL");
        let (server, _) = place.split_once('/').expect("a database in the URL");
        let server: std::net::SocketAddr = server.parse().expect("an address and a port");
        let through = url.replace(&server.to_string(), &format!("127.0.0.1:{own}"));
        let thief = Arc::new(Self { plan: AtomicU8::new(0), stolen: AtomicU32::new(0) });
        let at_work = Arc::clone(&thief);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if at_work.has_taken_everything() {
                    continue;
                }
                let upstream = TcpStream::connect(server).await.expect("the server runs");
                tokio::spawn(Arc::clone(&at_work).stand_between(client, upstream));
            }
        });
        (thief, through)
    }

    fn plan(&self) -> Theft {
        match self.plan.load(Ordering::SeqCst) {
            0 => Theft::None,
            1 => Theft::Commit,
            2 => Theft::Answer,
            _ => Theft::Everything,
        }
    }

    /// From now on; after one theft the plan is dropped, unless it is to steal everything.
    fn steal(&self, theft: Theft) {
        self.stolen.store(0, Ordering::SeqCst);
        self.plan.store(theft as u8, Ordering::SeqCst);
    }

    fn has_taken_everything(&self) -> bool {
        self.plan() == Theft::Everything && self.stolen.load(Ordering::SeqCst) > 0
    }

    async fn stand_between(self: Arc<Self>, mut client: TcpStream, mut server: TcpStream) {
        let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let Ok(length @ 1..) = read else { return };
                    if self.has_taken_everything() {
                        return;
                    }
                    let question = &asked[..length];
                    let is_commit = question.windows(6).any(|bytes| bytes == b"COMMIT");
                    let plan = self.plan();
                    if !is_commit || plan == Theft::None {
                        if server.write_all(question).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    if plan != Theft::Commit {
                        server.write_all(question).await.expect("the server runs");
                        let heard = server.read(&mut answered).await;
                        assert!(heard.is_ok_and(|length| length > 0), "the server answers");
                    }
                    self.stolen.fetch_add(1, Ordering::SeqCst);
                    if plan != Theft::Everything {
                        self.plan.store(Theft::None as u8, Ordering::SeqCst);
                    }
                    return;
                }
                read = server.read(&mut answered) => {
                    let Ok(length @ 1..) = read else { return };
                    if client.write_all(&answered[..length]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// An engine behind a thief, and one that sees how it really is. `None` on SQLite, which has no
/// connection that could break.
async fn robbed(on: Dialect, patience: Duration) -> Option<(World, Arc<Thief>, Engine, Engine)> {
    if on == Dialect::Sqlite {
        return None;
    }
    let world = World::new(on).await;
    let honest = world.engine().await;
    open_sale(&honest, 5, Flow::Instant).await;
    let (thief, url) = Thief::start(world.scratch.url()).await;
    let limits = Limits { connections: 3, patience };
    let database = Database::open_with(&url, limits).await.expect("it lets us in");
    let clock = Arc::clone(&world.clock);
    let robbed = Engine::open(database, Options { patience, ..options() }, clock).await;
    Some((world, thief, robbed.expect("a database in use"), honest))
}

async fn a_lost_commit_is_done_again(on: Dialect) {
    let Some((_world, thief, robbed, honest)) = robbed(on, Duration::from_secs(30)).await else {
        return;
    };
    for (place, user) in ["ann", "bob"].into_iter().enumerate() {
        thief.steal(Theft::Commit);
        let outcome = soon("an answer", robbed.claim(wish(pool(), user, None))).await;
        assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
        assert_eq!((thief.plan(), events(&honest).await.len()), (Theft::None, place + 2));
    }
}

async fn a_lost_answer_has_one_effect(on: Dialect) {
    let Some((_world, thief, robbed, honest)) = robbed(on, Duration::from_secs(30)).await else {
        return;
    };
    for (place, user) in ["ann", "bob"].into_iter().enumerate() {
        thief.steal(Theft::Answer);
        // Without a request id: nothing but the engine itself can tell that it happened.
        let outcome = soon("an answer", robbed.claim(wish(pool(), user, None))).await;
        assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
        assert_eq!((thief.plan(), events(&honest).await.len()), (Theft::None, place + 2));
    }
    let view = honest.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.available, view.claims), (3, 2));
}

/// The same for a whole batch, with grants, repeats and refusals in it.
async fn a_batch_has_one_effect(on: Dialect) {
    let Some((_world, thief, robbed, honest)) = robbed(on, Duration::from_secs(30)).await else {
        return;
    };
    for theft in [Theft::Commit, Theft::Answer] {
        thief.steal(theft);
        let asked: Vec<_> = (0..8)
            .map(|buyer| {
                let user = format!("{theft:?}{}", buyer / 2);
                let (engine, wish) = (robbed.clone(), wish(pool(), &user, Some("r")));
                tokio::spawn(async move { engine.claim(wish).await.expect("an answer") })
            })
            .collect();
        let (mut done, mut repeated) = (0, 0);
        for answer in asked {
            match soon("an answer", answer).await.expect("no panic") {
                Outcome::Done(_) => done += 1,
                Outcome::Replayed(_) => repeated += 1,
                Outcome::Refused(_) => {}
            }
        }
        assert_eq!(thief.plan(), Theft::None);
        let expected = if theft == Theft::Commit { (4, 4) } else { (1, 1) };
        assert_eq!((done, repeated), expected, "{theft:?}");
    }
    let view = honest.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.available, view.claims), (0, 5));
}

async fn what_nobody_can_know_is_said_to_be_unknown(on: Dialect) {
    let patience = Duration::from_millis(800);
    let Some((_world, thief, robbed, honest)) = robbed(on, patience).await else { return };
    thief.steal(Theft::Everything);
    let outcome = soon("an answer", robbed.claim(wish(pool(), "ann", Some("r")))).await;
    assert_eq!(outcome, Err(Error::OutcomeUnknown));
    // It is surely nothing, if it could not even begin.
    let outcome = soon("an answer", robbed.claim(wish(pool(), "bob", Some("r")))).await;
    assert_eq!(outcome, Err(Error::Unavailable));
    thief.steal(Theft::None);
    let outcome = soon("an answer", robbed.claim(wish(pool(), "ann", Some("r")))).await;
    assert!(matches!(outcome, Ok(Outcome::Replayed(_))), "{outcome:?}");
    assert_eq!(events(&honest).await.len(), 2);
}

on_every_database!(
    a_lost_commit_is_done_again,
    a_lost_answer_has_one_effect,
    a_batch_has_one_effect,
    what_nobody_can_know_is_said_to_be_unknown,
);
