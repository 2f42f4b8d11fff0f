//! The pages in a real Chromium: a buyer's whole way, the console, and what must not go wrong there.
//! Every page is looked at by axe, and nothing may stand on the browser's console.

mod buyer;
mod claims;
mod console;
mod driver;
mod operator;
mod screenshots;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use self::driver::{Browser, Device, Look};
use crate::person::Person;
use crate::process::{Process, command, run};
use crate::shop::{changed, terms_of};

const LIGHT: Device = Device { width: 1280, lang: "en", look: Look::Light };
const PHONE: Device = Device { width: 360, lang: "zh", look: Look::Dark };
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What signs callbacks, so that a test can be the payment provider.
const CALLBACK_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A server of the real program, with the system's clock.
struct Site {
    process: Process,
    folder: tempfile::TempDir,
}

impl Site {
    fn start() -> Self {
        Self::with(&[])
    }

    /// With variables in its environment.
    fn with(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serve = command(folder.path(), &[]);
        serve.env("QIANG_PAYMENTS__CALLBACK_SECRET", CALLBACK_SECRET);
        let process = Process::start(serve.envs(variables.iter().copied())).expect("it starts");
        Self { process, folder }
    }

    /// Kills the server without warning.
    fn kill(&mut self) -> SocketAddr {
        self.process.kill();
        self.process.address
    }

    /// Starts it again, where it was.
    fn start_again(&mut self, address: SocketAddr) {
        let mut serve = command(self.folder.path(), &["serve", "--listen", &address.to_string()]);
        serve.env("QIANG_PAYMENTS__CALLBACK_SECRET", CALLBACK_SECRET);
        self.process = Process::begin(&mut serve).expect("it starts");
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.process.address)
    }

    fn token(&self, user: &str, role: &str) -> String {
        let made = run(self.folder.path(), &["tokens", "--user", user, "--role", role]);
        made.stdout.trim().to_owned()
    }

    async fn admin(&self) -> Person {
        Person::arrive(self.process.address, Some(self.token("boss", "admin"))).await
    }

    async fn buyer(&self, user: &str) -> Person {
        Person::arrive(self.process.address, Some(self.token(user, "buyer"))).await
    }

    async fn sale(&self, stock: u64, terms: Value) -> String {
        let terms = changed(&terms_of(stock), &terms);
        let sale = self.admin().await.post("/sales", terms).await.ok(201);
        sale["id"].as_str().expect("an id").to_owned()
    }

    async fn view(&self, sale: &str) -> Value {
        self.admin().await.get(&format!("/sales/{sale}")).await.ok(200)
    }

    async fn now(&self) -> qiang_core::Timestamp {
        let now = self.admin().await.get("/time").await.ok(200)["server_time"].clone();
        qiang_app::json_time::parse(now.as_str().expect("a time")).expect("a time")
    }

    /// So many milliseconds after the server's now.
    async fn later(&self, ms: i64) -> String {
        let later = qiang_core::Timestamp::from_millis(self.now().await.millis() + ms);
        qiang_app::json_time::format(later).as_str().to_owned()
    }

    /// An order of `user` whose money came when somebody else had the unit.
    async fn late_money(&self, user: &str) -> String {
        let sale = self.sale(1, json!({ "pay_secs": 1, "title": "Late" })).await;
        let (mut ann, mut bob) = (self.buyer(user).await, self.buyer("bob").await);
        let order = ann.granted(&sale).await;
        let mut looks = tokio::time::interval(LOOK_AGAIN);
        while bob.claim(&sale, 1).await.status != 201 {
            looks.tick().await;
        }
        let late = ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
        assert_eq!(late["outcome"], "refund_due");
        order
    }

    /// What the payment provider sends when money arrived: the body, the time and the signature.
    async fn callback(&self, payment: &str, order: &str) -> [String; 3] {
        let body = json!({ "payment_id": payment, "order_id": order, "amount_cents": 9_900 });
        let secret = qiang_app::secrets::Secret::new(CALLBACK_SECRET.as_bytes().to_vec());
        let key = qiang_sales::signature::Key::new(&secret);
        let body = body.to_string();
        let (time, signature) = key.sign(body.as_bytes(), self.now().await);
        [body, time, signature]
    }

    async fn money_arrives(&self, payment: &str, order: &str) {
        let [body, time, signature] = self.callback(payment, order).await;
        let headers = [("x-qiang-timestamp", &*time), ("x-qiang-signature", &*signature)];
        let mut provider = Person::arrive(self.process.address, None).await;
        let path = "/api/v1/payments/callback";
        provider.ask(axum::http::Method::POST, path, &headers, body).await.ok(200);
    }
}

/// Signs in by name on the page that asks for it.
async fn sign_in(browser: &mut Browser, name: &str) {
    browser.wait("document.querySelector('#user')").await;
    browser.type_into("#user", name).await;
    browser.click("form button").await;
    browser.wait("document.querySelector('.who')").await;
}

/// Goes to a sale as somebody who is signed in, and waits until it can be claimed.
async fn open_sale(browser: &mut Browser, site: &Site, lang: &str, sale: &str) {
    browser.go(&site.url(&format!("/{lang}/sales/{sale}"))).await;
    browser.wait("document.querySelector('#claim:enabled')").await;
}

async fn signed_in(device: Device, site: &Site) -> Option<Browser> {
    let mut browser = Browser::start(device).await?;
    browser.go(&site.url(&format!("/{}/sign-in", device.lang))).await;
    sign_in(&mut browser, "ann").await;
    Some(browser)
}

/// The console, entered with a token.
async fn in_console(device: Device, site: &Site, role: &str) -> Option<Browser> {
    let mut browser = Browser::start(device).await?;
    browser.go(&site.url(&format!("/{}/console", device.lang))).await;
    browser.wait("document.querySelector('#token')").await;
    browser.type_into("#token", &site.token("boss", role)).await;
    browser.click("form button").await;
    browser.wait("document.querySelector('.plot canvas')").await;
    Some(browser)
}

/// Shows a page of the console.
async fn show(browser: &mut Browser, place: &str) {
    browser.script(&format!("location.hash = '#/{place}'")).await;
    let shown = format!(
        "location.hash === '#/{place}' && document.querySelector('main h1')?.innerText && !document.querySelector('.loading')"
    );
    browser.wait(&shown).await;
}

/// Opens an action by its button, and confirms it.
async fn act(browser: &mut Browser, button: &str) {
    browser.wait(&format!("document.querySelector('{button}')")).await;
    browser.click(button).await;
    browser.wait("document.querySelector('dialog[open]')").await;
    browser.click("dialog .row button:last-child").await;
    browser
        .wait("!document.querySelector('dialog') && document.querySelector('[role=status]')")
        .await;
}

/// Nothing has to be scrolled sideways.
async fn fits(browser: &mut Browser, width: u32, what: &str) {
    let wide = browser.script("return document.documentElement.scrollWidth").await;
    assert!(wide.as_u64().expect("a number") <= u64::from(width), "{what}: {wide} > {width}");
}
