//! Scripts and styles: part of the binary, joined into few files, compressed once, and served under a
//! name that holds the hash of all of them. What has such a name never changes, so it is cached for
//! good.
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
use sha2::{Digest as _, Sha256};

const PREACT: &str = include_str!("../assets/vendor/preact.mjs");
const SIGNALS: &str = include_str!("../assets/vendor/signals-core.mjs");
const HTM: &str = include_str!("../assets/vendor/htm.mjs");
const UPLOT: &str = include_str!("../assets/vendor/uPlot.esm.js");
const UPLOT_CSS: &str = include_str!("../assets/vendor/uPlot.min.css");

/// What every page begins with.
const BASE: [&str; 3] = [
    include_str!("../assets/base/words.js"),
    include_str!("../assets/base/api.js"),
    include_str!("../assets/base/clock.js"),
];
const STORE: [&str; 6] = [
    include_str!("../assets/store/parts.js"),
    include_str!("../assets/store/list.js"),
    include_str!("../assets/store/sale.js"),
    include_str!("../assets/store/pay.js"),
    include_str!("../assets/store/mine.js"),
    include_str!("../assets/store/main.js"),
];
const CONSOLE: [&str; 8] = [
    include_str!("../assets/console/parts.js"),
    include_str!("../assets/console/live.js"),
    include_str!("../assets/console/plots.js"),
    include_str!("../assets/console/watch.js"),
    include_str!("../assets/console/overview.js"),
    include_str!("../assets/console/sales.js"),
    include_str!("../assets/console/books.js"),
    include_str!("../assets/console/main.js"),
];
const STYLE: &str = include_str!("../assets/style.css");
const CONSOLE_STYLE: &str = include_str!("../assets/console.css");

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

/// The script of the storefront, without what is vendored.
pub(crate) fn store_script() -> String {
    [BASE.concat(), STORE.concat()].concat()
}

/// The script of the console, without what is vendored.
pub(crate) fn console_script() -> String {
    [BASE.concat(), CONSOLE.concat()].concat()
}

impl Assets {
    fn make() -> Self {
        const JS: &str = "text/javascript; charset=utf-8";
        const CSS: &str = "text/css; charset=utf-8";
        let parts = "import{html,render,signal,effect}from'./vendor.js';\n";
        let plots = "import uPlot from'./plot.js';\n";
        let files = [
            ("vendor.js", JS, vendored()),
            ("plot.js", JS, UPLOT.to_owned()),
            ("store.js", JS, [parts, &store_script()].concat()),
            ("console.js", JS, [parts, plots, &console_script()].concat()),
            ("style.css", CSS, STYLE.to_owned()),
            ("console.css", CSS, [UPLOT_CSS, "\n", CONSOLE_STYLE].concat()),
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
    let (preact, signals) = (wrapped(PREACT), wrapped(SIGNALS));
    let (before, behind) = HTM.split_once("export default ").expect("htm exports one function");
    format!(
        "const preact={preact};\nconst signals={signals};\nconst htm=(()=>{{{before}return {behind}}})();\n\
         export const{{render}}=preact;\nexport const{{signal,effect}}=signals;\n\
         export const html=htm.bind(preact.h);\n"
    )
}

/// A module as an expression: what it exports, as an object.
fn wrapped(module: &str) -> String {
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
        let store = own + size("vendor.js") + size("style.css") + (8 << 10);
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
