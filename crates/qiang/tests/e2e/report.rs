//! The report of a sale: its sums are those of the books, in every form, while the sale runs and after it
//! was cleared.

use axum::http::Method;
use qiang_app::token::Role;
use serde_json::{Value, json};

use crate::person::{Answer, Person};
use crate::process::{Process, command, run};
use crate::shop::{SECOND, START_TEXT, Shop, changed, terms_of};

const NASTY: &str = "=1+1,<script>alert('x')</script> & \"茅台\"";

/// Asks for a report in a form.
async fn form(
    person: &mut Person,
    sale: &str,
    query: &str,
    headers: &[(&'static str, &str)],
) -> Answer {
    let path = format!("/api/v1/admin/sales/{sale}/report{query}");
    person.ask(Method::GET, &path, headers, "").await
}

/// Three units: ann pays and is refunded, ben pays, cid pays nothing, and others come too late.
async fn sold(shop: &Shop, terms: Value) -> String {
    let sale = shop.sale(3, terms).await;
    let mut orders = Vec::new();
    for name in ["ann", "ben", "cid"] {
        let mut buyer = shop.buyer(name).await;
        orders.push(buyer.granted(&sale).await);
        shop.advance(SECOND).await;
    }
    for name in ["dan", "eve", "eve"] {
        shop.buyer(name).await.claim(&sale, 1).await.problem(410, "sold_out");
    }
    for (name, order) in [("ann", &orders[0]), ("ben", &orders[1])] {
        shop.buyer(name).await.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    }
    shop.buyer("cid")
        .await
        .post(&format!("/orders/{}/cancel", orders[2]), Value::Null)
        .await
        .ok(200);
    let mut boss = shop.admin().await;
    boss.post(&format!("/admin/orders/{}/refund", orders[0]), Value::Null).await.ok(200);
    shop.callback("again", &orders[1], 9_900).await.ok(200);
    let settle = json!({ "refunds": [{ "sale_id": sale, "payment_id": "again" }] });
    boss.post("/admin/refunds/settle", settle).await.ok(200);
    shop.advance(2 * SECOND).await;
    shop.buyer("ben").await.claim(&sale, 1).await.problem(409, "already_claimed");
    sale
}

#[tokio::test]
async fn the_sums_of_a_report_are_those_of_the_books() {
    let shop = Shop::open().await;
    let sale = sold(&shop, json!({})).await;
    let mut vera = shop.bearer(shop.token("vera", Role::Viewer, None)).await;
    let report = form(&mut vera, &sale, "", &[]).await.ok(200);
    let units = json!({ "stock": 3, "sold": 1, "held": 0, "ordered": 0, "paid": 1, "released": 1,
        "returned": 1, "left": 2 });
    assert_eq!(report["units"], units);
    let money = json!({ "earned_cents": 9_900, "paid_cents": 19_800, "payments": 2,
        "refunded_cents": 9_900, "refunds": 1, "due_cents": 9_900, "refunds_due": 1 });
    assert_eq!(report["money"], money);
    let speed = &report["speed"];
    assert_eq!(speed["first_claim_at"], START_TEXT);
    assert_eq!(speed["last_claim_at"], "2027-01-15T08:00:02.000Z");
    assert_eq!(
        (&speed["sold_out_at"], &speed["sold_out_after_ms"]),
        (&speed["last_claim_at"], &json!(2_000))
    );
    assert_eq!(speed["peak_granted_per_sec"], 1);
    // All seven, if they were counted together.
    let peak = speed["peak_claims_per_sec"].as_u64().expect("a number");
    assert!((1..=7).contains(&peak), "{peak}");
    let within = json!({ "half_ms": 2_000, "most_ms": 3_000, "all_ms": 3_000 });
    assert_eq!(speed["paid_within"], within);
    let answers = json!({ "asked": 7, "granted": 3, "replayed": 0, "refused": 4, "failed": 0,
        "granted_percent": 42.86, "buyers": 3, "regranted": 0 });
    assert_eq!(report["answers"], answers);
    let refusals = json!([{ "code": "sold_out", "count": 3, "percent": 42.86 },
        { "code": "already_claimed", "count": 1, "percent": 14.29 }]);
    assert_eq!(report["refusals"], refusals);
    let points = report["timeline"]["points"].as_array().expect("points");
    let sum =
        |name: &str| points.iter().map(|one| one[name].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((sum("granted"), sum("refused"), sum("paid"), sum("released")), (3, 4, 2, 2));
    assert_eq!((&points[0]["left"], &points[points.len() - 1]["left"]), (&json!(2), &json!(2)));
    assert_eq!(
        (&report["timeline"]["part_secs"], &report["up_to_date"]),
        (&json!(1), &json!(true))
    );
    // The audit looks at the same rows, and the public view at the same units.
    let audit = shop.audit().await;
    assert_eq!(
        (&audit["claims"], &audit["payments"], &audit["refunds"]),
        (&json!(3), &json!(2), &json!(2))
    );
    assert_eq!(shop.tally(&sale).await, [2, 0, 0, 1]);
}

#[tokio::test]
async fn a_sale_that_was_cleared_or_outlived_its_server_keeps_its_report() {
    let shop = Shop::open().await;
    let sale = sold(&shop, json!({})).await;
    let before = form(&mut shop.admin().await, &sale, "", &[]).await.ok(200);
    // Counted after the last look: written when the server stops.
    shop.buyer("eve").await.claim(&sale, 1).await.ok(201);
    shop.buyer("ann").await.claim("999", 1).await.problem(404, "no_such_sale");
    let shop = shop.restart(|_| {}).await;
    let mut boss = shop.admin().await;
    boss.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);
    shop.buyer("fay").await.claim(&sale, 1).await.problem(410, "closed");
    let order = boss.get(&format!("/admin/orders?sale={sale}&user=eve")).await.ok(200);
    let order = order["orders"][0]["order_id"].as_str().expect("an order").to_owned();
    shop.buyer("eve").await.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    boss.delete(&format!("/sales/{sale}")).await.ok(200);
    let after = form(&mut boss, &sale, "", &[]).await.ok(200);
    assert_eq!(after["sale"]["state"], "cleared");
    assert_eq!(after["answers"]["asked"], 9);
    assert_eq!(after["refusals"][0], json!({ "code": "sold_out", "count": 3, "percent": 33.33 }));
    let codes: Vec<_> =
        after["refusals"].as_array().expect("a list").iter().map(|one| &one["code"]).collect();
    assert!(codes.contains(&&json!("closed")), "{codes:?}");
    assert_eq!(
        (&after["units"]["stock"], &after["units"]["paid"]),
        (&before["units"]["stock"], &json!(2))
    );
    form(&mut boss, "999", "", &[]).await.problem(404, "no_such_sale");
}

#[tokio::test]
async fn a_report_comes_as_a_table_and_nothing_in_it_is_a_formula() {
    let shop = Shop::open().await;
    let sale = sold(&shop, json!({ "title": NASTY, "sku": "@SUM(A1)" })).await;
    let mut boss = shop.admin().await;
    let asked = form(&mut boss, &sale, "?format=csv", &[]).await;
    let accepted =
        form(&mut boss, &sale, "", &[("accept", "text/csv, application/json;q=0.5")]).await;
    assert_eq!(asked.text, accepted.text);
    assert_eq!((asked.status, asked.header("content-type")), (200, "text/csv; charset=utf-8"));
    let file = format!("attachment; filename=\"sale-{sale}.csv\"");
    assert_eq!(asked.header("content-disposition"), file);
    let text = asked.text.strip_prefix('\u{feff}').expect("the mark of UTF-8");
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(lines[0], "section,name,at,value");
    let title = format!("sale,title,,\"'{}\"", NASTY.replace('"', "\"\""));
    for line in [
        &*title,
        "sale,sku,,\"'@SUM(A1)\"",
        "units,stock,,3",
        "money,due_cents,,9900",
        "answers,asked,,7",
        "refusals,sold_out,,3",
        "speed,sold_out_after_ms,,2000",
        &format!("timeline,granted,{START_TEXT},1"),
    ] {
        assert!(lines.contains(&line), "{line} is missing from {text}");
    }
    for line in lines {
        for cell in line.split(',') {
            let cell = cell.trim_start_matches('"');
            assert!(
                !cell.starts_with(['=', '+', '-', '@']) || cell.parse::<i64>().is_ok(),
                "{line}"
            );
        }
    }
}

#[tokio::test]
async fn a_report_comes_as_one_page_in_both_languages_and_a_title_stays_a_text() {
    let shop = Shop::open().await;
    let sale = sold(&shop, json!({ "title": NASTY })).await;
    let mut boss = shop.admin().await;
    let english = form(&mut boss, &sale, "?format=html", &[]).await;
    let chinese = form(&mut boss, &sale, "?format=html", &[("accept-language", "zh-CN")]).await;
    assert_eq!(chinese.text, form(&mut boss, &sale, "?format=html&lang=zh", &[]).await.text);
    assert!(chinese.text.contains("销售报表") && chinese.text.contains("lang=\"zh-Hans\""));
    assert!(english.text.contains("Sale report") && english.text.contains("Sold out"));
    for page in [&english, &chinese] {
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        for absent in ["<script", "style=\"", "http://", "https://", "src=", "href=", "onload"] {
            assert!(!page.text.contains(absent), "{absent} in {}", page.text);
        }
        assert!(
            page.text.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;茅台")
        );
        assert_eq!(page.text.matches("<svg").count(), 3);
        assert!(page.text.contains("<code>sold_out</code>"));
    }
}

#[tokio::test]
async fn who_may_not_see_a_report_or_asks_wrongly_hears_so() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let path = format!("/admin/sales/{sale}/report");
    shop.buyer("ann").await.refused(Method::GET, &path, Value::Null, 403, "forbidden").await;
    shop.stranger().await.get(&path).await.problem(401, "unauthenticated");
    let mut boss = shop.admin().await;
    for (query, field) in [("?format=pdf", "format"), ("?lang=fr", "lang")] {
        let problem = form(&mut boss, &sale, query, &[]).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
    boss.get("/admin/sales/x/report").await.problem(404, "no_such_sale");
    // Nothing happened yet: everything is 0.
    let empty = boss.get(&path).await.ok(200);
    assert_eq!((&empty["answers"]["asked"], &empty["timeline"]["points"]), (&json!(0), &json!([])));
    let page = form(&mut boss, &sale, "?format=html", &[]).await;
    assert!(page.status == 200 && !page.text.contains("<svg"), "{}", page.text);
}

#[tokio::test]
async fn the_command_prints_a_report_or_writes_it_to_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let admin = run(folder.path(), &["tokens", "--user", "boss", "--role", "admin"]);
    let mut boss = Person::arrive(process.address, Some(admin.stdout.trim().to_owned())).await;
    boss.post("/sales", changed(&terms_of(3), &json!({ "id": "12" }))).await.ok(201);
    let printed = run(folder.path(), &["report", "12"]);
    let report: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert_eq!((&report["sale"]["id"], &report["units"]["stock"]), (&json!("12"), &json!(3)));
    let file = folder.path().join("report.html");
    let path = file.to_str().expect("UTF-8");
    run(folder.path(), &["report", "12", "--format", "html", "--lang", "zh", "--out", path]);
    let page = std::fs::read_to_string(&file).expect("written");
    assert!(page.contains("销售报表"), "{page}");
    assert!(process.terminate().0.success());
}
