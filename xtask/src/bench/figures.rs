//! What was measured: lines of JSON with a name, labels and one or more measures.
//!
//! `{"name":"engine_claims","in_flight":512,"per_sec":1200000}`: `per_sec`, `seconds`,
//! `bytes_per_claim`, `bytes_each`, `journal_writes`, `mb`, `kept_mb`, `errors` and whatever ends in `_ms`, `_us` or
//! `_percent` are measures, all else are labels that tell figures of one name apart.

use serde_json::{Map, Value};

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) name: String,
    fields: Map<String, Value>,
}

/// Every line of a run, in the order measured.
#[derive(Debug, Default)]
pub(super) struct Figures(Vec<Figure>);

impl Figures {
    /// Takes a line a benchmark printed. What is not a figure is talk and is passed on.
    pub(super) fn hear(&mut self, line: &str) {
        eprintln!("{line}");
        if let Ok(Value::Object(mut fields)) = serde_json::from_str(line)
            && let Some(Value::String(name)) = fields.remove("name")
        {
            self.0.push(Figure { name, fields });
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Figure> {
        self.0.iter()
    }

    /// The figures of one name.
    pub(super) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Figure> {
        self.iter().filter(move |figure| figure.name == name)
    }

    /// The figure of that name which carries that label.
    pub(super) fn find(&self, name: &str, label: &str, value: &Value) -> Option<&Figure> {
        self.iter().find(|f| f.name == name && f.fields.get(label) == Some(value))
    }

    /// The figure of that name with the same labels as `other`, or the only one there is.
    pub(super) fn like<'a>(&'a self, name: &'a str, other: &Figure) -> Option<&'a Figure> {
        let mut all = self.named(name);
        match (all.next(), all.next()) {
            (only, None) => only,
            _ => self.named(name).find(|figure| figure.labels() == other.labels()),
        }
    }
}

impl Figure {
    /// One measure of it.
    pub(super) fn get(&self, measure: &str) -> Option<f64> {
        self.fields.get(measure).and_then(Value::as_f64)
    }

    /// Its measures, each with what it is called.
    pub(super) fn measures(&self) -> impl Iterator<Item = (&str, f64)> {
        let measures = self.fields.iter().filter(|(key, _)| is_measure(key));
        measures.filter_map(|(key, value)| Some((key.as_str(), value.as_f64()?)))
    }

    /// Its name and labels, as a person reads them.
    pub(super) fn title(&self) -> String {
        let labels = self.labels();
        let words = labels.iter().map(|(key, value)| match value {
            Value::String(text) => format!("{key} {text}"),
            Value::Number(number) if number.is_u64() => {
                format!("{key} {}", super::table::grouped(number.as_f64().unwrap_or_default()))
            }
            other => format!("{key} {other}"),
        });
        let words: Vec<String> = words.map(|word| word.replace('_', " ")).collect();
        if words.is_empty() {
            self.name.replace('_', " ")
        } else {
            format!("{}, {}", self.name.replace('_', " "), words.join(", "))
        }
    }

    fn labels(&self) -> Vec<(&String, &Value)> {
        self.fields.iter().filter(|(key, _)| !is_measure(key)).collect()
    }
}

/// Besides whatever ends like a unit.
const MEASURES: [&str; 8] = [
    "per_sec",
    "seconds",
    "bytes_per_claim",
    "bytes_each",
    "journal_writes",
    "mb",
    "kept_mb",
    "errors",
];

fn is_measure(key: &str) -> bool {
    MEASURES.contains(&key)
        || key.ends_with("_ms")
        || key.ends_with("_us")
        || key.ends_with("_percent")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Figures;

    #[test]
    fn lines_are_told_apart_by_their_labels() {
        let mut figures = Figures::default();
        figures.hear("   Compiling something");
        figures.hear(r#"{"name":"engine_claims","in_flight":512,"per_sec":10}"#);
        figures.hear(r#"{"name":"engine_claims","in_flight":4096,"per_sec":20,"p99_ms":1.5}"#);
        let figure = figures.find("engine_claims", "in_flight", &json!(4096)).unwrap();
        assert_eq!(figure.get("per_sec"), Some(20.0));
        assert_eq!(figure.title(), "engine claims, in flight 4,096");
        assert_eq!(figure.measures().count(), 2);
        assert_eq!(figures.iter().count(), 2);
    }
}
