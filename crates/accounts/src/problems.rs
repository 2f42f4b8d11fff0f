//! What the calls of this domain can be turned down for, for OpenAPI.

use qiang_app::problem::Code;

/// What any movement of money can be refused for.
const MOVING: &[Code] = &[
    Code::InvalidIdempotencyKey,
    Code::MissingIdempotencyKey,
    Code::IdempotencyKeyReused,
    Code::InsufficientFunds,
    Code::BalanceTooLarge,
    Code::SameAccount,
];

/// What each call can end in, beside what any call can. Every call is named here.
pub(crate) const PROBLEMS: &[(&str, &[Code])] = &[
    ("show_my_account", &[]),
    ("list_my_entries", &[]),
    ("show_account", &[Code::InvalidField]),
    ("list_entries", &[]),
    ("transfer", MOVING),
    ("top_up", MOVING),
    ("withdraw", MOVING),
    ("hold", MOVING),
    ("post_hold", &[Code::NoSuchHold, Code::HoldOver, Code::AboveHold, Code::BalanceTooLarge]),
    (
        "send_packet",
        &[
            Code::InvalidIdempotencyKey,
            Code::MissingIdempotencyKey,
            Code::IdempotencyKeyReused,
            Code::InsufficientFunds,
            Code::DailyLimit,
            Code::NoSuchSeed,
        ],
    ),
    ("draw_seed", &[]),
    ("show_packet", &[Code::NoSuchPacket]),
    ("list_packets", &[]),
    (
        "grab_packet",
        &[
            Code::InvalidIdempotencyKey,
            Code::NoSuchPacket,
            Code::NotOpenYet,
            Code::Closed,
            Code::NotEligible,
            Code::WrongPassword,
            Code::TooManyAttempts,
            Code::AlreadyClaimed,
            Code::SoldOut,
        ],
    ),
    ("void_hold", &[Code::NoSuchHold, Code::HoldOver]),
];
