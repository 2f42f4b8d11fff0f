//! The HTML around each page. Whatever a shop wrote goes through [`escape`]; a script gets its words
//! and facts as data, never as code.

use std::fmt::Write as _;

use qiang_app::problem::Lang;
use qiang_core::PoolId;
use serde::Serialize;

use crate::Pages;
use crate::assets::{self, Part};
use crate::words::{self, Words};

/// A red square, as part of the page: one request less.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E\
    %3Crect width='32' height='32' rx='8' fill='%23b42318'/%3E%3Cpath d='M9 16h14M16 9v14' \
    stroke='white' stroke-width='4' stroke-linecap='round'/%3E%3C/svg%3E";

/// Which page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) part: Part,
    /// The name that its script knows it by.
    pub(crate) name: String,
    /// The word for its title.
    pub(crate) title: String,
}

/// What a page is about.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(crate) sale: Option<PoolId>,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) has_image: bool,
}

/// What a script is told about its page.
#[derive(Serialize)]
struct Facts<'a> {
    page: &'a str,
    lang: &'static str,
    shop: &'a str,
    currency: &'a str,
    /// Whether one can sign in by name.
    sandbox: bool,
    /// How orders are paid here: `sandbox`, `checkout`, or elsewhere.
    payments: Option<&'static str>,
    sale_id: Option<String>,
    description: &'a str,
    image: Option<String>,
    words: &'a Words,
}

/// The language as paths and `lang` name it.
pub(crate) const fn code(lang: Lang) -> &'static str {
    match lang {
        Lang::En => "en",
        Lang::Zh => "zh",
    }
}

/// The whole document.
pub(crate) fn html(pages: &Pages, lang: Lang, page: &Page, about: &About) -> String {
    let (book, assets, shop) = (words::of(lang), assets::all(), &pages.settings.title);
    let words = book.part(page.part);
    let word = |name: &str| words.get(name).map_or("", String::as_str);
    let title = about.title.as_deref().unwrap_or_else(|| word(&page.title));
    let title = format!("{title} · {shop}");
    let lang_tag = if lang == Lang::Zh { "zh-CN" } else { "en" };
    let mut head = format!(
        "<!doctype html>\n<html lang=\"{lang_tag}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n",
        escape(&title)
    );
    let line = about.description.lines().next().unwrap_or_default();
    if !line.is_empty() {
        let _ = writeln!(head, "<meta name=\"description\" content=\"{}\">", escape(line));
    }
    let (script, style) = match page.part {
        Part::Console => ("console.js", "console.css"),
        Part::Store => ("store.js", "store.css"),
    };
    let _ = writeln!(head, "<link rel=\"icon\" href=\"{ICON}\">");
    let _ = writeln!(head, "<link rel=\"stylesheet\" href=\"{}\">", assets.path(style));
    let _ = writeln!(head, "<link rel=\"modulepreload\" href=\"{}\">", assets.path("vendor.js"));
    let _ = writeln!(head, "<script type=\"module\" src=\"{}\"></script>", assets.path(script));
    let facts = facts(pages, lang, page, about);
    let heading = about.title.as_deref().unwrap_or(shop);
    let description = match about.description.as_str() {
        "" => String::new(),
        text => format!("<p class=\"prose\">{}</p>", escape(text)),
    };
    format!(
        "{head}<script type=\"application/json\" id=\"facts\">{facts}</script>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">{skip}</a>\n<div id=\"app\"><main id=\"main\" class=\"wrap\">\
         <h1>{heading}</h1>{description}<noscript><p>{noscript}</p></noscript></main></div>\n\
         </body>\n</html>\n",
        skip = escape(word("skip")),
        heading = escape(heading),
        noscript = escape(word("noscript")),
    )
}

/// The facts as JSON that cannot end its element: `<` is written as its number.
fn facts(pages: &Pages, lang: Lang, page: &Page, about: &About) -> String {
    let sale_id = about.sale.map(|id| id.to_string());
    let image = sale_id.as_ref().filter(|_| about.has_image);
    let facts = Facts {
        page: &page.name,
        lang: code(lang),
        shop: &pages.settings.title,
        currency: pages.settings.currency.code(),
        sandbox: pages.app.config.auth.sandbox,
        payments: pages.payments.word(),
        image: image.map(|id| format!("/api/v1/sales/{id}/image")),
        sale_id,
        description: &about.description,
        words: words::of(lang).part(page.part),
    };
    let json = serde_json::to_string(&facts).expect("texts are JSON");
    json.replace('<', "\\u003c")
}

/// A text that stays text inside an element and inside quotes.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escape("<script>alert('\"&')</script>"),
            "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;"
        );
    }
}
