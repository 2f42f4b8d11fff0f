//! The configuration in effect, for people and for programs; secrets never in it.

use std::fmt;

use serde_json::{Map, Value, json};

use qiang_app::config::{Error, Fault, Origin, Setting, Shown};
use qiang_engine::chain;

use super::Config;

/// A configuration, or the lack of one, to be shown.
#[derive(Debug)]
pub struct Report<'a>(pub &'a Result<Config, Error>);

impl Report<'_> {
    /// For programs: `ok`, and either `settings` or `faults`.
    #[must_use]
    pub fn json(&self) -> Value {
        match self.0 {
            Ok(config) => json!({
                "ok": true,
                "file": config.file.as_ref().map(|path| path.display().to_string()),
                "settings": config.settings.iter().map(setting_json).collect::<Vec<_>>(),
                "cautions": config.cautions(),
            }),
            Err(Error::Invalid(faults)) => json!({
                "ok": false,
                "faults": faults.iter().map(fault_json).collect::<Vec<_>>(),
            }),
            Err(error) => json!({ "ok": false, "faults": [{ "problem": chain(error) }] }),
        }
    }
}

/// For people: TOML that could be the file, with the origin of every value beside it.
impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = match self.0 {
            Ok(config) => config,
            Err(error) => return f.write_str(&chain(error)),
        };
        let mut section = "";
        for setting in &config.settings {
            let (of, name) = setting.key.split_once('.').unwrap_or(("", setting.key));
            if of != section {
                write!(f, "\n[{of}]\n")?;
                section = of;
            }
            let line = match &setting.value {
                Shown::Plain(value) => format!("{name} = {}", toml_value(value)),
                Shown::Hidden => format!("# {name} is set, and hidden"),
                Shown::Generated => format!("# {name} is in the secrets file"),
            };
            writeln!(f, "{line:<44} # {}", setting.origin)?;
        }
        Ok(())
    }
}

fn setting_json(setting: &Setting) -> Value {
    let (value, secret) = match &setting.value {
        Shown::Plain(value) => (value.clone(), None),
        Shown::Hidden => (Value::Null, Some("set")),
        Shown::Generated => (Value::Null, Some("in the secrets file")),
    };
    let mut json =
        Map::from_iter([("key".to_owned(), setting.key.into()), ("value".to_owned(), value)]);
    json.extend(secret.map(|state| ("secret".to_owned(), state.into())));
    json.extend(origin_json(&setting.origin));
    Value::Object(json)
}

fn fault_json(fault: &Fault) -> Value {
    let mut json = Map::from_iter([
        ("key".to_owned(), fault.key.clone().into()),
        ("problem".to_owned(), fault.problem.clone().into()),
        ("fix".to_owned(), fault.fix.clone().into()),
    ]);
    json.extend(origin_json(&fault.origin));
    Value::Object(json)
}

fn origin_json(origin: &Origin) -> Map<String, Value> {
    let json = match origin {
        Origin::Default => json!({ "origin": "default" }),
        Origin::File { path, line, column } => json!({
            "origin": "file", "file": path.display().to_string(), "line": line, "column": column,
        }),
        Origin::Variable(name) => json!({ "origin": "environment", "variable": name }),
        Origin::Flag(flag) => json!({ "origin": "flag", "flag": flag }),
    };
    match json {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn toml_value(value: &Value) -> String {
    match value {
        Value::String(text) => toml::Value::from(text.as_str()).to_string(),
        other => other.to_string(),
    }
}
