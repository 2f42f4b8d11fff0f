//! Addresses to listen on, and connections accepted up to a number.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// After a failed accept (no file descriptors, mostly) it makes no sense to try at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// After so long without a byte a peer is asked whether it is still there, and then so often.
const SILENCE: Duration = Duration::from_secs(60);
const PROBES: Duration = Duration::from_secs(15);

/// What a client still says while it is being closed is thrown away: so long, and so much of it.
const FAREWELL: Duration = Duration::from_secs(1);
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
        /// Why.
        source: std::io::Error,
    },
}

/// Takes an address, which was chosen with a setting, and says which one it is.
pub async fn listen(
    address: SocketAddr,
    setting: &'static str,
) -> Result<(TcpListener, SocketAddr), ListenError> {
    let taken = TcpListener::bind(address).await;
    let taken = taken.and_then(|listener| listener.local_addr().map(|at| (listener, at)));
    taken.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::InUse { address, setting },
        _ => ListenError::Unusable { address, setting, source },
    })
}

/// Accepts connections until told to stop, at most `max` at a time, and lets each be served by
/// its own task.
pub async fn accept<F>(
    listener: TcpListener,
    max: usize,
    stop: &CancellationToken,
    mut serve: impl FnMut(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(max));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                // Without it a short answer would wait for the acknowledgement of the one before.
                let _best_effort = stream.set_nodelay(true);
                // A peer that vanished without a word gives its place free.
                let alive = socket2::TcpKeepalive::new().with_time(SILENCE).with_interval(PROBES);
                let _best_effort = socket2::SockRef::from(&stream).set_tcp_keepalive(&alive);
                let serving = serve(stream);
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

/// Closes so that every answer arrives. Closing over something unread would be a reset, and a
/// reset takes away what the client has not read yet.
pub async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let farewell = async {
        stream.shutdown().await?;
        let (mut unheard, mut left) = ([0; 4096], FAREWELL_BYTES);
        while left > 0 {
            match stream.read(&mut unheard).await? {
                0 => break,
                len => left = left.saturating_sub(len),
            }
        }
        std::io::Result::Ok(())
    };
    let _best_effort = tokio::time::timeout(FAREWELL, farewell).await;
}
