//! Pictures of every page, for people to look at: `cargo xtask screenshots FOLDER`. Without a folder to
//! write to there is nothing to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use super::driver::{Browser, Device, Look};
use super::{Site, open_sale, show, sign_in};
use crate::person::Person;

/// Where the pictures go.
const FOLDER: &str = "QIANG_SCREENSHOTS";
/// Between two buyers of a crowd.
const EVERY: Duration = Duration::from_millis(20);
/// A phone, a screen, and the same screen at a zoom of 200 %.
const WIDTHS: [u32; 3] = [360, 1280, 640];
/// What a picture of goods may look like: a page that is nothing but colours.
const GOODS: &str = "data:text/html,<body style='margin:0;height:100vh;background:radial-gradient(circle at 30% 40%25,%23ffd28a,transparent 40%25),\
                     radial-gradient(circle at 70%25 60%25,%23e0527a,transparent 50%25),linear-gradient(135deg,%23312a6c,%23852d7a)'>";

#[tokio::test]
async fn pictures_are_taken_where_asked() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).expect("a folder");
    let (site, mut devices) = (Site::start(), Vec::new());
    for width in WIDTHS {
        for (lang, look) in
            [("en", Look::Light), ("zh", Look::Light), ("en", Look::Dark), ("zh", Look::Dark)]
        {
            // A zoom is the same in every colour.
            if width != 640 || look == Look::Light {
                devices.push(Device { width, lang, look });
            }
        }
    }
    for device in &devices {
        let Some(mut camera) = Camera::start(*device, &folder).await else { return };
        camera.see(&site, "", "document.querySelector('.empty h1')", "01-empty-shop").await;
    }
    let Some(sales) = Sales::open(&site).await else { return };
    for device in &devices {
        let Some(mut camera) = Camera::start(*device, &folder).await else { return };
        camera.storefront(&site, &sales).await;
        camera.console(&site, &sales).await;
    }
}

/// What there is to see.
struct Sales {
    soon: String,
    open: String,
    short: String,
    hold: String,
    gone: String,
}

impl Sales {
    async fn open(site: &Site) -> Option<Self> {
        let soon = json!({ "title": "Aurora keyboard 极光键盘", "price_cents": 49_900, "opens_at": site.later(5_000_000).await });
        let open = json!({
            "title": "Night concert 夜场演唱会", "limit_per_user": 20, "pay_secs": 900,
            "price_steps": [{ "after_sold": 1_000, "price_cents": 12_900 }, { "after_sold": 1_500, "price_cents": 15_900 }],
        });
        let sales = Self {
            soon: site.sale(500, soon).await,
            open: site.sale(2_000, open).await,
            short: site.sale(100, json!({ "title": "Tea bowl 手作茶碗", "pay_secs": 30 })).await,
            hold: site.sale(20, json!({ "title": "Signed print 签名海报", "flow": "hold" })).await,
            gone: site.sale(1, json!({ "title": "Last ticket 最后一张" })).await,
        };
        site.buyer("bob").await.claim(&sales.gone, 1).await.ok(201);
        let over = site.sale(10, json!({ "title": "Morning bread 晨间面包" })).await;
        let mut admin = site.admin().await;
        admin.post(&format!("/sales/{over}/close"), Value::Null).await.ok(200);
        let text = json!({ "description": "Hall 3, doors at 19:00. Bring the number of your order.\n三号馆，19:00 入场，凭订单编号入座。" });
        admin.put(&format!("/sales/{}/page", sales.open), text).await.ok(200);
        let mut browser =
            Browser::start(Device { width: 640, lang: "en", look: Look::Light }).await?;
        browser.go(GOODS).await;
        let (path, picture) =
            (format!("/api/v1/sales/{}/image", sales.open), browser.picture().await);
        admin.ask(Method::PUT, &path, &[("content-type", "image/png")], picture).await.ok(200);
        site.late_money("eve").await;
        Some(sales)
    }
}

struct Camera<'a> {
    browser: Browser,
    folder: &'a Path,
    device: Device,
    name: String,
}

impl<'a> Camera<'a> {
    async fn start(device: Device, folder: &'a Path) -> Option<Self> {
        let browser = Browser::start(device).await?;
        let shade = if device.look == Look::Dark { "dark" } else { "light" };
        let name = format!("{}-{shade}-{}", device.lang, device.width);
        Some(Self { browser, folder, device, name })
    }

    async fn take(&mut self, what: &str) {
        let picture = self.browser.picture().await;
        let file = self.folder.join(format!("{what}-{}.png", self.name));
        std::fs::write(file, picture).expect("written");
    }

    async fn see(&mut self, site: &Site, path: &str, wait: &str, what: &str) {
        self.browser.go(&site.url(&format!("/{}/{path}", self.device.lang))).await;
        self.browser.wait(wait).await;
        self.take(what).await;
    }

    async fn storefront(&mut self, site: &Site, sales: &Sales) {
        let (enabled, disabled) = (
            "document.querySelector('#claim:enabled')",
            "document.querySelector('#claim:disabled')",
        );
        self.see(site, "", "document.querySelectorAll('.card').length > 5", "02-sales").await;
        self.see(site, &format!("sales/{}", sales.soon), disabled, "03-before-opening").await;
        self.see(site, &format!("sales/{}", sales.open), enabled, "04-open").await;
        self.see(site, &format!("sales/{}", sales.gone), enabled, "05-sold-out").await;
        self.see(site, "sign-in", "document.querySelector('#user')", "06-sign-in").await;
        sign_in(&mut self.browser, &self.name.replace("-light", "").replace("-dark", "d")).await;
        open_sale(&mut self.browser, site, self.device.lang, &sales.short).await;
        self.browser.click("#claim").await;
        self.browser.wait("document.querySelector('.ticket.ordered .deadline')").await;
        self.take("08-pay-at-30-s-left").await;
        let address = self.browser.script("return location.href").await;
        open_sale(&mut self.browser, site, self.device.lang, &sales.hold).await;
        self.browser.click("#claim").await;
        self.browser.wait("document.querySelector('.ticket.held')").await;
        self.take("07-granted-hold").await;
        open_sale(&mut self.browser, site, self.device.lang, &sales.open).await;
        self.browser.click("#claim").await;
        self.browser.wait("document.querySelector('.ticket.ordered')").await;
        self.take("07-granted").await;
        self.see(
            site,
            &format!("sales/{}", sales.open),
            "document.querySelector('.own')",
            "11-has-one",
        )
        .await;
        self.see(site, "mine", "document.querySelectorAll('.entry').length > 2", "10-orders").await;
        self.browser.go(address.as_str().expect("an address")).await;
        self.browser.wait("document.querySelector('.ticket.released')").await;
        self.take("09-expired").await;
    }

    async fn console(&mut self, site: &Site, sales: &Sales) {
        let leave = "return fetch('/api/v1/session', { method: 'DELETE' }).then(() => true)";
        self.browser.script(leave).await;
        self.see(site, "console", "document.querySelector('#token')", "20-console-sign-in").await;
        self.browser.type_into("#token", &site.token("boss", "admin")).await;
        self.browser.click("form button").await;
        self.browser.wait("document.querySelector('.plot canvas')").await;
        let crowd = rush(site, sales, &self.name);
        let busy = "Number.parseInt(document.querySelector('.legend b').innerText) > 4";
        self.browser.wait(busy).await;
        self.take("21-console-overview").await;
        crowd.abort();
        let places = [
            ("sales", "22-console-sales"),
            (&format!("sales/{}", sales.open), "23-console-sale-live"),
            ("sales/new", "24-console-new-sale"),
            ("orders", "25-console-orders"),
            (&format!("report/{}", sales.open), "33-console-report"),
            ("refunds", "26-console-refunds"),
            ("activity", "32-console-activity"),
            ("reviews", "27-console-reviews"),
            ("nodes", "29-console-nodes"),
            ("sessions", "30-console-sessions"),
            ("settings", "31-console-settings"),
            ("audit", "28-console-audit"),
        ];
        for (place, what) in places {
            show(&mut self.browser, place).await;
            if place.starts_with("report/") {
                self.browser.wait("document.querySelector('.plot canvas')").await;
            }
            if place == "audit" {
                self.browser.click("#run-audit").await;
                self.browser.wait("document.querySelector('.verdict')").await;
            }
            if place == "sales/new" {
                self.browser.type_into("#title", "Night concert 夜场演唱会").await;
            }
            self.take(what).await;
        }
    }
}

/// A crowd of buyers who come one after the other, while somebody watches.
fn rush(site: &Site, sales: &Sales, name: &str) -> tokio::task::JoinHandle<()> {
    let out = site.folder.path().join(format!("{name}.csv"));
    let file = out.to_str().expect("UTF-8");
    let mint =
        crate::process::run(site.folder.path(), &["tokens", "--count", "100", "--out", file]);
    assert_eq!(mint.code, Some(0), "{}", mint.stderr);
    let text = std::fs::read_to_string(&out).expect("readable");
    let (address, sale) = (site.process.address, sales.open.clone());
    tokio::spawn(async move {
        let mut pace = tokio::time::interval(EVERY);
        for line in text.lines().skip(1).cycle() {
            let token = line.rsplit(',').next().unwrap_or_default().to_owned();
            let mut buyer = Person::arrive(address, Some(token)).await;
            let _answer = buyer.claim(&sale, 1).await;
            pace.tick().await;
        }
    })
}
