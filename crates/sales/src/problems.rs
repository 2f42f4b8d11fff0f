//! What the calls of this domain can be turned down for, for OpenAPI.

use qiang_app::problem::Code;

/// What a claim can be refused for.
const CLAIM: &[Code] = &[
    Code::NoSuchSale,
    Code::NotOpenYet,
    Code::Closed,
    Code::SoldOut,
    Code::SaleCleared,
    Code::AlreadyClaimed,
    Code::OverLimit,
    Code::Released,
    Code::NotEligible,
];

/// What each call can end in, beside what any call can. Every call is named here.
pub(crate) const PROBLEMS: &[(&str, &[Code])] = &[
    ("create_sale", &[Code::SaleExists, Code::InvalidIdempotencyKey]),
    ("list_sales", &[]),
    ("show_sale", &[Code::NoSuchSale, Code::SaleCleared]),
    ("clear_sale", &[Code::NoSuchSale, Code::SaleCleared, Code::SaleInUse]),
    ("close_sale", &[Code::NoSuchSale, Code::SaleCleared, Code::SaleInUse]),
    ("restock_sale", &[Code::NoSuchSale, Code::Closed, Code::SaleCleared, Code::CannotRestock]),
    ("show_sale_page", &[Code::NoSuchSale, Code::SaleCleared]),
    ("put_sale_page", &[Code::NoSuchSale, Code::SaleCleared]),
    ("put_sale_image", &[Code::NoSuchSale, Code::SaleCleared]),
    ("show_sale_image", &[Code::NoSuchSale, Code::NoSuchImage]),
    ("remove_sale_image", &[Code::NoSuchSale, Code::SaleCleared]),
    ("list_sale_images", &[]),
    ("claim_sale", CLAIM),
    ("claim_voucher", CLAIM),
    ("show_claim", &[Code::NoSuchClaim]),
    ("give_up_claim", &[Code::NoSuchClaim, Code::Released, Code::AlreadyPaid, Code::SaleCleared]),
    ("order_claim", &[Code::NoSuchClaim, Code::Released, Code::AlreadyPaid, Code::SaleCleared]),
    ("show_current_sale", &[Code::NoCurrentSale, Code::NoSuchSale, Code::SaleCleared]),
    ("set_current_sale", &[Code::NoSuchSale, Code::SaleCleared]),
    ("claim_current_sale", CLAIM),
    ("list_orders", &[]),
    ("show_order", &[Code::NoSuchOrder]),
    (
        "cancel_order",
        &[
            Code::Forbidden,
            Code::NoSuchOrder,
            Code::NotOrdered,
            Code::Released,
            Code::AlreadyPaid,
            Code::SaleCleared,
        ],
    ),
    (
        "pay_order",
        &[
            Code::SandboxDisabled,
            Code::Forbidden,
            Code::InsufficientFunds,
            Code::NoSuchOrder,
            Code::NotOrdered,
            Code::AlreadyPaid,
            Code::PaymentConflict,
        ],
    ),
    (
        "report_payment",
        &[
            Code::BadSignature,
            Code::StaleSignature,
            Code::NoSuchOrder,
            Code::NotOrdered,
            Code::PaymentConflict,
        ],
    ),
    (
        "begin_checkout",
        &[
            Code::CheckoutDisabled,
            Code::Forbidden,
            Code::NoSuchOrder,
            Code::NotOrdered,
            Code::AlreadyPaid,
            Code::Released,
        ],
    ),
    ("list_order_refunds", &[Code::NoSuchOrder, Code::NotOrdered]),
    ("list_refunds", &[]),
    ("refund_order", &[Code::NoSuchOrder, Code::NotPaid, Code::Released, Code::SaleCleared]),
    ("settle_refund", &[Code::NoSuchSale, Code::NoSuchRefund]),
    ("report_sale", &[Code::NoSuchSale]),
    ("settle_refunds", &[]),
    ("search_claims", &[]),
    ("search_orders", &[]),
    ("list_reviews", &[]),
    ("end_review", &[Code::NoSuchReview]),
];
