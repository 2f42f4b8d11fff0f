//! In what two versions of a claim differ, in words for the person who has to look at it.

use qiang_core::{Claim, Timestamp};

use qiang_app::json_time;

/// Every member that differs, as the records have it and as Redis had it.
pub(super) fn differences(records: &Claim, redis: &Claim) -> String {
    let text = |value: Option<&dyn std::fmt::Display>| match value {
        Some(value) => value.to_string(),
        None => "none".to_owned(),
    };
    let time = |at: Option<Timestamp>| match at {
        Some(at) => json_time::format(at).to_string(),
        None => "none".to_owned(),
    };
    let members = |claim: &Claim| {
        [
            ("user", claim.user.to_string()),
            ("identity", text(claim.identity.as_ref().map(|id| id as _))),
            ("request", text(claim.request.as_ref().map(|id| id as _))),
            ("quantity", claim.quantity.to_string()),
            ("price in cents", claim.unit_price.get().to_string()),
            ("portion", text(claim.portion.as_ref().map(|place| place as _))),
            ("state", claim.state.as_str().to_owned()),
            ("version", claim.version.to_string()),
            ("granted at", time(Some(claim.created_at))),
            ("changed at", time(Some(claim.changed_at))),
            ("held until", time(claim.hold_until)),
            ("to be paid by", time(claim.pay_by)),
            ("payment", text(claim.payment.as_ref().map(|id| id as _))),
            ("in place of", text(claim.replaces.as_ref().map(|number| number as _))),
            ("released for", claim.reason.map_or("none", |reason| reason.as_str()).to_owned()),
        ]
    };
    let (records, redis) = (members(records), members(redis));
    let differing = records.iter().zip(&redis).filter(|(one, other)| one != other);
    let (left, right): (Vec<_>, Vec<_>) = differing
        .map(|((name, one), (_, other))| (format!("{name} {one}"), format!("{name} {other}")))
        .unzip();
    format!("the records say {}; Redis said {}", left.join(", "), right.join(", "))
}

#[cfg(test)]
mod tests {
    use qiang_core::{Cents, ClaimId, Kind, PaymentId, PoolId, State, Timestamp, UserId};

    use super::{Claim, differences};

    fn claim() -> Claim {
        Claim {
            kind: Kind::Sale,
            id: ClaimId { pool: PoolId::new(1).expect("positive"), number: 7 },
            user: UserId::new("u2592").expect("an id"),
            identity: None,
            request: None,
            quantity: 1,
            unit_price: Cents::new(100),
            portion: None,
            state: State::Ordered,
            version: 2,
            created_at: Timestamp::from_millis(0),
            changed_at: Timestamp::from_millis(1_000),
            hold_until: None,
            pay_by: Some(Timestamp::from_millis(5_000)),
            payment: None,
            replaces: None,
            reason: None,
        }
    }

    #[test]
    fn what_differs_is_said_and_nothing_else() {
        let paid = Claim {
            state: State::Paid,
            changed_at: Timestamp::from_millis(2_000),
            payment: Some(PaymentId::new("p-1").expect("an id")),
            ..claim()
        };
        assert_eq!(
            differences(&claim(), &paid),
            "the records say state ordered, changed at 1970-01-01T00:00:01.000Z, payment none; \
             Redis said state paid, changed at 1970-01-01T00:00:02.000Z, payment p-1"
        );
        let other = Claim { user: UserId::new("bob").expect("an id"), ..claim() };
        assert_eq!(
            differences(&claim(), &other),
            "the records say user u2592; Redis said user bob"
        );
    }
}
