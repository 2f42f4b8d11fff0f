//! What can go wrong with a question, told by one thing first: whether it may have happened.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio_rustls::rustls::{self, CertificateError};

/// What went wrong, and whether it may have happened all the same.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// Whether the server may have carried it out.
    pub(in crate::redis) may_have_happened: bool,
    pub(in crate::redis) kind: Kind,
    pub(in crate::redis) what: &'static str,
    #[source]
    pub(in crate::redis) source: Option<RedisError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Kind {
    /// Trying again may help.
    Passing,
    /// The server does not know the script.
    NoScript,
    /// Trying again is of no use: wrong password, no permission, not a Redis.
    Lasting,
}

impl Failure {
    /// The first word of what the server said.
    pub(in crate::redis) fn code(&self) -> Option<&str> {
        self.source.as_ref()?.code()
    }

    pub(in crate::redis) fn passing(
        what: &'static str,
        source: Option<RedisError>,
        may_have_happened: bool,
    ) -> Self {
        Self { may_have_happened, kind: Kind::Passing, what, source }
    }

    /// Nothing was heard for too long.
    pub(in crate::redis) fn silent() -> Self {
        Self::passing("Redis did not answer in time", None, true)
    }

    /// No connection, so nothing was sent.
    pub(super) fn unreachable(error: RedisError) -> Self {
        let kind = match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => Kind::Lasting,
            _ => Kind::Passing,
        };
        let what = match kind {
            Kind::Lasting => "Redis refused the login; check user and password in the URL",
            _ => "Redis cannot be reached; check the address, and that it runs",
        };
        Self { may_have_happened: false, kind, what, source: Some(error) }
    }

    /// A login without TLS came to nothing. A port that speaks TLS hangs up, or sends an alert.
    pub(super) fn plain(error: RedisError) -> Self {
        let hung_up = error.is_connection_dropped() || error.kind() == ErrorKind::Parse;
        let mut failure = Self::unreachable(error);
        if hung_up && failure.kind == Kind::Passing {
            failure.what = "Redis hung up before it said anything; if it speaks TLS there, write \
                            rediss:// in place of redis://";
        }
        failure
    }

    /// A login behind TLS came to nothing. Who is not let in may be told after the handshake.
    pub(super) fn sealed(error: RedisError) -> Self {
        let alert = error
            .source()
            .and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>())
            .and_then(|shared| shared.downcast_ref::<io::Error>())
            .and_then(tls_error)
            .filter(|error| matches!(error, rustls::Error::AlertReceived(_)));
        match alert {
            Some(alert) => Self::handshake(io::Error::other(alert.clone())),
            None => Self::unreachable(error),
        }
    }

    /// No handshake.
    pub(super) fn handshake(error: io::Error) -> Self {
        let (kind, what) = match tls_error(&error) {
            Some(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => (
                Kind::Lasting,
                "the certificate that Redis shows is for another name; the URL, and the addresses \
                 that a cluster announces, must have a name that is in it",
            ),
            Some(rustls::Error::InvalidCertificate(_)) => (
                Kind::Lasting,
                "the certificate that Redis shows is not trusted; name the CA it is from with `ca` \
                 in the URL",
            ),
            Some(rustls::Error::AlertReceived(_)) => {
                (Kind::Lasting, "Redis ended the TLS handshake; it may want `cert` and `key`")
            }
            _ => (
                Kind::Passing,
                "no TLS handshake with Redis; if it does not speak TLS at that port, write \
                 redis:// in place of rediss://",
            ),
        };
        Self { may_have_happened: false, kind, what, source: Some(error.into()) }
    }

    /// The server said no.
    pub(super) fn refused(error: RedisError) -> Self {
        use ServerErrorKind as E;
        let kind = match error.kind() {
            ErrorKind::Server(E::NoScript) => Kind::NoScript,
            ErrorKind::Server(
                E::BusyLoading
                | E::TryAgain
                | E::ClusterDown
                | E::MasterDown
                | E::ReadOnly
                | E::Moved
                | E::Ask,
            ) => Kind::Passing,
            _ => match error.code() {
                // Out of memory, disk trouble, a script that is busy, too few replicas: a person
                // can mend that while we wait.
                Some("OOM" | "MISCONF" | "BUSY" | "NOREPLICAS" | "UNKILLABLE") => Kind::Passing,
                // Whoever waited for replicas is told that the server is one itself now.
                Some("UNBLOCKED") => Kind::Passing,
                _ => Kind::Lasting,
            },
        };
        // A script that fails for a reason we do not know may have failed half way.
        let may_have_happened = kind == Kind::Lasting || error.code() == Some("UNBLOCKED");
        Self { may_have_happened, kind, what: "Redis refused", source: Some(error) }
    }

    /// Whether it says that somebody else may have the slots by now.
    pub(super) fn hints_at_new_owner(&self) -> bool {
        use ServerErrorKind as E;
        let Some(error) = &self.source else { return false };
        let said = matches!(
            error.kind(),
            ErrorKind::Server(
                E::ClusterDown | E::MasterDown | E::ReadOnly | E::BusyLoading | E::Moved | E::Ask
            )
        );
        // A master that lost its replicas may have been cut off.
        said || matches!(error.code(), Some("UNBLOCKED" | "NOREPLICAS"))
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
