//! Reads database URLs, and shows them without their passwords.

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
    let options: MySqlConnectOptions = parsed(url)?;
    let encrypted =
        !matches!(options.get_ssl_mode(), MySqlSslMode::Disabled | MySqlSslMode::Preferred);
    let server = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let user = options.get_username();
    let server = server_of(url, server, user, options.get_database(), encrypted)?;
    Ok(Target::MySql(options, server))
}

fn postgres(url: &str) -> Result<Target> {
    let options: PgConnectOptions = parsed(url)?;
    let encrypted = matches!(
        options.get_ssl_mode(),
        PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull
    );
    let server = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let user = options.get_username();
    let server = server_of(url, server, user, options.get_database(), encrypted)?;
    Ok(Target::Postgres(options, server))
}

fn parsed<T: FromStr<Err = sqlx::Error>>(url: &str) -> Result<T> {
    url.parse().map_err(|source| Error::BadUrl { url: shown(url), source })
}

fn server_of(
    url: &str,
    server: String,
    user: &str,
    database: Option<&str>,
    encrypted: bool,
) -> Result<Server> {
    if encrypted {
        return Err(Error::Encrypted { url: shown(url) });
    }
    let Some(database) = database.filter(|name| !name.is_empty()) else {
        return Err(Error::NoDatabase { url: shown(url) });
    };
    Ok(Server { server: server.into(), user: user.into(), database: database.into() })
}

/// A URL without password and without options, which may hold one too.
pub(crate) fn shown(url: &str) -> String {
    if url.starts_with("sqlite:") {
        return url.to_owned();
    }
    let url = url.split('?').next().unwrap_or(url);
    let Some((scheme, rest)) = url.split_once("://") else {
        // Whatever this is, what stands before an `@` is nobody's business.
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
        for url in ["mysql://h/q?ssl-mode=required", "postgres://h/q?sslmode=verify-full"] {
            assert!(matches!(error(url), Error::Encrypted { .. }), "{url}");
        }
    }

    #[test]
    fn errors_do_not_show_the_password() {
        let urls = [
            "mysql://root:s3cret@h:port/q",
            "mysql://root:s3cret@h",
            "postgres://u:s3cret@h/q?sslmode=require",
            "mssql://u:s3cret@h/q",
        ];
        for url in urls {
            let error = Target::of(url).err().expect(url);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
