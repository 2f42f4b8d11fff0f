//! TLS in front of the RESP door. Certificate and key are read once, at start; what is wrong
//! with them is said there, not to the first client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, crypto};
use tokio_rustls::server::TlsStream;

use qiang_app::config;

/// What every handshake begins with.
const HANDSHAKE: u8 = 0x16;
/// For those who come without, which nearly every client shows to its user.
const PLAIN: &[u8] = b"-ERR this port speaks TLS only: connect with TLS (redis-cli --tls)\r\n";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}, which is `{setting}` in [resp]", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Where it was named.
        setting: &'static str,
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} has no {what} in it; `{setting}` in [resp] names a PEM file with one", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// Where it was named.
        setting: &'static str,
    },
    /// A file is damaged.
    #[error("{} is not a PEM file that can be read; it is `{setting}` in [resp]", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where it was named.
        setting: &'static str,
        source: pem::Error,
    },
    /// The key belongs to another certificate, or is of a kind that cannot be used.
    #[error("the key in {} does not fit the certificate in {}", key.display(), cert.display())]
    Unfit {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        source: rustls::Error,
    },
}

/// Greets clients, and proves to them who we are.
#[derive(Clone)]
pub struct Door(TlsAcceptor);

impl Door {
    /// Reads certificate and key.
    pub fn open(files: &config::Tls) -> Result<Self, Error> {
        let config::Tls { cert, key } = files;
        let certs = read(cert, "tls_cert")?;
        let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certs).collect();
        let certs = certs.map_err(|source| damaged(cert, "tls_cert", source))?;
        if certs.is_empty() {
            let what = "certificate";
            return Err(Error::Empty { path: cert.clone(), what, setting: "tls_cert" });
        }
        let private = PrivateKeyDer::from_pem_slice(&read(key, "tls_key")?);
        let private = private.map_err(|source| match source {
            pem::Error::NoItemsFound => {
                Error::Empty { path: key.clone(), what: "private key", setting: "tls_key" }
            }
            source => damaged(key, "tls_key", source),
        })?;
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .and_then(|config| config.with_no_client_auth().with_single_cert(certs, private))
                .map_err(|source| Error::Unfit { cert: cert.clone(), key: key.clone(), source })?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands; `None` is somebody who does not, and is gone.
    pub(super) async fn greet(&self, mut stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await.is_ok_and(|len| len > 0) && first[0] != HANDSHAKE {
            let _best_effort = stream.write_all(PLAIN).await;
            let _best_effort = stream.shutdown().await;
            // What it said is read, or closing would take the answer back.
            let _unread = stream.try_read(&mut [0; 4096]);
            return None;
        }
        // Whoever does not trust us, or speaks something else, is told by the protocol itself.
        self.0.accept(stream).await.ok()
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Door")
    }
}

fn read(path: &Path, setting: &'static str) -> Result<Vec<u8>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), setting, source };
    std::fs::read(path).map_err(unreadable)
}

fn damaged(path: &Path, setting: &'static str, source: pem::Error) -> Error {
    Error::Damaged { path: path.to_owned(), setting, source }
}
