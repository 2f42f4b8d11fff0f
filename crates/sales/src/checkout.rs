//! Paying at the shop's payment provider: where a buyer is sent, and what comes back for money that did
//! not count.
//!
//! A shop writes its provider's address with blanks for the order (`[payments] checkout_url`). The
//! address is signed with the key of the callbacks, so the provider knows that the amount is the shop's
//! own. On the way back the provider may give the buyer the callback to carry, so that the page knows at
//! once; the callback itself decides, however it arrives.

use axum::extract::State;
use qiang_app::config::Wrong;
use qiang_app::extract::{Caller, Nothing, OptionalJson, Path};
use qiang_app::problem::{Code, Problem};
use qiang_app::schema;
use qiang_core::Claim;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Sales;
use crate::orders;
use crate::payments::RefundView;
use crate::signature::Key;

/// Refunds of one order that are shown. More than one takes several payments for it.
const MAX_REFUNDS: u32 = 20;
/// What an address must have a place for.
const NEEDED: [&str; 5] =
    ["{order_id}", "{amount_cents}", "{return_url}", "{timestamp}", "{signature}"];

/// The provider's address, with blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(String);

/// Where to pay.
#[derive(Debug, Serialize, ToSchema)]
pub struct CheckoutView {
    /// The page of the payment provider for this order.
    #[schema(max_length = 4096, example = "https://pay.example/checkout?order=12-7&amount=9900")]
    pub url: String,
}

/// The refunds of one order.
#[derive(Debug, Serialize, ToSchema)]
pub struct OrderRefunds {
    /// At most 20.
    #[schema(max_items = 20)]
    pub refunds: Vec<RefundView>,
}

impl Template {
    /// Reads the setting; an empty one is none.
    pub(crate) fn read(text: &str) -> Result<Option<Self>, Wrong> {
        if text.is_empty() {
            return Ok(None);
        }
        let begins = ["https://", "http://"].iter().any(|scheme| text.starts_with(scheme));
        let missing = NEEDED.iter().find(|blank| !text.contains(**blank));
        let known = NEEDED.iter().fold(text.to_owned(), |rest, blank| rest.replace(blank, ""));
        let plain =
            known.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}\"<>\\".contains(&byte));
        let fix = "write the address of your provider's page, like https://pay.example/?order={order_id}\
                   &amount={amount_cents}&return={return_url}&time={timestamp}&signature={signature}";
        match missing {
            Some(blank) => Err(Wrong::new(format!("has no {blank}"), fix)),
            None if begins && plain => Ok(Some(Self(text.to_owned()))),
            None => Err(Wrong::new("is no address of a payment provider", fix)),
        }
    }

    /// The address for an order.
    fn fill(&self, claim: &Claim, origin: &str, key: &Key, now: qiang_core::Timestamp) -> String {
        let (order, amount) = (claim.id.to_string(), claim.amount().get().to_string());
        let back = format!("{origin}/pay?record_id={order}");
        let (timestamp, signature) = key.sign(format!("{order}.{amount}.{back}").as_bytes(), now);
        let values = [&order, &amount, &back, &timestamp, &signature];
        let filled = NEEDED.iter().zip(values);
        filled.fold(self.0.clone(), |url, (blank, value)| url.replace(blank, &encoded(value)))
    }
}

/// A text as part of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(byte.into());
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Go and pay an order
///
/// The address of the payment provider's page for one of your orders, signed by the shop. Sending a
/// buyer there changes nothing; the provider tells when money has arrived.
#[utoipa::path(post, path = "/api/v1/orders/{order_id}/checkout", operation_id = "begin_checkout", tag = "payments", security(("token" = [])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    responses((status = 200, description = "Where to pay", body = CheckoutView)))]
pub async fn begin(
    State(sales): State<Sales>,
    caller: Caller,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<CheckoutView>, Problem> {
    let (Some(template), Some(origin)) =
        (&sales.settings.checkout_url, &sales.app.config.http.public_origin)
    else {
        return Err(Problem::new(Code::CheckoutDisabled));
    };
    let claim = orders::find_to_change(&sales.app, &caller, &id).await?;
    match claim.state {
        qiang_core::State::Ordered => {}
        qiang_core::State::Paid => return Err(Problem::new(Code::AlreadyPaid)),
        qiang_core::State::Held => return Err(Problem::new(Code::NotOrdered)),
        qiang_core::State::Released => return Err(Problem::new(Code::Released)),
    }
    let url = template.fill(&claim, origin, &sales.callbacks, sales.app.now());
    Ok(axum::Json(CheckoutView { url }))
}

/// Show what goes back
///
/// Money that came for one of your orders and did not pay it, because it came late, twice or in another
/// amount.
#[utoipa::path(get, path = "/api/v1/orders/{order_id}/refunds", operation_id = "list_order_refunds", tag = "payments", security(("token" = [])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    responses((status = 200, description = "The refunds of the order", body = OrderRefunds)))]
pub async fn refunds(
    State(sales): State<Sales>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<OrderRefunds>, Problem> {
    let app = &sales.app;
    let claim = orders::find_ordered(app, &caller, &id).await?;
    app.catch_up().await?;
    let records = app.store.refunds_of(claim.id, MAX_REFUNDS).await?;
    Ok(axum::Json(OrderRefunds { refunds: RefundView::of_records(app, &records).await? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "https://pay.example/?o={order_id}&a={amount_cents}&r={return_url}&t={timestamp}&s={signature}";

    #[test]
    fn an_address_has_a_place_for_everything() {
        assert!(matches!(Template::read(""), Ok(None)));
        assert!(matches!(Template::read(GOOD), Ok(Some(_))));
        for blank in NEEDED {
            assert!(Template::read(&GOOD.replace(blank, "x")).is_err(), "{blank}");
        }
        for bad in ["ftp", "javascript"] {
            assert!(Template::read(&GOOD.replace("https", bad)).is_err(), "{bad}");
        }
        assert!(Template::read(&format!("{GOOD}&x={{other}}")).is_err());
        assert!(Template::read(&format!("{GOOD} ")).is_err());
    }

    #[test]
    fn a_value_stays_in_its_place() {
        assert_eq!(encoded("https://a/b?c=d&e"), "https%3A%2F%2Fa%2Fb%3Fc%3Dd%26e");
        assert_eq!(encoded("12-7"), "12-7");
    }
}
