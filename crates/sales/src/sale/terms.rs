//! The terms of a new sale, as they come in JSON. What is left out has a default; what makes no
//! sense is named.

use qiang_core::{
    Cents, Fault, Flow, Kind, LimitBy, MAX_UNITS, PoolId, PriceStep, Reclaim, Supply, Terms,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use qiang_app::problem::Problem;
use qiang_app::{json_time, schema, whole};

const HOLD_SECS: i64 = 5 * 60;
const PAY_SECS: i64 = 30 * 60;

/// A sale to open.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({
    "title": "Phone, midnight sale", "sku": "phone-15-black", "stock": 1000, "price_cents": 9900,
}))]
#[serde(deny_unknown_fields)]
pub struct NewSale {
    /// A number of your own choice below 4611686018427387904, as text, that no sale has had; left
    /// out, a larger one is made.
    #[schema(value_type = Option<schema::SaleId>)]
    id: Option<String>,
    /// What buyers read, 1 to 200 characters.
    #[schema(value_type = schema::Title)]
    title: String,
    /// Your own name for the goods, 1 to 64 characters.
    #[schema(value_type = schema::Sku)]
    sku: String,
    /// Units there are, 1 to 2147483648.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 2147483648_i64, example = 1000)]
    stock: i64,
    /// Units one buyer may have, as long as the sale exists. Default 1.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 1, maximum = 2147483648_i64, example = 1)]
    limit_per_user: Option<i64>,
    /// Who counts as one buyer. Default `user`.
    limit_by: Option<LimitByWord>,
    /// Price of a unit in cents, 0 to 1000000000. An order that costs nothing is paid as it is
    /// placed.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 0, maximum = 1000000000, example = 9900)]
    price_cents: i64,
    /// How the price rises as units go: each step by more units and at a higher price than the
    /// one before.
    #[serde(default)]
    #[schema(max_items = 100)]
    price_steps: Vec<PriceStepBody>,
    /// When it opens; left out, at once.
    #[serde(default, with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub(super) opens_at: Option<Timestamp>,
    /// When it closes, later than `opens_at`; left out, when it is closed by hand.
    #[serde(default, with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    closes_at: Option<Timestamp>,
    /// What a granted claim goes through. Default `order`.
    flow: Option<FlowWord>,
    /// Seconds a hold lasts before it is released; only with `hold`. Default 300.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 1, maximum = 31622400)]
    hold_secs: Option<i64>,
    /// Seconds an order may stay unpaid; with `order` and `hold`. Default 1800.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 1, maximum = 31622400, example = 1800)]
    pay_secs: Option<i64>,
    /// Whether a user whose claim was released may claim again. Default `allowed`.
    reclaim: Option<ReclaimWord>,
    /// Over how many partitions of a shared engine a very hot sale is spread, 1 to 64, no more than
    /// there are units; it does not go with `price_steps`. Claim
    /// numbers then still rise for each bucket, but not over the whole sale. Default 1, which is
    /// all an embedded engine needs.
    #[serde(default, deserialize_with = "whole::option")]
    #[schema(minimum = 1, maximum = 64, example = 1)]
    buckets: Option<i64>,
}

/// From so many units on, the price is higher.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceStepBody {
    /// So many units are taken before this price holds.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 2147483648_i64, example = 500)]
    pub after_sold: i64,
    /// The price from there on.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 1000000000, example = 12900)]
    pub price_cents: i64,
}

/// `instant`: paid at once. `order`: ordered at once, to be paid. `hold`: held, to be ordered.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowWord {
    /// Paid at once.
    Instant,
    /// Ordered at once, to be paid in time.
    Order,
    /// Held first, then ordered, then paid.
    Hold,
}

/// Who counts as one buyer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitByWord {
    /// Every account for itself.
    User,
    /// All accounts whose token names the same `identity`.
    Identity,
}

/// Whether a released user may claim again.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReclaimWord {
    /// The quota comes back with the units.
    Allowed,
    /// The quota stays used.
    Never,
}

impl NewSale {
    /// The id of the shop's own choice.
    pub(super) fn id(&self) -> Result<Option<PoolId>, Problem> {
        let Some(text) = &self.id else { return Ok(None) };
        let given = text.parse().ok().filter(|id: &PoolId| !id.is_made());
        let rule = format_args!(
            "must be a number from 1 to {}, as text; larger ones are made by qiang",
            PoolId::FIRST_MADE - 1
        );
        given.map(Some).ok_or_else(|| Problem::invalid_field("id", rule))
    }

    /// The rules of the sale, checked.
    pub(super) fn terms(&self, now: Timestamp) -> Result<Terms, Problem> {
        let terms = Terms {
            kind: Kind::Sale,
            title: self.title.as_str().into(),
            sku: self.sku.as_str().into(),
            supply: Supply::Units(short("stock", "must be from 1 to 2147483648", self.stock)?),
            limit_per_user: short(
                "limit_per_user",
                "must be from 1 to 2147483648",
                self.limit_per_user.unwrap_or(1),
            )?,
            limit_by: match self.limit_by {
                None | Some(LimitByWord::User) => LimitBy::User,
                Some(LimitByWord::Identity) => LimitBy::Identity,
            },
            price: Cents::new(self.price_cents),
            price_steps: self.steps()?,
            opens_at: self.opens_at.unwrap_or(now),
            closes_at: self.closes_at,
            flow: self.flow()?,
            reclaim: match self.reclaim {
                None | Some(ReclaimWord::Allowed) => Reclaim::Allowed,
                Some(ReclaimWord::Never) => Reclaim::Never,
            },
            buckets: u16::try_from(self.buckets.unwrap_or(1))
                .map_err(|_| Fault { field: "buckets", rule: "must be from 1 to 64" })?,
        };
        terms.check()?;
        Ok(terms)
    }

    fn steps(&self) -> Result<Vec<PriceStep>, Fault> {
        let step = |step: &PriceStepBody| {
            let rule = "must have an after_sold from 1 to 2147483648";
            let after_sold = short("price_steps", rule, step.after_sold)?;
            if after_sold > MAX_UNITS {
                return Err(Fault { field: "price_steps", rule });
            }
            Ok(PriceStep { after_sold, price: Cents::new(step.price_cents) })
        };
        self.price_steps.iter().map(step).collect()
    }

    fn flow(&self) -> Result<Flow, Fault> {
        let fault = |field, rule| Err(Fault { field, rule });
        match self.flow.unwrap_or(FlowWord::Order) {
            FlowWord::Instant if self.pay_secs.is_some() => {
                fault("pay_secs", "does not go with the instant flow, which is paid at once")
            }
            FlowWord::Instant | FlowWord::Order if self.hold_secs.is_some() => {
                fault("hold_secs", "goes only with the hold flow")
            }
            FlowWord::Instant => Ok(Flow::Instant),
            FlowWord::Order => Ok(Flow::Order { pay_ms: self.pay_ms()? }),
            FlowWord::Hold => {
                let hold_ms = millis("hold_secs", self.hold_secs.unwrap_or(HOLD_SECS))?;
                Ok(Flow::Hold { hold_ms, pay_ms: self.pay_ms()? })
            }
        }
    }

    fn pay_ms(&self) -> Result<u64, Fault> {
        millis("pay_secs", self.pay_secs.unwrap_or(PAY_SECS))
    }
}

fn short(field: &'static str, rule: &'static str, value: i64) -> Result<u32, Fault> {
    u32::try_from(value).map_err(|_| Fault { field, rule })
}

fn millis(field: &'static str, secs: i64) -> Result<u64, Fault> {
    let millis = u64::try_from(secs).ok().and_then(|secs| secs.checked_mul(1000));
    millis.ok_or(Fault { field, rule: "must be from 1 to 31622400" })
}
