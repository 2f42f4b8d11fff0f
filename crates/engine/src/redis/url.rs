//! Where Redis is, out of one URL:
//! `redis://[user:password@]host[:port][/database][?setting=value&...]` for one server,
//! `redis-cluster://[user:password@]host:port,host:port,...[?...]` for a cluster, and
//! `redis-sentinel://[user:password@]host:port,...(sentinels)/master-name[/database][?...]` for a
//! server that Sentinel looks after. With `rediss` instead of `redis` all connections are TLS.
//!
//! | setting | meaning | default |
//! | --- | --- | --- |
//! | `prefix` | what every key begins with | `qiang` |
//! | `partitions` | logs the pools are spread over; fixed once the first sale is open | 60 |
//! | `wait` | replicas that must have a change before it is answered | 0 |
//! | `wait_ms` | how long they are waited for, again and again | 1000 |
//! | `ca` | with TLS: a PEM file; only who is certified by one of these is trusted | the system's |
//! | `cert`, `key` | with TLS: PEM files, the certificate to show and its key | none |
//! | `sentinel_user`, `sentinel_password` | the login at the sentinels | none |

use std::path::PathBuf;

use super::link::{Tls, TlsError};

/// A parsed URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    pub(super) nodes: Vec<Node>,
    pub(super) shape: Shape,
    pub(super) tls: Option<TlsFiles>,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) database: i64,
    pub(super) prefix: String,
    pub(super) partitions: u16,
    pub(super) wait: u16,
    pub(super) wait_ms: u32,
}

/// What the addresses are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// The server.
    Server,
    /// Servers of a cluster, some of them.
    Cluster,
    /// Sentinels, who know the server of this name.
    Sentinel(String),
}

/// Who we are.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// Files for TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TlsFiles {
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// A server's address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Why a URL names no Redis. Never repeats the URL, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; write it like {EXAMPLE}")]
pub struct BadUrl {
    what: String,
}

const EXAMPLE: &str = "redis://127.0.0.1:6379, redis-cluster://10.0.0.1:6379,10.0.0.2:6379 or \
     redis-sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster; with TLS rediss:// and so on";
const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
/// A multiple of twelve, so that buckets spread evenly over masters.
const DEFAULT_PARTITIONS: u16 = 60;
pub(super) const MAX_PARTITIONS: u16 = 1_024;
const DEFAULT_WAIT_MS: u32 = 1_000;
const MAX_PREFIX_BYTES: usize = 64;

impl Place {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no ://"))?;
        let (secure, kind) = match scheme.strip_prefix("redis") {
            Some(rest) => match rest.strip_prefix('s') {
                Some(rest) => (true, rest),
                None => (false, rest),
            },
            None => (false, "?"),
        };
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (shape, database) = match kind {
            "" => (Shape::Server, path),
            "-cluster" if path.is_empty() => (Shape::Cluster, ""),
            "-cluster" => return Err(bad("a cluster has no numbered databases")),
            "-sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                let Some(master) = decoded(master)? else {
                    return Err(bad("it does not say which master the sentinels are asked for"));
                };
                (Shape::Sentinel(master), database)
            }
            _ => return Err(bad("its scheme is not redis, redis-cluster or redis-sentinel")),
        };
        let login = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => Login::default(),
            Some((user, password)) => Login { user: decoded(user)?, password: decoded(password)? },
        };
        let database = match database {
            "" => 0,
            text => text.parse().map_err(|_| bad("the database is not a number"))?,
        };
        let port = match shape {
            Shape::Sentinel(_) => DEFAULT_SENTINEL_PORT,
            Shape::Server | Shape::Cluster => DEFAULT_PORT,
        };
        let nodes = hosts.split(',').map(|host| node(host, port));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        if nodes.len() > 1 && shape == Shape::Server {
            return Err(bad("several servers are a cluster: redis-cluster://"));
        }
        let mut place = Self {
            nodes,
            shape,
            tls: secure.then(TlsFiles::default),
            login,
            sentinel_login: Login::default(),
            database,
            prefix: "qiang".into(),
            partitions: DEFAULT_PARTITIONS,
            wait: 0,
            wait_ms: DEFAULT_WAIT_MS,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            place.set(setting)?;
        }
        if let Some(TlsFiles { cert, key, .. }) = &place.tls
            && cert.is_some() != key.is_some()
        {
            return Err(bad("cert and key go together"));
        }
        Ok(place)
    }

    /// Reads the files that it names, so that what is wrong with them is known early.
    pub fn check(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map_or(Ok(()), |files| Tls::load(files).map(drop))
    }

    /// How many partitions it has.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    pub(super) fn is_of_sentinel(&self) -> bool {
        matches!(self.shape, Shape::Sentinel(_))
    }

    fn set(&mut self, setting: &str) -> Result<(), BadUrl> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let ranged = |range: std::ops::RangeInclusive<u32>| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            let (low, high) = (range.start(), range.end());
            number.ok_or_else(|| bad(format!("{name} must be from {low} to {high}")))
        };
        let short = |number: u32| u16::try_from(number).expect("the ranges fit");
        match name {
            "prefix" => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
                if value.is_empty() || value.len() > MAX_PREFIX_BYTES || !value.chars().all(plain) {
                    return Err(bad("prefix must be 1 to 64 letters, digits or any of -_.:"));
                }
                self.prefix = value.to_owned();
            }
            "partitions" => self.partitions = short(ranged(1..=MAX_PARTITIONS.into())?),
            "wait" => self.wait = short(ranged(0..=16)?),
            "wait_ms" => self.wait_ms = ranged(1..=60_000)?,
            "ca" | "cert" | "key" => {
                let Some(files) = &mut self.tls else {
                    return Err(bad(format!("{name} is for TLS only: rediss://")));
                };
                let Some(path) = decoded(value)? else {
                    return Err(bad(format!("{name} names no file")));
                };
                let file = match name {
                    "ca" => &mut files.ca,
                    "cert" => &mut files.cert,
                    _ => &mut files.key,
                };
                *file = Some(path.into());
            }
            "sentinel_user" | "sentinel_password" => {
                if !matches!(self.shape, Shape::Sentinel(_)) {
                    return Err(bad(format!("{name} is for redis-sentinel:// only")));
                }
                let part = match name {
                    "sentinel_user" => &mut self.sentinel_login.user,
                    _ => &mut self.sentinel_login.password,
                };
                *part = decoded(value)?;
            }
            _ => {
                let known = "prefix, partitions, wait, wait_ms, ca, cert, key, sentinel_user, \
                             sentinel_password";
                return Err(bad(format!("it has no setting {name:?}, only {known}")));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Without the passwords.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.tls.is_some() { "rediss" } else { "redis" })?;
        f.write_str(match self.shape {
            Shape::Server => "://",
            Shape::Cluster => "-cluster://",
            Shape::Sentinel(_) => "-sentinel://",
        })?;
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{}:{}", if place > 0 { "," } else { "" }, node.host, node.port)?;
        }
        if let Shape::Sentinel(master) = &self.shape {
            write!(f, "/{master}")?;
        }
        if self.database > 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

fn node(text: &str, default_port: u16) -> Result<Node, BadUrl> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => {
            (host, port.parse().map_err(|_| bad("a port is not a number"))?)
        }
        _ => (text, default_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(bad("it names no host"));
    }
    Ok(Node { host: host.to_owned(), port })
}

/// Undoes `%40` and the like; an empty text is none.
fn decoded(text: &str) -> Result<Option<String>, BadUrl> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (hex, behind) = rest.split_at_checked(2).ok_or_else(|| bad("a % is cut off"))?;
        let hex = std::str::from_utf8(hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(hex.ok_or_else(|| bad("a % is not followed by two hex digits"))?);
        rest = behind;
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("what stands behind a % is not UTF-8"))?;
    Ok((!text.is_empty()).then_some(text))
}

fn bad(what: impl Into<String>) -> BadUrl {
    BadUrl { what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_url_can_say() {
        let place = Place::parse("redis://ann:p%40ss@cache:7000/3?prefix=shop&wait=1").unwrap();
        assert_eq!(place.nodes, [Node { host: "cache".into(), port: 7000 }]);
        assert_eq!(place.login.user.as_deref(), Some("ann"));
        assert_eq!(place.login.password.as_deref(), Some("p@ss"));
        assert_eq!((place.database, place.wait, place.partitions), (3, 1, 60));
        assert_eq!(place.prefix, "shop");
        assert!(!format!("{place:?}{place}").contains("p@ss"));
        let cluster = Place::parse("redis-cluster://a:1,b:2,c?partitions=8").unwrap();
        assert_eq!(cluster.nodes.len(), 3);
        assert_eq!((cluster.nodes[2].port, cluster.partitions), (6379, 8));
        let login = Place::parse("redis://:secret@h").unwrap().login;
        assert_eq!((login.user, login.password.as_deref()), (None, Some("secret")));
    }

    #[test]
    fn tls_and_sentinels() {
        let place = Place::parse("rediss://h?ca=/etc/a%26b.pem&cert=c.pem&key=k.pem").unwrap();
        let files = place.tls.unwrap();
        assert_eq!(files.ca, Some("/etc/a&b.pem".into()));
        assert_eq!((files.cert, files.key), (Some("c.pem".into()), Some("k.pem".into())));
        let place = Place::parse("rediss-cluster://a:1,b:2").unwrap();
        assert!(place.shape == Shape::Cluster && place.tls == Some(TlsFiles::default()));
        let url = "redis-sentinel://ann:pass@a,b:5/shop/2?sentinel_user=bob&sentinel_password=s%3D";
        let place = Place::parse(url).unwrap();
        assert_eq!(place.shape, Shape::Sentinel("shop".into()));
        assert_eq!((place.nodes[0].port, place.nodes[1].port), (26379, 5));
        assert_eq!((place.login.user.as_deref(), place.database), (Some("ann"), 2));
        assert_eq!(place.sentinel_login.password.as_deref(), Some("s="));
        assert_eq!(place.to_string(), "redis-sentinel://a:26379,b:5/shop/2");
        let place = Place::parse("rediss-sentinel://a/shop").unwrap();
        assert_eq!(place.to_string(), "rediss-sentinel://a:26379/shop");
    }

    #[test]
    fn what_cannot_be_is_told_without_the_password() {
        for (url, why) in [
            ("redis:h", "://"),
            ("http://h", "scheme"),
            ("redis-ring://h", "scheme"),
            ("redis://h?ca=x", "rediss://"),
            ("rediss://h?ca=", "no file"),
            ("rediss://h?cert=x", "together"),
            ("redis-sentinel://h", "which master"),
            ("redis-sentinel://h/m/x", "database"),
            ("redis://h?sentinel_password=secret", "redis-sentinel://"),
            ("redis://", "host"),
            ("redis://h:x", "port"),
            ("redis://h/x", "database"),
            ("redis://a,b", "cluster"),
            ("redis-cluster://a/1", "databases"),
            ("redis://h?wait=99", "from 0 to 16"),
            ("redis://h?partitions=0", "from 1 to 1024"),
            ("redis://h?color=red", "color"),
            ("redis://h?prefix={x}", "prefix"),
            ("redis://u:se%zzcret@h", "hex"),
        ] {
            let error = Place::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("cret"), "{error}");
        }
    }
}
