//! One intent, one claim, whatever happens to the browser, the network or the server; a button that
//! opens by the server's clock; texts that stay texts.

use serde_json::{Value, json};

use super::driver::{Browser, ENTER};
use super::{LIGHT, PHONE, Site, act, fits, in_console, open_sale, show, signed_in};
use crate::person::Person;

const ORDERED: &str = "document.querySelector('.ticket.ordered')";

#[tokio::test]
async fn p62_ones_own_claim_is_shown_and_never_sold_out() {
    let site = Site::start();
    let Some(mut browser) = signed_in(PHONE, &site).await else { return };
    let sale = site.sale(1, json!({ "flow": "hold" })).await;
    open_sale(&mut browser, &site, "zh", &sale).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.ticket.held')").await;
    // A browser that has forgotten everything but who it is: the answer names the claim.
    browser.script("localStorage.clear(); sessionStorage.clear()").await;
    open_sale(&mut browser, &site, "zh", &sale).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('.own a.button')").await;
}

#[tokio::test]
async fn p63_the_button_opens_by_the_servers_clock() {
    for wrong_ms in [-3_600_000_i64, 3_600_000] {
        let Some(mut browser) = Browser::start(LIGHT).await else { return };
        let site = Site::start();
        let opens_at = site.later(4_000).await;
        let sale = site.sale(1, json!({ "opens_at": opens_at })).await;
        browser.with_wrong_clock(wrong_ms).await;
        browser.set_time_zone("Asia/Kathmandu").await;
        browser.go(&site.url(&format!("/en/sales/{sale}"))).await;
        browser.wait("document.querySelector('#claim:disabled')").await;
        let mut buyer = site.buyer("bob").await;
        buyer.claim(&sale, 1).await.problem(425, "not_open_yet");
        browser.wait("document.querySelector('#claim:enabled')").await;
        // It was just seen enabled, so the server must have opened by now, or be about to.
        buyer.claim(&sale, 1).await.ok(201);
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn p64_double_clicks_and_reloads_make_one_claim() {
    let site = Site::start();
    let Some(mut browser) = signed_in(LIGHT, &site).await else { return };
    let sale = site.sale(9, json!({ "limit_per_user": 9 })).await;
    open_sale(&mut browser, &site, "en", &sale).await;
    let twice =
        "const c = document.querySelector('#claim'); c.click(); c.click(); location.reload()";
    browser.script(twice).await;
    browser.wait(ORDERED).await;
    let after = site.view(&sale).await;
    assert_eq!(after["ordered"], 1, "{after}");
}

#[tokio::test]
async fn p64_a_keyboard_two_tabs_no_network_and_the_way_back_make_one_claim() {
    let site = Site::start();
    let Some(mut browser) = Browser::start(LIGHT).await else { return };
    let first = site.sale(9, json!({ "limit_per_user": 9 })).await;
    browser.go(&site.url("/en/sign-in")).await;
    browser.wait("document.querySelector('#user')").await;
    browser.tab_to("#user").await;
    browser.press(&format!("ann{ENTER}")).await;
    browser.wait("document.querySelector('.who')").await;
    open_sale(&mut browser, &site, "en", &first).await;
    browser.tab_to("#claim").await;
    browser.press(ENTER).await;
    browser.wait(ORDERED).await;
    browser.tab_to(".buttons .primary").await;
    browser.press(ENTER).await;
    browser.wait("document.querySelector('.ticket.paid')").await;
    browser.back().await;
    browser.wait("document.querySelector('.own')").await;
    let after = site.view(&first).await;
    assert_eq!((&after["paid"], &after["ordered"]), (&json!(1), &json!(0)), "{after}");

    // Without a network the page goes on asking with the same key.
    let second = site.sale(9, json!({ "limit_per_user": 9 })).await;
    open_sale(&mut browser, &site, "en", &second).await;
    browser.set_offline(true).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('#claim').innerText.includes('Checking')").await;
    browser.set_offline(false).await;
    browser.wait(ORDERED).await;
    // Another tab knows of it.
    let before = browser.new_tab().await;
    browser.go(&site.url(&format!("/en/sales/{second}"))).await;
    browser.wait("document.querySelector('.own')").await;
    browser.switch_to(&before).await;
    let after = site.view(&second).await;
    assert_eq!(after["ordered"], 1, "{after}");

    // A zoom of 200 % on a laptop, and a phone: nothing has to be scrolled sideways.
    for width in [640, 360] {
        browser.set_width(width).await;
        for path in ["", "mine", "sign-in", &format!("sales/{second}")] {
            browser.go(&site.url(&format!("/en/{path}"))).await;
            browser.wait("document.querySelector('footer')").await;
            fits(&mut browser, width, path).await;
        }
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn p64_a_server_killed_between_claim_and_answer_makes_one_claim() {
    let mut site = Site::start();
    let Some(mut browser) = signed_in(LIGHT, &site).await else { return };
    let sale = site.sale(9, json!({ "limit_per_user": 9 })).await;
    // The claim is decided, and its answer never arrives: as when the server dies before it answers.
    let loses = "const real = window.fetch; window.fetch = async (where, how) => { \
                 const answer = await real(where, how); \
                 if (how?.method === 'POST' && String(where).endsWith('/claims') && !sessionStorage.lost) { \
                 sessionStorage.lost = 1; throw new TypeError('lost'); } return answer; };";
    browser.on_every_page(loses).await;
    open_sale(&mut browser, &site, "en", &sale).await;
    browser.click("#claim").await;
    browser.wait("sessionStorage.lost").await;
    let address = site.kill();
    browser.wait("document.querySelector('#claim').innerText.includes('Checking')").await;
    browser.wait("document.querySelector('.buy').innerText.includes('it counts once')").await;
    // Also for a page that is loaded anew meanwhile, there is only this one intent.
    site.start_again(address);
    browser.wait(ORDERED).await;
    let after = site.view(&sale).await;
    assert_eq!(after["ordered"], 1, "{after}");
}

#[tokio::test]
async fn an_unknown_outcome_is_checked_until_it_is_known() {
    let site = Site::start();
    let Some(mut browser) = signed_in(PHONE, &site).await else { return };
    let sale = site.sale(9, json!({ "limit_per_user": 9 })).await;
    let unsure = "const real = window.fetch; window.fetch = async (where, how) => { \
                  const answer = await real(where, how); \
                  if (how?.method !== 'POST' || !String(where).endsWith('/claims') || sessionStorage.sure) return answer; \
                  const body = JSON.stringify({ code: 'outcome_unknown', title: '?', detail: '?' }); \
                  return new Response(body, { status: 503 }); };";
    browser.on_every_page(unsure).await;
    open_sale(&mut browser, &site, "zh", &sale).await;
    browser.click("#claim").await;
    browser.wait("document.querySelector('#claim').innerText.includes('正在确认')").await;
    browser.check().await;
    browser.script("sessionStorage.sure = 1").await;
    browser.wait(ORDERED).await;
    let after = site.view(&sale).await;
    assert_eq!(after["ordered"], 1, "{after}");
}

#[tokio::test]
async fn p65_a_title_with_a_script_stays_text_on_every_page() {
    let evil = "<img src=x onerror=alert(1)><script>alert(2)</script>";
    let site = Site::start();
    let sale = site.sale(9, json!({ "title": evil })).await;
    let mut admin = site.admin().await;
    admin.put(&format!("/sales/{sale}/page"), json!({ "description": evil })).await.ok(200);
    let Some(mut browser) = signed_in(LIGHT, &site).await else { return };
    let order = site.buyer("ann").await.granted(&sale).await;
    let seen = format!("document.querySelector('main')?.innerText.includes({})", json!(evil));
    for path in ["", "mine", &format!("sales/{sale}"), &format!("pay?record_id={order}")] {
        browser.go(&site.url(&format!("/en/{path}"))).await;
        browser.wait(&seen).await;
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    let Some(mut browser) = in_console(LIGHT, &site, "admin").await else { return };
    for place in ["overview", "sales", &format!("sales/{sale}")] {
        show(&mut browser, place).await;
        browser.wait(&seen).await;
    }
    browser.script(&format!("location.hash = '#/sales/new?from={sale}'")).await;
    browser.wait("document.querySelector('.preview h3')?.innerText.includes('onerror')").await;
    let parts = "return document.querySelectorAll('main img, main script').length";
    assert_eq!(browser.script(parts).await, 0);
    show(&mut browser, &format!("sales/{sale}")).await;
    act(&mut browser, ".restock").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Calls that pages of the storefront make.
const BUYERS_CALLS: [&str; 17] = [
    "show_session",
    "begin_session",
    "end_session",
    "show_time",
    "list_sales",
    "show_sale",
    "list_sale_images",
    "claim_sale",
    "show_claim",
    "order_claim",
    "give_up_claim",
    "list_orders",
    "cancel_order",
    "pay_order",
    "begin_checkout",
    "list_order_refunds",
    "report_payment",
];

#[tokio::test]
async fn every_refusal_that_a_buyer_can_meet_has_plain_words() {
    let site = Site::start();
    let mut person = Person::arrive(site.process.address, None).await;
    let document = person.ask(axum::http::Method::GET, "/openapi.json", &[], "").await.ok(200);
    let mut codes = Vec::new();
    for (_, calls) in document["paths"].as_object().expect("paths") {
        for (_, call) in calls.as_object().expect("calls") {
            let id = call["operationId"].as_str().unwrap_or_default();
            if BUYERS_CALLS.contains(&id) {
                collect(&call["responses"], &mut codes);
            }
        }
    }
    assert!(codes.contains(&"sold_out".to_owned()), "the document names codes: {codes:?}");
    for lang in ["en", "zh"] {
        let page = person.ask(axum::http::Method::GET, &format!("/{lang}/"), &[], "").await.text;
        let facts =
            page.split("id=\"facts\">").nth(1).and_then(|rest| rest.split("</script>").next());
        let facts: Value = serde_json::from_str(facts.expect("facts")).expect("JSON");
        for code in &codes {
            assert!(facts["words"][format!("refusal_{code}")].is_string(), "{lang}: {code}");
        }
    }
}

/// The codes that the answers of a call have as examples.
fn collect(responses: &Value, codes: &mut Vec<String>) {
    for response in responses.as_object().expect("answers").values() {
        let examples = &response["content"]["application/problem+json"]["examples"];
        codes.extend(examples.as_object().into_iter().flatten().map(|(code, _)| code.clone()));
    }
}
