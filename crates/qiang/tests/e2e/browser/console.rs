//! The console as a whole: who may see and do what, every page on every screen, one stream for all tabs.

use serde_json::json;

use super::driver::{Browser, Device, Look};
use super::{LIGHT, PHONE, Site, fits, in_console, show};

const PLACES: [&str; 10] = [
    "overview", "sales", "orders", "refunds", "reviews", "audit", "activity", "nodes", "sessions",
    "settings",
];
/// Bytes on the wire of all scripts of the console.
const MAX_SCRIPT: u64 = 100 << 10;

#[tokio::test]
async fn every_page_of_the_console_is_for_everybody_and_fits() {
    for device in [LIGHT, PHONE, Device { width: 640, lang: "zh", look: Look::Light }] {
        let site = Site::start();
        let sale = site.sale(10, json!({})).await;
        site.late_money("ann").await;
        let Some(mut browser) = in_console(device, &site, "admin").await else { return };
        let own = format!("sales/{sale}");
        for place in PLACES.into_iter().chain(["sales/new", &own]) {
            show(&mut browser, place).await;
            browser.check().await;
            fits(&mut browser, device.width, place).await;
        }
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_viewer_sees_everything_and_no_button_to_change_it() {
    let site = Site::start();
    let sale = site.sale(10, json!({})).await;
    site.late_money("ann").await;
    let Some(mut browser) = in_console(LIGHT, &site, "viewer").await else { return };
    let own = format!("sales/{sale}");
    for place in PLACES.into_iter().chain([&*own]) {
        show(&mut browser, place).await;
        browser.wait("document.querySelector('.viewer')").await;
        // Looking at another span, searching, copying a command: no change.
        let changes = "return [...document.querySelectorAll('main button, main a.button, main input')]\
                       .filter((one) => !one.closest('.choice, .curl, .search') && !one.matches('.link'))\
                       .map((one) => one.outerHTML)";
        assert_eq!(browser.script(changes).await, json!([]), "{place}");
    }
    let forced = format!(
        "return fetch('/api/v1/sales/{sale}/close', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: '{{}}' }}).then((answer) => answer.status)"
    );
    assert_eq!(browser.script(&forced).await, 403);
}

#[tokio::test]
async fn the_console_is_small_and_not_for_buyers() {
    let site = Site::start();
    let Some(mut browser) = in_console(LIGHT, &site, "viewer").await else { return };
    let scripts = "return performance.getEntriesByType('resource').filter((one) => one.name.endsWith('.js'))\
                   .reduce((sum, one) => sum + one.encodedBodySize, 0)";
    let bytes = browser.script(scripts).await.as_u64().expect("a number");
    assert!(bytes > 0 && bytes <= MAX_SCRIPT, "{bytes}");
    browser.go(&site.url("/en/sign-in")).await;
    browser.script("return fetch('/api/v1/session', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{\"user_id\":\"ann\"}' }).then(() => true)").await;
    browser.go(&site.url("/en/console")).await;
    browser.wait("document.querySelector('main').innerText.includes('ann')").await;
    let closed = "return document.querySelectorAll('.side, .plot').length";
    assert_eq!(browser.script(closed).await, 0);
    browser.check().await;
}

#[tokio::test]
async fn consoles_of_a_browser_share_one_stream_and_say_when_it_ends() {
    let Some(mut browser) = Browser::start(LIGHT).await else { return };
    let mut site = Site::start();
    // Streams that are open, over all tabs.
    let counts = "const count = (by) => { localStorage.streams = Number(localStorage.streams || 0) + by; }; \
                  const Real = EventSource; window.EventSource = class extends Real { \
                  constructor(url) { super(url); count(1); } close() { super.close(); count(-1); } };";
    browser.on_every_page(counts).await;
    browser.go(&site.url("/en/console")).await;
    browser.wait("document.querySelector('#token')").await;
    browser.type_into("#token", &site.token("eve", "viewer")).await;
    browser.click("form button").await;
    let told =
        "[...document.querySelectorAll('.figures dd')].some((one) => /MB/.test(one.innerText))";
    browser.wait(told).await;
    let first = browser.new_tab().await;
    browser.on_every_page(counts).await;
    browser.go(&site.url("/en/console")).await;
    browser.wait(told).await;
    assert_eq!(browser.script("return localStorage.streams").await, "1", "one stream for both");
    browser.check().await;
    site.kill();
    browser.wait("document.querySelector('.stale')").await;
    browser.switch_to(&first).await;
    browser.wait("document.querySelector('.stale')").await;
}
