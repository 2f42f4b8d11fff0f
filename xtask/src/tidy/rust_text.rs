//! Splits Rust source into code and comments, so that rules do not trip over string literals.
//!
//! Not a parser: it knows comments, strings and character literals, and relies on rustfmt for
//! where a block ends.

/// The same lines twice, once with only the code, once with only the comments; what was left
/// out is blank, so that columns and line numbers stay.
pub(super) struct RustText {
    pub(super) code: String,
    pub(super) comments: String,
}

impl RustText {
    pub(super) fn split(source: &str) -> Self {
        let chars: Vec<char> = source.chars().collect();
        let mut text = Self { code: String::new(), comments: String::new() };
        let mut at = 0;
        while at < chars.len() {
            let rest = &chars[at..];
            let before = at.checked_sub(1).map(|i| chars[i]);
            let (kind, len) = token(rest, before);
            for &c in &rest[..len] {
                text.push(kind, c);
            }
            at += len;
        }
        text
    }

    fn push(&mut self, kind: Kind, c: char) {
        let blank = if c == '\n' { '\n' } else { ' ' };
        self.code.push(if kind == Kind::Code { c } else { blank });
        self.comments.push(if kind == Kind::Comment { c } else { blank });
    }

    /// For each line, whether it belongs to an item under `#[cfg(test)]`.
    pub(super) fn test_lines(&self) -> Vec<bool> {
        let lines: Vec<&str> = self.code.lines().map(str::trim_end).collect();
        let mut marks = vec![false; lines.len()];
        let mut at = 0;
        while at < lines.len() {
            if lines[at].trim_start().starts_with("#[cfg(test)]") {
                let end = item_end(&lines, at);
                marks[at..=end].fill(true);
                at = end;
            }
            at += 1;
        }
        marks
    }

    /// Names of modules declared under `#[cfg(test)]` whose text is in another file.
    pub(super) fn test_modules(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let mut marked = false;
        for line in self.code.lines().map(str::trim) {
            if line.starts_with("#[cfg(test)]") {
                marked = true;
            } else if !line.is_empty() && !line.starts_with("#[") {
                let module = line.split("mod ").nth(1).and_then(|m| m.strip_suffix(';'));
                names.extend(module.filter(|_| marked));
                marked = false;
            }
        }
        names
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// What starts here, and how many characters it has (at least one).
fn token(rest: &[char], before: Option<char>) -> (Kind, usize) {
    let next = rest.get(1).copied();
    match rest[0] {
        '/' if next == Some('/') => (Kind::Comment, until(rest, |r| r[0] == '\n')),
        '/' if next == Some('*') => (Kind::Comment, block_comment(rest)),
        '"' => (Kind::Literal, string(rest)),
        'r' if !before.is_some_and(is_word) || before == Some('b') || before == Some('c') => {
            raw_string(rest).map_or((Kind::Code, 1), |len| (Kind::Literal, len))
        }
        '\'' if next == Some('\\') => (
            Kind::Literal,
            rest.len().min(3 + until(&rest[3.min(rest.len())..], |r| r[0] == '\'') + 1),
        ),
        '\'' if rest.get(2) == Some(&'\'') => (Kind::Literal, 3),
        _ => (Kind::Code, 1),
    }
}

fn until(rest: &[char], stop: impl Fn(&[char]) -> bool) -> usize {
    (0..rest.len()).find(|&i| stop(&rest[i..])).unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(&['/', '*']) {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(&['*', '/']) {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of the raw string that starts here, if one does.
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = until(&rest[1..], |r| r[0] != '#');
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.resize(1 + hashes, '#');
    let body = 2 + hashes;
    Some(rest.len().min(body + until(&rest[body..], |r| r.starts_with(&close)) + close.len()))
}

/// The last line of the item whose attributes begin at `start`. rustfmt closes a block with a
/// brace in the column where the item began.
fn item_end(lines: &[&str], start: usize) -> usize {
    let indent = lines[start].len() - lines[start].trim_start().len();
    let close = format!("{}}}", " ".repeat(indent));
    for (at, line) in lines.iter().enumerate().skip(start) {
        let at_column = line.len() - line.trim_start().len() == indent;
        if *line == close || (at_column && (line.ends_with(';') || line.ends_with("{}"))) {
            return at;
        }
    }
    lines.len() - 1
}

/// Whether a character can be part of a name.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::RustText;

    #[test]
    fn strings_and_comments_are_not_code() {
        let text = RustText::split(
            "let a = \"x.unwrap() \\\" y\"; // TODO b\nlet c = r#\"d \" e\"#; /* f /* g */ h */ i();\n",
        );
        assert_eq!(text.code.split_whitespace().collect::<String>(), "leta=;letc=;i();");
        assert_eq!(
            text.comments.split_whitespace().collect::<Vec<_>>().join(" "),
            "// TODO b /* f /* g */ h */"
        );
        assert_eq!(text.code.lines().count(), 2);
    }

    #[test]
    fn lifetimes_and_character_literals_are_told_apart() {
        let text =
            RustText::split("fn f<'a>(s: &'a str) { g('\"', '\\'', b'x', '\\u{1F600}', s) }");
        let code: String = text.code.split_whitespace().collect();
        assert_eq!(code, "fnf<'a>(s:&'astr){g(,,b,,s)}");
    }

    #[test]
    fn test_lines_end_where_the_module_ends() {
        let text = RustText::split(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod far;\nfn d() {}\n",
        );
        let marks = text.test_lines();
        assert_eq!(marks, [false, true, true, true, true, false, true, true, false]);
        assert_eq!(text.test_modules(), ["far"]);
    }
}
