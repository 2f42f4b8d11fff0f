//! Terms that cannot be kept are found, field by field.

use qiang_core::{Cents, Kind, PriceStep, Supply, Terms};
use qiang_testkit::rules::terms;

#[track_caller]
fn fault(words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    found(&terms(&words))
}

#[track_caller]
fn found(terms: &Terms) -> String {
    terms.check().map_or_else(|fault| fault.to_string(), |()| "fine".into())
}

#[test]
fn every_field_has_its_bounds() {
    let table = [
        ("", "fine"),
        ("title=", "title must have 1 to 200 characters"),
        ("sku=", "sku must have 1 to 64 characters"),
        ("title=a\u{7}b", "title must not contain control characters"),
        ("sku=a\u{7f}b", "sku must not contain control characters"),
        ("units=0", "stock must be from 1 to 2147483648"),
        ("units=1", "fine"),
        ("units=2147483648", "fine"),
        ("units=2147483649", "stock must be from 1 to 2147483648"),
        ("portions=0", "portions must each be from 1 to 1000000000 cents"),
        ("portions=5,-1", "portions must each be from 1 to 1000000000 cents"),
        ("portions=1,1000000000", "fine"),
        ("portions=1000000001", "portions must each be from 1 to 1000000000 cents"),
        ("limit=0", "limit_per_user must be from 1 to 2147483648"),
        ("limit=2147483648", "fine"),
        ("limit=2147483649", "limit_per_user must be from 1 to 2147483648"),
        ("price=-1", "price_cents must be from 0 to 1000000000"),
        ("price=0", "fine"),
        ("price=1000000000", "fine"),
        ("price=1000000001", "price_cents must be from 0 to 1000000000"),
        ("steps=1:1000000001", "price_cents must be from 0 to 1000000000"),
        ("steps=1:101,2:102", "fine"),
        ("steps=0:101", "price_steps must rise, both in after_sold and in price_cents"),
        ("steps=1:100", "price_steps must rise, both in after_sold and in price_cents"),
        ("steps=2:101,2:102", "price_steps must rise, both in after_sold and in price_cents"),
        ("steps=2:101,3:101", "price_steps must rise, both in after_sold and in price_cents"),
        ("portions=1 steps=1:101", "price_steps do not go with portions"),
        ("opens=10 closes=11", "fine"),
        ("opens=10 closes=10", "closes_at must be after opens_at"),
        ("opens=10 closes=9", "closes_at must be after opens_at"),
        ("flow=hold(1,1)", "fine"),
        ("flow=hold(0,1)", "hold_secs must be from 1 to 31622400"),
        ("flow=hold(31622400000,31622400000)", "fine"),
        ("flow=hold(31622400001,1)", "hold_secs must be from 1 to 31622400"),
        ("flow=hold(1,0)", "pay_secs must be from 1 to 31622400"),
        ("flow=order(0)", "pay_secs must be from 1 to 31622400"),
        ("flow=order(31622400001)", "pay_secs must be from 1 to 31622400"),
    ];
    for (words, wanted) in table {
        assert_eq!(fault(words), wanted, "{words}");
    }
}

#[test]
fn a_packet_is_portions_that_are_given_away() {
    let packet = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        found(&Terms { kind: Kind::Packet, ..terms(&words) })
    };
    assert_eq!(packet("portions=5,1"), "fine");
    assert_eq!(packet("portions=5,1 limit=2 by=identity closes=9"), "fine");
    assert_eq!(packet("units=3"), "portions are what a packet consists of");
    assert_eq!(packet("portions=5 flow=order(100)"), "flow of a packet must be instant");
    assert_eq!(packet("portions=5 flow=hold(1,1)"), "flow of a packet must be instant");
}

#[test]
fn texts_are_bounded_and_not_blank() {
    let with =
        |title: &str, sku: &str| Terms { title: title.into(), sku: sku.into(), ..terms(&[]) };
    assert_eq!(found(&with(&"t".repeat(200), &"s".repeat(64))), "fine");
    assert_eq!(found(&with(&"抢".repeat(200), &"抢".repeat(64))), "fine");
    assert_eq!(found(&with(&"抢".repeat(201), "s")), "title must have 1 to 200 characters");
    assert_eq!(found(&with(&"t".repeat(201), "s")), "title must have 1 to 200 characters");
    assert_eq!(found(&with(" \u{3000}", "s")), "title must have 1 to 200 characters");
    assert_eq!(found(&with("t", &"s".repeat(65))), "sku must have 1 to 64 characters");
    assert_eq!(found(&with("t", " ")), "sku must have 1 to 64 characters");
}

#[test]
fn lists_are_bounded() {
    let portions = |count: usize| Terms {
        supply: Supply::Portions(vec![Cents::new(1); count].into()),
        ..terms(&[])
    };
    assert_eq!(found(&portions(0)), "portions must be 1 to 1048576 in number");
    assert_eq!(found(&portions(1 << 20)), "fine");
    assert_eq!(found(&portions((1 << 20) + 1)), "portions must be 1 to 1048576 in number");
    let steps = |count: u32| Terms {
        price_steps: (1..=count)
            .map(|step| PriceStep { after_sold: step, price: Cents::new(i64::from(step) + 100) })
            .collect(),
        ..terms(&[])
    };
    assert_eq!(found(&steps(100)), "fine");
    assert_eq!(found(&steps(101)), "price_steps must be at most 100 in number");
}

#[test]
fn the_first_fault_in_the_order_of_the_fields_is_named() {
    assert_eq!(fault("title= units=0 limit=0"), "title must have 1 to 200 characters");
    assert_eq!(fault("units=0 limit=0"), "stock must be from 1 to 2147483648");
    assert_eq!(fault("limit=0 price=-1"), "limit_per_user must be from 1 to 2147483648");
}
