//! Who did what, when: one row for every change that an admin made over HTTP, kept for as long as the
//! operator says.

use qiang_core::{Timestamp, UserId};
use qiang_sql::{Existing, Insert, Row, Statement, Table, Value, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::{Moment, Store, page, patiently};

/// Rows that are forgotten at once.
const FORGET_AT_ONCE: u32 = 1_000;

static ACTIONS: Table = Table {
    name: "actions",
    key: "id",
    fixed: "at, user_id, role, method, route, thing, status, code, request_id, note",
    changing: "",
};

/// The same action may be written again by somebody who does not know whether it was.
static ADD: Insert = Insert::new(&ACTIONS, Existing::Stays);

/// What somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Names it.
    pub id: u64,
    /// When it was asked for.
    pub at: Timestamp,
    /// Who.
    pub user: UserId,
    /// What they may do: a word of whoever signs in.
    pub role: String,
    /// Which call: the method, and the address with names for what varies.
    pub method: String,
    pub route: String,
    /// What it was about: the parts of the address that vary.
    pub thing: Option<String>,
    /// The status of the answer; `None` if nobody waited for it.
    pub status: Option<u16>,
    /// The code of the problem, where one was the answer.
    pub code: Option<String>,
    /// Its `Idempotency-Key`.
    pub request: Option<String>,
    /// Why, in the words of whoever did it.
    pub note: Option<String>,
}

/// Which actions. Whatever is `None` does not matter.
#[derive(Debug, Clone, Default)]
pub struct ActionFilter {
    /// Whose.
    pub user: Option<UserId>,
    /// About what.
    pub thing: Option<String>,
    /// At this time or later.
    pub from: Option<Timestamp>,
    /// Before this time.
    pub to: Option<Timestamp>,
    /// From behind this place on.
    pub before: Option<Moment>,
}

impl Action {
    /// The place of this action in the listing.
    #[must_use]
    pub const fn moment(&self) -> Moment {
        Moment { at: self.at, id: self.id }
    }
}

impl Store {
    /// Notes an action; one that is known stays as it is.
    pub async fn add_action(&self, action: &Action) -> Result<()> {
        let values = [
            sql_number(action.id).into(),
            action.at.millis().into(),
            action.user.as_str().into(),
            action.role.as_str().into(),
            action.method.as_str().into(),
            action.route.as_str().into(),
            action.thing.as_deref().into(),
            action.status.map(u32::from).into(),
            action.code.as_deref().into(),
            action.request.as_deref().into(),
            action.note.as_deref().into(),
        ];
        let add = ADD.one(self.database.dialect());
        let added = patiently!(self.database.execute(add, &values).await);
        added.when("noting who did what").map(drop)
    }

    /// The actions that fit, newest first; the next cursor is the last one's [`Action::moment`].
    pub async fn actions(&self, filter: &ActionFilter, max: u32) -> Result<Vec<Action>> {
        let mut text = "SELECT {actions} FROM actions WHERE 1 = 1".to_owned();
        let mut values: Vec<Value<'_>> = Vec::new();
        if let Some(user) = &filter.user {
            text.push_str(" AND user_id = ?");
            values.push(user.as_str().into());
        }
        if let Some(thing) = &filter.thing {
            text.push_str(" AND thing = ?");
            values.push(thing.into());
        }
        if let Some(from) = filter.from {
            text.push_str(" AND at >= ?");
            values.push(from.millis().into());
        }
        if let Some(to) = filter.to {
            text.push_str(" AND at < ?");
            values.push(to.millis().into());
        }
        if let Some(Moment { at, id }) = filter.before {
            text.push_str(" AND at <= ? AND (at, id) < (?, ?)");
            values.extend([Value::Int(at.millis()), at.millis().into(), sql_number(id).into()]);
        }
        text.push_str(" ORDER BY at DESC, id DESC LIMIT ?");
        values.push(page(max).into());
        let select = Statement::built_over(&[&ACTIONS], &text);
        let rows = self.database.fetch_all(&select, &values).await;
        rows.when("reading who did what")?.iter().map(read).collect()
    }

    /// Forgets some of the actions before a time; says how many.
    pub async fn forget_actions(&self, before: Timestamp) -> Result<u64> {
        const DOING: &str = "forgetting who did what";
        let last = sql!(
            "SELECT MAX(oldest.at) FROM (
                SELECT at FROM actions WHERE at < ? ORDER BY at LIMIT ?
             ) AS oldest"
        );
        let values = [before.millis().into(), FORGET_AT_ONCE.into()];
        let row = self.database.fetch_optional(last, &values).await.when(DOING)?;
        let read = |row| Fields::new(row, &ACTIONS).int_or_none();
        let Some(last) = row.as_ref().map(read).transpose()?.flatten() else { return Ok(0) };
        let forget = sql!("DELETE FROM actions WHERE at <= ?");
        patiently!(self.database.execute(forget, &[last.into()]).await).when(DOING)
    }
}

/// An id as the database has it.
pub(crate) fn sql_number(id: u64) -> i64 {
    i64::try_from(id).expect("ids have 63 bits")
}

fn read(row: &Row) -> Result<Action> {
    let mut fields = Fields::new(row, &ACTIONS);
    Ok(Action {
        id: fields.number()?,
        at: fields.time()?,
        user: fields.id(UserId::new)?,
        role: fields.text()?.to_owned(),
        method: fields.text()?.to_owned(),
        route: fields.text()?.to_owned(),
        thing: fields.text_or_none()?.map(str::to_owned),
        status: fields.number_or_none()?,
        code: fields.text_or_none()?.map(str::to_owned),
        request: fields.text_or_none()?.map(str::to_owned),
        note: fields.text_or_none()?.map(str::to_owned),
    })
}
