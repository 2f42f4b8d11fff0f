//! The layers laid on top of each other: for each key the strongest value, and its origin.
//!
//! A key is known because someone takes it; whatever is left when all have taken theirs is a
//! mistake. So there is no second list of keys to keep in step.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::known::{Known, spelled};
use crate::secrets::Secret;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File {
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// One mistake: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where it was made.
    pub origin: Origin,
    /// The key, like `http.listen`; empty if the place has none.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, problem, fix } = self;
        match key.as_str() {
            "" => write!(f, "{origin}: {problem}; {fix}"),
            key => write!(f, "{origin}: `{key}` {problem}; {fix}"),
        }
    }
}

/// One value in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its key, like `http.listen`.
    pub key: &'static str,
    /// The value; of a secret only whether there is one.
    pub value: Shown,
    /// Where it came from.
    pub origin: Origin,
}

/// A value as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// As it is.
    Plain(Value),
    /// A secret that was set.
    Hidden,
    /// A secret that was not; it comes from the secrets file.
    Generated,
}

/// What is wrong with a value, and what to do about it.
#[derive(Debug)]
pub struct Wrong {
    problem: String,
    fix: String,
}

impl Wrong {
    pub fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { problem: problem.into(), fix: fix.into() }
    }
}

/// A value before anyone knows what it should be.
#[derive(Debug, Clone)]
pub(super) enum Raw {
    /// From a variable or a flag, where everything is text.
    Untyped(String),
    /// From the file.
    Text(String),
    /// From the file.
    Number(i64),
    /// From the file.
    Switch(bool),
    /// From the file, and nothing that any key takes.
    Other(&'static str),
}

impl Raw {
    fn kind(&self) -> &'static str {
        match self {
            Self::Untyped(_) | Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Switch(_) => "true or false",
            Self::Other(kind) => kind,
        }
    }
}

#[derive(Debug)]
struct Entry {
    raw: Raw,
    origin: Origin,
}

#[derive(Debug, Default)]
/// All layers, laid on top of each other.
pub struct Layers {
    waiting: BTreeMap<String, Entry>,
    sections: Vec<(String, Origin)>,
    doubtful: Vec<(String, Origin)>,
    settings: Vec<Setting>,
    faults: Vec<Fault>,
}

impl Layers {
    /// Lays a value over what weaker layers said.
    pub(super) fn put(&mut self, key: impl Into<String>, origin: Origin, raw: Raw) {
        self.waiting.insert(key.into(), Entry { raw, origin });
    }

    pub(super) fn put_text(&mut self, key: &str, origin: Origin, text: String) {
        self.put(key, origin, Raw::Untyped(text));
    }

    /// A section with nothing in it, which should still be one that exists.
    pub(super) fn put_section(&mut self, name: &str, origin: Origin) {
        self.sections.push((name.to_owned(), origin));
    }

    /// A name that is a mistake only if it is a key with its dot written as `_`.
    pub(super) fn put_doubtful(&mut self, name: String, origin: Origin) {
        self.doubtful.push((name, origin));
    }

    /// A mistake that is none of a known key's value.
    pub(super) fn misplaced(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// A mistake in a value that was taken already.
    pub fn fault(&mut self, key: &'static str, problem: &str, fix: &str) {
        let taken = self.settings.iter().find(|setting| setting.key == key);
        let origin = taken.map_or(Origin::Default, |setting| setting.origin.clone());
        let (key, problem, fix) = (key.to_owned(), problem.to_owned(), fix.to_owned());
        self.faults.push(Fault { origin, key, problem, fix });
    }

    /// One address has one door.
    pub fn check_door(&mut self, key: &'static str, at: SocketAddr, http: SocketAddr) {
        if at == http && at.port() != 0 {
            self.fault(
                key,
                "is the address of `http.listen`, and one address has one door",
                "give it another port, like 127.0.0.1:6380",
            );
        }
    }

    /// A text that means something.
    pub fn text<T>(
        &mut self,
        key: &'static str,
        default: &str,
        read: impl Fn(&str) -> Result<T, Wrong>,
    ) -> T {
        let taken = self.take(key, |raw| match raw {
            Raw::Untyped(text) | Raw::Text(text) => {
                // A URL may hold a password.
                let shown = super::url::without_password(text);
                read(text).map(|value| (value, Shown::Plain(shown.into())))
            }
            other => {
                Err(Wrong::new(format!("is {}, not a text", other.kind()), "put it in quotes"))
            }
        });
        taken.unwrap_or_else(|| {
            self.default(key, Shown::Plain(default.into()));
            read(default).unwrap_or_else(|wrong| panic!("the default of {key} {}", wrong.problem))
        })
    }

    /// A whole number within bounds.
    pub fn number<T: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        default: u64,
        bounds: RangeInclusive<u64>,
    ) -> T {
        let number = self.take(key, |raw| {
            let given = match raw {
                Raw::Untyped(text) => {
                    text.replace('_', "").parse().map_err(|_| format!("{text:?}"))
                }
                Raw::Number(number) => u64::try_from(*number).map_err(|_| number.to_string()),
                other => Err(other.kind().to_owned()),
            };
            let fix = || format!("use a whole number from {} to {}", bounds.start(), bounds.end());
            match given {
                Ok(number) if bounds.contains(&number) => Ok((number, Shown::Plain(number.into()))),
                Ok(number) => Err(Wrong::new(format!("is {number}, out of bounds"), fix())),
                Err(given) => Err(Wrong::new(format!("is {given}"), fix())),
            }
        });
        let number = number.unwrap_or_else(|| {
            self.default(key, Shown::Plain(default.into()));
            default
        });
        T::try_from(number).unwrap_or_else(|_| panic!("the bounds of {key} do not fit its type"))
    }

    /// A time in milliseconds, within bounds.
    pub fn millis(
        &mut self,
        key: &'static str,
        default: u64,
        bounds: RangeInclusive<u64>,
    ) -> Duration {
        Duration::from_millis(self.number(key, default, bounds))
    }

    /// A time in seconds, within bounds.
    pub fn seconds(
        &mut self,
        key: &'static str,
        default: u64,
        bounds: RangeInclusive<u64>,
    ) -> Duration {
        Duration::from_secs(self.number(key, default, bounds))
    }

    /// True or false.
    pub fn switch(&mut self, key: &'static str, default: bool) -> bool {
        let taken = self.take(key, |raw| {
            let given = match raw {
                Raw::Switch(on) => Some(*on),
                Raw::Untyped(text) => text.parse().ok(),
                Raw::Text(_) | Raw::Number(_) | Raw::Other(_) => None,
            };
            let wrong = || Wrong::new("is neither true nor false", "write true or false");
            given.map(|on| (on, Shown::Plain(on.into()))).ok_or_else(wrong)
        });
        taken.unwrap_or_else(|| {
            self.default(key, Shown::Plain(default.into()));
            default
        })
    }

    /// A key to sign with; never shown, not even when it is wrong.
    pub fn secret(&mut self, key: &'static str, min_bytes: usize) -> Option<Secret> {
        let taken =
            self.take(key, |raw| hidden(raw, min_bytes, "leave it out to have one generated"));
        if taken.is_none() {
            self.default(key, Shown::Generated);
        }
        taken
    }

    /// A password, or none; never shown either.
    pub fn password(&mut self, key: &'static str, min_bytes: usize) -> Option<Secret> {
        let taken = self.take(key, |raw| match raw {
            Raw::Untyped(text) | Raw::Text(text) if text.is_empty() => {
                Ok((None, Shown::Plain("".into())))
            }
            raw => hidden(raw, min_bytes, "leave it out to have none")
                .map(|(secret, shown)| (Some(secret), shown)),
        });
        taken.unwrap_or_else(|| {
            self.default(key, Shown::Plain("".into()));
            None
        })
    }

    /// All settings in effect, or every mistake in all layers.
    pub fn finish(mut self) -> Result<Vec<Setting>, super::Error> {
        let known = Known(self.settings.iter().map(|setting| setting.key).collect());
        let mut unknown = |key: String, origin: Origin, fix: String| {
            self.faults.push(Fault { origin, key, problem: "is not known".to_owned(), fix });
        };
        for (key, Entry { origin, .. }) in self.waiting {
            let fix = known.fix(&key, &origin);
            unknown(key, origin, fix);
        }
        for (name, origin) in self.sections {
            if !known.sections().contains(&name.as_str()) {
                let fix = known.fix_section();
                unknown(name, origin, fix);
            }
        }
        for (name, origin) in self.doubtful {
            if let Some(key) = known.0.iter().find(|known| known.replace('.', "_") == name) {
                let fix = format!("did you mean {}?", spelled(key, &origin));
                unknown(name, origin, fix);
            }
        }
        if self.faults.is_empty() {
            Ok(self.settings)
        } else {
            Err(super::Error::Invalid(self.faults))
        }
    }

    /// The strongest value, if there is one and it is right.
    fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Raw) -> Result<(T, Shown), Wrong>,
    ) -> Option<T> {
        let Entry { raw, origin } = self.waiting.remove(key)?;
        match read(&raw) {
            Ok((taken, value)) => {
                self.settings.push(Setting { key, value, origin });
                Some(taken)
            }
            Err(Wrong { problem, fix }) => {
                self.faults.push(Fault { origin, key: key.to_owned(), problem, fix });
                None
            }
        }
    }

    fn default(&mut self, key: &'static str, value: Shown) {
        self.settings.push(Setting { key, value, origin: Origin::Default });
    }
}

/// A text of which nothing is shown.
fn hidden(raw: &Raw, min_bytes: usize, without: &str) -> Result<(Secret, Shown), Wrong> {
    match raw {
        Raw::Untyped(text) | Raw::Text(text) if text.len() >= min_bytes => {
            Ok((Secret::new(text.as_bytes()), Shown::Hidden))
        }
        _ => Err(Wrong::new(
            format!("is not a text of at least {min_bytes} bytes"),
            format!("make one with `openssl rand -hex 32`, or {without}"),
        )),
    }
}
