//! TLS to servers: whom we trust, and who we are. Files are read once, at start; what is wrong with
//! them is said there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto};

use crate::redis::url::{Node, TlsFiles};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}, which is `{setting}` in the URL of Redis", path.display())]
    Unreadable {
        path: PathBuf,
        /// Where it was named.
        setting: &'static str,
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error(
        "{} holds nothing that can be used; `{setting}` in the URL of Redis names a PEM file with \
         {what}",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        /// Where it was named.
        setting: &'static str,
        /// What should be in it.
        what: &'static str,
        source: Option<pem::Error>,
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
    /// The system trusts nobody.
    #[error(
        "this system has no certificates to trust (the package ca-certificates brings them); name \
         those of Redis with `ca` in its URL"
    )]
    NoRoots,
}

/// Shakes hands with servers.
#[derive(Clone)]
pub(in crate::redis) struct Tls(TlsConnector);

impl Tls {
    pub(in crate::redis) fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        match &files.ca {
            Some(path) => {
                let (setting, what) = ("ca", "certificates");
                for cert in certificates(path, setting)? {
                    let damaged =
                        |_| TlsError::Damaged { path: path.clone(), setting, what, source: None };
                    roots.add(cert).map_err(damaged)?;
                }
            }
            None => {
                // What the system has besides is of no use, and of no harm.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(TlsError::NoRoots);
                }
            }
        }
        let config =
            ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring can do what is safe")
                .with_root_certificates(roots);
        let config = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let certs = certificates(cert, "cert")?;
                let read = read(key, "key")?;
                let own = PrivateKeyDer::from_pem_slice(&read).map_err(|source| {
                    let (setting, what) = ("key", "a private key");
                    TlsError::Damaged { path: key.clone(), setting, what, source: Some(source) }
                })?;
                config.with_client_auth_cert(certs, own).map_err(|source| TlsError::Unfit {
                    cert: cert.clone(),
                    key: key.clone(),
                    source,
                })?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Makes sure that it is the server, by the name it was asked for under.
    pub(super) async fn greet(
        &self,
        node: &Node,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(node.host.clone());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.0.connect(name, stream).await
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

fn certificates(
    path: &Path,
    setting: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path, setting)?;
    let damaged =
        |source| TlsError::Damaged { path: path.to_owned(), setting, what: "certificates", source };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|source| damaged(Some(source)))?;
    if all.is_empty() { Err(damaged(None)) } else { Ok(all) }
}

fn read(path: &Path, setting: &'static str) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), setting, source };
    std::fs::read(path).map_err(unreadable)
}
