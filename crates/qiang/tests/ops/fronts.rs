//! Real nginx and real Varnish in front of a server: pages come from the cache, also when the server
//! does not answer; what is about one buyer never does.

use std::sync::atomic::{AtomicUsize, Ordering};

use qiang_engine::Stopwatch;
use qiang_testkit::servers::{Authority, Front, or_skip};
use serde_json::json;

use crate::origin::{Client, Origin, ask, qiang, replaced, text_of, wait_until};

const READERS: usize = 8;
const READS: usize = 10_000;

/// What both have to do.
fn keeps_its_promises(front: &Front, origin: &Origin, asked: impl Fn(&Reads) -> u64) -> Shop {
    let shop = Shop::open(front.port, origin);
    shop.pages_are_cached_and_shared(&asked);
    shop.a_claim_goes_through_each_time(origin);
    shop.nobody_gets_the_cookie_of_another(origin);
    for path in ["/metrics", "/readyz", "/healthz"] {
        assert_eq!(ask(front.port, &format!("GET {path}"), &[], "").status, 404, "{path}");
    }
    shop
}

struct Shop {
    port: u16,
    sale: String,
}

/// What many readers saw.
#[derive(Default)]
struct Reads {
    all: AtomicUsize,
    /// For which nginx asked the server, as it says.
    asked: AtomicUsize,
}

impl Shop {
    fn open(port: u16, origin: &Origin) -> Self {
        let admin = origin.token(&["--user", "boss", "--role", "admin"]);
        let terms =
            json!({ "title": "Phone", "sku": "phone-15", "stock": 100, "price_cents": 9_900 });
        let header = format!("Authorization: {admin}");
        let sale = ask(port, "POST /api/v1/sales", &[&header], &terms.to_string());
        assert_eq!(sale.status, 201, "{sale:?}");
        Self { port, sale: sale.json()["id"].as_str().expect("an id").to_owned() }
    }

    fn page(&self) -> String {
        format!("GET /en/sales/{}", self.sale)
    }

    fn availability(&self) -> String {
        format!("GET /api/v1/sales/{}", self.sale)
    }

    fn pages_are_cached_and_shared(&self, asked: impl Fn(&Reads) -> u64) {
        let page = ask(self.port, &self.page(), &[], "");
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.body.contains("Phone") && page.header("set-cookie").is_empty(), "{page:?}");
        let script = page.body.split('"').find(|word| word.starts_with("/assets/"));
        let script = format!("GET {}", script.expect("a script"));
        let first = ask(self.port, &script, &[], "");
        assert!(first.header("cache-control").contains("immutable"), "{first:?}");
        let again = ask(self.port, &script, &["Cookie: qiang_session=a.b.c; other=1"], "");
        assert_eq!((again.status, again.header("x-cache")), (200, "HIT"));
        for request in [self.page(), self.availability()] {
            let (reads, watch) = (Reads::default(), Stopwatch::start());
            let before = asked(&reads);
            std::thread::scope(|scope| {
                for _ in 0..READERS {
                    scope.spawn(|| self.read(&request, &reads));
                }
            });
            let seconds = watch.elapsed().as_secs();
            let asked = asked(&reads) - before;
            // Twice a second, and once more at both ends.
            assert!(asked <= 2 * seconds + 3, "{request}: {asked} in {seconds} s");
        }
    }

    fn read(&self, request: &str, reads: &Reads) {
        let mut client = Client::connect(self.port);
        while reads.all.fetch_add(1, Ordering::Relaxed) < READS {
            let answer = client.ask(request, &["Cookie: qiang_session=a.b.c"], "");
            assert_eq!(answer.status, 200, "{answer:?}");
            if !["HIT", "UPDATING"].contains(&answer.header("x-cache")) {
                reads.asked.fetch_add(1, Ordering::Relaxed);
            }
            if answer.header("connection") == "close" {
                client = Client::connect(self.port);
            }
        }
    }

    fn a_claim_goes_through_each_time(&self, origin: &Origin) {
        let claims = format!("POST /api/v1/sales/{}/claims", self.sale);
        let buyer = |name: &str| format!("Authorization: {}", origin.token(&["--user", name]));
        for (number, name) in [(1, "ann"), (2, "bob")] {
            let answer = ask(self.port, &claims, &[&buyer(name)], "{}");
            assert_eq!((answer.status, &answer.json()["number"]), (201, &json!(number)));
        }
        // Asked again, as the rules say, and not as somebody remembers.
        let again = ask(self.port, &claims, &[&buyer("ann")], "{}");
        assert_eq!((again.status, again.json()["code"].as_str()), (409, Some("already_claimed")));
        wait_until("everybody sees what is left", || {
            ask(self.port, &self.availability(), &[], "").json()["available"] == 98
        });
        // Each sees their own orders.
        for (name, order) in [("ann", "1"), ("bob", "2"), ("ann", "1")] {
            let orders = ask(self.port, "GET /api/v1/orders", &[&buyer(name)], "").json();
            let id = &orders["orders"][0]["order_id"];
            assert_eq!(id, &format!("{}-{order}", self.sale), "{orders}");
        }
    }

    fn nobody_gets_the_cookie_of_another(&self, origin: &Origin) {
        let sign_in = |name: &str| {
            let body = json!({ "token": origin.token(&["--user", name]) }).to_string();
            let answer = ask(self.port, "POST /api/v1/session", &[], &body);
            assert_eq!(answer.status, 201, "{answer:?}");
            let cookie = answer.header("set-cookie").split(';').next().expect("one").to_owned();
            format!("Cookie: {cookie}")
        };
        let (cyd, dan) = (sign_in("cyd"), sign_in("dan"));
        assert_ne!(cyd, dan);
        let who = |headers: &[&str]| ask(self.port, "GET /api/v1/session", headers, "");
        for (cookie, name) in [(&cyd, "cyd"), (&dan, "dan"), (&cyd, "cyd")] {
            let answer = who(&[cookie]);
            assert_eq!(answer.json()["user_id"], name);
            assert!(answer.header("set-cookie").starts_with("qiang_session="), "{answer:?}");
        }
        let nobody = who(&[]);
        assert_eq!(nobody.json()["signed_in"], false);
        assert_eq!(nobody.header("set-cookie"), "");
        // A cookie arrives at the API, and claims.
        let claims = format!("POST /api/v1/sales/{}/claims", self.sale);
        let claim = ask(self.port, &claims, &[&cyd, "Sec-Fetch-Site: same-origin"], "{}");
        assert_eq!((claim.status, &claim.json()["user_id"]), (201, &json!("cyd")));
    }

    /// The server is gone: pages that were read are still served when they are older than they should
    /// be, and a claim is told that nobody answers.
    fn outlives(self, mut origin: Origin) {
        let fresh = ask(self.port, &self.page(), &[], "");
        assert_eq!(fresh.status, 200);
        origin.node.kill();
        wait_until("the page is stale", || {
            let page = ask(self.port, &self.page(), &[], "");
            assert_eq!((page.status, &page.body), (200, &fresh.body), "{page:?}");
            let age: u64 = page.header("age").parse().unwrap_or_default();
            page.header("x-cache") == "STALE" || age > 5
        });
        let claims = format!("POST /api/v1/sales/{}/claims", self.sale);
        let claim = ask(self.port, &claims, &[], "{}");
        assert!([502, 503].contains(&claim.status), "{claim:?}");
    }
}

#[test]
fn nginx_collapses_keeps_and_passes_on() {
    let origin = Origin::start(&[]);
    let authority = Authority::new().expect("made");
    let identity = authority.issue(&["localhost", "shop.example"]).expect("issued");
    let address = origin.node.address.to_string();
    let tls_port = qiang_testkit::servers::free_port().expect("a port");
    let front = Front::nginx(|port, folder| {
        let site = text_of("nginx.conf");
        let site = replaced(&site, "127.0.0.1:8080", &address);
        let site = replaced(&site, "listen 80;", &format!("listen 127.0.0.1:{port};"));
        let site = replaced(&site, "listen 443 ", &format!("listen 127.0.0.1:{tls_port} "));
        let site = replaced(&site, "/etc/qiang/cert.pem", identity.cert.to_str().expect("UTF-8"));
        let site = replaced(&site, "/etc/qiang/key.pem", identity.key.to_str().expect("UTF-8"));
        let cache = folder.join("cache");
        replaced(&site, "/var/cache/nginx/qiang", cache.to_str().expect("UTF-8"))
    });
    let Some(front) = or_skip(front) else { return };
    let shop =
        keeps_its_promises(&front, &origin, |reads| reads.asked.load(Ordering::Relaxed) as u64);
    // By TLS, too, for our own client.
    let (url, token) = (
        format!("https://localhost:{tls_port}"),
        origin.token(&["--user", "boss", "--role", "admin"]),
    );
    let ca = authority.ca();
    let args = ["audit", "--url", &url, "--ca", ca.to_str().expect("UTF-8"), "--token", &token];
    let audit = qiang(origin.folder.path(), &args).output().expect("the binary runs");
    assert!(audit.status.success(), "{audit:?}");
    shop.outlives(origin);
}

#[test]
fn varnish_collapses_keeps_and_passes_on() {
    let origin = Origin::start(&[]);
    let vcl = text_of("varnish.vcl");
    let port = origin.node.address.port().to_string();
    let vcl = replaced(&vcl, ".port = \"8080\"", &format!(".port = \"{port}\""));
    let Some(front) = or_skip(Front::varnish(&vcl)) else { return };
    let asked = |_: &Reads| front.varnish_counter("MAIN.backend_req").expect("it counts");
    let shop = keeps_its_promises(&front, &origin, asked);
    shop.outlives(origin);
}
