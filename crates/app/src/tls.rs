//! What both sides of TLS share: PEM files, and whom our own client trusts.
//!
//! What is wrong with a file is said with its path and with where it was named.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_rustls::{TlsConnector, rustls::sign::CertifiedKey};

use crate::config;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}, which is {setting}", path.display())]
    Unreadable {
        path: PathBuf,
        /// Where it was named.
        setting: String,
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} has no {what} in it; {setting} names a PEM file with one", path.display())]
    Empty {
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// Where it was named.
        setting: String,
    },
    /// A file is damaged.
    #[error("{} is not a PEM file that can be read; it is {setting}", path.display())]
    Damaged {
        path: PathBuf,
        /// Where it was named.
        setting: String,
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
    /// The system trusts nobody.
    #[error(
        "this system has no certificates to trust (the package ca-certificates brings them); name \
         that of the server, or of its CA, with --ca"
    )]
    NoRoots,
    /// What should be trusted cannot be.
    #[error("{} holds no certificate that can be trusted; it is {setting}", path.display())]
    Untrustworthy {
        path: PathBuf,
        /// Where it was named.
        setting: String,
    },
}

/// What TLS is made with, everywhere.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

impl config::Tls {
    /// Reads certificate and key, and makes sure that they belong together.
    pub fn load(&self) -> Result<CertifiedKey, Error> {
        let certs = certificates(&self.cert, self.setting("tls_cert"))?;
        let key = private_key(&self.key, self.setting("tls_key"))?;
        let unfit =
            |source| Error::Unfit { cert: self.cert.clone(), key: self.key.clone(), source };
        let pair = CertifiedKey::from_der(certs, key, &provider()).map_err(unfit)?;
        // Of some keys it cannot be told by themselves.
        pair.keys_match().or_else(|error| match error {
            rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown) => Ok(()),
            error => Err(unfit(error)),
        })?;
        Ok(pair)
    }

    fn setting(&self, name: &str) -> String {
        format!("`{name}` in [{}]", self.section)
    }
}

fn certificates(path: &Path, setting: String) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(source) => return Err(Error::Unreadable { path: path.to_owned(), setting, source }),
    };
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Err(source) => Err(Error::Damaged { path: path.to_owned(), setting, source }),
        Ok(all) if all.is_empty() => {
            Err(Error::Empty { path: path.to_owned(), what: "certificate", setting })
        }
        Ok(all) => Ok(all),
    }
}

fn private_key(path: &Path, setting: String) -> Result<PrivateKeyDer<'static>, Error> {
    let path = path.to_owned();
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(source) => return Err(Error::Unreadable { path, setting, source }),
    };
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|source| match source {
        pem::Error::NoItemsFound => Error::Empty { path, what: "private key", setting },
        source => Error::Damaged { path, setting, source },
    })
}

/// Whom a client of ours trusts.
#[derive(Clone)]
pub struct Trust(TlsConnector);

impl Trust {
    /// Whom the system trusts, or, with a PEM file, only those in it and whom they have certified.
    pub fn new(ca: Option<&Path>) -> Result<Self, Error> {
        match ca {
            Some(path) => Self::of_file(path),
            None => {
                let mut roots = RootCertStore::empty();
                // What the system has besides is of no use, and of no harm.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(Error::NoRoots);
                }
                Ok(Self::connector(builder().with_root_certificates(roots)))
            }
        }
    }

    /// The server that has this very certificate, under whatever name it is reached.
    pub fn only(files: &config::Tls) -> Result<Self, Error> {
        let mut certs = certificates(&files.cert, files.setting("tls_cert"))?;
        certs.truncate(1);
        Ok(Self::verifying(Verifier { own: certs, issued: None }))
    }

    fn of_file(path: &Path) -> Result<Self, Error> {
        let setting = || "what --ca names".to_owned();
        let own = certificates(path, setting())?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(own.iter().cloned());
        let issued = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let issued = issued
            .build()
            .map_err(|_| Error::Untrustworthy { path: path.to_owned(), setting: setting() })?;
        Ok(Self::verifying(Verifier { own, issued: Some(issued) }))
    }

    fn verifying(verifier: Verifier) -> Self {
        // Nothing is trusted blindly: the verifier wants a certificate it was given, or one issued by it.
        let dangerous = builder().dangerous();
        Self::connector(dangerous.with_custom_certificate_verifier(Arc::new(verifier)))
    }

    fn connector(
        builder: rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>,
    ) -> Self {
        Self(TlsConnector::from(Arc::new(builder.with_no_client_auth())))
    }

    /// Shakes hands with the server of this name.
    pub async fn greet(
        &self,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.0.connect(name, stream).await
    }

    /// For those who shake hands themselves.
    #[must_use]
    pub fn into_connector(self) -> TlsConnector {
        self.0
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

/// The name of a server without one.
#[must_use]
pub fn name_of(address: SocketAddr) -> ServerName<'static> {
    ServerName::IpAddress(address.ip().into())
}

fn builder() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring can do what is safe")
}

/// Takes a certificate it was given, whatever it says about itself, and those issued by one.
#[derive(Debug)]
struct Verifier {
    own: Vec<CertificateDer<'static>>,
    issued: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.own.iter().any(|own| own == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.issued {
            Some(issued) => issued.verify_server_cert(end_entity, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = provider().signature_verification_algorithms;
        crypto::verify_tls12_signature(message, cert, signature, &known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = provider().signature_verification_algorithms;
        crypto::verify_tls13_signature(message, cert, signature, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
