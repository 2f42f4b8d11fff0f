//! Events as the world may see them: CloudEvents 1.0 in JSON, the same on every way out.
//!
//! The form leaves out what is secret: of portions only the number is told, never their values nor
//! their sum, so that nobody can work out a portion nobody has taken; identities are absent.
//! `docs/EVENTS.md` describes it and `docs/events.schema.json` is its schema. Within version 1 fields
//! are added and never changed or taken away.

use qiang_app::json_time;
use qiang_core::{
    Claim, ClaimId, Event, Flow, Kind, LimitBy, PoolChange, PoolId, PoolState, Reclaim, Refund,
    Supply, Timestamp,
};
use serde::Serialize;

/// Every kind of event, and its type in public.
const TYPES: [(&str, &str); 9] = [
    ("pool_opened", "qiang.pool.opened.v1"),
    ("pool_restocked", "qiang.pool.restocked.v1"),
    ("pool_closed", "qiang.pool.closed.v1"),
    ("pool_cleared", "qiang.pool.cleared.v1"),
    ("claim_granted", "qiang.claim.granted.v1"),
    ("claim_ordered", "qiang.claim.ordered.v1"),
    ("claim_paid", "qiang.claim.paid.v1"),
    ("claim_released", "qiang.claim.released.v1"),
    ("refund_due", "qiang.refund.due.v1"),
];

/// The kind of event a word stands for.
#[must_use]
pub fn kind(word: &str) -> Option<&'static str> {
    TYPES.iter().map(|(kind, _)| *kind).find(|kind| *kind == word)
}

/// Every kind of event, for people.
#[must_use]
pub fn kinds() -> String {
    TYPES.map(|(kind, _)| kind).join(", ")
}

/// An event in its public form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicEvent {
    /// Of which kind it is.
    pub kind: &'static str,
    /// The pool it happened in. Events of a pool are in order.
    pub pool: PoolId,
    /// The claim it is about, if it is about one.
    pub claim: Option<ClaimId>,
    /// The whole event, as JSON.
    pub json: String,
}

/// The public events of one event: itself, and the refund that follows from a claim that was taken
/// back. `source` says which shop it happened in.
#[must_use]
pub fn of(event: &Event, source: &str) -> Vec<PublicEvent> {
    let refund = match event {
        Event::Claim(claim) => claim.revoked().map(Event::Refund),
        Event::Pool(_) | Event::Refund(_) => None,
    };
    std::iter::once(event).chain(&refund).map(|event| one(event, source)).collect()
}

fn one(event: &Event, source: &str) -> PublicEvent {
    let name = event.name();
    let found = TYPES.iter().find(|(kind, _)| *kind == name);
    let (kind, type_) = found.expect("every event has a type");
    let pool = event.pool().to_string();
    let envelope = Envelope {
        specversion: "1.0",
        id: event.id(),
        source,
        type_,
        subject: event.claim().map_or_else(|| pool.clone(), |claim| claim.to_string()),
        time: event.at(),
        datacontenttype: "application/json",
        partitionkey: &pool,
        data: match event {
            Event::Pool(state) => Data::Pool(Box::new(PoolData::of(state))),
            Event::Claim(claim) => Data::Claim(Box::new(ClaimData::of(claim))),
            Event::Refund(refund) => Data::Refund(RefundData::of(refund)),
        },
    };
    let json = serde_json::to_string(&envelope).expect("texts and numbers are JSON");
    PublicEvent { kind, pool: event.pool(), claim: event.claim(), json }
}

/// The attributes of a CloudEvent. Extensions have lower-case names without separators.
#[derive(Serialize)]
struct Envelope<'a> {
    specversion: &'static str,
    id: String,
    source: &'a str,
    #[serde(rename = "type")]
    type_: &'static str,
    subject: String,
    #[serde(with = "json_time")]
    time: Timestamp,
    datacontenttype: &'static str,
    /// The extension "partitioning": what has the same key is in order.
    partitionkey: &'a str,
    data: Data,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data {
    Pool(Box<PoolData>),
    Claim(Box<ClaimData>),
    Refund(RefundData),
}

#[derive(Serialize)]
struct PoolData {
    pool_id: String,
    pool_kind: &'static str,
    version: u32,
    title: String,
    sku: String,
    /// Units there ever were; a portion is one.
    total_units: u32,
    /// How many portions, of a pool that consists of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    portions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restocked_units: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Of a unit, before any step; a portion has its own value instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_cents: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    price_steps: Vec<PriceStepData>,
    limit_per_user: u32,
    limit_by: &'static str,
    flow: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pay_ms: Option<u64>,
    reclaim: &'static str,
    buckets: u16,
    #[serde(with = "json_time")]
    opens_at: Timestamp,
    #[serde(with = "json_time::option", skip_serializing_if = "Option::is_none")]
    closes_at: Option<Timestamp>,
    #[serde(with = "json_time::option", skip_serializing_if = "Option::is_none")]
    closed_at: Option<Timestamp>,
    #[serde(with = "json_time")]
    changed_at: Timestamp,
}

#[derive(Serialize)]
struct PriceStepData {
    after_sold: u32,
    price_cents: i64,
}

impl PoolData {
    fn of(state: &PoolState) -> Self {
        let terms = &state.terms;
        let (restocked_units, request_id) = match &state.change {
            PoolChange::Restocked { units, request } => (Some(*units), Some(request.to_string())),
            PoolChange::Opened | PoolChange::Closed | PoolChange::Cleared => (None, None),
        };
        let (flow, hold_ms, pay_ms) = match terms.flow {
            Flow::Instant => ("instant", None, None),
            Flow::Order { pay_ms } => ("order", None, Some(pay_ms)),
            Flow::Hold { hold_ms, pay_ms } => ("hold", Some(hold_ms), Some(pay_ms)),
        };
        let (portions, price_cents) = match &terms.supply {
            Supply::Units(_) => (None, Some(terms.price.get())),
            Supply::Portions(_) => (Some(terms.units()), None),
        };
        let steps = terms.price_steps.iter();
        Self {
            pool_id: state.id.to_string(),
            pool_kind: terms.kind.as_str(),
            version: state.version,
            title: terms.title.to_string(),
            sku: terms.sku.to_string(),
            total_units: state.total,
            portions,
            restocked_units,
            request_id,
            price_cents,
            price_steps: steps
                .map(|step| PriceStepData {
                    after_sold: step.after_sold,
                    price_cents: step.price.get(),
                })
                .collect(),
            limit_per_user: terms.limit_per_user,
            limit_by: match terms.limit_by {
                LimitBy::User => "user",
                LimitBy::Identity => "identity",
            },
            flow,
            hold_ms,
            pay_ms,
            reclaim: match terms.reclaim {
                Reclaim::Allowed => "allowed",
                Reclaim::Never => "never",
            },
            buckets: terms.buckets,
            opens_at: terms.opens_at,
            closes_at: terms.closes_at,
            closed_at: state.closed_at,
            changed_at: state.at,
        }
    }
}

#[derive(Serialize)]
struct ClaimData {
    pool_id: String,
    pool_kind: &'static str,
    claim_id: String,
    version: u32,
    state: &'static str,
    user_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    quantity: u32,
    unit_price_cents: i64,
    amount_cents: i64,
    /// Which portion it took, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    portion: Option<u32>,
    #[serde(with = "json_time")]
    created_at: Timestamp,
    #[serde(with = "json_time")]
    changed_at: Timestamp,
    #[serde(with = "json_time::option", skip_serializing_if = "Option::is_none")]
    hold_until: Option<Timestamp>,
    #[serde(with = "json_time::option", skip_serializing_if = "Option::is_none")]
    pay_by: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces_claim_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    release_reason: Option<&'static str>,
}

impl ClaimData {
    fn of(claim: &Claim) -> Self {
        Self {
            pool_id: claim.id.pool.to_string(),
            pool_kind: claim.kind.as_str(),
            claim_id: claim.id.to_string(),
            version: claim.version,
            state: claim.state.as_str(),
            user_id: claim.user.to_string(),
            request_id: claim.request.as_ref().map(ToString::to_string),
            quantity: claim.quantity,
            unit_price_cents: claim.unit_price.get(),
            amount_cents: claim.amount().get(),
            portion: claim.portion,
            created_at: claim.created_at,
            changed_at: claim.changed_at,
            hold_until: claim.hold_until,
            pay_by: claim.pay_by,
            payment_id: claim.payment.as_ref().map(ToString::to_string),
            replaces_claim_id: claim
                .replaces
                .map(|number| ClaimId { number, ..claim.id }.to_string()),
            release_reason: claim.reason.map(qiang_core::ReleaseReason::as_str),
        }
    }
}

#[derive(Serialize)]
struct RefundData {
    pool_id: String,
    pool_kind: &'static str,
    order_id: String,
    payment_id: String,
    amount_cents: i64,
    reason: &'static str,
    #[serde(with = "json_time")]
    due_at: Timestamp,
}

impl RefundData {
    fn of(refund: &Refund) -> Self {
        Self {
            pool_id: refund.order.pool.to_string(),
            pool_kind: Kind::Sale.as_str(),
            order_id: refund.order.to_string(),
            payment_id: refund.payment.to_string(),
            amount_cents: refund.amount.get(),
            reason: refund.reason.as_str(),
            due_at: refund.at,
        }
    }
}
