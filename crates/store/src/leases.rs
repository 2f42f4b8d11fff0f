//! Leases: which process does a piece of work that only one should do at a time.
//!
//! A lease is held until a time, by the clock of the database, which is the same for all; nobody's
//! own clock matters. It asks the others to wait and is no lock: a holder that was late may still
//! be at work. So what is done under a lease must do no harm if two do it, like moving a position.

use std::time::Duration;

use qiang_sql::{Row, Table, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::settings::last;
use crate::{Store, patiently};

const DOING: &str = "taking a lease";

static LEASES: Table =
    Table { name: "leases", key: "name", fixed: "", changing: "owner, until_ms" };

impl Store {
    /// Takes a lease for `ttl` from now on, if it is free, has run out, or is the owner's already;
    /// says whether the owner has it now. Doing it again renews it.
    ///
    /// The owner has it for `ttl` counted from before this was called.
    pub async fn take_lease(&self, name: &str, owner: &str, ttl: Duration) -> Result<bool> {
        let ttl_ms = i64::try_from(ttl.as_millis()).expect("a lease of less than an age");
        let take = sql!(
            "UPDATE leases SET owner = ?, until_ms = {now} + ?
             WHERE name = ? AND (owner = ? OR until_ms <= {now})"
        );
        let values = [owner.into(), ttl_ms.into(), name.into(), owner.into()];
        if patiently!(self.database.execute(take, &values).await).when(DOING)? == 1 {
            return Ok(true);
        }
        let known = sql!("SELECT name FROM leases WHERE name = ?");
        if self.database.fetch_optional(known, &[name.into()]).await.when(DOING)?.is_some() {
            return Ok(false);
        }
        let make = sql!("INSERT INTO leases (name, owner, until_ms) VALUES (?, ?, {now} + ?)");
        let values = [name.into(), owner.into(), ttl_ms.into()];
        match patiently!(self.database.execute(make, &values).await) {
            Err(error) if error.is_duplicate() => Ok(false),
            made => made.when(DOING).map(|_| true),
        }
    }

    /// Lets others have a lease before it has run out. What is not the owner's stays as it is.
    pub async fn give_up_lease(&self, name: &str, owner: &str) -> Result<()> {
        let delete = sql!("DELETE FROM leases WHERE name = ? AND owner = ?");
        let values = [name.into(), owner.into()];
        let given = patiently!(self.database.execute(delete, &values).await);
        given.when("giving up a lease").map(drop)
    }

    /// The leases whose names begin with `prefix` and that somebody holds at this moment: name and
    /// owner.
    pub async fn held_leases(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let held = |known: Known| known.is_held.then_some((known.name, known.owner));
        Ok(self.known_leases(prefix).await?.into_iter().filter_map(held).collect())
    }

    async fn known_leases(&self, prefix: &str) -> Result<Vec<Known>> {
        let select = sql!(
            "SELECT name, owner, CASE WHEN until_ms > {now} THEN 1 ELSE 0 END FROM leases
             WHERE name >= ? AND name <= ?"
        );
        let last = last(prefix);
        let values = [prefix.into(), last.as_str().into()];
        let rows = self.database.fetch_all(select, &values).await.when(DOING)?;
        rows.iter().map(read).collect()
    }

    /// Takes the lowest number below `count` that is free: the lease `prefix/number`. An owner who
    /// has one gets that one again. `None` if all are taken.
    pub async fn lease_number(
        &self,
        prefix: &str,
        count: u16,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<u16>> {
        let name = |number: u16| format!("{prefix}/{number}");
        let known = self.known_leases(&format!("{prefix}/")).await?;
        let of = |number| known.iter().find(|lease| lease.name == name(number));
        let is_mine = |number: &u16| of(*number).is_some_and(|lease| lease.owner == owner);
        let is_free = |number: &u16| of(*number).is_none_or(|lease| !lease.is_held);
        let mine = (0..count).filter(is_mine);
        for number in mine.chain((0..count).filter(is_free)) {
            if self.take_lease(&name(number), owner, ttl).await? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

struct Known {
    name: String,
    owner: String,
    is_held: bool,
}

fn read(row: &Row) -> Result<Known> {
    let mut fields = Fields::new(row, &LEASES);
    let (name, owner) = (fields.text()?.to_owned(), fields.text()?.to_owned());
    Ok(Known { name, owner, is_held: fields.int()? == 1 })
}
