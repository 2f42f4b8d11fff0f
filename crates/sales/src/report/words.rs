//! The words of a printed report, in both languages.

use qiang_app::problem::{Code, Lang, Problem};

macro_rules! words {
    ($($name:ident: $en:literal, $zh:literal;)+) => {
        /// The words of a printed report.
        pub(super) struct Words { $(pub(super) $name: &'static str),+ }

        const EN: Words = Words { $($name: $en),+ };
        const ZH: Words = Words { $($name: $zh),+ };
    };
}

words! {
    report: "Sale report", "销售报表";
    as_of: "As of", "截至";
    behind: "The records were behind when this was made; the last seconds may be missing.",
        "生成时记录尚未跟上，可能缺少最后几秒的数据。";
    sale: "Sale", "活动";
    sku: "SKU", "货号";
    state: "State", "状态";
    opens_at: "Opened", "开始时间";
    units: "Units", "数量";
    stock: "Stock", "库存总量";
    sold: "Sold", "售出";
    held: "Held, not ordered", "占位未下单";
    ordered: "Ordered, not paid", "已下单未支付";
    paid: "Paid", "已支付";
    released: "Given back unpaid", "未支付退回";
    returned: "Paid and taken back", "支付后退回";
    left: "Left", "剩余";
    money: "Money", "金额";
    earned: "Worth of paid units", "已支付商品金额";
    received: "Payments", "收款";
    refunded: "Refunds sent", "已退款";
    due: "Refunds due", "待退款";
    speed: "Speed", "速度";
    first: "First claim", "首个成功请求";
    last: "Last claim", "最后成功请求";
    sold_out: "Sold out after", "售罄用时";
    never: "not sold out", "未售罄";
    peak_granted: "Most granted in a second", "每秒最多成功";
    peak_claims: "Most claims in a second", "每秒最多请求";
    paid_half: "Half paid within", "半数支付用时";
    paid_most: "Nine of ten paid within", "九成支付用时";
    answers: "Answers", "请求结果";
    asked: "Claims asked for", "请求总数";
    granted: "Granted", "成功";
    replayed: "Asked again", "重复请求";
    refused: "Refused", "拒绝";
    failed: "Not decided", "未处理";
    buyers: "Buyers", "买家数";
    why: "Who was refused why", "拒绝原因";
    reason: "Reason", "原因";
    count: "Count", "次数";
    share: "Share", "占比";
    nobody: "Nobody was refused, or it was not counted.", "没有拒绝，或未统计。";
    over_time: "Over time", "时间走势";
    claims_plot: "Claims for each point", "各时段请求数";
    left_plot: "Units left", "剩余数量";
    paid_plot: "Payments for each point", "各时段支付数";
    seconds: "s", "秒";
    point: "One point is", "每点代表";
    counted: "Refusals are counted while the server runs. Up to a second of them is lost when a process is killed.",
        "拒绝次数在服务运行时统计；进程被强制终止时最多丢失一秒。";
}

pub(super) const fn of(lang: Lang) -> &'static Words {
    match lang {
        Lang::En => &EN,
        Lang::Zh => &ZH,
    }
}

/// What a code says to people; the code itself if none of ours is called so.
pub(super) fn reason(code: &str, lang: Lang) -> String {
    let known = Code::ALL.iter().find(|known| known.as_str() == code);
    known.map_or_else(|| code.to_owned(), |code| Problem::new(*code).title(lang).to_owned())
}
