//! Money by double entry: accounts, what moved between them, and their statements.
//!
//! Every movement has a key and happens once by it. What is available, `posted - held`, is never below
//! 0 but for [`Account::Outside`]: the database itself refuses that. A hold is over once, by the unique
//! key of what ended it. All accounts together are always 0.
//!
//! Nothing here is ever changed or deleted once it is entered: a mistake is put right by another
//! movement.

mod apply;

use std::fmt;

use qiang_core::{Cents, PoolId, Timestamp, UserId};
use qiang_sql::{Row, Table, sql};

use crate::error::{Result, Unreadable, While};
use crate::fields::Fields;
use crate::{Store, page, patiently};

pub use apply::apply;

/// The most cents one account holds, and one movement moves. The database has the same bound.
pub const MAX_BALANCE: Cents = Cents::new(1_000_000_000_000);
/// The most bytes of a movement's key.
pub const MAX_KEY: usize = 255;
/// How often a batch is tried that collides with those of others.
const ATTEMPTS: u32 = 20;

const READING: &str = "reading accounts";

static ACCOUNTS: Table = Table {
    name: "accounts",
    key: "account",
    fixed: "created_at",
    changing: "posted, held, version",
};
static TRANSFERS: Table = Table {
    name: "transfers",
    key: "transfer_key",
    fixed: "request_hash, kind, debit, credit, amount, pending_key, expires_at, created_at",
    changing: "",
};
static ENTRIES: Table = Table {
    name: "entries",
    key: "account, seq",
    fixed: "transfer_key, other, amount, balance_after, at",
    changing: "",
};
static OPEN_HOLDS: Table = Table {
    name: "open_holds",
    key: "transfer_key",
    fixed: "debit, amount, expires_at",
    changing: "",
};

/// Whose money it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    User(UserId),
    /// What a packet still has to give.
    Packet(PoolId),
    /// Where money comes from and goes to. It alone may owe: what it owes, all others have.
    Outside,
}

impl Account {
    /// The account of a name, as [`Account`] is shown.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.split_once(':') {
            None => (name == "outside").then_some(Self::Outside),
            Some(("user", user)) => UserId::new(user).ok().map(Self::User),
            Some(("packet", pool)) => pool.parse().ok().map(Self::Packet),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "user:{user}"),
            Self::Packet(pool) => write!(f, "packet:{pool}"),
            Self::Outside => f.write_str("outside"),
        }
    }
}

/// What an account has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// What its entries add up to.
    pub posted: Cents,
    /// Of this, what open holds keep.
    pub held: Cents,
    /// How many entries it has.
    pub version: u64,
}

impl Balance {
    /// What can be moved or held.
    #[must_use]
    pub fn available(&self) -> Cents {
        self.posted.plus(Cents::new(-self.held.get()))
    }
}

/// Something to be done with money.
#[derive(Debug, Clone)]
pub struct Movement<'a> {
    /// Makes it happen once.
    pub key: &'a str,
    /// What was asked for, as a hash in hex: the same key with another hash is a mistake.
    pub request_hash: &'a str,
    pub what: What<'a>,
}

/// What is to be done. A hold is named by the key that made it.
#[derive(Debug, Clone)]
pub enum What<'a> {
    Transfer {
        from: Account,
        to: Account,
        amount: Cents,
    },
    /// Keeps money for somebody.
    Hold {
        from: Account,
        to: Account,
        amount: Cents,
        /// When it is over by itself; `None` is never.
        expires_at: Option<Timestamp>,
    },
    /// Moves what was held, or a part of it; the rest is free again.
    Post {
        hold: &'a str,
        /// `None` is all of it.
        amount: Option<Cents>,
    },
    /// Gives a hold up.
    Void {
        hold: &'a str,
    },
    /// Ends a hold whose time has come.
    Expire {
        hold: &'a str,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    pub key: String,
    pub request_hash: String,
    pub kind: TransferKind,
    pub debit: Account,
    pub credit: Account,
    /// What moved, is held, or is free again.
    pub amount: Cents,
    /// The hold that is over by this.
    pub hold: Option<String>,
    /// Of a hold: when it is over by itself.
    pub expires_at: Option<Timestamp>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferKind {
    Transfer,
    Hold,
    Post,
    Void,
    Expire,
}

impl TransferKind {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transfer => "transfer",
            Self::Hold => "hold",
            Self::Post => "post",
            Self::Void => "void",
            Self::Expire => "expire",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Transfer, Self::Hold, Self::Post, Self::Void, Self::Expire];
        all.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// What came of a movement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// It happened now.
    Done(Transfer),
    /// It had happened before.
    Replayed(Transfer),
    /// It did not happen, and nothing changed.
    Refused(Refusal),
}

/// Why money does not move. Checked in the order declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The key was used for something else.
    KeyReused,
    /// Not from 1 to [`MAX_BALANCE`].
    BadAmount,
    /// From an account to itself.
    SameAccount,
    NoSuchHold,
    /// The hold was posted, voided or has expired.
    HoldOver {
        by: TransferKind,
    },
    /// Its time has come, so it cannot be posted any more.
    HoldExpired,
    /// Its time has not come yet.
    HoldNotExpired,
    /// More than was held.
    AboveHold {
        held: Cents,
    },
    InsufficientFunds {
        available: Cents,
    },
    /// The account it goes to would have more than [`MAX_BALANCE`].
    TooMuch,
}

/// A line of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place, from 1, without gaps.
    pub seq: u64,
    /// The key of the transfer.
    pub transfer: String,
    /// The other side.
    pub other: Account,
    /// Below 0: it left the account.
    pub amount: Cents,
    pub balance_after: Cents,
    pub at: Timestamp,
}

/// What must be true of all accounts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// All that is posted; 0, or money appeared or vanished.
    pub posted: Cents,
    /// All that accounts say is held.
    pub held: Cents,
    /// All open holds; the same, or a hold was forgotten.
    pub open_holds: Cents,
    /// Accounts whose balance is not what their last entry says; 0.
    pub accounts_off: u64,
}

impl Sums {
    /// Whether every cent is accounted for.
    #[must_use]
    pub fn add_up(&self) -> bool {
        self.posted == Cents::ZERO && self.held == self.open_holds && self.accounts_off == 0
    }
}

impl Store {
    /// Does all of this in one transaction, in this order, and says what came of each. One that is
    /// refused leaves the others alone. It is on the disk when this returns.
    ///
    /// A collision with others is tried again and never becomes a refusal.
    pub async fn move_money(
        &self,
        movements: &[Movement<'_>],
        now: Timestamp,
    ) -> Result<Vec<Moved>> {
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match self.try_to_move(movements, now).await {
                // A key that somebody else used at this moment is found the next time.
                Err(error) if left > 0 && (error.is_transient() || error.is_duplicate()) => {
                    tracing::debug!(%error, left, "trying again");
                }
                done => return done,
            }
        }
    }

    async fn try_to_move(&self, movements: &[Movement<'_>], now: Timestamp) -> Result<Vec<Moved>> {
        let mut tx = self.begin().await?;
        let moved = apply(&mut tx, movements, now).await?;
        tx.commit().await.when("moving money")?;
        Ok(moved)
    }

    /// What an account has; nothing, if it never had an entry or a hold.
    pub async fn balance(&self, account: &Account) -> Result<Balance> {
        let select = sql!([ACCOUNTS] "SELECT {accounts} FROM accounts WHERE account = ?");
        let name = account.to_string();
        let row = self.database.fetch_optional(select, &[(&name).into()]).await.when(READING)?;
        Ok(row.as_ref().map(read_balance).transpose()?.map_or_else(Balance::default, |(_, b)| b))
    }

    /// The statement of an account, newest first, from before `before` on.
    pub async fn entries(
        &self,
        account: &Account,
        before: Option<u64>,
        max: u32,
    ) -> Result<Vec<Entry>> {
        let select = sql!(
            [ENTRIES] "SELECT {entries} FROM entries WHERE account = ? AND seq < ?
                       ORDER BY seq DESC LIMIT ?"
        );
        let before = before.and_then(|seq| i64::try_from(seq).ok()).unwrap_or(i64::MAX);
        let name = account.to_string();
        let values = [(&name).into(), before.into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await.when(READING)?;
        rows.iter().map(read_entry).collect()
    }

    /// What happened under a key.
    pub async fn transfer(&self, key: &str) -> Result<Option<Transfer>> {
        let select = sql!([TRANSFERS] "SELECT {transfers} FROM transfers WHERE transfer_key = ?");
        let row = self.database.fetch_optional(select, &[key.into()]).await.when(READING)?;
        row.as_ref().map(read_transfer).transpose()
    }

    /// The keys of holds whose time has come, longest due first.
    pub async fn due_holds(&self, now: Timestamp, max: u32) -> Result<Vec<String>> {
        let select = sql!(
            [OPEN_HOLDS] "SELECT {open_holds} FROM open_holds WHERE expires_at <= ?
                          ORDER BY expires_at, transfer_key LIMIT ?"
        );
        let values = [now.millis().into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await.when(READING)?;
        rows.iter().map(|row| Fields::new(row, &OPEN_HOLDS).text().map(str::to_owned)).collect()
    }

    /// The open holds that pay orders, by their keys, with what they hold.
    pub async fn open_order_holds(&self, max: u32) -> Result<Vec<(String, Cents)>> {
        let select = sql!(
            [OPEN_HOLDS] "SELECT {open_holds} FROM open_holds
                          WHERE transfer_key >= 'order:' AND transfer_key < 'order;'
                          ORDER BY transfer_key LIMIT ?"
        );
        let rows = self.database.fetch_all(select, &[page(max).into()]).await.when(READING)?;
        let read = |row| {
            let mut fields = Fields::new(row, &OPEN_HOLDS);
            let (key, _debit) = (fields.text()?.to_owned(), fields.text()?);
            Ok((key, fields.cents()?))
        };
        rows.iter().map(read).collect()
    }

    /// Adds everything up, at one moment.
    pub async fn sums(&self) -> Result<Sums> {
        patiently!(self.try_to_sum().await)
    }

    async fn try_to_sum(&self) -> Result<Sums> {
        // One statement sees one moment on every database.
        macro_rules! sums {
            ($number:literal) => {
                concat!(
                    "SELECT
                        (SELECT CAST(COALESCE(SUM(posted), 0) AS ", $number, ") FROM accounts),
                        (SELECT CAST(COALESCE(SUM(held), 0) AS ", $number, ") FROM accounts),
                        (SELECT CAST(COALESCE(SUM(amount), 0) AS ", $number, ") FROM open_holds),
                        (SELECT COUNT(*) FROM accounts AS a
                         LEFT JOIN entries AS e ON e.account = a.account AND e.seq = a.version
                         WHERE COALESCE(e.balance_after, 0) <> a.posted)"
                )
            };
        }
        let select = sql!(
            sqlite: sums!("INTEGER"),
            mysql: sums!("SIGNED"),
            postgres: sums!("BIGINT"),
        );
        let row = self.database.fetch_optional(select, &[]).await.when(READING)?;
        let Some(row) = row else { unreachable!("sums without groups are one row") };
        let mut fields = Fields::new(&row, &ACCOUNTS);
        Ok(Sums {
            posted: fields.cents()?,
            held: fields.cents()?,
            open_holds: fields.cents()?,
            accounts_off: fields.number()?,
        })
    }
}

fn account(fields: &mut Fields<'_>) -> Result<Account> {
    let name = fields.text()?;
    let bad = || fields.bad_last(Unreadable::Word(name.to_owned()));
    Account::from_name(name).ok_or_else(bad)
}

fn read_balance(row: &Row) -> Result<(Account, Balance)> {
    let mut fields = Fields::new(row, &ACCOUNTS);
    let (account, _created_at) = (account(&mut fields)?, fields.int()?);
    let (posted, held, version) = (fields.cents()?, fields.cents()?, fields.number()?);
    Ok((account, Balance { posted, held, version }))
}

fn read_transfer(row: &Row) -> Result<Transfer> {
    let mut fields = Fields::new(row, &TRANSFERS);
    Ok(Transfer {
        key: fields.text()?.to_owned(),
        request_hash: fields.text()?.to_owned(),
        kind: fields.word(TransferKind::from_word)?,
        debit: account(&mut fields)?,
        credit: account(&mut fields)?,
        amount: fields.cents()?,
        hold: fields.text_or_none()?.map(str::to_owned),
        expires_at: fields.time_or_none()?,
        at: fields.time()?,
    })
}

fn read_entry(row: &Row) -> Result<Entry> {
    let mut fields = Fields::new(row, &ENTRIES);
    let _account = fields.text()?;
    Ok(Entry {
        seq: fields.number()?,
        transfer: fields.text()?.to_owned(),
        other: account(&mut fields)?,
        amount: fields.cents()?,
        balance_after: fields.cents()?,
        at: fields.time()?,
    })
}
