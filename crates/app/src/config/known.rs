//! The keys there are, and the one that was probably meant.

use strsim::osa_distance;

use super::layers::Origin;

/// Every key, in the order of the sections.
pub(super) struct Known(pub(super) Vec<&'static str>);

impl Known {
    /// What to do about a key that is not one.
    pub(super) fn fix(&self, key: &str, origin: &Origin) -> String {
        let (section, name) = split(key);
        if self.sections().contains(&key) {
            return format!("it is a section: write [{key}] above its keys");
        }
        let far =
            |known: &str| osa_distance(known, key).min(osa_distance(split(known).1, name) + 1);
        let nearest = self.0.iter().min_by_key(|known| far(known));
        if let Some(near) = nearest.filter(|near| far(near) <= 1 + name.chars().count() / 3) {
            return format!("did you mean {}?", spelled(near, origin));
        }
        let siblings = self.0.iter().filter(|known| split(known).0 == section);
        let siblings: Vec<String> = siblings.map(|known| spelled(known, origin)).collect();
        match section {
            "" => self.fix_section(),
            _ if siblings.is_empty() => self.fix_section(),
            _ => format!("known are {}", siblings.join(", ")),
        }
    }

    pub(super) fn fix_section(&self) -> String {
        format!("the sections are [{}]", self.sections().join("], ["))
    }

    pub(super) fn sections(&self) -> Vec<&'static str> {
        let mut sections: Vec<_> = self.0.iter().map(|known| split(known).0).collect();
        sections.retain(|section| !section.is_empty());
        sections.dedup();
        sections
    }
}

/// Names a key the way the layer it came from spells it.
pub(super) fn spelled(key: &str, origin: &Origin) -> String {
    match (origin, key.split_once('.')) {
        (Origin::Variable(_), _) => super::environment::variable(key),
        (_, Some((section, name))) => format!("`{name}` in [{section}]"),
        (_, None) => format!("`{key}`"),
    }
}

/// Section and name; the section of a key at the top is empty.
fn split(key: &str) -> (&str, &str) {
    key.split_once('.').unwrap_or(("", key))
}
