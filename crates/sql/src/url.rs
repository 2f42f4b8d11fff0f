//! Reads database URLs, and shows them without their passwords.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::error::{Error, Result, Server};

/// Where a URL leads.
pub(crate) enum Target {
    Sqlite(PathBuf),
    MySql(MySqlConnectOptions, Server),
    Postgres(PgConnectOptions, Server),
}

/// Whether a URL names a database that could be opened, as far as can be told without asking it.
pub fn check_url(url: &str) -> Result<()> {
    Target::of(url).map(drop)
}

impl Target {
    pub(crate) fn of(url: &str) -> Result<Self> {
        match url.split_once(':') {
            Some(("sqlite", path)) => {
                let path = path.strip_prefix("//").unwrap_or(path);
                if path.is_empty() || path == ":memory:" {
                    return Err(Error::UnknownUrl { url: url.to_owned() });
                }
                Ok(Self::Sqlite(path.into()))
            }
            Some(("mysql" | "mariadb", rest)) if rest.starts_with("//") => mysql(url),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => postgres(url),
            _ => Err(Error::UnknownUrl { url: shown(url) }),
        }
    }
}

fn mysql(url: &str) -> Result<Target> {
    let (plain, tls) = Tls::take(url)?;
    let mut options: MySqlConnectOptions = parsed(&plain)?;
    let server = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let is_near = options.get_socket().is_some() || is_loopback(options.get_host());
    options = options.ssl_mode(match tls.mode.unwrap_or(Mode::usual(is_near)) {
        Mode::Disable => MySqlSslMode::Disabled,
        Mode::Prefer => MySqlSslMode::Preferred,
        Mode::Require => MySqlSslMode::Required,
        Mode::VerifyCa => MySqlSslMode::VerifyCa,
        Mode::VerifyFull => MySqlSslMode::VerifyIdentity,
    });
    if let Some(ca) = tls.ca {
        options = options.ssl_ca(ca);
    }
    if let (Some(cert), Some(key)) = (tls.cert, tls.key) {
        options = options.ssl_client_cert(cert).ssl_client_key(key);
    }
    let user = options.get_username();
    let server = server_of(url, server, user, options.get_database())?;
    Ok(Target::MySql(options, server))
}

fn postgres(url: &str) -> Result<Target> {
    let (plain, tls) = Tls::take(url)?;
    let mut options: PgConnectOptions = parsed(&plain)?;
    let server = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let is_near = options.get_socket().is_some() || is_loopback(options.get_host());
    options = options.ssl_mode(match tls.mode.unwrap_or(Mode::usual(is_near)) {
        Mode::Disable => PgSslMode::Disable,
        Mode::Prefer => PgSslMode::Prefer,
        Mode::Require => PgSslMode::Require,
        Mode::VerifyCa => PgSslMode::VerifyCa,
        Mode::VerifyFull => PgSslMode::VerifyFull,
    });
    if let Some(ca) = tls.ca {
        options = options.ssl_root_cert(ca);
    }
    if let (Some(cert), Some(key)) = (tls.cert, tls.key) {
        options = options.ssl_client_cert(cert).ssl_client_key(key);
    }
    let user = options.get_username();
    let server = server_of(url, server, user, options.get_database())?;
    Ok(Target::Postgres(options, server))
}

fn parsed<T: FromStr<Err = sqlx::Error>>(url: &str) -> Result<T> {
    url.parse().map_err(|source| Error::BadUrl { url: shown(url), source })
}

fn server_of(url: &str, server: String, user: &str, database: Option<&str>) -> Result<Server> {
    let Some(database) = database.filter(|name| !name.is_empty()) else {
        return Err(Error::NoDatabase { url: shown(url) });
    };
    Ok(Server { server: server.into(), user: user.into(), database: database.into() })
}

/// Whether a connection to this host leaves the machine.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What a URL says about TLS, in the words of PostgreSQL or of MySQL.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tls {
    mode: Option<Mode>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// How much TLS is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    /// The mode if the URL names none.
    fn usual(is_near: bool) -> Self {
        if is_near { Self::Disable } else { Self::Prefer }
    }

    fn named(name: &str) -> Option<Self> {
        Some(match &*name.to_ascii_lowercase().replace('_', "-") {
            "disable" | "disabled" => Self::Disable,
            "prefer" | "preferred" => Self::Prefer,
            "require" | "required" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" | "verify-identity" => Self::VerifyFull,
            _ => return None,
        })
    }
}

impl Tls {
    /// Takes the TLS settings out of a URL. An unknown one is an error: ignoring it would leave
    /// unprotected what it should protect.
    fn take(url: &str) -> Result<(String, Self)> {
        let Some((place, settings)) = url.split_once('?') else {
            return Ok((url.to_owned(), Self::default()));
        };
        let bad = |what: String| Error::BadTls { url: shown(url), what };
        let (mut tls, mut rest) = (Self::default(), Vec::new());
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let plain = name.to_ascii_lowercase().replace(['-', '_'], "");
            if !plain.starts_with("ssl") && !plain.starts_with("tls") {
                rest.push(setting);
                continue;
            }
            let file = match &*plain {
                "sslmode" => {
                    let what = || {
                        "has an sslmode that is none of disable, prefer, require, verify-ca and \
                         verify-full"
                            .to_owned()
                    };
                    tls.mode = Some(Mode::named(value).ok_or_else(|| bad(what()))?);
                    continue;
                }
                "sslrootcert" | "sslca" => &mut tls.ca,
                "sslcert" => &mut tls.cert,
                "sslkey" => &mut tls.key,
                _ => {
                    let known = "sslmode, sslrootcert, sslcert and sslkey";
                    return Err(bad(format!("has {name:?}; what it can say about TLS is {known}")));
                }
            };
            let path = PathBuf::from(decoded(value));
            // A file that is not there is told now, not when the first connection is made.
            std::fs::read(&path)
                .map_err(|source| Error::Certificate { path: path.clone(), source })?;
            *file = Some(path);
        }
        if tls.cert.is_some() != tls.key.is_some() {
            return Err(bad("has one of sslcert and sslkey, which go together".into()));
        }
        if tls.ca.is_some()
            && matches!(tls.mode, None | Some(Mode::Disable | Mode::Prefer | Mode::Require))
        {
            let what = "has an sslrootcert, which only sslmode=verify-ca and verify-full look at";
            return Err(bad(what.into()));
        }
        let rest = rest.join("&");
        let plain = if rest.is_empty() { place.to_owned() } else { format!("{place}?{rest}") };
        Ok((plain, tls))
    }
}

/// Undoes `%2F` and the like; what is no such thing stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A URL without password and without options, which may hold one too.
pub(crate) fn shown(url: &str) -> String {
    if url.starts_with("sqlite:") {
        return url.to_owned();
    }
    let url = url.split('?').next().unwrap_or(url);
    let Some((scheme, rest)) = url.split_once("://") else {
        // This is no URL, but what stands before an `@` may be a password.
        return url.rsplit('@').next().unwrap_or(url).to_owned();
    };
    match rest.rsplit_once('@') {
        Some((who, place)) => {
            let user = who.split(':').next().unwrap_or(who);
            format!("{scheme}://{user}@{place}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, shown};
    use crate::Error;

    #[test]
    fn no_password_is_shown() {
        for (url, expected) in [
            ("mysql://root:secret@db:3306/qiang", "mysql://root@db:3306/qiang"),
            ("postgres://u:se@cr:et@db/q?password=secret", "postgres://u@db/q"),
            ("postgres://db/q?user=u&password=secret", "postgres://db/q"),
            ("u:secret@db", "db"),
            ("mysql://db/q", "mysql://db/q"),
            ("sqlite:a@b.db", "sqlite:a@b.db"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn each_mistake_is_told_apart() {
        let error = |url| Target::of(url).err().expect(url);
        for url in ["", "qiang.db", "oracle://h/d", "sqlite:", "sqlite::memory:", "mysql:h/d"] {
            assert!(matches!(error(url), Error::UnknownUrl { .. }), "{url}");
        }
        for url in ["mysql://root@h:port/q", "postgres://h:99999/q"] {
            assert!(matches!(error(url), Error::BadUrl { .. }), "{url}");
        }
        for url in ["mysql://root@h", "mariadb://root@h/", "postgresql://u@h/"] {
            assert!(matches!(error(url), Error::NoDatabase { .. }), "{url}");
        }
        for (url, why) in [
            ("mysql://h/q?ssl-mode=sometimes", "verify-full"),
            ("postgres://h/q?sslmod=require", "sslmode"),
            ("postgres://h/q?tls=1", "sslmode"),
            ("postgres://h/q?sslmode=require&sslcert=/dev/null", "together"),
            ("mysql://h/q?sslmode=require&ssl-ca=/dev/null", "verify-ca"),
            ("mysql://h/q?sslmode=verify-ca&ssl-ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
        ] {
            let error = error(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn tls_is_as_the_url_says() {
        use sqlx::mysql::MySqlSslMode as M;
        use sqlx::postgres::PgSslMode as P;
        for (settings, mysql, postgres) in [
            ("", M::Preferred, P::Prefer),
            ("?sslmode=disable", M::Disabled, P::Disable),
            ("?ssl-mode=REQUIRED&a=b", M::Required, P::Require),
            ("?sslmode=verify-ca&sslrootcert=%2Fdev%2Fnull", M::VerifyCa, P::VerifyCa),
            ("?ssl-mode=VERIFY_IDENTITY&ssl-ca=/dev/null", M::VerifyIdentity, P::VerifyFull),
            ("?sslmode=verify-full", M::VerifyIdentity, P::VerifyFull),
        ] {
            let url = |scheme| format!("{scheme}://u@db.example/q{settings}");
            let Ok(Target::MySql(options, _)) = Target::of(&url("mysql")) else { panic!() };
            assert_eq!(format!("{:?}", options.get_ssl_mode()), format!("{mysql:?}"), "{settings}");
            let Ok(Target::Postgres(options, _)) = Target::of(&url("postgres")) else { panic!() };
            assert_eq!(format!("{:?}", options.get_ssl_mode()), format!("{postgres:?}"));
        }
        // What does not leave the machine is not encrypted unless it is asked for.
        for host in ["localhost", "127.0.0.1:5433", "127.1.2.3"] {
            let url = format!("postgres://u@{host}/q");
            let Ok(Target::Postgres(options, _)) = Target::of(&url) else { panic!() };
            assert!(matches!(options.get_ssl_mode(), P::Disable), "{host}");
        }
    }

    #[test]
    fn errors_do_not_show_the_password() {
        let urls = [
            "mysql://root:s3cret@h:port/q",
            "mysql://root:s3cret@h",
            "postgres://u:s3cret@h/q?sslmode=s3cret",
            "mssql://u:s3cret@h/q",
        ];
        for url in urls {
            let error = Target::of(url).err().expect(url);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
