//! TLS in front of a door: handshakes, and the certificate that is shown.
//!
//! A handshake has [`PATIENCE`], and no state of TLS until its first byte comes. Of more than
//! [`Door::open`] allows at once the oldest is ended. So whoever begins handshakes and finishes none
//! costs little, and keeps nobody out.

mod certificate;
mod handshakes;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use qiang_app::{client, config, tls};

pub use certificate::{Certificate, Certificates, LOOK_EVERY};
use handshakes::Handshakes;
pub use handshakes::Outcome;

use crate::listener;

/// A connection, with TLS or without.
pub type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// How long a handshake may take, if the door does not want it shorter.
const PATIENCE: Duration = Duration::from_secs(10);
/// At least so many handshakes may be under way at once, and otherwise a part of all connections.
const LEAST_HANDSHAKES: usize = 64;
const PART_OF_CONNECTIONS: usize = 2;
/// What every handshake begins with.
const HANDSHAKE: u8 = 0x16;

/// What a door speaks behind its TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/2.
    Http,
    /// RESP.
    Resp,
}

impl Protocol {
    /// What client and server agree on in the handshake.
    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Self::Resp => Vec::new(),
        }
    }

    /// For those who come without TLS.
    const fn refusal(self) -> &'static [u8] {
        match self {
            Self::Http => {
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 47\r\n\
                  connection: close\r\n\r\nThis port speaks TLS only: write https:// here\n"
            }
            Self::Resp => b"-ERR this port speaks TLS only: connect with TLS (redis-cli --tls)\r\n",
        }
    }
}

/// Greets clients, and proves to them who we are.
#[derive(Clone)]
pub struct Door {
    protocol: Protocol,
    acceptor: TlsAcceptor,
    handshakes: Arc<Handshakes>,
    certificate: Arc<Certificate>,
}

impl Door {
    /// Reads certificate and key, for a door that takes so many connections.
    pub fn open(
        files: &config::Tls,
        protocol: Protocol,
        max_connections: usize,
    ) -> Result<Self, tls::Error> {
        let certificate = Arc::new(Certificate::load(files)?);
        let shown = Arc::<Certificate>::clone(&certificate);
        let mut config = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .expect("ring can do what is safe")
            .with_no_client_auth()
            .with_cert_resolver(shown);
        config.alpn_protocols = protocol.alpn();
        // Who comes again is recognised by what it brings along, and we keep nothing for it.
        match crypto::ring::Ticketer::new() {
            Ok(ticketer) => config.ticketer = ticketer,
            Err(error) => tracing::warn!(%error, "TLS sessions cannot be taken up again"),
        }
        let most = (max_connections / PART_OF_CONNECTIONS).max(LEAST_HANDSHAKES);
        let handshakes = Arc::new(Handshakes::new(most));
        certificate.count_with(Arc::clone(&handshakes));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { protocol, acceptor, handshakes, certificate })
    }

    /// What it shows.
    #[must_use]
    pub fn certificate(&self) -> Arc<Certificate> {
        Arc::clone(&self.certificate)
    }

    /// Shakes hands within this time; `None` is somebody who does not, and is gone.
    pub(crate) async fn greet(&self, stream: TcpStream, patience: Duration) -> Option<Stream> {
        let shaken = tokio::time::timeout(patience.min(PATIENCE), self.shake(stream)).await;
        let (stream, outcome) = match shaken.unwrap_or(Err(Outcome::Late)) {
            Ok(stream) => (Some(Either::Right(Box::new(stream))), Outcome::Done),
            Err(outcome) => (None, outcome),
        };
        self.handshakes.count(outcome);
        stream
    }

    async fn shake(&self, mut stream: TcpStream) -> Result<TlsStream<TcpStream>, Outcome> {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1..) if first[0] == HANDSHAKE => {}
            Ok(1..) => {
                let _best_effort = stream.write_all(self.protocol.refusal()).await;
                listener::close(stream).await;
                return Err(Outcome::Plain);
            }
            _ => return Err(Outcome::Failed),
        }
        let handshake = self.handshakes.begin();
        tokio::select! {
            // Whoever does not trust us, or speaks something else, is told by the protocol itself.
            shaken = self.acceptor.accept(stream) => shaken.map_err(|_| Outcome::Failed),
            () = handshake.displaced() => Err(Outcome::Displaced),
        }
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Greets if there is a TLS door, and otherwise takes the connection as it is.
pub(crate) async fn greet(
    door: Option<&Door>,
    stream: TcpStream,
    patience: Duration,
) -> Option<Stream> {
    match door {
        None => Some(Either::Left(stream)),
        // In a box: it is large, and a connection does it once.
        Some(door) => Box::pin(door.greet(stream, patience)).await,
    }
}

/// Says that nothing more will come, where TLS tells that from a connection that was cut.
pub(crate) async fn say_goodbye(stream: Stream) {
    if let Either::Right(mut stream) = stream {
        let _best_effort = tokio::time::timeout(listener::FAREWELL, stream.shutdown()).await;
    }
}

/// Whom a crowd trusts that comes to the server that a client has found.
pub(crate) fn for_load(tls: client::Tls) -> qiang_load::wire::Tls {
    qiang_load::wire::Tls { connector: tls.trust.into_connector(), name: tls.name }
}
