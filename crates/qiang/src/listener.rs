//! Addresses to listen on, and connections accepted up to a number, and counted.

use std::future::Future;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use qiang_app::Origin;

/// After a failed accept (no file descriptors, mostly) it makes no sense to try at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that may wait to be accepted; the kernel takes the lower of this and its own bound.
const BACKLOG: u32 = 4_096;
/// What the kernel keeps for a peer that does not read. Left to itself it takes up to 4 MiB, a
/// whole answer, and nobody notices that the peer takes nothing.
const SEND_BUFFER: u32 = 128 << 10;
/// After so long without a byte a peer is asked whether it is still there, and then so often.
const SILENCE: Duration = Duration::from_secs(60);
const PROBES: Duration = Duration::from_secs(15);

/// Before a connection is closed we read and discard for at most this long and this many bytes, so that
/// the peer sees our answer before the reset.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BYTES: usize = 4 << 20;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has it.
    #[error(
        "{address} is in use: stop the other program, or choose another address with {setting}"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// Where it was chosen.
        setting: &'static str,
    },
    /// It is not ours, or we may not.
    #[error("cannot listen on {address}: choose another address with {setting}")]
    Unusable {
        /// The address.
        address: SocketAddr,
        /// Where it was chosen.
        setting: &'static str,
        source: std::io::Error,
    },
}

/// An address that was taken, and its connections.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// How many connections there are.
    pub connections: Arc<Connections>,
}

/// How many connections are open at one address, and how many have been.
#[derive(Debug, Default)]
pub struct Connections {
    open: AtomicUsize,
    /// The most that were open at a time since [`Connections::count_anew`].
    most: AtomicUsize,
}

impl Connections {
    /// So many fewer are open than at the busiest moment since [`Connections::count_anew`].
    pub fn gone(&self) -> usize {
        self.most.load(Ordering::Relaxed).saturating_sub(self.open.load(Ordering::Relaxed))
    }

    /// Forgets the busiest moment.
    pub fn count_anew(&self) {
        self.most.store(self.open.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The place of an open connection, free again when this is dropped.
pub(crate) struct Place {
    connections: Arc<Connections>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    pub(crate) fn take(
        connections: &Arc<Connections>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let open = connections.open.fetch_add(1, Ordering::Relaxed) + 1;
        connections.most.fetch_max(open, Ordering::Relaxed);
        Self { connections: Arc::clone(connections), _permit: permit }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes an address, which was chosen with a setting, and says which one it is. Whoever connects
/// waits in the kernel until accepted, up to [`BACKLOG`] of them.
pub fn listen(
    address: SocketAddr,
    setting: &'static str,
) -> Result<(Listener, SocketAddr), ListenError> {
    let taken = bound(address).and_then(|socket| {
        let at = socket.local_addr()?;
        Ok((Listener { socket, connections: Arc::default() }, at))
    });
    taken.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::InUse { address, setting },
        _ => ListenError::Unusable { address, setting, source },
    })
}

fn bound(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // After a restart the connections of the one before are still being closed.
    socket.set_reuseaddr(true)?;
    // Those that are accepted inherit it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What of this machine's settings lets in fewer at once than it should, and what to do about it.
#[must_use]
pub fn narrow_backlog() -> Option<String> {
    let cap = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?;
    narrower_than_backlog(cap.trim().parse().ok()?)
}

fn narrower_than_backlog(cap: u32) -> Option<String> {
    (cap < BACKLOG).then(|| {
        format!(
            "of people who connect at the same moment {cap} are let in at once, and the others wait \
             a second or more: net.core.somaxconn is {cap}, set it to {BACKLOG}"
        )
    })
}

/// Allows this process as many open files as the system lets it have, and says how many that are;
/// `None` is without a limit. Each connection is one.
pub fn raise_open_files() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    // No limit at all is none.
    let hard = limits.maximum?;
    if limits.current.is_some_and(|soft| soft < hard) {
        let raised = Rlimit { current: Some(hard), maximum: Some(hard) };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit on open files stays as it is");
        }
    }
    getrlimit(Resource::Nofile).current
}

/// Accepts connections until told to stop, at most `max` at a time, and lets each be served by
/// its own task.
pub async fn accept<F>(
    listener: Listener,
    max: usize,
    stop: &CancellationToken,
    mut serve: impl FnMut(TcpStream, Origin) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let Listener { socket, connections } = listener;
    let places = Arc::new(Semaphore::new(max));
    loop {
        let accepted = async {
            let permit = Arc::clone(&places).acquire_owned().await;
            (permit.ok(), socket.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Without it a short answer would wait for the acknowledgement of the one before.
                let _best_effort = stream.set_nodelay(true);
                // A peer that vanished without a word gives its place free.
                let alive = socket2::TcpKeepalive::new().with_time(SILENCE).with_interval(PROBES);
                let _best_effort = socket2::SockRef::from(&stream).set_tcp_keepalive(&alive);
                // In a box of its own, or the task would have room for it twice.
                let origin = Origin { peer: peer.ip().to_canonical() };
                let serving = Box::pin(serve(stream, origin));
                let place = Place::take(&connections, permit);
                tokio::spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Reads up to `MAX` bytes and appends them; 0 is the end. While it waits it takes no memory: what
/// arrives is read to the stack first.
pub async fn read<const MAX: usize>(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
) -> std::io::Result<usize> {
    std::future::poll_fn(|cx| {
        let mut room = [const { MaybeUninit::uninit() }; MAX];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut room))?;
        input.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    })
    .await
}

/// Closes so that every answer arrives. Closing over something unread would be a reset, and a
/// reset takes away what the client has not read yet.
pub async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let farewell = async {
        stream.shutdown().await?;
        let (mut unheard, mut left) = (BytesMut::new(), FAREWELL_BYTES);
        while left > 0 {
            match read::<4096>(&mut stream, &mut unheard).await? {
                0 => break,
                len => left = left.saturating_sub(len),
            }
            unheard.clear();
        }
        std::io::Result::Ok(())
    };
    let _best_effort = tokio::time::timeout(FAREWELL, farewell).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpStream;

    use super::{listen, narrower_than_backlog};

    /// A crowd that nobody has accepted yet, and that no backlog of 128 holds.
    const CROWD: usize = 600;
    /// Less than a SYN that was dropped takes to be sent again.
    const AT_ONCE: Duration = Duration::from_millis(900);

    #[test]
    fn a_kernel_that_lets_in_fewer_is_named() {
        let said = narrower_than_backlog(128).expect("it is less");
        assert!(said.contains("net.core.somaxconn is 128, set it to 4096"), "{said}");
        assert_eq!(narrower_than_backlog(4_096), None);
    }

    #[tokio::test]
    async fn a_crowd_that_comes_at_once_is_let_in() {
        let (_listener, address) =
            listen("127.0.0.1:0".parse().expect("an address"), "--listen").expect("a port");
        let mut crowd = Vec::new();
        for number in 0..CROWD {
            let connected = tokio::time::timeout(AT_ONCE, TcpStream::connect(address)).await;
            let stream = connected.unwrap_or_else(|_| panic!("{number} were let in, and no more"));
            crowd.push(stream.expect("somebody listens"));
        }
    }
}
