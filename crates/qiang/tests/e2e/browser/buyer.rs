//! What a buyer does on the storefront, from the first look to the money that comes back.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::json;

use super::driver::Browser;
use super::{LIGHT, PHONE, Site, fits, open_sale, sign_in, signed_in};

/// Requests until one can buy.
const MAX_REQUESTS: u64 = 6;
/// Bytes on the wire until one can buy, and those of our own script.
const MAX_BYTES: u64 = 60 << 10;
const MAX_OWN_BYTES: u64 = 15 << 10;
const PAID: &str = "document.querySelector('.ticket.paid')";

#[tokio::test]
async fn a_buyer_gets_pays_and_finds_again() {
    for device in [LIGHT, PHONE] {
        let Some(mut browser) = Browser::start(device).await else { return };
        let (site, lang) = (Site::start(), device.lang);
        browser.go(&site.url(&format!("/{lang}/"))).await;
        browser.wait("document.querySelector('.empty h1')").await;
        browser.check().await;
        let steps = json!({ "price_steps": [{ "after_sold": 3, "price_cents": 99999 }] });
        let sale = site.sale(5, steps).await;
        browser.go(&site.url(&format!("/{lang}/"))).await;
        browser.wait("document.querySelector('.card')").await;
        browser.check().await;
        browser.click(".card a").await;
        browser.wait("document.querySelector('#claim:enabled')").await;
        browser.check().await;
        browser.click("#claim").await;
        sign_in(&mut browser, "ann").await;
        browser.wait("document.querySelector('#claim:enabled')").await;
        browser.click("#claim").await;
        browser.wait("document.querySelector('.ticket.ordered')").await;
        browser.check().await;
        browser.click(".buttons .primary").await;
        browser.wait(PAID).await;
        browser.check().await;
        let paid = site.view(&sale).await;
        assert_eq!((&paid["paid"], &paid["ordered"]), (&json!(1), &json!(0)));
        browser.go(&site.url(&format!("/{lang}/mine"))).await;
        browser.wait("document.querySelector('.pill.paid')").await;
        browser.check().await;
        // The page of the sale knows what its buyer has.
        browser.go(&site.url(&format!("/{lang}/sales/{sale}"))).await;
        browser.wait("document.querySelector('.own')").await;
        browser.check().await;
        fits(&mut browser, device.width, "the sale").await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_page_of_a_sale_is_small() {
    let Some(mut browser) = Browser::start(LIGHT).await else { return };
    let site = Site::start();
    let sale = site.sale(5, json!({})).await;
    open_sale(&mut browser, &site, "en", &sale).await;
    let entries = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))";
    let sum = |of: &str| {
        format!("return {entries}{of}.reduce((sum, one) => sum + one.encodedBodySize, 0)")
    };
    let asked = browser.script(&format!("return {entries}.length")).await;
    assert!(asked.as_u64().expect("a number") <= MAX_REQUESTS, "{asked}");
    let bytes = browser.script(&sum("")).await.as_u64().expect("a number");
    assert!(bytes <= MAX_BYTES, "{bytes}");
    let own = browser.script(&sum(".filter((one) => one.name.endsWith('/store.js'))")).await;
    let own = own.as_u64().expect("a number");
    assert!(own > 0 && own <= MAX_OWN_BYTES, "{own}");
}

#[tokio::test]
async fn a_hold_is_ordered_cancelled_or_given_back() {
    let site = Site::start();
    let Some(mut browser) = signed_in(PHONE, &site).await else { return };
    let sale = site.sale(2, json!({ "flow": "hold" })).await;
    open_sale(&mut browser, &site, "zh", &sale).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.ticket.held')").await;
    browser.check().await;
    // What is held stands in the list, though it is no order yet.
    browser.go(&site.url("/zh/mine")).await;
    browser.wait("document.querySelector('.pill.held')").await;
    browser.click(".entry a").await;
    browser.wait("document.querySelector('.ticket.held')").await;
    browser.click(".buttons .primary").await;
    browser.wait("document.querySelector('.ticket.ordered')").await;
    browser.click(".buttons .plain").await;
    browser.wait("document.querySelector('.ticket.released')").await;
    browser.check().await;
    open_sale(&mut browser, &site, "zh", &sale).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.ticket.held')").await;
    browser.click(".buttons .plain").await;
    browser.wait("document.querySelector('.ticket.released')").await;
    let after = site.view(&sale).await;
    assert_eq!(after["available"], 2, "{after}");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_sold_out_sale_says_that_one_may_come_back() {
    let site = Site::start();
    let sale = site.sale(1, json!({})).await;
    let mut bob = site.buyer("bob").await;
    let order = bob.granted(&sale).await;
    let Some(mut browser) = signed_in(LIGHT, &site).await else { return };
    open_sale(&mut browser, &site, "en", &sale).await;
    browser
        .wait("document.querySelector('.buy').innerText.includes('may still give one back')")
        .await;
    browser.click("#claim").await;
    // Refused in plain words, not in those for programs.
    browser
        .wait("document.querySelector('.note.bad')?.innerText.includes('Somebody may still')")
        .await;
    browser.check().await;
    bob.post(&format!("/orders/{order}/cancel"), json!({})).await.ok(200);
    browser.wait("document.querySelector('.pill.open')").await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.ticket.ordered')").await;
    browser.click(".buttons .primary").await;
    browser.wait(PAID).await;
    // Nothing is left, and nobody can give anything back.
    browser.script("localStorage.clear()").await;
    open_sale(&mut browser, &site, "en", &sale).await;
    browser.wait("document.querySelector('.buy').innerText.includes('sold and paid')").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn money_that_came_too_late_is_shown_to_go_back() {
    let site = Site::start();
    let Some(mut browser) = signed_in(PHONE, &site).await else { return };
    let order = site.late_money("ann").await;
    browser.go(&site.url(&format!("/pay?record_id={order}"))).await;
    browser.wait("document.querySelector('.refund')").await;
    browser.check().await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_buyer_pays_at_the_provider_and_comes_back() {
    let provider = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = provider.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in provider.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let _read = stream.read(&mut [0; 4096]);
            let page = "<!doctype html><title>pay</title><p id=provider>Pay here";
            let _sent = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                page.len()
            );
        }
    });
    let url = format!(
        "http://{address}/start?order={{order_id}}&amount={{amount_cents}}&return={{return_url}}&time={{timestamp}}&signature={{signature}}"
    );
    let site = Site::with(&[
        ("QIANG_PAYMENTS__CHECKOUT_URL", &url),
        ("QIANG_PAYMENTS__SANDBOX", "false"),
        ("QIANG_AUTH__SANDBOX", "true"),
        ("QIANG_HTTP__PUBLIC_ORIGIN", "http://127.0.0.1"),
    ]);
    let Some(mut browser) = signed_in(LIGHT, &site).await else { return };
    let sale = site.sale(1, json!({})).await;
    open_sale(&mut browser, &site, "en", &sale).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.ticket.ordered')").await;
    browser.click(".buttons .primary").await;
    browser.wait("document.querySelector('#provider')").await;
    let back = browser.script("return new URLSearchParams(location.search).get('return')").await;
    let order = browser.script("return new URLSearchParams(location.search).get('order')").await;
    let (back, order) = (back.as_str().expect("an address"), order.as_str().expect("an order"));
    let path = back.strip_prefix("http://127.0.0.1").expect("the shop's own address");
    let [body, time, signature] = site.callback("pay-1", order).await;
    let payment = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE, body);
    let query = format!("&payment={payment}&timestamp={time}&signature={signature}");
    browser.go(&site.url(&format!("{path}{query}"))).await;
    browser.wait(PAID).await;
    assert_eq!(site.view(&sale).await["paid"], 1);
    let address = browser.script("return location.search").await;
    assert_eq!(
        address,
        format!("?record_id={order}"),
        "the signature does not stay in the address"
    );
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_empty_shop_opens_a_demo_with_a_crowd() {
    let Some(mut browser) = Browser::start(LIGHT).await else { return };
    let site = Site::start();
    browser.go(&site.url("/en/")).await;
    browser.wait("document.querySelector('#demo:enabled')").await;
    browser.click("#demo").await;
    browser
        .wait("document.querySelector('#claim:disabled') && document.querySelector('.countdown')")
        .await;
    browser.check().await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
