//! The layer of the environment: `QIANG_<SECTION>__<KEY>`, and those keys that have no section.
//!
//! Only names with the double underscore are ours for certain. Others that begin with `QIANG_`
//! may be anyone's (a Kubernetes service called qiang injects `QIANG_PORT`), and are let be,
//! unless they are one of ours with an underscore forgotten.

use std::ffi::OsString;

use super::layers::{Fault, Layers, Origin};

const PREFIX: &str = "QIANG_";
/// Keys without a section.
const BARE: [&str; 3] = ["DATA", "ROLES", "FORCE_CONSUME_FAIL_COUNT"];

/// Puts every variable of ours into the layers.
pub(super) fn read(variables: Vec<(OsString, OsString)>, layers: &mut Layers) {
    for (name, value) in variables {
        let Some(name) = name.to_str() else { continue };
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let key = match rest.split_once("__") {
            Some((section, key)) => format!("{section}.{key}").to_ascii_lowercase(),
            None if BARE.contains(&rest) => rest.to_ascii_lowercase(),
            None => {
                layers.put_doubtful(rest.to_ascii_lowercase(), Origin::Variable(name.to_owned()));
                continue;
            }
        };
        let origin = Origin::Variable(name.to_owned());
        match value.into_string() {
            Ok(text) => layers.put_text(&key, origin, text),
            Err(_) => layers.misplaced(Fault {
                origin,
                key,
                problem: "is not UTF-8".to_owned(),
                fix: "write it as UTF-8".to_owned(),
            }),
        }
    }
}

/// The variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}
