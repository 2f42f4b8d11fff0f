//! Scripts and styles: part of the binary, joined into few files, compressed once, and served under a
//! name that holds the hash of all of them. What has such a name never changes, so it is cached for
//! good.
//!
//! A page is a folder: its script, its words in both languages, its style and, in the storefront, its
//! address. Whatever folder is there is part of the program.
//!
//! Vendored modules stay as their packages have them. Each is put into a function of its own here, so
//! that one file holds them all: a page opens with few requests.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header::{ACCEPT_ENCODING, VARY};
use axum::http::{HeaderMap, HeaderValue};
use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::RustEmbed;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Everything below `assets/`. A debug build reads the folder at its start instead, so that a script
/// can be changed without compiling.
#[derive(RustEmbed)]
#[folder = "assets"]
struct Files;

/// Who a part is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// For buyers.
    Store,
    /// For those who run the shop.
    Console,
}

impl Part {
    const fn folder(self) -> &'static str {
        match self {
            Self::Store => "store/",
            Self::Console => "console/",
        }
    }

    /// The files of a kind, in the order in which they are joined: what all pages have, the frame of
    /// this part, its pages, and `main.js`, which starts.
    fn files(self, ending: &str) -> Vec<(String, String)> {
        let folder = self.folder();
        let rank = |path: &str| match path {
            _ if path.starts_with("base/") => Some(0),
            _ if !path.starts_with(folder) => None,
            _ if path.ends_with("/main.js") => Some(3),
            _ => Some(if path[folder.len()..].starts_with(PAGES) { 2 } else { 1 }),
        };
        let mut found: Vec<_> = Files::iter()
            .filter(|path| path.ends_with(ending))
            .filter_map(|path| Some((rank(&path)?, path.into_owned())))
            .collect();
        found.sort();
        found.into_iter().map(|(_, path)| (path.clone(), read(&path))).collect()
    }

    /// Its script, without what is vendored. All files of a page share a scope of their own, so that
    /// no page can take a name from another.
    pub(crate) fn script(self) -> String {
        let mut script = String::new();
        let mut inside = "";
        let files = self.files(".js");
        for (path, text) in &files {
            let page = page_of(path).unwrap_or_default();
            if page != inside {
                script.push_str(if inside.is_empty() { "" } else { "}\n" });
                script.push_str(if page.is_empty() { "" } else { "{\n" });
                inside = page;
            }
            script.push_str(text);
        }
        script
    }

    fn style(self) -> String {
        self.files(".css").into_iter().map(|(_, text)| text).collect()
    }

    /// Each file of words, with its path.
    pub(crate) fn words(self) -> Vec<(String, String)> {
        self.files("/words.json")
    }
}

/// A page of the storefront: a folder below `store/pages`, and what its `page.json` says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// The name of its folder.
    #[serde(skip)]
    pub(crate) name: String,
    /// Where it is, behind the language.
    pub(crate) path: String,
    /// The word that is its title.
    pub(crate) title: String,
}

/// All pages of the storefront.
pub(crate) fn pages() -> Vec<Page> {
    let page = |(path, text): (String, String)| {
        let mut page: Page = serde_json::from_str(&text).expect("a test reads the same pages");
        page.name = page_of(&path).unwrap_or_default().to_owned();
        page
    };
    Part::Store.files("/page.json").into_iter().map(page).collect()
}

/// The folder with the folders of pages, in each part.
const PAGES: &str = "pages/";

/// The name of the page that a file belongs to.
fn page_of(path: &str) -> Option<&str> {
    path.split_once(PAGES)?.1.split_once('/').map(|(page, _)| page)
}

fn read(path: &str) -> String {
    let file = Files::get(path).unwrap_or_else(|| panic!("there is no file {path}"));
    String::from_utf8(file.data.into_owned()).expect("scripts and styles are text")
}

/// Bytes as they are sent.
#[derive(Debug)]
pub(crate) struct Asset {
    /// The last part of its address.
    pub(crate) name: &'static str,
    pub(crate) media_type: &'static str,
    plain: Bytes,
    gzip: Bytes,
}

/// All of them, and the folder they are in.
#[derive(Debug)]
pub(crate) struct Assets {
    all: Vec<Asset>,
    /// The hash of everything in it.
    pub(crate) folder: String,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(Assets::make);

/// All of them, made at the first look.
pub(crate) fn all() -> &'static Assets {
    &ASSETS
}

impl Assets {
    fn make() -> Self {
        const JS: &str = "text/javascript; charset=utf-8";
        const CSS: &str = "text/css; charset=utf-8";
        let parts = "import{html,render,signal,effect}from'./vendor.js';\n";
        let plots = "import uPlot from'./plot.js';\n";
        let files = [
            ("vendor.js", JS, vendored()),
            ("plot.js", JS, read("vendor/uPlot.esm.js")),
            ("store.js", JS, [parts, &Part::Store.script()].concat()),
            ("console.js", JS, [parts, plots, &Part::Console.script()].concat()),
            ("store.css", CSS, Part::Store.style()),
            ("console.css", CSS, [read("vendor/uPlot.min.css"), Part::Console.style()].concat()),
        ];
        let mut hash = Sha256::new();
        for (name, _, text) in &files {
            hash.update(name);
            hash.update(text);
        }
        let folder = hex::encode(&hash.finalize()[..8]);
        let asset = |(name, media_type, text): (_, _, String)| Asset {
            name,
            media_type,
            gzip: gzip(text.as_bytes()),
            plain: text.into(),
        };
        Self { all: files.into_iter().map(asset).collect(), folder }
    }

    /// The file of a name.
    pub(crate) fn find(&self, name: &str) -> Option<&Asset> {
        self.all.iter().find(|asset| asset.name == name)
    }

    /// The address of a file.
    pub(crate) fn path(&self, name: &str) -> String {
        debug_assert!(self.find(name).is_some(), "{name}");
        format!("/assets/{}/{name}", self.folder)
    }
}

impl Asset {
    /// What to send to somebody who takes these encodings.
    pub(crate) fn bytes(&self, encoding: Encoding) -> Bytes {
        match encoding {
            Encoding::Gzip => self.gzip.clone(),
            Encoding::Plain => self.plain.clone(),
        }
    }
}

/// How bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Plain,
}

impl Encoding {
    /// The best of those a client takes.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let wishes = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let takes = |wish: &str| {
            let (name, rest) = wish.split_once(';').unwrap_or((wish, ""));
            let weight = rest.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok());
            name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0_f32)
        };
        match wishes.is_some_and(|wishes| wishes.split(',').any(takes)) {
            true => Self::Gzip,
            false => Self::Plain,
        }
    }

    /// Says in an answer how it is sent, and that it depends on who asks.
    pub(crate) fn say(self, headers: &mut HeaderMap) {
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if self == Self::Gzip {
            let name = axum::http::header::CONTENT_ENCODING;
            headers.insert(name, HeaderValue::from_static("gzip"));
        }
    }
}

/// Bytes compressed as well as can be, for what is sent often.
pub(crate) fn gzip(bytes: &[u8]) -> Bytes {
    compress(bytes, Compression::best())
}

/// Bytes compressed quickly, for what is sent once.
pub(crate) fn gzip_fast(bytes: &[u8]) -> Bytes {
    compress(bytes, Compression::fast())
}

fn compress(bytes: &[u8], how: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), how);
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("a vector takes every byte").into()
}

/// One module that exports what all vendored ones do.
fn vendored() -> String {
    let (preact, signals) = (wrapped("preact.mjs"), wrapped("signals-core.mjs"));
    let htm = read("vendor/htm.mjs");
    let (before, behind) = htm.split_once("export default ").expect("htm exports one function");
    format!(
        "const preact={preact};\nconst signals={signals};\nconst htm=(()=>{{{before}return {behind}}})();\n\
         export const{{render}}=preact;\nexport const{{signal,effect}}=signals;\n\
         export const html=htm.bind(preact.h);\n"
    )
}

/// A module as an expression: what it exports, as an object.
fn wrapped(name: &str) -> String {
    let module = read(&format!("vendor/{name}"));
    let (body, exports) = module.rsplit_once("export{").expect("a module exports once");
    let (exports, _) = exports.split_once('}').expect("a list ends");
    let pairs = exports.split(',').map(|export| match export.trim().split_once(" as ") {
        Some((inside, outside)) => format!("{outside}:{inside}"),
        None => export.trim().to_owned(),
    });
    format!("(()=>{{{body};return{{{}}}}})()", pairs.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes after compression that a page of the storefront may have, and of its own script.
    const STORE_BYTES: usize = 60 << 10;
    const OWN_BYTES: usize = 15 << 10;
    const CONSOLE_BYTES: usize = 100 << 10;

    #[test]
    fn a_page_is_small() {
        let size = |name| all().find(name).expect(name).gzip.len();
        let own = size("store.js");
        assert!(own <= OWN_BYTES, "{own}");
        // Shell and words are a few kilobytes.
        let store = own + size("vendor.js") + size("store.css") + (8 << 10);
        assert!(store <= STORE_BYTES, "{store}");
        let console = size("console.js") + size("vendor.js") + size("plot.js");
        assert!(console <= CONSOLE_BYTES, "{console}");
    }

    #[test]
    fn vendored_modules_become_one() {
        let joined = vendored();
        assert_eq!(joined.matches("export").count(), 3, "nothing is exported inside a function");
        assert!(!joined.contains("import"), "nothing is imported");
        for name in ["Component:", "render:", "signal:", "effect:"] {
            assert!(joined.contains(name), "{name}");
        }
    }

    #[test]
    fn who_takes_gzip_gets_it() {
        for (wish, encoding) in [
            ("gzip, deflate, br", Encoding::Gzip),
            ("br;q=1, GZIP;q=0.5", Encoding::Gzip),
            ("gzip;q=0", Encoding::Plain),
            ("identity", Encoding::Plain),
            ("", Encoding::Plain),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(wish));
            assert_eq!(Encoding::of(&headers), encoding, "{wish}");
        }
    }
}
