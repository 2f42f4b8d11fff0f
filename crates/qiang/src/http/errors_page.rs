//! The page that explains every error code, made of the same text as the documentation.

use std::sync::LazyLock;

const SOURCE: &str = include_str!("../../../../docs/errors.md");
const HEAD: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>qiang: error codes</title>\
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}\
h2{font:600 1.1rem ui-monospace,monospace;border-top:1px solid #ccc;padding-top:1rem}\
h2:target{background:#fff3c4}pre,code{background:#f2f2f2;padding:0 .2em}</style>";

/// The page.
pub(super) fn html() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| render(SOURCE));
    &PAGE
}

/// Headings, paragraphs, bold, code and code blocks: all the Markdown that page uses.
fn render(source: &str) -> String {
    let mut page = HEAD.to_owned();
    for (at, part) in source.split("\n```").enumerate() {
        if at % 2 == 1 {
            let code = part.split_once('\n').map_or(part, |(_language, code)| code);
            page.push_str(&format!("<pre>{}</pre>", escape(code)));
        } else {
            paragraphs(part, &mut page);
        }
    }
    page
}

fn paragraphs(part: &str, page: &mut String) {
    for block in part.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        for (at, line) in block.lines().enumerate() {
            if let Some(code) = line.strip_prefix("## ") {
                page.push_str(&format!("<h2 id=\"{code}\">{code}</h2>"));
            } else if let Some(title) = line.strip_prefix("# ") {
                page.push_str(&format!("<h1>{title}</h1>"));
            } else {
                page.push_str(if at == 0 { "<p>" } else { " " });
                page.push_str(&spans(line));
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `[text](address)` as its text: the addresses are files beside the documentation.
fn without_links(line: &str) -> String {
    let mut rest = line;
    let mut out = String::with_capacity(line.len());
    while let Some((before, behind)) = rest.split_once('[') {
        match behind.split_once("](").and_then(|(text, more)| Some((text, more.split_once(')')?.1)))
        {
            Some((text, more)) => {
                out.push_str(before);
                out.push_str(text);
                rest = more;
            }
            None => break,
        }
    }
    out + rest
}

fn spans(line: &str) -> String {
    let marked = alternate(&escape(&without_links(line)), "**", "<b>", "</b>");
    alternate(&marked, "`", "<code>", "</code>")
}

/// Turns every second `mark` into `close` and the others into `open`.
fn alternate(text: &str, mark: &str, open: &str, close: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, piece) in text.split(mark).enumerate() {
        if at > 0 {
            out.push_str(if at % 2 == 1 { open } else { close });
        }
        out.push_str(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_can_be_linked_to() {
        let page = html();
        for code in qiang_app::problem::Code::ALL {
            assert!(page.contains(&format!("<h2 id=\"{}\">", code.as_str())), "{code:?}");
        }
        assert!(!page.contains("**") && !page.contains('`') && !page.contains("]("));
    }
}
