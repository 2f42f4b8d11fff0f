//! Addresses to listen on, and connections accepted up to a number.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// After a failed accept (no file descriptors, mostly) it makes no sense to try at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
