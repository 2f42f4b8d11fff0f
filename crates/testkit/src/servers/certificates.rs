//! Certificates made for one test: an authority of its own, and what it issues.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// Somebody who issues certificates. The files are gone once it is dropped.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// The files of one certificate.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Those who are trusted, as a PEM file.
    pub ca: PathBuf,
    /// The certificate, as a PEM file.
    pub cert: PathBuf,
    /// Its key, as a PEM file.
    pub key: PathBuf,
}

impl Authority {
    /// A new one that nobody knows.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "qiang tests");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let folder = TempDir::new()?;
        fs::write(folder.path().join("ca.pem"), issuer.pem())?;
        Ok(Self { issuer, folder })
    }

    /// Its own certificate, as a PEM file.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for these names and addresses.
    pub fn issue(&self, names: &[&str]) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let file = names.join("+");
        let key = KeyPair::generate()?;
        let cert = CertificateParams::new(names)?.signed_by(&key, &self.issuer)?;
        let path = |end: &str| self.folder.path().join(format!("{file}.{end}.pem"));
        let identity = Identity { ca: self.ca(), cert: path("cert"), key: path("key") };
        fs::write(&identity.cert, cert.pem())?;
        fs::write(&identity.key, key.serialize_pem())?;
        Ok(identity)
    }
}

impl Identity {
    /// Copies certificate and key into a folder, for a server that is particular about both.
    pub(super) fn copy_to(&self, folder: &Path) -> Result<Self> {
        let (cert, key) = (folder.join("server.cert.pem"), folder.join("server.key.pem"));
        fs::copy(&self.cert, &cert)?;
        fs::copy(&self.key, &key)?;
        Ok(Self { ca: self.ca.clone(), cert, key })
    }
}
