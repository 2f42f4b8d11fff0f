//! Texts of the API as OpenAPI describes them: which form an id has, which words a field can hold.
//!
//! These types are only names for their schemas. A pattern says exactly what the server takes,
//! except that ids have bounds a pattern does not show.

use std::borrow::Cow;

use utoipa::openapi::schema::{KnownFormat, Schema, SchemaFormat, Type};
use utoipa::openapi::{ObjectBuilder, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// Texts with a pattern, a length and an example.
macro_rules! texts {
    ($($(#[doc = $doc:literal])* $name:ident = $pattern:expr, $max:literal, $example:literal;)+) => {
        $(described! { $(#[doc = $doc])* $name, |text: ObjectBuilder| {
            text.pattern(Some($pattern)).max_length(Some($max)).min_length(Some(1)).examples([$example])
        }})+
    };
}

/// Texts that are one of a few words.
macro_rules! words {
    ($($(#[doc = $doc:literal])* $name:ident = $($word:literal)|+;)+) => {
        $(described! { $(#[doc = $doc])* $name, |text: ObjectBuilder| {
            text.enum_values(Some([$($word),+]))
        }})+
    };
}

macro_rules! described {
    ($(#[doc = $doc:literal])* $name:ident, $more:expr) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let text = ObjectBuilder::new().schema_type(Type::String);
                let description = concat!($($doc, "\n"),*).trim();
                $more(text.description(Some(description))).build().into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}

/// No control character.
const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";
/// No control character, and not only blanks.
const NOT_BLANK: &str = concat!(
    r"^[^\u0000-\u001f\u007f-\u009f]*",
    r"[^\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]",
    r"[^\u0000-\u001f\u007f-\u009f]*$"
);

texts! {
    /// A sale's id: a number from 1 to 9223372036854775807, as text. From 4611686018427387904 on it was
    /// made by qiang.
    SaleId = r"^[1-9][0-9]{0,18}$", 19, "12";
    /// A claim's id, and that of its order: the sale and the number of the claim in it.
    ClaimId = r"^[1-9][0-9]{0,18}-[1-9][0-9]{0,9}$", 30, "12-1";
    /// The provider's id of a payment: at most 128 bytes, no control character.
    PaymentId = PRINTABLE, 128, "pay-8861";
    /// The shop's id of a user: at most 64 bytes, no control character.
    UserId = PRINTABLE, 64, "ann";
    /// What buyers read.
    Title = NOT_BLANK, 200, "Phone, midnight sale";
    /// The shop's own name for the goods.
    Sku = NOT_BLANK, 64, "phone-15-black";
    /// Names a request, so that asking again is not asking twice: printable ASCII. A UUID will do.
    IdempotencyKey = r"^[!-~]([ -~]*[!-~])?$", 128, "0192f3a4-7c11-7d3e-9d0a-5b1c2f8e6a01";
    /// Where the next page of a list of sales begins.
    SaleCursor = r"^[0-9]{1,15}_[1-9][0-9]{0,18}$", 35, "1767323045678_12";
    /// What an action was about: the parts of the address that vary.
    Thing = PRINTABLE, 200, "12";
    /// Names an action or an audit.
    MadeId = r"^[1-9][0-9]{0,18}$", 19, "4611686018427387905";
    /// Where the next page of a list of actions or audits begins.
    MadeCursor = r"^[0-9]{1,15}_[1-9][0-9]{0,18}$", 35, "1767323045678_4611686018427387905";
    /// A packet's id: a number, and a part that nobody can guess.
    PacketId = r"^[1-9][0-9]{0,18}-[0-9a-f]{20}$", 40, "4611686018427387905-0123456789abcdef0123";
    /// Names a seed that waits for its packet.
    SeedId = r"^[0-9a-f]{32}$", 32, "0f3a5b7c9d1e2f400f3a5b7c9d1e2f40";
    /// 1 to 64 bytes, in hex.
    Nonce = r"^([0-9a-f]{2}){1,64}$", 128, "e681ade5969ce58f91e8b4a2";
    /// 32 bytes, in hex.
    Sha256 = r"^[0-9a-f]{64}$", 64, "22a6d127fb5e4dd557ad36dec3b01eafa74ea81d1a72a70dae7a09dc72e4c3f3";
    /// Where the next page of a list of packets begins.
    PacketCursor = r"^[0-9]{1,15}_[1-9][0-9]{0,18}(-[1-9][0-9]{0,9})?$", 46, "1767323045678_12";
    /// Names a hold.
    HoldId = r"^[0-9a-f]{32}$", 32, "5f3a5b7c9d1e2f400f3a5b7c9d1e2f40";
    /// Names a movement of money.
    TransferId = r"^[!-~]+$", 255, "req:5f3a5b7c9d1e2f400f3a5b7c9d1e2f40";
    /// Whose money it is: `user:` and a user, `packet:` and the number of a packet, or `outside`.
    AccountName = r"^(user:.+|packet:[1-9][0-9]{0,18}|outside)$", 128, "user:ann";
    /// Names a session of the pages.
    SessionId = r"^[0-9a-f]{32}$", 32, "0f3a5b7c9d1e2f400f3a5b7c9d1e2f40";
    /// Where the next page of a list of orders or reviews begins.
    Cursor = r"^[0-9]{1,15}_[1-9][0-9]{0,18}-[1-9][0-9]{0,9}$", 46, "1767323045678_12-1";
    /// Where the next page of a list of refunds begins.
    RefundCursor = r"^[0-9]{1,15}_[1-9][0-9]{0,18}_[^\u0000-\u001f\u007f-\u009f]+$", 164,
        "1767323045678_12_pay-8861";
    /// Where the next page of events begins; opaque, but for the words `start` and `end`.
    EventCursor = r"^(start|end|[0-9]{1,18}_[0-9]{1,18})$", 40, "start";
    /// An event's id.
    EventId = r"^[0-9a-z_-]+$", 128, "12-1_2";
    /// Where the next page of a list of dead letters begins.
    DeadLetterCursor = r"^[0-9]{1,15}_[0-9a-zA-Z_-]+$", 144, "1767323045678_12-1_2";
    /// Unix seconds at which a callback was signed.
    SignedAt = r"^[0-9]{1,11}$", 11, "1767323045";
    /// `sha256=` and the HMAC-SHA256 over `<timestamp>.<body>`, in hex.
    Signature = r"^sha256=[0-9a-fA-F]{64}$", 71,
        "sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
}

words! {
    /// What somebody may do: buy, read what those who run the shop read, or run it.
    Role = "buyer" | "viewer" | "admin";
    /// How somebody signed in to the pages.
    SignIn = "token" | "link" | "sandbox";
    /// Where a claim stands.
    ClaimState = "held" | "ordered" | "paid" | "released";
    /// Why a claim was released.
    ReleaseReason = "gave_up" | "cancelled" | "hold_expired" | "pay_expired" | "revoked";
    /// Where an order stands.
    OrderStatus = "PENDING" | "PAID" | "CANCELLED" | "REFUNDED";
    /// What became of a payment: it paid the order, it bought a new claim in place of a released
    /// one, or it goes back.
    PaymentOutcome = "paid" | "regranted" | "refund_due";
    /// Why money goes back.
    RefundReason = "late" | "already_paid" | "amount_mismatch" | "claim_lost" | "revoked";
    /// Whether money was sent back.
    RefundStatus = "due" | "settled";
    /// What became of a refund that was to be settled: it is now, it was before, or there is none.
    SettleOutcome = "settled" | "already_settled" | "no_such_refund";
    /// What an audit found: all books agree, they differ, or it was not finished.
    AuditResult = "agree" | "differ" | "unfinished";
    /// Why an audit was run: somebody asked for it, somebody had the records mended, or it was time.
    AuditHow = "asked" | "repair" | "by_itself";
    /// What was done to a sale by hand.
    SaleState = "open" | "closed" | "cleared";
    /// A language that pages are written in.
    Language = "en" | "zh";
    /// Whether somebody has looked at an order.
    ReviewStatus = "pending" | "ended";
    /// In which sales something is decided.
    Serving = "all" | "some" | "none";
    /// How much has to work: everything, or what some sales need.
    Enough = "all" | "some";
    /// What kind of trouble there is.
    Trouble = "unreachable" | "refuses_writes" | "lost" | "stopped";
    /// What happened.
    EventKind = "pool_opened" | "pool_restocked" | "pool_closed" | "pool_cleared" | "claim_granted"
        | "claim_ordered" | "claim_paid" | "claim_released" | "refund_due";
    /// Where an event that could not be recorded stands.
    DeadLetterState = "waiting" | "dead" | "discarding" | "discarded" | "resolved";
    /// What discarding an event has undone.
    Compensation = "released" | "revoked" | "nothing";
    /// How a packet is divided: by chance, or in equal shares.
    PacketKind = "lucky" | "fixed";
    /// Where a packet stands.
    PacketStatus = "opening" | "open" | "empty" | "recycled";
    /// Which packets.
    PacketBox = "sent" | "received";
    /// Where the money of an order comes from.
    PayFrom = "account";
    /// How a hold ended.
    HoldEnd = "post" | "void" | "expire";
    /// What a line of a statement is about.
    EntryKind = "topup" | "withdrawal" | "transfer" | "packet_sent" | "packet_grab" | "packet_refund" | "order_payment"
        | "order_refund";
    /// Which book is wrong.
    Book = "records" | "log" | "engine" | "accounts";
}

described! {
    /// A time, RFC 3339. Written in UTC with milliseconds; read with any offset.
    Time, |text: ObjectBuilder| {
        text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .examples(["2027-01-15T08:00:00.000Z"])
    }
}
