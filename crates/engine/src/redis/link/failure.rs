//! What can go wrong with a question, told by one thing first: whether it may have happened.

use redis::{ErrorKind, RedisError, ServerErrorKind};

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
        said || error.code() == Some("UNBLOCKED")
    }
}
