//! The pages in a real Chromium: a buyer's whole way, the console, and what must not go wrong there.
//! Every page is looked at by axe, and nothing may stand on the browser's console.

mod driver;
mod screenshots;

use serde_json::{Value, json};

use self::driver::{Browser, Device, ENTER, Look};
use crate::person::Person;
use crate::process::{Process, command, run};
use crate::shop::{changed, terms_of};

/// Requests until one can buy.
const MAX_REQUESTS: u64 = 6;

/// A server of the real program, with the system's clock.
struct Site {
    process: Process,
    folder: tempfile::TempDir,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
        Self { process, folder }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.process.address)
    }

    fn token(&self, role: &str) -> String {
        let made = run(self.folder.path(), &["tokens", "--user", "boss", "--role", role]);
        made.stdout.trim().to_owned()
    }

    async fn admin(&self) -> Person {
        Person::arrive(self.process.address, Some(self.token("admin"))).await
    }

    async fn sale(&self, stock: u64, terms: Value) -> String {
        let terms = changed(&terms_of(stock), &terms);
        let sale = self.admin().await.post("/sales", terms).await.ok(201);
        sale["id"].as_str().expect("an id").to_owned()
    }

    /// So many milliseconds after the server's now.
    async fn later(&self, ms: i64) -> String {
        let now = self.admin().await.get("/time").await.ok(200)["server_time"].clone();
        let now = qiang_app::json_time::parse(now.as_str().expect("a time")).expect("a time");
        let later = qiang_core::Timestamp::from_millis(now.millis() + ms);
        qiang_app::json_time::format(later).as_str().to_owned()
    }
}

async fn sign_in(browser: &mut Browser, name: &str) {
    browser.wait("document.querySelector('#user')").await;
    browser.type_into("#user", name).await;
    browser.click("form button").await;
    browser.wait("document.querySelector('.who')").await;
}

#[tokio::test]
async fn a_buyer_gets_pays_and_finds_again() {
    let device = [
        Device { width: 1280, lang: "en", look: Look::Light },
        Device { width: 360, lang: "zh", look: Look::Dark },
    ];
    for device in device {
        let Some(mut browser) = Browser::start(device).await else { return };
        let (site, lang) = (Site::start(), device.lang);
        browser.go(&site.url(&format!("/{lang}/"))).await;
        browser.wait("document.querySelector('.empty h1')").await;
        browser.check().await;
        let sale =
            site.sale(5, json!({ "price_steps": [{ "after_sold": 3, "price_cents": 99999 }] }));
        let sale = sale.await;
        browser.go(&site.url(&format!("/{lang}/"))).await;
        browser.wait("document.querySelector('.card')").await;
        browser.check().await;
        browser.click(".card a").await;
        browser.wait("document.querySelector('#claim:enabled')").await;
        browser.check().await;
        let asked = "return 1 + performance.getEntriesByType('resource').length";
        let requests = browser.script(asked).await.as_u64().expect("a number");
        assert!(requests <= MAX_REQUESTS, "{requests}");
        browser.click("#claim").await;
        sign_in(&mut browser, "ann").await;
        browser.wait("document.querySelector('#claim:enabled')").await;
        browser.click("#claim").await;
        browser.wait("document.querySelector('.bill')").await;
        browser.check().await;
        browser.click("button.primary").await;
        browser
            .wait("document.querySelector('.bill') && !document.querySelector('.deadline')")
            .await;
        browser.check().await;
        let paid = site.admin().await.get(&format!("/sales/{sale}")).await.ok(200);
        assert_eq!((&paid["paid"], &paid["ordered"]), (&json!(1), &json!(0)));
        browser.go(&site.url(&format!("/{lang}/mine"))).await;
        browser.wait("document.querySelector('.pill.paid')").await;
        browser.check().await;
        // The page of the sale knows what its buyer has.
        browser.go(&site.url(&format!("/{lang}/sales/{sale}"))).await;
        browser.wait("document.querySelector('.note.good')").await;
        browser.check().await;
        let wide = browser.script("return document.documentElement.scrollWidth").await;
        assert!(wide.as_u64().expect("a number") <= u64::from(device.width), "{wide}");
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn p62_ones_own_claim_is_shown_and_never_sold_out() {
    let device = Device { width: 360, lang: "en", look: Look::Light };
    let Some(mut browser) = Browser::start(device).await else { return };
    let site = Site::start();
    let sale = site.sale(1, json!({ "flow": "hold" })).await;
    let page = site.url(&format!("/en/sales/{sale}"));
    browser.go(&site.url("/en/sign-in")).await;
    sign_in(&mut browser, "ann").await;
    browser.go(&page).await;
    browser.wait("document.querySelector('#claim:enabled')").await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.bill')").await;
    // A browser that has forgotten everything but who it is: the answer names the claim.
    browser.script("localStorage.clear(); sessionStorage.clear()").await;
    browser.go(&page).await;
    browser.wait("document.querySelector('#claim:enabled')").await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.note.good a.button')").await;
}

#[tokio::test]
async fn p63_the_button_opens_by_the_servers_clock() {
    for wrong_ms in [-3_600_000_i64, 3_600_000] {
        let device = Device { width: 360, lang: "en", look: Look::Light };
        let Some(mut browser) = Browser::start(device).await else { return };
        let site = Site::start();
        let opens_at = site.later(4_000).await;
        let sale = site.sale(1, json!({ "opens_at": opens_at })).await;
        browser.with_wrong_clock(wrong_ms).await;
        browser.set_time_zone("Asia/Kathmandu").await;
        browser.go(&site.url(&format!("/en/sales/{sale}"))).await;
        browser.wait("document.querySelector('#claim:disabled')").await;
        let early = site.admin().await.post(&format!("/sales/{sale}/claims"), Value::Null).await;
        early.problem(425, "not_open_yet");
        browser.wait("document.querySelector('#claim:enabled')").await;
        // It was just seen enabled, so the server must have opened by now, or be about to.
        let mut buyer = Person::arrive(site.process.address, Some(site.token("buyer"))).await;
        buyer.claim(&sale, 1).await.ok(201);
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn p64_double_clicks_and_reloads_make_one_claim() {
    let device = Device { width: 1280, lang: "en", look: Look::Light };
    let Some(mut browser) = Browser::start(device).await else { return };
    let site = Site::start();
    let sale = site.sale(9, json!({ "limit_per_user": 9 })).await;
    browser.go(&site.url("/en/sign-in")).await;
    sign_in(&mut browser, "ann").await;
    browser.go(&site.url(&format!("/en/sales/{sale}"))).await;
    browser.wait("document.querySelector('#claim:enabled')").await;
    let twice =
        "const c = document.querySelector('#claim'); c.click(); c.click(); location.reload()";
    browser.script(twice).await;
    browser.wait("document.querySelector('.bill')").await;
    let after = site.admin().await.get(&format!("/sales/{sale}")).await.ok(200);
    assert_eq!(after["ordered"], 1, "{after}");
}

#[tokio::test]
async fn the_console_opens_watches_and_closes_a_sale() {
    let device = Device { width: 1280, lang: "en", look: Look::Dark };
    let Some(mut browser) = Browser::start(device).await else { return };
    let site = Site::start();
    browser.go(&site.url("/en/console")).await;
    browser.wait("document.querySelector('#token')").await;
    browser.check().await;
    browser.type_into("#token", &site.token("admin")).await;
    browser.click("form button").await;
    browser.wait("document.querySelector('.plot canvas')").await;
    browser.check().await;
    browser.script("location.hash = '#/sales/new'").await;
    browser.wait("document.querySelector('#title')").await;
    let evil = "<img src=x onerror=alert(1)>";
    for (field, text) in [("#title", evil), ("#sku", "s1")] {
        browser.type_into(field, text).await;
    }
    browser.check().await;
    browser.click("form button.primary").await;
    browser.wait("document.querySelector('.figures')").await;
    browser.check().await;
    let title = browser.script("return document.querySelector('h1').innerText").await;
    assert!(title.as_str().expect("a text").starts_with(evil), "text stays text");
    browser.click("form.act button").await;
    browser.wait("document.querySelector('[role=status]')").await;
    let mut admin = site.admin().await;
    let sales = admin.get("/sales").await.ok(200);
    assert_eq!(sales["sales"][0]["stock"], 200);
    for page in ["sales", "refunds", "audit", "nodes", "sessions", "settings"] {
        browser.script(&format!("location.hash = '#/{page}'")).await;
        browser.wait("document.querySelector('h1')").await;
        browser.check().await;
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn p64_a_keyboard_two_tabs_no_network_and_the_way_back_make_one_claim() {
    let device = Device { width: 1280, lang: "en", look: Look::Light };
    let Some(mut browser) = Browser::start(device).await else { return };
    let site = Site::start();
    let first = site.sale(9, json!({ "limit_per_user": 9 })).await;
    browser.go(&site.url("/en/sign-in")).await;
    browser.wait("document.querySelector('#user')").await;
    browser.tab_to("#user").await;
    browser.press(&format!("ann{ENTER}")).await;
    browser.wait("document.querySelector('.who')").await;
    browser.go(&site.url(&format!("/en/sales/{first}"))).await;
    browser.wait("document.querySelector('#claim:enabled')").await;
    browser.tab_to("#claim").await;
    browser.press(ENTER).await;
    browser
        .wait("document.querySelector('.bill') && document.querySelector('button.primary')")
        .await;
    browser.tab_to("button.primary").await;
    browser.press(ENTER).await;
    let paid = "document.querySelector('.bill') && !document.querySelector('.deadline')";
    browser.wait(paid).await;
    browser.back().await;
    browser.wait("document.querySelector('.note.good')").await;
    let after = site.admin().await.get(&format!("/sales/{first}")).await.ok(200);
    assert_eq!((&after["paid"], &after["ordered"]), (&json!(1), &json!(0)), "{after}");

    // Without a network the page goes on asking with the same key.
    let second = site.sale(9, json!({ "limit_per_user": 9 })).await;
    let page = site.url(&format!("/en/sales/{second}"));
    browser.go(&page).await;
    browser.wait("document.querySelector('#claim:enabled')").await;
    browser.set_offline(true).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('#claim').innerText.includes('Checking')").await;
    browser.set_offline(false).await;
    browser.wait("document.querySelector('.bill')").await;
    // Another tab knows of it.
    let before = browser.new_tab().await;
    browser.go(&page).await;
    browser.wait("document.querySelector('.note.good')").await;
    browser.switch_to(&before).await;
    let after = site.admin().await.get(&format!("/sales/{second}")).await.ok(200);
    assert_eq!(after["ordered"], 1, "{after}");

    // A zoom of 200 % on a laptop, and a phone: nothing has to be scrolled sideways.
    for width in [640, 360] {
        browser.set_width(width).await;
        for path in ["", "mine", "sign-in", &format!("sales/{second}")] {
            browser.go(&site.url(&format!("/en/{path}"))).await;
            browser.wait("document.querySelector('footer')").await;
            let wide = browser.script("return document.documentElement.scrollWidth").await;
            assert!(wide.as_u64().expect("a number") <= u64::from(width), "{path}: {wide}");
        }
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn money_that_came_too_late_is_shown_to_go_back() {
    let device = Device { width: 360, lang: "zh", look: Look::Light };
    let Some(mut browser) = Browser::start(device).await else { return };
    let site = Site::start();
    let sale = site.sale(1, json!({ "pay_secs": 3 })).await;
    browser.go(&site.url("/zh/sign-in")).await;
    sign_in(&mut browser, "ann").await;
    browser.go(&site.url(&format!("/zh/sales/{sale}"))).await;
    browser.wait("document.querySelector('#claim:enabled')").await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.bill')").await;
    // Its time is up, and somebody else has it before the money arrives.
    browser.wait("!document.querySelector('.deadline')").await;
    let mut bob = Person::arrive(site.process.address, Some(site.token("buyer"))).await;
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(50));
    while bob.claim(&sale, 1).await.status != 201 {
        looks.tick().await;
    }
    let order =
        browser.script("return new URLSearchParams(location.search).get('record_id')").await;
    let order = order.as_str().expect("an order");
    let mut admin = site.admin().await;
    let late = admin.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    assert_eq!(late["outcome"], "refund_due");
    browser.reload().await;
    browser.wait("document.querySelector('.refund')").await;
    browser.check().await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn consoles_of_a_browser_share_one_stream_and_say_when_it_ends() {
    let device = Device { width: 1280, lang: "en", look: Look::Light };
    let Some(mut browser) = Browser::start(device).await else { return };
    let mut site = Site::start();
    let counts = "const Real = EventSource; window.EventSource = class extends Real { constructor(url) { \
                  super(url); localStorage.streams = Number(localStorage.streams || 0) + 1; } };";
    browser.on_every_page(counts).await;
    browser.go(&site.url("/en/console")).await;
    browser.wait("document.querySelector('#token')").await;
    browser.type_into("#token", &site.token("viewer")).await;
    browser.click("form button").await;
    let told =
        "[...document.querySelectorAll('.figures dd')].some((one) => /MB/.test(one.innerText))";
    browser.wait(told).await;
    let first = browser.new_tab().await;
    browser.on_every_page(counts).await;
    browser.go(&site.url("/en/console")).await;
    browser.wait(told).await;
    let sum = "return performance.getEntriesByType('resource').filter((one) => one.name.includes('/admin/samples')).length";
    assert_eq!(browser.script(sum).await, 1, "the list once");
    assert_eq!(browser.script("return localStorage.streams").await, "1", "one stream for both");
    browser.check().await;
    site.process.kill();
    browser.wait("document.querySelector('.stale')").await;
    browser.switch_to(&first).await;
    browser.wait("document.querySelector('.stale')").await;
}
