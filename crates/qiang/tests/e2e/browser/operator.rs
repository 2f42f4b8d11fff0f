//! A whole sale from the console, without a terminal.

use serde_json::{Value, json};

use super::driver::{ENTER, ESCAPE};
use super::{LIGHT, Site, act, in_console, show};

/// The smallest PNG there is.
const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

#[tokio::test]
async fn a_whole_sale_is_run_from_the_console() {
    let site = Site::start();
    let Some(mut browser) = in_console(LIGHT, &site, "admin").await else { return };
    show(&mut browser, "sales/new").await;
    for (field, text) in [("#title", "Concert"), ("#sku", "c1")] {
        browser.type_into(field, text).await;
    }
    // A step that costs less than the price is doubted before the server refuses it.
    browser.click(".steps-form > button").await;
    browser.type_into("#after-0", "50").await;
    browser.type_into("#price-0", "12").await;
    browser.wait("document.querySelector('.checks .doubt')").await;
    browser.type_into("#price-0", "9.00").await;
    browser.wait("!document.querySelector('.checks .doubt')").await;
    browser.check().await;
    browser.wait("document.querySelector('.preview h3').innerText === 'Concert'").await;
    browser.click("#new-sale button.primary").await;
    browser.wait("document.querySelector('.restock')").await;
    browser.check().await;
    let sales = site.admin().await.get("/sales").await.ok(200);
    let sale = &sales["sales"][0];
    assert_eq!((&sale["title"], &sale["stock"]), (&json!("Concert"), &json!(100)));
    assert_eq!(sale["price_steps"], json!([{ "after_sold": 50, "price_cents": 12_900 }]));
    let id = sale["id"].as_str().expect("an id").to_owned();

    act(&mut browser, ".restock").await;
    assert_eq!(site.view(&id).await["stock"], 200);
    act(&mut browser, ".make-current").await;
    let current = site.admin().await.get("/current-sale").await.ok(200);
    assert_eq!(current["id"], json!(id));

    browser.type_into("#description", "Hall 3").await;
    browser.click("#texts button").await;
    browser.wait("document.querySelector('[role=status]')").await;
    let picture = site.folder.path().join("picture.png");
    std::fs::write(&picture, PNG).expect("written");
    browser.type_into("#image", picture.to_str().expect("UTF-8")).await;
    browser.wait("document.querySelector('.thumb')").await;
    let page = site.admin().await.get(&format!("/sales/{id}/page")).await.ok(200);
    assert_eq!(page["description"], "Hall 3");
    assert!(page["image"].is_string());

    browser.click(".clone").await;
    browser.wait("document.querySelector('#title')?.value === 'Concert' && document.querySelector('#after-0')?.value === '50'").await;
    browser.click("#new-sale button.primary").await;
    browser
        .wait(&format!("document.querySelector('.restock') && !location.hash.includes('{id}')"))
        .await;
    let sales = site.admin().await.get("/sales").await.ok(200);
    assert_eq!(sales["sales"].as_array().map(Vec::len), Some(2));

    show(&mut browser, &format!("sales/{id}")).await;
    act(&mut browser, ".close").await;
    assert_eq!(site.view(&id).await["status"], "closed");
    act(&mut browser, ".clear").await;
    let cleared = site.admin().await.get(&format!("/sales/{id}")).await;
    assert!(cleared.text.contains("cleared"), "{}", cleared.text);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_action_is_asked_for_shown_as_curl_and_done_by_keyboard() {
    let site = Site::start();
    let sale = site.sale(10, json!({})).await;
    let Some(mut browser) = in_console(LIGHT, &site, "admin").await else { return };
    show(&mut browser, &format!("sales/{sale}")).await;
    browser.wait("document.querySelector('.restock')").await;
    browser.tab_to(".restock").await;
    browser.press(ENTER).await;
    browser.wait("document.querySelector('dialog[open]')").await;
    browser.check().await;
    browser.press(ESCAPE).await;
    browser.wait("!document.querySelector('dialog')").await;
    browser.wait("document.activeElement.matches('.restock')").await;
    browser.press(ENTER).await;
    browser.wait("document.querySelector('dialog[open]')").await;
    browser.tab_to("dialog summary").await;
    browser.press(ENTER).await;
    let curl = browser.script("return document.querySelector('dialog pre').innerText").await;
    let curl = curl.as_str().expect("a text");
    let expected = format!("/api/v1/sales/{sale}/restock'");
    assert!(curl.starts_with("curl -X POST") && curl.contains(&expected), "{curl}");
    assert!(curl.contains("{\"units\":100}"), "{curl}");
    browser.tab_to("#units").await;
    browser.press(ENTER).await;
    browser.wait("!document.querySelector('dialog')").await;
    assert_eq!(site.view(&sale).await["stock"], 110);
    let visible = "const one = document.querySelector('.restock'); one.focus(); return getComputedStyle(one).outlineStyle";
    assert_eq!(browser.script(visible).await, "solid", "the focus can be seen");
}

#[tokio::test]
async fn money_goes_back_and_orders_are_looked_at() {
    let site = Site::start();
    let order = site.late_money("ann").await;
    site.late_money("cid").await;
    site.late_money("dan").await;
    let (first, second) = (site.sale(1, json!({})).await, site.sale(1, json!({})).await);
    let (one, other) = (
        site.buyer("ann").await.granted(&first).await,
        site.buyer("bob").await.granted(&second).await,
    );
    site.money_arrives("twice", &one).await;
    site.money_arrives("twice", &other).await;
    let Some(mut browser) = in_console(LIGHT, &site, "admin").await else { return };
    show(&mut browser, "refunds").await;
    browser.wait(&format!("document.querySelector('.rows').innerText.includes('{order}')")).await;
    browser.check().await;
    act(&mut browser, ".settle").await;
    browser.wait("document.querySelectorAll('.settle').length === 2").await;
    // The others together.
    browser.click(".many .all").await;
    act(&mut browser, ".settle-many").await;
    browser.wait("!document.querySelector('.rows')").await;
    let settled = site.admin().await.get("/admin/refunds?status=settled").await.ok(200);
    assert_eq!(settled["refunds"].as_array().map(Vec::len), Some(3));
    show(&mut browser, "reviews").await;
    browser.wait("document.querySelector('.end-review')").await;
    browser.check().await;
    act(&mut browser, ".end-review").await;
    let ended = site.admin().await.get("/admin/reviews?status=ended").await.ok(200);
    assert_eq!(ended["reviews"][0]["order_id"], json!(other));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_order_is_found_refunded_and_who_did_it_is_known() {
    let site = Site::start();
    let sale = site.sale(3, json!({})).await;
    let mut ann = site.buyer("ann").await;
    let order = ann.granted(&sale).await;
    let other = site.buyer("bob").await.granted(&sale).await;
    ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    let Some(mut browser) = in_console(LIGHT, &site, "admin").await else { return };
    show(&mut browser, "orders").await;
    browser.wait(&format!("document.querySelector('.rows')?.innerText.includes('{other}')")).await;
    browser.type_into("#user", "ann").await;
    browser.click(".search button").await;
    browser.wait("location.hash.includes('user=ann') && document.querySelectorAll('.rows tbody tr').length === 1").await;
    browser.check().await;
    act(&mut browser, ".refund").await;
    browser.wait("document.querySelector('.rows .pill.refunded')").await;
    let after = site.view(&sale).await;
    assert_eq!((&after["paid"], &after["available"]), (&json!(0), &json!(2)), "{after}");
    browser.script("location.hash = '#/orders?kind=claims&state=ordered'").await;
    browser.wait(&format!("document.querySelector('.rows')?.innerText.includes('{other}')")).await;
    show(&mut browser, "activity").await;
    browser.wait("document.querySelector('.rows')?.innerText.includes('/refund')").await;
    browser.wait(&format!("document.querySelector('.rows').innerText.includes('{order}')")).await;
    browser.check().await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_session_is_ended_and_all_books_are_compared() {
    let site = Site::start();
    let sale = site.sale(3, json!({})).await;
    site.buyer("ann").await.granted(&sale).await;
    let Some(mut browser) = in_console(LIGHT, &site, "admin").await else { return };
    show(&mut browser, "audit").await;
    browser.click("#run-audit").await;
    browser
        .wait("document.querySelector('.verdict.ok') && document.querySelector('.rows tbody tr')")
        .await;
    browser.check().await;
    let kept = site.admin().await.get("/admin/audits").await.ok(200);
    assert_eq!(
        (&kept["audits"][0]["result"], &kept["audits"][0]["how"]),
        (&json!("agree"), &json!("asked"))
    );
    show(&mut browser, "sessions").await;
    act(&mut browser, ".end-session").await;
    let sessions = site.admin().await.get("/admin/sessions").await.ok(200);
    assert_eq!(sessions["sessions"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn the_report_of_a_sale_is_read_and_kept() {
    let site = Site::start();
    let sale = site.sale(1, json!({})).await;
    let mut ann = site.buyer("ann").await;
    let order = ann.granted(&sale).await;
    ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    site.buyer("bob").await.claim(&sale, 1).await.problem(410, "sold_out");
    let Some(mut browser) = in_console(LIGHT, &site, "viewer").await else { return };
    show(&mut browser, &format!("sales/{sale}")).await;
    browser.wait("document.querySelector('.to-report')").await;
    browser.click(".to-report").await;
    browser.wait("document.querySelector('.rows')?.innerText.includes('sold_out')").await;
    browser.wait("document.querySelector('main').innerText.includes('¥99.00')").await;
    browser.check().await;
    let kept = "return Promise.all([...document.querySelectorAll('a[download]')].map((one) => \
                fetch(one.href).then((answer) => answer.headers.get('content-type').split(';')[0])))";
    assert_eq!(browser.script(kept).await, json!(["text/csv", "text/html"]));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
