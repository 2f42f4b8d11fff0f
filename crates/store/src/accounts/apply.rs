//! A batch of movements in one transaction.
//!
//! All accounts concerned are locked first, in the order of their names, so that batches wait for each
//! other and never in a circle. What was done before is read behind those locks. Then the movements are
//! decided one after the other in memory, and written: one update for each account, one row for
//! each movement, one entry for each account that it changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use qiang_core::{Cents, Timestamp};
use qiang_sql::{Existing, Insert, Listed, Params, Transaction, Value, sql};

use super::{
    ACCOUNTS, Account, Balance, ENTRIES, MAX_BALANCE, MAX_KEY, Moved, Movement, OPEN_HOLDS,
    Refusal, TRANSFERS, Transfer, TransferKind, What, read_balance, read_transfer,
};
use crate::error::{Result, While};

const MOVING: &str = "moving money";

static OPEN: Insert = Insert::new(&ACCOUNTS, Existing::Stays);
static ADD_TRANSFER: Insert = Insert::new(&TRANSFERS, Existing::IsAnError);
static ADD_ENTRY: Insert = Insert::new(&ENTRIES, Existing::IsAnError);
static ADD_HOLD: Insert = Insert::new(&OPEN_HOLDS, Existing::IsAnError);

static KNOWN: Listed =
    Listed::over(&[&ACCOUNTS], "SELECT {accounts} FROM accounts WHERE account IN ({list})");
static LOCK: Listed = Listed::over(
    &[&ACCOUNTS],
    "SELECT {accounts} FROM accounts WHERE account IN ({list}) ORDER BY account {lock}",
);
static BY_KEY: Listed =
    Listed::over(&[&TRANSFERS], "SELECT {transfers} FROM transfers WHERE transfer_key IN ({list})");
static BY_HOLD: Listed =
    Listed::over(&[&TRANSFERS], "SELECT {transfers} FROM transfers WHERE pending_key IN ({list})");
static END_HOLDS: Listed =
    Listed::over(&[], "DELETE FROM open_holds WHERE transfer_key IN ({list})");

/// Does all of this in the caller's transaction, in this order, and says what came of each. One that
/// is refused leaves the others alone; whoever wants all or nothing does not commit.
///
/// # Panics
/// If a key is empty or longer than [`MAX_KEY`].
pub async fn apply(
    tx: &mut Transaction,
    movements: &[Movement<'_>],
    now: Timestamp,
) -> Result<Vec<Moved>> {
    for Movement { key, .. } in movements {
        assert!((1..=MAX_KEY).contains(&key.len()), "a key of {} bytes", key.len());
    }
    if movements.is_empty() {
        return Ok(Vec::new());
    }
    // A hold that stands here never changes, so it can be read before anything is locked.
    let holds = by(&BY_KEY, tx, movements.iter().filter_map(hold), |t| Some(t.key.clone())).await?;
    let balances = lock(tx, &concerned(movements, &holds), now).await?;
    let keys = movements.iter().map(|movement| movement.key);
    let done = by(&BY_KEY, tx, keys, |t| Some(t.key.clone())).await?;
    let over = by(&BY_HOLD, tx, movements.iter().filter_map(hold), |t| t.hold.clone()).await?;
    let mut batch = Batch { now, balances, done, over, holds, ..Batch::default() };
    let moved = movements.iter().map(|movement| batch.decide(movement)).collect();
    batch.write(tx).await?;
    Ok(moved)
}

/// The hold that a movement ends.
fn hold<'a>(movement: &Movement<'a>) -> Option<&'a str> {
    match movement.what {
        What::Transfer { .. } | What::Hold { .. } => None,
        What::Post { hold, .. } | What::Void { hold } | What::Expire { hold } => Some(hold),
    }
}

/// The transfers that a query finds for these keys.
async fn by<'k>(
    select: &Listed,
    tx: &mut Transaction,
    keys: impl Iterator<Item = &'k str>,
    name: impl Fn(&Transfer) -> Option<String>,
) -> Result<HashMap<String, Transfer>> {
    let keys: BTreeSet<&str> = keys.collect();
    let keys: Vec<Value<'_>> = keys.into_iter().map(Value::Text).collect();
    let rows = select.fetch(tx, &[], &keys, &[]).await.when(MOVING)?;
    let found = rows.iter().map(read_transfer);
    found.filter_map(|read| read.map(|t| Some((name(&t)?, t))).transpose()).collect()
}

/// The names of all accounts that may change, in the order in which they are locked.
fn concerned(movements: &[Movement<'_>], holds: &HashMap<String, Transfer>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for movement in movements {
        match &movement.what {
            What::Transfer { from, to, .. } | What::Hold { from, to, .. } => {
                names.extend([from.to_string(), to.to_string()]);
            }
            What::Post { hold, .. } | What::Void { hold } | What::Expire { hold } => {
                let accounts = holds.get(*hold).map(|hold| [&hold.debit, &hold.credit]);
                names.extend(accounts.into_iter().flatten().map(ToString::to_string));
            }
        }
    }
    names
}

/// Locks the accounts. Those that are not there yet are made first, before anything is locked, so that
/// nobody who holds a lock waits for one that is being made.
async fn lock(
    tx: &mut Transaction,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<BTreeMap<String, Locked>> {
    let list: Vec<Value<'_>> = names.iter().map(Value::from).collect();
    let known = KNOWN.fetch(tx, &[], &list, &[]).await.when(MOVING)?;
    let known: Vec<Account> =
        known.iter().map(|row| Ok(read_balance(row)?.0)).collect::<Result<_>>()?;
    let known: BTreeSet<String> = known.iter().map(ToString::to_string).collect();
    let missing: Vec<&String> = names.difference(&known).collect();
    let bind = |params: &mut Params, name: &&String| {
        params.add(*name).add(now.millis()).add(0_i64).add(0_i64).add(0_i64);
    };
    OPEN.run(tx, &missing, bind).await.when(MOVING)?;
    let rows = LOCK.fetch(tx, &[], &list, &[]).await.when(MOVING)?;
    let locked = rows.iter().map(|row| {
        let (account, balance) = read_balance(row)?;
        Ok((account.to_string(), Locked { account, balance, before: balance }))
    });
    locked.collect()
}

/// An account that is ours until the transaction ends.
struct Locked {
    account: Account,
    balance: Balance,
    before: Balance,
}

impl Locked {
    fn may_owe(&self) -> bool {
        self.account == Account::Outside
    }

    fn can_give(&self, amount: Cents) -> Result<(), Refusal> {
        let available = self.balance.available();
        if self.may_owe() || available >= amount {
            return Ok(());
        }
        Err(Refusal::InsufficientFunds { available })
    }

    fn can_take(&self, amount: Cents) -> Result<(), Refusal> {
        if self.may_owe() || self.balance.posted.plus(amount) <= MAX_BALANCE {
            return Ok(());
        }
        Err(Refusal::TooMuch)
    }
}

/// A line to be added to a statement.
struct NewEntry {
    account: String,
    balance: Balance,
    transfer: String,
    other: String,
    amount: Cents,
}

#[derive(Default)]
struct Batch {
    now: Timestamp,
    /// By name.
    balances: BTreeMap<String, Locked>,
    /// What was done before, or in this batch, by its key.
    done: HashMap<String, Transfer>,
    /// What ended a hold, by the hold.
    over: HashMap<String, Transfer>,
    /// The holds that this batch speaks of.
    holds: HashMap<String, Transfer>,
    new: Vec<Transfer>,
    entries: Vec<NewEntry>,
}

impl Batch {
    fn decide(&mut self, movement: &Movement<'_>) -> Moved {
        if let Some(before) = self.done.get(movement.key) {
            return if before.request_hash == movement.request_hash {
                Moved::Replayed(before.clone())
            } else {
                Moved::Refused(Refusal::KeyReused)
            };
        }
        let decided = match &movement.what {
            What::Transfer { from, to, amount } => self.transfer(movement, from, to, *amount),
            What::Hold { from, to, amount, expires_at } => {
                self.hold(movement, from, to, *amount, *expires_at)
            }
            What::Post { hold, amount } => self.post(movement, hold, *amount),
            What::Void { hold } => self.free(movement, hold, TransferKind::Void),
            What::Expire { hold } => self.free(movement, hold, TransferKind::Expire),
        };
        match decided {
            Ok(transfer) => {
                self.note(&transfer);
                Moved::Done(transfer)
            }
            Err(refusal) => Moved::Refused(refusal),
        }
    }

    fn transfer(
        &mut self,
        movement: &Movement<'_>,
        from: &Account,
        to: &Account,
        amount: Cents,
    ) -> Result<Transfer, Refusal> {
        sound(from, to, amount)?;
        self.of(from).can_give(amount)?;
        self.of(to).can_take(amount)?;
        self.enter(movement.key, from, to, amount);
        Ok(self.made(movement, TransferKind::Transfer, from, to, amount))
    }

    fn hold(
        &mut self,
        movement: &Movement<'_>,
        from: &Account,
        to: &Account,
        amount: Cents,
        expires_at: Option<Timestamp>,
    ) -> Result<Transfer, Refusal> {
        sound(from, to, amount)?;
        self.of(from).can_give(amount)?;
        self.change_held(from, amount);
        let made = self.made(movement, TransferKind::Hold, from, to, amount);
        Ok(Transfer { expires_at, ..made })
    }

    fn post(
        &mut self,
        movement: &Movement<'_>,
        hold: &str,
        amount: Option<Cents>,
    ) -> Result<Transfer, Refusal> {
        let hold = self.open_hold(hold)?;
        if hold.expires_at.is_some_and(|expires_at| expires_at <= self.now) {
            return Err(Refusal::HoldExpired);
        }
        let amount = amount.unwrap_or(hold.amount);
        if amount < Cents::new(1) {
            return Err(Refusal::BadAmount);
        }
        if amount > hold.amount {
            return Err(Refusal::AboveHold { held: hold.amount });
        }
        self.of(&hold.credit).can_take(amount)?;
        self.change_held(&hold.debit, Cents::new(-hold.amount.get()));
        self.enter(movement.key, &hold.debit, &hold.credit, amount);
        let made = self.made(movement, TransferKind::Post, &hold.debit, &hold.credit, amount);
        Ok(Transfer { hold: Some(hold.key), ..made })
    }

    /// Ends a hold without moving anything.
    fn free(
        &mut self,
        movement: &Movement<'_>,
        hold: &str,
        kind: TransferKind,
    ) -> Result<Transfer, Refusal> {
        let hold = self.open_hold(hold)?;
        let is_due = hold.expires_at.is_some_and(|expires_at| expires_at <= self.now);
        if kind == TransferKind::Expire && !is_due {
            return Err(Refusal::HoldNotExpired);
        }
        self.change_held(&hold.debit, Cents::new(-hold.amount.get()));
        let made = self.made(movement, kind, &hold.debit, &hold.credit, hold.amount);
        Ok(Transfer { hold: Some(hold.key), ..made })
    }

    fn open_hold(&self, key: &str) -> Result<Transfer, Refusal> {
        let hold = self.holds.get(key).filter(|hold| hold.kind == TransferKind::Hold);
        let hold = hold.ok_or(Refusal::NoSuchHold)?;
        match self.over.get(key) {
            Some(end) => Err(Refusal::HoldOver { by: end.kind }),
            None => Ok(hold.clone()),
        }
    }

    fn of(&mut self, account: &Account) -> &mut Locked {
        self.balances.get_mut(&account.to_string()).expect("every account concerned is locked")
    }

    fn change_held(&mut self, account: &Account, by: Cents) {
        let balance = &mut self.of(account).balance;
        balance.held = balance.held.plus(by);
    }

    /// Moves an amount, and writes it into both statements.
    fn enter(&mut self, key: &str, from: &Account, to: &Account, amount: Cents) {
        let sides = [(from, to, Cents::new(-amount.get())), (to, from, amount)];
        for (account, other, amount) in sides {
            let balance = &mut self.of(account).balance;
            balance.posted = balance.posted.plus(amount);
            balance.version += 1;
            let balance = *balance;
            self.entries.push(NewEntry {
                account: account.to_string(),
                balance,
                transfer: key.to_owned(),
                other: other.to_string(),
                amount,
            });
        }
    }

    fn made(
        &self,
        movement: &Movement<'_>,
        kind: TransferKind,
        debit: &Account,
        credit: &Account,
        amount: Cents,
    ) -> Transfer {
        Transfer {
            key: movement.key.to_owned(),
            request_hash: movement.request_hash.to_owned(),
            kind,
            debit: debit.clone(),
            credit: credit.clone(),
            amount,
            hold: None,
            expires_at: None,
            at: self.now,
        }
    }

    /// Remembers it for the movements behind it. A hold of this batch can be ended by the next one: its
    /// accounts are locked for it.
    fn note(&mut self, transfer: &Transfer) {
        self.done.insert(transfer.key.clone(), transfer.clone());
        if transfer.kind == TransferKind::Hold {
            self.holds.insert(transfer.key.clone(), transfer.clone());
        }
        if let Some(hold) = &transfer.hold {
            self.over.insert(hold.clone(), transfer.clone());
        }
        self.new.push(transfer.clone());
    }

    async fn write(self, tx: &mut Transaction) -> Result<()> {
        ADD_TRANSFER.run(tx, &self.new, bind_transfer).await.when(MOVING)?;
        let now = self.now;
        let bind = |params: &mut Params, entry: &NewEntry| bind_entry(params, entry, now);
        ADD_ENTRY.run(tx, &self.entries, bind).await.when(MOVING)?;
        for (name, Locked { balance, before, .. }) in &self.balances {
            if balance == before {
                continue;
            }
            let update = sql!(
                "UPDATE accounts SET posted = ?, held = ?, version = ?
                 WHERE account = ? AND posted = ? AND held = ? AND version = ?"
            );
            let values = [
                balance.posted.get().into(),
                balance.held.get().into(),
                number(balance.version),
                name.into(),
                before.posted.get().into(),
                before.held.get().into(),
                number(before.version),
            ];
            let found = tx.execute(update, &values).await.when(MOVING)?;
            assert_eq!(found, 1, "account {name} changed although it was locked");
        }
        let holds: Vec<&Transfer> =
            self.new.iter().filter(|new| new.kind == TransferKind::Hold).collect();
        ADD_HOLD.run(tx, &holds, bind_hold).await.when(MOVING)?;
        let ended: Vec<Value<'_>> =
            self.new.iter().filter_map(|new| new.hold.as_ref()).map(Value::from).collect();
        END_HOLDS.execute(tx, &[], &ended).await.when(MOVING).map(drop)
    }
}

fn sound(from: &Account, to: &Account, amount: Cents) -> Result<(), Refusal> {
    if !(Cents::new(1)..=MAX_BALANCE).contains(&amount) {
        return Err(Refusal::BadAmount);
    }
    if from == to { Err(Refusal::SameAccount) } else { Ok(()) }
}

fn bind_transfer(params: &mut Params, transfer: &Transfer) {
    params
        .add(&transfer.key)
        .add(&transfer.request_hash)
        .add(transfer.kind.as_str())
        .add(&transfer.debit.to_string())
        .add(&transfer.credit.to_string())
        .add(transfer.amount.get())
        .add(transfer.hold.as_deref())
        .add(transfer.expires_at.map(Timestamp::millis))
        .add(transfer.at.millis());
}

fn bind_entry(params: &mut Params, entry: &NewEntry, now: Timestamp) {
    params
        .add(&entry.account)
        .add(number(entry.balance.version))
        .add(&entry.transfer)
        .add(&entry.other)
        .add(entry.amount.get())
        .add(entry.balance.posted.get())
        .add(now.millis());
}

fn bind_hold(params: &mut Params, hold: &&Transfer) {
    params
        .add(&hold.key)
        .add(&hold.debit.to_string())
        .add(hold.amount.get())
        .add(hold.expires_at.map(Timestamp::millis));
}

fn number(version: u64) -> Value<'static> {
    Value::Int(i64::try_from(version).expect("no account has 2^63 entries"))
}
