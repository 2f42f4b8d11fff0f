//! The whole configuration: what everything works by, the RESP door, and the section of each domain.
//!
//! How it is read is told in [`qiang_app::config`].

mod report;

use std::net::SocketAddr;
use std::path::PathBuf;

use qiang_app::config::{Error, Fault, Layers, Origin, Setting, Sources, Tls, address_or_none};
use qiang_app::secrets::Secret;
use qiang_core::Timestamp;
use qiang_engine::chain;

pub use report::Report;

use crate::domains;
use crate::tls::Certificate;
use crate::traces;

/// Open files besides connections: the journal, the records, health checks, connections to servers.
const OTHER_FILES: u64 = 128;
/// A shorter password is guessed too soon.
const MIN_PASSWORD_BYTES: usize = 16;

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// What everything works by.
    pub app: qiang_app::Config,
    /// The RESP front door.
    pub resp: Resp,
    /// The traces of requests.
    pub traces: traces::Settings,
    /// The sections of the domains.
    pub domains: domains::Settings,
    /// Every setting as it came out, and where it came from.
    pub settings: Vec<Setting>,
    /// The file that was read, if one was.
    pub file: Option<PathBuf>,
}

/// `[resp]`
#[derive(Debug, Clone)]
pub struct Resp {
    /// Where to listen, if anywhere; port 0 takes any free one.
    pub listen: Option<SocketAddr>,
    /// What a client may sign in with, besides a token.
    pub password: Option<Secret>,
    /// What it proves itself with; without, nothing is encrypted.
    pub tls: Option<Tls>,
    /// More connections than this are not accepted.
    pub max_connections: usize,
}

impl Config {
    /// Reads all layers, and either understands everything in them or says what it does not.
    pub fn load(sources: Sources) -> Result<Self, Error> {
        let file = sources.file().map(ToOwned::to_owned);
        let mut layers = sources.layers()?;
        let app = qiang_app::Config::take(&mut layers);
        let resp = Resp::take(&mut layers);
        if let Some(at) = resp.listen {
            layers.check_door("resp.listen", at, app.http.listen);
        }
        let traces = traces::Settings::take(&mut layers);
        let domains = domains::Settings::take(&mut layers, &app);
        Ok(Self { settings: layers.finish()?, app, resp, traces, domains, file })
    }

    /// The same, if certificates and keys of the doors can be used.
    pub fn with_readable_files(self) -> Result<Self, Error> {
        let fault = |files: &Tls| {
            let error = files.load().err()?;
            let key = match files.section {
                "http" => "http.tls_cert",
                _ => "resp.tls_cert",
            };
            let setting = self.settings.iter().find(|setting| setting.key == key);
            Some(Fault {
                origin: setting.map_or(Origin::Default, |setting| setting.origin.clone()),
                key: key.to_owned(),
                problem: "and its key cannot be used".to_owned(),
                fix: chain(&error),
            })
        };
        let faults: Vec<Fault> = self.tls_files().filter_map(fault).collect();
        if faults.is_empty() { Ok(self) } else { Err(Error::Invalid(faults)) }
    }

    /// Certificates that end soon, if they can be read.
    pub fn ending_certificates(&self, now: Timestamp) -> Vec<String> {
        let read = self.tls_files().filter_map(|files| Certificate::load(files).ok());
        read.filter_map(|certificate| certificate.caution(now)).collect()
    }

    fn tls_files(&self) -> impl Iterator<Item = &Tls> {
        let resp = self.resp.tls.as_ref().filter(|_| self.resp.listen.is_some());
        self.app.http.tls.as_ref().into_iter().chain(resp)
    }

    /// What is allowed and should still be said aloud at start.
    #[must_use]
    pub fn cautions(&self) -> Vec<String> {
        let http = &self.app.http;
        let open_sandbox = !http.is_of_own_machine() && self.domains.sales.sandbox;
        let listen = http.listen.to_string();
        let caution = format!(
            "[payments] sandbox is on at {}: everyone who can reach it can pay orders without money",
            http.public_origin.as_ref().unwrap_or(&listen)
        );
        let sandbox = open_sandbox.then_some(caution);
        let open = self.resp.listen.filter(|at| !at.ip().is_loopback() && self.resp.tls.is_none());
        let unsealed = open.map(|at| {
            format!(
                "[resp] listens on {at} without TLS: passwords and tokens can be read on the way; \
                 set `tls_cert` and `tls_key`, or let only a network you trust reach it"
            )
        });
        sandbox.into_iter().chain(unsealed).chain(self.app.delivery.drill()).collect()
    }

    /// Takes fewer connections where there are not enough open files for all of them, so that files
    /// never run out, and says so.
    pub fn fit_connections(&mut self, open_files: u64) -> Option<String> {
        let resp = self.resp.listen.map_or(0, |_| self.resp.max_connections);
        let all = self.app.http.max_connections.saturating_add(resp);
        let wanted = all as u64 + OTHER_FILES;
        if open_files >= wanted {
            return None;
        }
        let room = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
        for max in [&mut self.app.http.max_connections, &mut self.resp.max_connections] {
            *max = (max.saturating_mul(room) / all).max(1);
        }
        Some(format!(
            "{open_files} open files are allowed, which is not enough for {all} connections \
             (max_connections): no more than {room} are taken. Allow {wanted} (`ulimit -n`, or \
             LimitNOFILE in the systemd unit), or lower max_connections"
        ))
    }
}

impl Resp {
    fn take(layers: &mut Layers) -> Self {
        Self {
            listen: layers.text("resp.listen", "", address_or_none),
            password: layers.password("resp.password", MIN_PASSWORD_BYTES),
            tls: Tls::take(layers, "resp.tls_cert", "resp.tls_key"),
            max_connections: layers.number("resp.max_connections", 10_000, 1..=1_000_000),
        }
    }
}

#[cfg(test)]
mod tests;
