//! Pictures of every page, for people to look at: `cargo xtask screenshots FOLDER`. Without a folder to
//! write to there is nothing to do.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::driver::{Browser, Device, Look};
use super::{Site, sign_in};
use crate::person::Person;

/// Where the pictures go.
const FOLDER: &str = "QIANG_SCREENSHOTS";

#[tokio::test]
async fn pictures_are_taken_where_asked() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).expect("a folder");
    for (lang, look, width) in [
        ("en", Look::Light, 1280),
        ("zh", Look::Dark, 1280),
        ("en", Look::Dark, 360),
        ("zh", Look::Light, 360),
        ("en", Look::Light, 640),
    ] {
        let device = Device { width, lang, look };
        let Some(browser) = Browser::start(device).await else { return };
        let shade = if look == Look::Dark { "dark" } else { "light" };
        let name = format!("{lang}-{shade}-{width}");
        Camera { browser, folder: &folder, name, lang, pictures: 0 }.shoot().await;
    }
}

struct Camera<'a> {
    browser: Browser,
    folder: &'a Path,
    name: String,
    lang: &'static str,
    pictures: u32,
}

impl Camera<'_> {
    async fn take(&mut self, what: &str) {
        self.pictures += 1;
        let file = format!("{:02}-{what}-{}.png", self.pictures, self.name);
        let picture = self.browser.picture().await;
        std::fs::write(self.folder.join(file), picture).expect("written");
    }

    async fn see(&mut self, url: &str, wait: &str, what: &str) {
        self.browser.go(url).await;
        self.browser.wait(wait).await;
        self.take(what).await;
    }

    async fn shoot(&mut self) {
        let (site, lang) = (Site::start(), self.lang);
        let url = |path: &str| site.url(&format!("/{lang}/{path}"));
        self.see(&url(""), "document.querySelector('.empty h1')", "empty-shop").await;
        self.see(&url("sign-in"), "document.querySelector('#user')", "sign-in").await;
        sign_in(&mut self.browser, "ann").await;
        let soon =
            json!({ "title": "Aurora Keyboard 极光键盘", "opens_at": site.later(3_600_000).await });
        let soon = site.sale(500, soon).await;
        let steps = json!({
            "title": "Concert ticket 演唱会门票", "limit_per_user": 2, "pay_secs": 30,
            "price_steps": [{ "after_sold": 50, "price_cents": 12_900 }],
        });
        let open = site.sale(100, steps).await;
        let hold = site.sale(5, json!({ "title": "Signed print", "flow": "hold" })).await;
        let gone = site.sale(1, json!({ "title": "Last one 最后一件" })).await;
        let mut other = Person::arrive(site.process.address, Some(site.token("buyer"))).await;
        other.claim(&gone, 1).await.ok(201);
        let text = json!({ "description": "Hall 3, doors at 19:00.\n三号馆，19:00 入场。" });
        site.admin().await.put(&format!("/sales/{open}/page"), text).await.ok(200);
        let enabled = "document.querySelector('#claim:enabled')";
        self.see(&url(""), "document.querySelectorAll('.card').length > 3", "sales").await;
        let before = "document.querySelector('#claim:disabled')";
        self.see(&url(&format!("sales/{soon}")), before, "before-opening").await;
        self.see(&url(&format!("sales/{gone}")), enabled, "sold-out").await;
        self.see(&url(&format!("sales/{hold}")), enabled, "hold").await;
        self.see(&url(&format!("sales/{open}")), enabled, "open").await;
        self.browser.click("#claim").await;
        self.browser.wait("document.querySelector('.bill')").await;
        self.take("granted-30-s-left").await;
        self.see(&url(&format!("sales/{open}")), "document.querySelector('.note.good')", "has-one")
            .await;
        self.see(&url("mine"), "document.querySelector('.pill')", "orders").await;
        self.browser.click(".entry a").await;
        let over = "document.querySelector('.bill') && !document.querySelector('.deadline')";
        self.browser.wait(over).await;
        self.take("expired").await;
        self.console(&site, &open).await;
    }

    async fn console(&mut self, site: &Site, sale: &str) {
        let address = format!("/{}/console", self.lang);
        let leave = "return fetch('/api/v1/session', { method: 'DELETE' }).then(() => true)";
        self.browser.script(leave).await;
        self.browser.go(&site.url(&address)).await;
        self.browser.wait("document.querySelector('#token')").await;
        self.take("console-sign-in").await;
        self.browser.type_into("#token", &site.token("admin")).await;
        self.browser.click("form button").await;
        let told = "document.querySelector('.plot canvas') && [...document.querySelectorAll('.figures dd')].some((one) => /MB/.test(one.innerText))";
        self.browser.wait(told).await;
        // A rush: claims while somebody watches.
        let mut crowd = Person::arrive(site.process.address, Some(site.token("buyer"))).await;
        for _ in 0..400 {
            let _answer = crowd.post(&format!("/sales/{sale}/claims"), Value::Null).await;
        }
        let rush = "[...document.querySelectorAll('.legend b')].some((one) => Number.parseInt(one.innerText) > 0)";
        self.browser.wait(rush).await;
        self.take("console-overview").await;
        let pages = [
            (format!("#/sales/{sale}"), "sale-live"),
            ("#/sales".to_owned(), "sales"),
            ("#/sales/new".to_owned(), "new-sale"),
            ("#/refunds".to_owned(), "refunds"),
            ("#/audit".to_owned(), "audit"),
            ("#/nodes".to_owned(), "nodes"),
            ("#/settings".to_owned(), "settings"),
        ];
        for (hash, what) in pages {
            self.browser.script(&format!("location.hash = '{hash}'")).await;
            self.browser.wait("document.querySelector('h1')?.innerText && !document.querySelector('.loading')").await;
            if what == "sale-live" {
                self.browser.wait("document.querySelector('.plot canvas')").await;
            }
            if what == "audit" {
                self.browser.click("button.primary").await;
                self.browser.wait("document.querySelector('.panel .ok, .panel .wrong')").await;
            }
            self.take(&format!("console-{what}")).await;
        }
    }
}
