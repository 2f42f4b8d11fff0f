//! One connection: bytes go both ways, as the rules of the moment say, until one side is done or
//! the connection is cut.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::{Counts, Doings, Rules, Verdict, Way};

/// The largest piece that is forwarded at once, and delayed as one.
const PIECE: usize = 64 * 1024;

/// Counts a connection for as long as it is open, however it ends.
struct Open(Arc<Doings>);

impl Open {
    fn new(doings: Arc<Doings>) -> Self {
        doings.count(|counts| {
            counts.connections += 1;
            counts.open += 1;
        });
        Self(doings)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.count(|counts| counts.open -= 1);
    }
}

/// Why a connection ends before both sides are done.
enum End {
    Cut,
    /// A side is gone; the other will notice when its connection closes.
    Broken,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Serves one client, who comes from an address.
pub(super) async fn run(
    mut client: TcpStream,
    address: IpAddr,
    upstream: SocketAddr,
    doings: Arc<Doings>,
) {
    let rules = doings.rules.subscribe();
    let generation = rules.borrow().generation;
    let open = Open::new(Arc::clone(&doings));
    // The server is down: its client finds the connection closed.
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    let prompt = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let both = async {
        prompt?;
        tokio::try_join!(
            forward_requests(&mut from_client, &mut to_server, Told::new(&rules, address), &doings),
            forward_replies(&mut from_server, &mut to_client, Told::new(&rules, address), &doings),
        )
    };
    let mut overtaken = rules.clone();
    let end = tokio::select! {
        biased;
        _ = overtaken.wait_for(|rules| rules.generation != generation) => Err(End::Cut),
        end = both => end,
    };
    drop((client, server, open));
    if let Err(End::Cut) = end {
        doings.count(|counts| counts.cut += 1);
    }
}

async fn forward_requests(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    mut told: Told,
    doings: &Doings,
) -> Result<(), End> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        told.hold_up(|rules| rules.requests).await?;
        if length == 0 {
            return Ok(to.shutdown().await?);
        }
        to.write_all(&piece[..length]).await?;
        doings.count(|counts| counts.request_bytes += length as u64);
    }
}

async fn forward_replies(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    mut told: Told,
    doings: &Doings,
) -> Result<(), End> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        told.hold_up(|rules| rules.replies).await?;
        if length == 0 {
            return Ok(to.shutdown().await?);
        }
        let verdict = doings.judge(length);
        let delivered = match verdict {
            Verdict::Deliver => length,
            Verdict::DeliverThenCut(some) => some,
        };
        to.write_all(&piece[..delivered]).await?;
        doings.count(|counts: &mut Counts| {
            counts.reply_bytes += delivered as u64;
            counts.swallowed_bytes += (length - delivered) as u64;
        });
        if verdict != Verdict::Deliver {
            return Err(End::Cut);
        }
    }
}

/// The rules, for a client with an address.
struct Told {
    rules: watch::Receiver<Rules>,
    client: IpAddr,
}

impl Told {
    fn new(rules: &watch::Receiver<Rules>, client: IpAddr) -> Self {
        Self { rules: rules.clone(), client }
    }

    /// Waits as long as the rules of one way want.
    async fn hold_up(&mut self, way: impl Fn(&Rules) -> Way) -> Result<(), End> {
        let delay = way(&self.rules.borrow()).delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let client = self.client;
        let passes = |rules: &Rules| !way(rules).paused && !rules.silenced.contains(&client);
        // The rules end with the proxy.
        self.rules.wait_for(passes).await.map_err(|_| End::Broken)?;
        Ok(())
    }
}
