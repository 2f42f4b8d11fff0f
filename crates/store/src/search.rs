//! Looks for claims and orders by who, which sale, where they stand and when, newest first.
//!
//! Every condition that narrows a search has an index that begins with it and goes on by time, so a
//! page costs the same however many rows there are. Only the conditions that were asked for are in the
//! statement: one that is always there and may be empty would keep the database from the index.

use qiang_core::{Claim, ClaimId, PoolId, State, Timestamp, UserId};
use qiang_sql::{Statement, Value};

use crate::claims::{self, CLAIMS};
use crate::error::{Result, While};
use crate::orders;
use crate::project::sql_id;
use crate::{Cursor, Order, OrderStatus, Store, page};

/// What is looked for. Whatever is `None` does not matter.
#[derive(Debug, Clone)]
pub struct Search<S> {
    /// This one, and no other.
    pub id: Option<ClaimId>,
    /// Whose.
    pub user: Option<UserId>,
    /// Of which sale.
    pub sale: Option<PoolId>,
    /// Where it stands.
    pub state: Option<S>,
    /// Made at this time or later.
    pub from: Option<Timestamp>,
    /// Made before this time.
    pub to: Option<Timestamp>,
    /// From behind this place on.
    pub before: Option<Cursor>,
    /// At most so many.
    pub max: u32,
}

/// Nothing narrows it, and nothing is shown.
impl<S> Default for Search<S> {
    fn default() -> Self {
        let (id, user, sale, state) = (None, None, None, None);
        Self { id, user, sale, state, from: None, to: None, before: None, max: 0 }
    }
}

/// The conditions of a search, and their parameters.
struct Conditions<'a> {
    text: String,
    values: Vec<Value<'a>>,
}

impl<'a> Conditions<'a> {
    /// `state` is the column that says where a row stands, and the word to look for.
    fn of<S>(search: &'a Search<S>, state: (&'static str, Option<&'static str>)) -> Self {
        let mut all = Self { text: "1 = 1".to_owned(), values: Vec::new() };
        if let Some(id) = search.id {
            all.add("sale_id = ? AND number = ?", &[sql_id(id.pool).into(), id.number.into()]);
        }
        if let Some(user) = &search.user {
            all.add("user_id = ?", &[user.as_str().into()]);
        }
        if let Some(sale) = search.sale {
            all.add("sale_id = ?", &[sql_id(sale).into()]);
        }
        if let (column, Some(word)) = state {
            all.add(column, &[word.into()]);
        }
        if let Some(from) = search.from {
            all.add("created_at >= ?", &[from.millis().into()]);
        }
        if let Some(to) = search.to {
            all.add("created_at < ?", &[to.millis().into()]);
        }
        if let Some(Cursor { at, id }) = search.before {
            let at = Value::Int(at.millis());
            // The first bound follows from the second; MySQL needs it to use the index.
            let place = "created_at <= ? AND (created_at, sale_id, number) < (?, ?, ?)";
            all.add(place, &[at, at, sql_id(id.pool).into(), id.number.into()]);
        }
        all.text.push_str(" ORDER BY created_at DESC, sale_id DESC, number DESC LIMIT ?");
        all.values.push(page(search.max).into());
        all
    }

    fn add(&mut self, condition: &'static str, values: &[Value<'a>]) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
        self.values.extend_from_slice(values);
    }
}

impl Search<State> {
    fn conditions(&self) -> Conditions<'_> {
        Conditions::of(self, ("state = ?", self.state.map(State::as_str)))
    }
}

impl Search<OrderStatus> {
    fn conditions(&self) -> Conditions<'_> {
        Conditions::of(self, ("status = ?", self.state.map(OrderStatus::as_str)))
    }
}

impl Store {
    /// The claims that fit, newest first; the next cursor is the last one's `created_at` and id.
    pub async fn search_claims(&self, search: &Search<State>) -> Result<Vec<Claim>> {
        let Conditions { text, values } = search.conditions();
        let text = format!("SELECT {{claims}} FROM claims WHERE {text}");
        let select = Statement::built_over(&[&CLAIMS], &text);
        let rows = self.database.fetch_all(&select, &values).await.when("searching claims")?;
        rows.iter().map(claims::read).collect()
    }

    /// The orders that fit, newest first; the next cursor is the last one's [`Order::cursor`].
    pub async fn search_orders(&self, search: &Search<OrderStatus>) -> Result<Vec<Order>> {
        let Conditions { text, values } = search.conditions();
        self.orders(&orders::picked(&text), &values).await
    }
}

#[cfg(test)]
mod tests {
    use qiang_sql::scratch::Scratch;
    use qiang_sql::{Database, Dialect};

    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1);

    /// How SQLite goes about a search.
    async fn plan(database: &Database, table: &str, conditions: &Conditions<'_>) -> String {
        let text = format!("EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE {}", conditions.text);
        let rows = database.fetch_all(&Statement::built(text), &conditions.values).await;
        let rows = rows.expect("a plan");
        let lines: Vec<_> = rows.iter().map(|row| row.text(3).expect("words").to_owned()).collect();
        lines.join("; ")
    }

    /// Searches for claims or orders, and the index that each must use.
    fn searches<S: Clone>(state: S) -> Vec<(Search<S>, &'static str)> {
        let pool = PoolId::new(1).expect("positive");
        let id = ClaimId { pool, number: 1 };
        let user = Some(UserId::new("ann").expect("a user id"));
        let before = Some(Cursor { at: AT, id });
        let all = Search { max: 10, ..Search::default() };
        let some = vec![
            (all.clone(), "by_time"),
            (Search { from: Some(AT), to: Some(AT), ..all.clone() }, "by_time"),
            (Search { user: user.clone(), ..all.clone() }, "by_user"),
            (Search { user, from: Some(AT), ..all.clone() }, "by_user"),
            (Search { state: Some(state.clone()), ..all.clone() }, "by_stat"),
            (Search { state: Some(state), to: Some(AT), ..all.clone() }, "by_stat"),
            (Search { sale: Some(pool), ..all.clone() }, "by_sale"),
            (Search { sale: Some(pool), from: Some(AT), ..all.clone() }, "by_sale"),
        ];
        let on = |(search, index): &(Search<S>, _)| (Search { before, ..search.clone() }, *index);
        let next_pages: Vec<_> = some.iter().map(on).collect();
        let one = (Search { id: Some(id), ..all }, "PRIMARY KEY");
        some.into_iter().chain(next_pages).chain([one]).collect()
    }

    #[tokio::test]
    async fn every_search_follows_an_index_and_sorts_nothing() {
        let scratch = Scratch::new(Dialect::Sqlite).await;
        let store = Store::open(scratch.url()).await.expect("opens");
        store.migrate().await.expect("migrates");
        for (search, index) in searches(State::Held) {
            let plan = plan(&store.database, "claims", &search.conditions()).await;
            assert!(plan.contains(index) && !plan.contains("B-TREE"), "{search:?}: {plan}");
        }
        for (search, index) in searches(OrderStatus::Paid) {
            let plan = plan(&store.database, "orders", &search.conditions()).await;
            assert!(plan.contains(index) && !plan.contains("B-TREE"), "{search:?}: {plan}");
        }
    }
}
