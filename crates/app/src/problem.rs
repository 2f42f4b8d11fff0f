//! Every way a request can be turned down: one table of codes, and nothing else decides a
//! status, a title or an explanation.
//!
//! Answers are RFC 9457 `application/problem+json`. `code` is part of the contract: it never
//! changes its meaning and is never reused. `title` and `detail` come in the language asked for.
//! A body without particulars is a constant of the program, because a sold-out sale gives the
//! same answer hundreds of thousands of times.
//!
//! Statuses: 400 is not understood, 422 understood and wrong, 409 in conflict with what has
//! already happened, 410 over, 503 ask again.

mod body;
mod lang;
mod render;

use axum::http::StatusCode;
use qiang_core::Refusal;

pub use body::ProblemBody;
pub use lang::Lang;
pub use render::Problem;

macro_rules! codes {
    ($(
        $(#[$doc:meta])*
        $name:ident = $code:literal, $status:literal $(, retry $retry:literal)? $(, challenge $challenge:literal)? ;
        en $en:literal, $en_detail:literal;
        zh $zh:literal, $zh_detail:literal;
    )+) => {
        /// The stable code of a problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name),+ }

        impl Code {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The code on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code),+ }
            }

            /// Its HTTP status.
            #[must_use]
            pub fn status(self) -> StatusCode {
                let number: u16 = match self { $(Self::$name => $status),+ };
                StatusCode::from_u16(number).expect("the table holds statuses")
            }

            /// After so many seconds it makes sense to ask again, whatever the particulars.
            const fn retry_after_secs(self) -> Option<&'static str> {
                match self { $(Self::$name => { codes!(@some $(stringify!($retry))?) }),+ }
            }

            /// What a 401 must offer in `WWW-Authenticate`.
            const fn challenge(self) -> Option<&'static str> {
                match self { $(Self::$name => { codes!(@some $($challenge)?) }),+ }
            }

            const fn text(self, lang: Lang) -> Text {
                match (self, lang) {
                    $(
                        (Self::$name, Lang::En) =>
                            codes!(@text $code, $status, $en, $en_detail $(, $retry)?),
                        (Self::$name, Lang::Zh) =>
                            codes!(@text $code, $status, $zh, $zh_detail $(, $retry)?),
                    )+
                }
            }
        }
    };
    (@some) => { None };
    (@some $value:expr) => { Some($value) };
    (@text $code:literal, $status:literal, $title:literal, $detail:literal $(, $retry:literal)?) => {
        Text {
            head: codes!(@head $code, $status, $title),
            detail: concat!(",\"detail\":\"", $detail, "\""),
            retry: concat!($(",\"retry_after\":", $retry)?),
            whole: concat!(
                codes!(@head $code, $status, $title),
                ",\"detail\":\"", $detail, "\"",
                $(",\"retry_after\":", $retry,)?
                "}"
            ),
        }
    };
    (@head $code:literal, $status:literal, $title:literal) => {
        concat!(
            "{\"type\":\"/docs/errors#", $code, "\",\"title\":\"", $title,
            "\",\"status\":", $status, ",\"code\":\"", $code, "\""
        )
    };
}

/// A problem in one language, as bytes of the program: `whole` is `head`, `detail`, `retry` and
/// a brace.
struct Text {
    head: &'static str,
    detail: &'static str,
    retry: &'static str,
    whole: &'static str,
}

codes! {
    /// No such sale.
    NoSuchSale = "no_such_sale", 404;
    en "No such sale", "There is no sale with this id.";
    zh "没有这个活动", "没有这个编号的活动。";
    /// No such claim, or another user's.
    NoSuchClaim = "no_such_claim", 404;
    en "No such claim", "There is no claim with this id, or it is not yours.";
    zh "没有这个名额", "没有这个编号的名额，或者它不属于你。";
    /// No such order, or another user's.
    NoSuchOrder = "no_such_order", 404;
    en "No such order", "There is no order with this id, or it is not yours.";
    zh "没有这个订单", "没有这个编号的订单，或者它不属于你。";
    /// No such refund.
    NoSuchRefund = "no_such_refund", 404;
    en "No such refund", "There is no refund with this id.";
    zh "没有这笔退款", "没有这个编号的退款。";
    /// No such review.
    NoSuchReview = "no_such_review", 404;
    en "No such review", "Nobody has to look at an order with this id.";
    zh "没有这项复核", "没有这个编号的待复核订单。";
    /// Nobody chose a current sale.
    NoCurrentSale = "no_current_sale", 404;
    en "No current sale", "No sale has been made the current one.";
    zh "当前没有活动", "还没有设置当前活动。";
    /// Nothing lives at this address.
    NoSuchRoute = "no_such_route", 404;
    en "No such page", "Nothing lives at this address; /docs lists what does.";
    zh "没有这个地址", "这个地址不存在，可用的接口见 /docs。";
    /// The address does not take this method.
    MethodNotAllowed = "method_not_allowed", 405;
    en "Method not allowed", "This address does not take this method; see the Allow header.";
    zh "不支持的方法", "这个地址不支持该请求方法，可用的方法见 Allow 响应头。";
    /// It opens later.
    NotOpenYet = "not_open_yet", 425;
    en "Not open yet", "The sale has not opened yet.";
    zh "活动尚未开始", "活动还没有开始，请稍候。";
    /// It is over.
    Closed = "closed", 410;
    en "The sale is over", "The sale has closed.";
    zh "活动已结束", "活动已经结束。";
    /// Nothing left.
    SoldOut = "sold_out", 410;
    en "Sold out", "There is not enough left. A unit that someone gives back can be claimed again.";
    zh "已售罄", "剩余数量不足。若有人放弃名额，可以再次尝试。";
    /// The sale was cleared away.
    SaleCleared = "sale_cleared", 410;
    en "The sale was cleared away", "The sale is over and was cleared away; its records remain.";
    zh "活动已清理", "活动已结束并被清理，历史记录仍然保留。";
    /// This user has theirs.
    AlreadyClaimed = "already_claimed", 409;
    en "You have one already", "Each buyer may have one, and you have it.";
    zh "你已经抢到了", "每人限购一份，你已经有了。";
    /// More than one buyer may have.
    OverLimit = "over_limit", 409;
    en "Over the limit", "That would be more than one buyer may have.";
    zh "超过限购数量", "超过了每人可购买的数量。";
    /// The claim was given back.
    Released = "released", 409;
    en "The claim was released", "The claim was given up or ran out, and its units went back into the sale.";
    zh "名额已释放", "名额已被放弃或已超时，库存已经退回。";
    /// The claim is paid.
    AlreadyPaid = "already_paid", 409;
    en "Already paid", "The order is paid and cannot be changed here.";
    zh "订单已支付", "订单已经支付，不能在这里更改。";
    /// The claim has no order yet.
    NotOrdered = "not_ordered", 409;
    en "Not ordered yet", "Place the order first.";
    zh "尚未下单", "请先下单。";
    /// No payment paid the order.
    NotPaid = "not_paid", 409;
    en "Not paid", "No payment has paid this order, so there is nothing to give back.";
    zh "订单未支付", "没有任何支付用于这个订单，无款可退。";
    /// The payment id belongs to another order.
    PaymentConflict = "payment_conflict", 409;
    en "Payment used before", "This payment id was used for another order.";
    zh "支付编号冲突", "这个支付编号已用于另一个订单。";
    /// The sale exists with other terms.
    SaleExists = "sale_exists", 409;
    en "The sale exists", "A sale with this id exists already, with other terms.";
    zh "活动已存在", "这个编号的活动已经存在，且规则不同。";
    /// Not a sale that can be restocked, or too much.
    CannotRestock = "cannot_restock", 409;
    en "Cannot restock", "The sale cannot take that many more units.";
    zh "无法补货", "这个活动不能再增加这么多库存。";
    /// Not closed, or claims are open.
    SaleInUse = "sale_in_use", 409;
    en "The sale is in use", "Close the sale first, and wait until no claim is open.";
    zh "活动仍在使用", "请先结束活动，并等待所有名额处理完毕。";
    /// Not for this user.
    NotEligible = "not_eligible", 403;
    en "Not eligible", "This is not for your account: it asks for a verified identity, or it is for named people.";
    zh "没有参与资格", "你的账号不能参与：需要实名身份，或者只发给指定的人。";
    /// A buyer asked for an admin's thing.
    Forbidden = "forbidden", 403;
    en "Not allowed", "Your token does not have the role for this.";
    zh "没有权限", "你的令牌没有所需的角色。";
    /// A change by cookie that a page of ours did not ask for.
    CrossSite = "cross_site", 403;
    en "Not from our pages", "A change by cookie must come from a page of this shop; programs send a token.";
    zh "请求来源不符", "使用 Cookie 的更改必须来自本店页面；程序请使用令牌。";
    /// Signing in by name is off.
    SignInDisabled = "sign_in_disabled", 403;
    en "Sign in with a token", "Signing in by name works on a machine of your own only; [auth] sandbox turns this on.";
    zh "请使用令牌登录", "仅在本机试用时可以直接用名字登录；可用 [auth] sandbox 开启。";
    /// No such session.
    NoSuchSession = "no_such_session", 404;
    en "No such session", "There is no session with this id, or it has ended.";
    zh "没有这个会话", "没有这个编号的会话，或者它已经结束。";
    /// No demo here.
    DemoDisabled = "demo_disabled", 403;
    en "No demo here", "A demo is for an empty shop on a machine of your own.";
    zh "这里不能演示", "演示只用于本机上还没有活动的空店。";
    /// A sale without a picture.
    NoSuchImage = "no_such_image", 404;
    en "No picture", "The sale has no picture.";
    zh "没有图片", "这个活动没有图片。";
    /// Less available than asked for.
    InsufficientFunds = "insufficient_funds", 409;
    en "Not enough money", "The account does not have that much available.";
    zh "余额不足", "账户的可用余额不足。";
    /// The account would have more than an account may.
    BalanceTooLarge = "balance_too_large", 409;
    en "Too much for one account", "The account it goes to would have more than an account can hold.";
    zh "超过账户上限", "收款账户的余额将超过上限。";
    /// No such hold, or another user's.
    NoSuchHold = "no_such_hold", 404;
    en "No such hold", "There is no hold with this id, or it is not yours.";
    zh "没有这笔冻结", "没有这个编号的冻结，或者它与你无关。";
    /// The hold has ended.
    HoldOver = "hold_over", 409;
    en "The hold is over", "The hold was posted, voided or has expired; that happens once.";
    zh "冻结已结束", "这笔冻结已扣款、已解冻或已过期，只能处理一次。";
    /// More than was held.
    AboveHold = "above_hold", 422;
    en "More than is held", "A hold can be posted up to the amount that is held.";
    zh "超过冻结金额", "扣款金额不能超过冻结的金额。";
    /// From an account to itself.
    SameAccount = "same_account", 422;
    en "The same account", "Money cannot go from an account to the same account.";
    zh "不能转给自己", "转出和转入不能是同一个账户。";
    /// No such packet.
    NoSuchPacket = "no_such_packet", 404;
    en "No such packet", "There is no red packet with this id.";
    zh "没有这个红包", "没有这个编号的红包。";
    /// Not the password of the packet.
    WrongPassword = "wrong_password", 403;
    en "Wrong password", "That is not the password of this red packet.";
    zh "口令错误", "这不是这个红包的口令。";
    /// The password was tried too often.
    TooManyAttempts = "too_many_attempts", 403;
    en "Too many attempts", "You have tried the password of this red packet too often.";
    zh "尝试次数过多", "你尝试口令的次数过多，不能再领取这个红包。";
    /// More than one user may send on a day.
    DailyLimit = "daily_limit", 409;
    en "Enough for today", "That would be more than one user may send on one day.";
    zh "超过每日限额", "超过了每人每天可发红包的限额。";
    /// No such seed, or another user's, or used.
    NoSuchSeed = "no_such_seed", 404;
    en "No such seed", "There is no seed with this id that is yours and waits for a packet.";
    zh "没有这个种子", "没有这个编号的种子，或者它已被使用或不属于你。";
    /// Sandbox payment is off.
    SandboxDisabled = "sandbox_disabled", 403;
    en "Sandbox payment is off", "Payments come through the provider here; [payments] sandbox turns this on.";
    zh "沙箱支付未开启", "此处只接受支付渠道的回调；可用 [payments] sandbox 开启沙箱。";
    /// Buyers are not sent to a payment provider.
    CheckoutDisabled = "checkout_disabled", 403;
    en "No payment page", "This shop has not said where to pay; [payments] checkout_url does.";
    zh "没有支付页面", "商家没有设置支付页面；可用 [payments] checkout_url 设置。";
    /// No events are kept.
    EventsDisabled = "events_disabled", 403;
    en "Events are not kept", "This shop keeps no events; [delivery] keep_events_hours says for how long.";
    zh "没有保留事件", "商家没有保留事件；可用 [delivery] keep_events_hours 设置保留时间。";
    /// No such dead letter.
    NoSuchDeadLetter = "no_such_dead_letter", 404;
    en "No such dead letter", "No event with this id was set aside.";
    zh "没有这封死信", "没有这个编号的搁置事件。";
    /// It is no dead letter, or no longer.
    NotDead = "not_dead", 409;
    en "Not a dead letter", "The event is not a dead letter, or no longer; its state says what it is.";
    zh "不是死信", "这个事件不是死信，或已不再是；其当前状态见 state。";
    /// What it stands for cannot be undone.
    CannotDiscard = "cannot_discard", 409;
    en "Cannot be discarded", "What this event stands for cannot be undone; retry it instead.";
    zh "不能丢弃", "这个事件的结果无法撤销，请改为重试。";
    /// Events behind a place in the feed are gone.
    CursorTooOld = "cursor_too_old", 410;
    en "Events behind this place are gone", "Events behind this place are no longer kept, or were never stored. Read the lists anew, then go on with after=start or after=end.";
    zh "此位置之后的事件已不存在", "此位置之后的事件已不再保留，或从未保存。请重新读取列表，再以 after=start 或 after=end 继续。";
    /// No good token.
    Unauthenticated = "unauthenticated", 401, challenge "Bearer";
    en "Sign in first", "A valid token is needed in the Authorization header.";
    zh "请先登录", "请在 Authorization 请求头中提供有效的令牌。";
    /// The token's time is over.
    TokenExpired = "token_expired", 401, challenge "Bearer error=\"invalid_token\"";
    en "Your sign-in has expired", "The token has expired; get a new one.";
    zh "登录已过期", "令牌已过期，请重新登录。";
    /// A callback that was not signed with our key.
    BadSignature = "bad_signature", 401, challenge "X-Qiang-Signature";
    en "Bad signature", "The signature does not match the body and the timestamp.";
    zh "签名错误", "签名与内容或时间戳不符。";
    /// A callback signed too long ago.
    StaleSignature = "stale_signature", 401, challenge "X-Qiang-Signature";
    en "Stale signature", "The signature is too far from the server's clock; sign again.";
    zh "签名已过期", "签名时间与服务器时间相差过大，请重新签名。";
    /// Not JSON.
    BadJson = "bad_json", 400;
    en "Not valid JSON", "The body is not valid JSON.";
    zh "不是有效的 JSON", "请求内容不是有效的 JSON。";
    /// An idempotency key that cannot be one.
    InvalidIdempotencyKey = "invalid_idempotency_key", 400;
    en "Invalid Idempotency-Key", "An Idempotency-Key has 1 to 128 bytes and no control characters.";
    zh "无效的 Idempotency-Key", "Idempotency-Key 须为 1 至 128 字节，且不含控制字符。";
    /// A change of money without a name.
    MissingIdempotencyKey = "missing_idempotency_key", 400;
    en "Idempotency-Key missing", "What moves money needs an Idempotency-Key, so that asking again is not paying twice.";
    zh "缺少 Idempotency-Key", "变动资金的请求必须带 Idempotency-Key，以免重复扣款。";
    /// A header that may be given once came twice.
    RepeatedHeader = "repeated_header", 400;
    en "Header given twice", "A header that may be given once was given twice.";
    zh "请求头重复", "只能出现一次的请求头出现了两次。";
    /// A field with a wrong value.
    InvalidField = "invalid_field", 422;
    en "Invalid field", "A field has a value it cannot have.";
    zh "字段无效", "某个字段的值不合法。";
    /// A field nobody knows.
    UnknownField = "unknown_field", 422;
    en "Unknown field", "The body has a field that is not known here.";
    zh "未知字段", "请求内容含有未知的字段。";
    /// The idempotency key was used for another request.
    IdempotencyKeyReused = "idempotency_key_reused", 422;
    en "Idempotency-Key used before", "This Idempotency-Key was used for a different request.";
    zh "Idempotency-Key 已被使用", "这个 Idempotency-Key 已用于另一个不同的请求。";
    /// The body did not arrive in time.
    RequestTimeout = "request_timeout", 408;
    en "The request took too long", "The request did not arrive in time; nothing was done.";
    zh "请求超时", "请求内容未能及时到达，没有执行任何操作。";
    /// Too many bytes.
    BodyTooLarge = "body_too_large", 413;
    en "The body is too large", "The body has more bytes than this server takes.";
    zh "请求内容过大", "请求内容超过了服务器允许的大小。";
    /// Not JSON by its own word.
    UnsupportedMediaType = "unsupported_media_type", 415;
    en "Send JSON", "The body must be sent as application/json.";
    zh "请发送 JSON", "请求内容须以 application/json 发送。";
    /// The queue is full; nothing happened.
    Overloaded = "overloaded", 503, retry 1;
    en "Too busy", "The server is too busy; nothing was done. Ask again in a moment.";
    zh "系统繁忙", "系统繁忙，没有执行任何操作，请稍后再试。";
    /// It may have happened.
    OutcomeUnknown = "outcome_unknown", 503, retry 1;
    en "Outcome unknown", "It may have happened; retry with the same Idempotency-Key.";
    zh "结果未知", "操作可能已经成功，请使用相同的 Idempotency-Key 重试。";
    /// The engine stopped; nothing happened.
    Unavailable = "unavailable", 503, retry 5;
    en "Unavailable", "The server cannot decide anything at present; nothing was done.";
    zh "服务不可用", "服务暂时不可用，没有执行任何操作。";
    /// A fault of ours.
    Internal = "internal", 500;
    en "Internal error", "Something went wrong on the server; it was logged.";
    zh "内部错误", "服务器内部出错，已记录日志。";
}

impl Code {
    /// Where it is explained.
    #[must_use]
    pub fn doc_link(self) -> String {
        format!("/docs/errors#{}", self.as_str())
    }
}

impl From<&Refusal> for Code {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NoSuchPool => Self::NoSuchSale,
            Refusal::NotOpenYet { .. } => Self::NotOpenYet,
            Refusal::Closed => Self::Closed,
            Refusal::NotEligible => Self::NotEligible,
            Refusal::AlreadyClaimed { .. } => Self::AlreadyClaimed,
            Refusal::OverLimit { .. } => Self::OverLimit,
            Refusal::SoldOut => Self::SoldOut,
            Refusal::NoSuchClaim => Self::NoSuchClaim,
            Refusal::Released => Self::Released,
            Refusal::AlreadyPaid => Self::AlreadyPaid,
            Refusal::NotOrdered => Self::NotOrdered,
            Refusal::NotPaid => Self::NotPaid,
            Refusal::PaymentConflict => Self::PaymentConflict,
            Refusal::RequestConflict => Self::IdempotencyKeyReused,
            Refusal::PoolExists => Self::SaleExists,
            Refusal::CannotRestock => Self::CannotRestock,
            Refusal::PoolInUse => Self::SaleInUse,
            Refusal::Cleared => Self::SaleCleared,
        }
    }
}

#[cfg(test)]
mod tests;
