//! Where Redis is, out of one URL:
//! `redis://[user:password@]host[:port][/database][?setting=value&...]` for one server, and
//! `redis-cluster://[user:password@]host:port,host:port,...[?...]` for a cluster.
//!
//! | setting | meaning | default |
//! | --- | --- | --- |
//! | `prefix` | what every key begins with | `qiang` |
//! | `partitions` | logs the pools are spread over; fixed once the first sale is open | 64 |
//! | `wait` | replicas that must have a change before it is answered | 0 |
//! | `wait_ms` | how long they are waited for, again and again | 1000 |

/// A parsed URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    pub(super) nodes: Vec<Node>,
    pub(super) cluster: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) prefix: String,
    pub(super) partitions: u16,
    pub(super) wait: u16,
    pub(super) wait_ms: u32,
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

const EXAMPLE: &str = "redis://127.0.0.1:6379 or redis-cluster://10.0.0.1:6379,10.0.0.2:6379";
const DEFAULT_PORT: u16 = 6379;
const DEFAULT_PARTITIONS: u16 = 64;
const MAX_PARTITIONS: u16 = 1_024;
const DEFAULT_WAIT_MS: u32 = 1_000;
const MAX_PREFIX_BYTES: usize = 64;

impl Place {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no ://"))?;
        let cluster = match scheme {
            "redis" => false,
            "redis-cluster" => true,
            "rediss" => return Err(bad("this build has no TLS; put a tunnel before Redis")),
            _ => return Err(bad("its scheme is not redis or redis-cluster")),
        };
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, password)) => (decoded(user)?, decoded(password)?),
        };
        let database = match database {
            "" => 0,
            _ if cluster => return Err(bad("a cluster has no numbered databases")),
            text => text.parse().map_err(|_| bad("the database is not a number"))?,
        };
        let nodes = hosts.split(',').map(node).collect::<Result<Vec<_>, _>>()?;
        if nodes.len() > 1 && !cluster {
            return Err(bad("several servers are a cluster: redis-cluster://"));
        }
        let mut place = Self {
            nodes,
            cluster,
            user,
            password,
            database,
            prefix: "qiang".into(),
            partitions: DEFAULT_PARTITIONS,
            wait: 0,
            wait_ms: DEFAULT_WAIT_MS,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            place.set(setting)?;
        }
        Ok(place)
    }

    /// How many partitions it has.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        self.partitions
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
            _ => {
                let known = "prefix, partitions, wait, wait_ms";
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

/// Without the password.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.cluster { "redis-cluster://" } else { "redis://" })?;
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{}:{}", if place > 0 { "," } else { "" }, node.host, node.port)?;
        }
        if self.database > 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

fn node(text: &str) -> Result<Node, BadUrl> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => {
            (host, port.parse().map_err(|_| bad("a port is not a number"))?)
        }
        _ => (text, DEFAULT_PORT),
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
    let text = String::from_utf8(bytes).map_err(|_| bad("the login is not UTF-8"))?;
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
        assert_eq!(place.user.as_deref(), Some("ann"));
        assert_eq!(place.password.as_deref(), Some("p@ss"));
        assert_eq!((place.database, place.wait, place.partitions), (3, 1, 64));
        assert_eq!(place.prefix, "shop");
        assert!(!format!("{place:?}{place}").contains("p@ss"));
        let cluster = Place::parse("redis-cluster://a:1,b:2,c?partitions=8").unwrap();
        assert_eq!(cluster.nodes.len(), 3);
        assert_eq!((cluster.nodes[2].port, cluster.partitions), (6379, 8));
        assert_eq!(Place::parse("redis://:secret@h").unwrap().password.as_deref(), Some("secret"));
    }

    #[test]
    fn what_cannot_be_is_told_without_the_password() {
        for (url, why) in [
            ("redis:h", "://"),
            ("http://h", "scheme"),
            ("rediss://h", "TLS"),
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
