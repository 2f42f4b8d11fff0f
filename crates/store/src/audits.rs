//! What the last audits found, newest first. There are never more rows than the operator wants to keep.

use qiang_core::{Timestamp, UserId};
use qiang_sql::{Existing, Insert, Row, Table, sql};

use crate::actions::sql_number;
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::{Moment, Store, page, patiently};

static AUDITS: Table = Table {
    name: "audits",
    key: "id",
    fixed: "at, result, how, user_id, took_ms, sales, claims, orders, payments, refunds, \
        difference_count, pending_reviews, differences, error",
    changing: "",
};

/// The same audit may be written again by somebody who does not know whether it was.
static ADD: Insert = Insert::new(&AUDITS, Existing::Stays);

/// An audit that was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Names it.
    pub id: u64,
    /// When it began.
    pub at: Timestamp,
    pub result: AuditResult,
    pub how: AuditHow,
    /// Who asked for it; `None` for one that ran by itself.
    pub user: Option<UserId>,
    pub took_ms: u64,
    /// How many sales, claims, orders, payments and refunds were looked at.
    pub looked_at: [u64; 5],
    pub difference_count: u64,
    pub pending_reviews: u64,
    /// The first differences, as JSON.
    pub differences: String,
    /// Why it was not finished.
    pub error: Option<String>,
}

/// What came of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditResult {
    /// All books agree.
    Agree,
    /// They do not.
    Differ,
    /// It could not be finished.
    Unfinished,
}

/// Why an audit was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditHow {
    /// Somebody asked for it.
    Asked,
    /// Somebody had the records mended.
    Repair,
    /// It was time.
    ByItself,
}

impl AuditResult {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Differ => "differ",
            Self::Unfinished => "unfinished",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Agree, Self::Differ, Self::Unfinished].into_iter().find(|one| one.as_str() == word)
    }
}

impl AuditHow {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Repair => "repair",
            Self::ByItself => "by_itself",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Asked, Self::Repair, Self::ByItself].into_iter().find(|one| one.as_str() == word)
    }
}

impl AuditRecord {
    /// The place of this audit in the listing.
    #[must_use]
    pub const fn moment(&self) -> Moment {
        Moment { at: self.at, id: self.id }
    }
}

impl Store {
    /// Notes what an audit found, and forgets the oldest ones, so that no more than `keep` are left.
    pub async fn add_audit(&self, audit: &AuditRecord, keep: u32) -> Result<()> {
        const DOING: &str = "noting what an audit found";
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let [sales, claims, orders, payments, refunds] = audit.looked_at.map(number);
        let values = [
            sql_number(audit.id).into(),
            audit.at.millis().into(),
            audit.result.as_str().into(),
            audit.how.as_str().into(),
            audit.user.as_ref().map(UserId::as_str).into(),
            number(audit.took_ms).into(),
            sales.into(),
            claims.into(),
            orders.into(),
            payments.into(),
            refunds.into(),
            number(audit.difference_count).into(),
            number(audit.pending_reviews).into(),
            audit.differences.as_str().into(),
            audit.error.as_deref().into(),
        ];
        let add = ADD.one(self.database.dialect());
        patiently!(self.database.execute(add, &values).await).when(DOING)?;
        let first_too_many =
            sql!("SELECT at, id FROM audits ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?");
        let row = self.database.fetch_optional(first_too_many, &[keep.into()]).await.when(DOING)?;
        let Some(row) = row else { return Ok(()) };
        let mut fields = Fields::new(&row, &AUDITS);
        let (at, id) = (fields.int()?, fields.int()?);
        let forget = sql!("DELETE FROM audits WHERE at <= ? AND (at, id) <= (?, ?)");
        let values = [at.into(), at.into(), id.into()];
        patiently!(self.database.execute(forget, &values).await).when(DOING).map(drop)
    }

    /// The audits, newest first, from behind the place on; the next one is the last one's
    /// [`AuditRecord::moment`].
    pub async fn audits(&self, before: Option<Moment>, max: u32) -> Result<Vec<AuditRecord>> {
        let max = page(max).into();
        let rows = match before {
            None => {
                let select =
                    sql!([AUDITS] "SELECT {audits} FROM audits ORDER BY at DESC, id DESC LIMIT ?");
                self.database.fetch_all(select, &[max]).await
            }
            Some(Moment { at, id }) => {
                // The first bound follows from the second; MySQL needs it to use the index.
                let select = sql!(
                    [AUDITS] "SELECT {audits} FROM audits WHERE at <= ? AND (at, id) < (?, ?)
                              ORDER BY at DESC, id DESC LIMIT ?"
                );
                let at = at.millis().into();
                self.database.fetch_all(select, &[at, at, sql_number(id).into(), max]).await
            }
        };
        rows.when("reading audits")?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<AuditRecord> {
    let mut fields = Fields::new(row, &AUDITS);
    Ok(AuditRecord {
        id: fields.number()?,
        at: fields.time()?,
        result: fields.word(AuditResult::from_word)?,
        how: fields.word(AuditHow::from_word)?,
        user: fields.id_or_none(UserId::new)?,
        took_ms: fields.number()?,
        looked_at: [
            fields.number()?,
            fields.number()?,
            fields.number()?,
            fields.number()?,
            fields.number()?,
        ],
        difference_count: fields.number()?,
        pending_reviews: fields.number()?,
        differences: fields.text()?.to_owned(),
        error: fields.text_or_none()?.map(str::to_owned),
    })
}
