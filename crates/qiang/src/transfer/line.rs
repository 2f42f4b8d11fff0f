//! One line of a file of sales.

use std::sync::Arc;

use qiang_core::{
    BadId, Cents, Claim, ClaimId, Event, Flow, Identity, Kind, LimitBy, PaymentId, PoolChange,
    PoolId, PoolState, PriceStep, Reclaim, Refund, RefundReason, ReleaseReason, RequestId, State,
    Supply, Terms, Timestamp, UserId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use qiang_app::json_time;

/// What a line can say.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Line {
    Head {
        qiang_export: u32,
    },
    Sale {
        sale: SaleLine,
    },
    Claim {
        claim: ClaimLine,
    },
    Refund {
        refund: RefundLine,
    },
    /// Numbers of a sale that are never given again, because claims of it were lost once.
    Lost {
        sale_id: String,
        lost_through: u32,
    },
    /// The sale that is the current one.
    Current {
        current_sale: String,
    },
    End {
        sales: u64,
        claims: u64,
        refunds: u64,
    },
}

/// A change of a sale as a whole.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SaleLine {
    id: String,
    version: u32,
    change: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restocked_units: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restock_request: Option<String>,
    total: u32,
    #[serde(with = "json_time::option")]
    closed_at: Option<Timestamp>,
    #[serde(with = "json_time")]
    at: Timestamp,
    terms: TermsLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TermsLine {
    /// Left out, it is a sale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    title: String,
    sku: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stock: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    portions_cents: Option<Vec<i64>>,
    limit_per_user: u32,
    limit_by: String,
    price_cents: i64,
    price_steps: Vec<(u32, i64)>,
    #[serde(with = "json_time")]
    opens_at: Timestamp,
    #[serde(with = "json_time::option")]
    closes_at: Option<Timestamp>,
    flow: String,
    hold_ms: Option<u64>,
    pay_ms: Option<u64>,
    reclaim: String,
    buckets: u16,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimLine {
    /// Left out, it is of a sale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    id: String,
    user: String,
    identity: Option<String>,
    request: Option<String>,
    quantity: u32,
    unit_price_cents: i64,
    portion: Option<u32>,
    state: String,
    version: u32,
    #[serde(with = "json_time")]
    created_at: Timestamp,
    #[serde(with = "json_time")]
    changed_at: Timestamp,
    #[serde(with = "json_time::option")]
    hold_until: Option<Timestamp>,
    #[serde(with = "json_time::option")]
    pay_by: Option<Timestamp>,
    payment: Option<String>,
    replaces: Option<u32>,
    reason: Option<String>,
    /// When the money of a revoked claim was sent back.
    #[serde(default, with = "json_time::option", skip_serializing_if = "Option::is_none")]
    settled_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefundLine {
    order: String,
    payment: String,
    amount_cents: i64,
    reason: String,
    #[serde(with = "json_time")]
    at: Timestamp,
    /// When it was sent; the first format does not say.
    #[serde(default, with = "json_time::option", skip_serializing_if = "Option::is_none")]
    settled_at: Option<Timestamp>,
}

impl Line {
    /// Reads a line; what is wrong is told of the part that is wrong.
    pub(super) fn parse(text: &str) -> serde_json::Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let only =
            |name| value.as_object().filter(|all| all.len() == 1).and_then(|all| all.get(name));
        if let Some(sale) = only("sale") {
            return Ok(Self::Sale { sale: SaleLine::deserialize(sale)? });
        }
        if let Some(claim) = only("claim") {
            return Ok(Self::Claim { claim: ClaimLine::deserialize(claim)? });
        }
        if let Some(refund) = only("refund") {
            return Ok(Self::Refund { refund: RefundLine::deserialize(refund)? });
        }
        Self::deserialize(value).map_err(|_| {
            serde::de::Error::custom(
                "it is neither a sale, a claim, a refund, nor one of the lines at the beginning and the end",
            )
        })
    }

    /// The line of an event; `settled_at` is of a refund that was sent, or of one that follows from a
    /// revoked claim.
    pub(super) fn of(event: &Event, settled_at: Option<Timestamp>) -> Self {
        match event {
            Event::Pool(state) => Self::Sale { sale: SaleLine::of(state) },
            Event::Claim(claim) => Self::Claim { claim: ClaimLine::of(claim, settled_at) },
            Event::Refund(refund) => Self::Refund {
                refund: RefundLine {
                    order: refund.order.to_string(),
                    payment: refund.payment.to_string(),
                    amount_cents: refund.amount.get(),
                    reason: refund.reason.as_str().into(),
                    at: refund.at,
                    settled_at,
                },
            },
        }
    }

    /// When the refund of this line was sent.
    pub(super) fn settled_at(&self) -> Option<Timestamp> {
        match self {
            Self::Refund { refund } => refund.settled_at,
            Self::Claim { claim } => claim.settled_at,
            _ => None,
        }
    }

    /// The event a line stands for, or what is wrong with it.
    pub(super) fn event(self) -> Result<Event, String> {
        match self {
            Self::Sale { sale } => sale.state().map(Event::Pool),
            Self::Claim { claim } => claim.claim().map(Event::Claim),
            Self::Refund { refund } => Ok(Event::Refund(Refund {
                order: claim_id(&refund.order)?,
                payment: id(&refund.payment, PaymentId::new)?,
                amount: Cents::new(refund.amount_cents),
                reason: word(&refund.reason, RefundReason::from_word)?,
                at: refund.at,
            })),
            Self::Head { .. } | Self::Lost { .. } | Self::Current { .. } | Self::End { .. } => {
                Err("it stands for no event".into())
            }
        }
    }
}

impl SaleLine {
    fn of(state: &PoolState) -> Self {
        let (change, units, request) = match &state.change {
            PoolChange::Opened => ("opened", None, None),
            PoolChange::Restocked { units, request } => {
                ("restocked", Some(*units), Some(request.to_string()))
            }
            PoolChange::Closed => ("closed", None, None),
            PoolChange::Cleared => ("cleared", None, None),
        };
        Self {
            id: state.id.to_string(),
            version: state.version,
            change: change.into(),
            restocked_units: units,
            restock_request: request,
            total: state.total,
            closed_at: state.closed_at,
            at: state.at,
            terms: TermsLine::of(&state.terms),
        }
    }

    fn state(self) -> Result<PoolState, String> {
        let change = match (&*self.change, self.restocked_units, &self.restock_request) {
            ("opened", None, None) => PoolChange::Opened,
            ("restocked", Some(units), Some(request)) => {
                PoolChange::Restocked { units, request: id(request, RequestId::new)? }
            }
            ("closed", None, None) => PoolChange::Closed,
            ("cleared", None, None) => PoolChange::Cleared,
            _ => return Err(format!("{:?} is no change of a sale", self.change)),
        };
        Ok(PoolState {
            id: self.id.parse::<PoolId>().map_err(|bad| format!("sale {:?}: {bad}", self.id))?,
            version: self.version,
            change,
            terms: Arc::new(self.terms.terms()?),
            total: self.total,
            closed_at: self.closed_at,
            at: self.at,
        })
    }
}

impl TermsLine {
    fn of(terms: &Terms) -> Self {
        let (stock, portions) = match &terms.supply {
            Supply::Units(units) => (Some(*units), None),
            Supply::Portions(cut) => (None, Some(cut.iter().map(|cents| cents.get()).collect())),
        };
        let (flow, hold_ms, pay_ms) = match terms.flow {
            Flow::Instant => ("instant", None, None),
            Flow::Order { pay_ms } => ("order", None, Some(pay_ms)),
            Flow::Hold { hold_ms, pay_ms } => ("hold", Some(hold_ms), Some(pay_ms)),
        };
        Self {
            kind: kind_word(terms.kind),
            title: terms.title.to_string(),
            sku: terms.sku.to_string(),
            stock,
            portions_cents: portions,
            limit_per_user: terms.limit_per_user,
            limit_by: match terms.limit_by {
                LimitBy::User => "user".into(),
                LimitBy::Identity => "identity".into(),
            },
            price_cents: terms.price.get(),
            price_steps: terms.price_steps.iter().map(|s| (s.after_sold, s.price.get())).collect(),
            opens_at: terms.opens_at,
            closes_at: terms.closes_at,
            flow: flow.into(),
            hold_ms,
            pay_ms,
            reclaim: match terms.reclaim {
                Reclaim::Allowed => "allowed".into(),
                Reclaim::Never => "never".into(),
            },
            buckets: terms.buckets,
        }
    }

    fn terms(self) -> Result<Terms, String> {
        let step = |(after_sold, price)| PriceStep { after_sold, price: Cents::new(price) };
        let terms = Terms {
            kind: kind(self.kind.as_deref())?,
            title: self.title.into(),
            sku: self.sku.into(),
            supply: match (self.stock, self.portions_cents) {
                (Some(units), None) => Supply::Units(units),
                (None, Some(cut)) => Supply::Portions(cut.into_iter().map(Cents::new).collect()),
                _ => return Err("a sale has either stock or portions".into()),
            },
            limit_per_user: self.limit_per_user,
            limit_by: match &*self.limit_by {
                "user" => LimitBy::User,
                "identity" => LimitBy::Identity,
                other => return Err(format!("nothing is limited by {other:?}")),
            },
            price: Cents::new(self.price_cents),
            price_steps: self.price_steps.into_iter().map(step).collect(),
            opens_at: self.opens_at,
            closes_at: self.closes_at,
            flow: match (&*self.flow, self.hold_ms, self.pay_ms) {
                ("instant", None, None) => Flow::Instant,
                ("order", None, Some(pay_ms)) => Flow::Order { pay_ms },
                ("hold", Some(hold_ms), Some(pay_ms)) => Flow::Hold { hold_ms, pay_ms },
                (other, _, _) => return Err(format!("{other:?} is no flow with these deadlines")),
            },
            reclaim: match &*self.reclaim {
                "allowed" => Reclaim::Allowed,
                "never" => Reclaim::Never,
                other => return Err(format!("reclaim is not {other:?}")),
            },
            buckets: self.buckets,
        };
        terms.check().map_err(|fault| format!("{} {}", fault.field, fault.rule))?;
        Ok(terms)
    }
}

impl ClaimLine {
    fn of(claim: &Claim, settled_at: Option<Timestamp>) -> Self {
        Self {
            kind: kind_word(claim.kind),
            id: claim.id.to_string(),
            user: claim.user.to_string(),
            identity: claim.identity.as_ref().map(ToString::to_string),
            request: claim.request.as_ref().map(ToString::to_string),
            quantity: claim.quantity,
            unit_price_cents: claim.unit_price.get(),
            portion: claim.portion,
            state: claim.state.as_str().into(),
            version: claim.version,
            created_at: claim.created_at,
            changed_at: claim.changed_at,
            hold_until: claim.hold_until,
            pay_by: claim.pay_by,
            payment: claim.payment.as_ref().map(ToString::to_string),
            replaces: claim.replaces,
            reason: claim.reason.map(|reason| reason.as_str().into()),
            settled_at,
        }
    }

    fn claim(self) -> Result<Claim, String> {
        Ok(Claim {
            kind: kind(self.kind.as_deref())?,
            id: claim_id(&self.id)?,
            user: id(&self.user, UserId::new)?,
            identity: self.identity.map(|text| id(&text, Identity::new)).transpose()?,
            request: self.request.map(|text| id(&text, RequestId::new)).transpose()?,
            quantity: self.quantity,
            unit_price: Cents::new(self.unit_price_cents),
            portion: self.portion,
            state: word(&self.state, State::from_word)?,
            version: self.version,
            created_at: self.created_at,
            changed_at: self.changed_at,
            hold_until: self.hold_until,
            pay_by: self.pay_by,
            payment: self.payment.map(|text| id(&text, PaymentId::new)).transpose()?,
            replaces: self.replaces,
            reason: self.reason.map(|text| word(&text, ReleaseReason::from_word)).transpose()?,
        })
    }
}

/// Files of sales stay as they were before there were other kinds.
fn kind_word(kind: Kind) -> Option<String> {
    (kind != Kind::Sale).then(|| kind.as_str().to_owned())
}

fn kind(text: Option<&str>) -> Result<Kind, String> {
    text.map_or(Ok(Kind::Sale), |text| word(text, Kind::from_word))
}

fn claim_id(text: &str) -> Result<ClaimId, String> {
    text.parse().map_err(|bad| format!("claim {text:?}: {bad}"))
}

fn id<T>(text: &str, new: fn(&str) -> Result<T, BadId>) -> Result<T, String> {
    new(text).map_err(|bad| format!("{text:?} is no id: {bad}"))
}

fn word<T>(text: &str, from_word: fn(&str) -> Option<T>) -> Result<T, String> {
    from_word(text).ok_or_else(|| format!("{text:?} is not a word of this file"))
}
