//! What clients were told, and whether it is what the server says: the proof that a sale was
//! exact, made without trusting the server's own word for it.
//!
//! Nothing is guessed. A request whose outcome is not known widens what the server may say, and
//! is named.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::ask::{Answer, Ask, Verb};
use super::words::{amount, many};

/// What clients were told about one sale.
#[derive(Debug, Default)]
pub struct Tally {
    told: HashMap<u32, Told>,
    released: u64,
    /// Numbers that were granted to two requests.
    twice: u64,
    /// Numbers that two users were told.
    crossed: u64,
    /// Claims whose answer got lost once or more, whatever became of them.
    lost: u64,
    unknown_claims: u64,
    unknown_releases: u64,
    /// Claims that clients were told are paid.
    paid: BTreeSet<u64>,
}

/// What was told about one claim.
#[derive(Debug, Clone, Copy)]
struct Told {
    user: u32,
    /// Somebody heard "granted", not only "granted before".
    first: bool,
    released: bool,
}

/// What the server says about the same sale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Books {
    pub stock: u64,
    pub available: u64,
    pub held: u64,
    pub ordered: u64,
    pub paid: u64,
    /// Differences that the server's own audit found in this sale.
    pub differences: u64,
}

/// Whether the sale was exact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What clients were told is what happened, and nobody has more than there is.
    pub exact: bool,
    /// All of it in one line.
    pub line: String,
    /// Claims that clients were told they have, or had.
    pub granted: u64,
    /// Of these, given back.
    pub released: u64,
    /// Users who were granted something.
    pub users: u64,
    /// Requests that may have had an effect nobody was told of.
    pub unknown: u64,
}

impl Tally {
    /// An answer arrived.
    pub fn heard(&mut self, ask: &Ask, answer: &Answer) {
        let (number, first) = match *answer {
            Answer::Done { number } => (number, true),
            Answer::Again { number } => (number, false),
            Answer::RefundDue | Answer::Refused(_) | Answer::Failed(_) | Answer::Unknown => return,
        };
        match ask.verb {
            Verb::Claim => self.granted(number, ask.user, first),
            Verb::Release => {
                if let Some(told) = self.told.get_mut(&number) {
                    self.released += u64::from(!told.released);
                    told.released = true;
                }
            }
            Verb::Pay => drop(self.paid.insert(ask.key)),
            Verb::Order | Verb::Look => {}
        }
    }

    fn granted(&mut self, number: u32, user: u32, first: bool) {
        let told = self.told.entry(number).or_insert(Told { user, first: false, released: false });
        self.crossed += u64::from(told.user != user);
        self.twice += u64::from(told.first && first);
        told.first |= first;
    }

    /// The answer to this got lost; it is asked again.
    pub fn lost(&mut self, ask: &Ask) {
        self.lost += u64::from(ask.verb == Verb::Claim);
    }

    /// Nobody will ever tell what became of this.
    pub fn unknown(&mut self, ask: &Ask) {
        match ask.verb {
            Verb::Claim => self.unknown_claims += 1,
            Verb::Release => self.unknown_releases += 1,
            Verb::Order | Verb::Pay | Verb::Look => {}
        }
    }

    /// The server does not say anything: what clients were told stands alone.
    pub fn unproven(&self, why: &str) -> Verdict {
        let (users, _) = self.users(u32::MAX);
        Verdict {
            exact: false,
            line: format!("NOT PROVEN: the books cannot be read: {why}"),
            granted: self.told.len() as u64,
            released: self.released,
            users,
            unknown: self.unknown_claims + self.unknown_releases,
        }
    }

    /// Compares with what the server says.
    pub fn verdict(&self, books: &Books, limit_per_user: u32) -> Verdict {
        let mut wrong = Vec::new();
        let mut complain = |is_wrong: bool, what: String| {
            if is_wrong {
                wrong.push(what);
            }
        };
        let granted = self.told.len() as u64;
        let told = granted - self.released;
        let taken = books.stock.saturating_sub(books.available);
        let (least, most) =
            (told.saturating_sub(self.unknown_releases), told + self.unknown_claims);
        complain(
            !(least..=most).contains(&taken),
            format!(
                "clients were told of {} taken, the server says {}",
                units(told),
                amount(taken)
            ),
        );
        complain(
            books.available + books.held + books.ordered + books.paid != books.stock,
            format!("the server's own counts do not add up to {}", amount(books.stock)),
        );
        let paid = self.paid.len() as u64;
        complain(
            books.paid < paid,
            format!(
                "clients were told of {} paid, the server says {}",
                units(paid),
                amount(books.paid)
            ),
        );
        complain(
            granted > books.stock && self.released == 0,
            format!("{} were granted", units(granted)),
        );
        complain(
            self.twice > 0,
            many(self.twice, "claim was granted twice", "claims were granted twice"),
        );
        complain(
            self.crossed > 0,
            many(self.crossed, "claim was told to two users", "claims were told to two users"),
        );
        let by_hearsay = self.told.values().filter(|told| !told.first).count() as u64;
        complain(
            by_hearsay > self.lost,
            format!("{} were repeated that nobody was granted", amount(by_hearsay)),
        );
        let (users, greedy) = self.users(limit_per_user);
        complain(
            greedy > 0,
            many(greedy, "user has more than allowed", "users have more than allowed"),
        );
        complain(
            books.differences > 0,
            many(
                books.differences,
                "difference between the books",
                "differences between the books",
            ),
        );
        let unknown = self.unknown_claims + self.unknown_releases;
        let line = if !wrong.is_empty() {
            format!("NOT EXACT: {}", wrong.join("; "))
        } else if unknown > 0 {
            format!(
                "NOT PROVEN: nobody knows the outcome of {}; everything else agrees",
                many(unknown, "request", "requests")
            )
        } else {
            self.good_line(books, users)
        };
        let exact = wrong.is_empty() && unknown == 0;
        Verdict { exact, line, granted, released: self.released, users, unknown }
    }

    fn good_line(&self, books: &Books, users: u64) -> String {
        let granted = self.told.len() as u64;
        let (stock, users) = (amount(books.stock), many(users, "user", "users"));
        if self.released == 0 {
            return format!(
                "exact: {} of {stock} units granted to {users}, books agree",
                amount(granted)
            );
        }
        format!(
            "exact: {} of {stock} units taken ({} granted to {users}, {} given back), books agree",
            amount(granted - self.released),
            amount(granted),
            amount(self.released)
        )
    }

    /// How many users were granted something, and how many of them have more than the limit.
    fn users(&self, limit: u32) -> (u64, u64) {
        let mut has: HashMap<u32, u32> = HashMap::new();
        for told in self.told.values() {
            *has.entry(told.user).or_default() += u32::from(!told.released);
        }
        let greedy = has.values().filter(|count| **count > limit).count();
        (has.len() as u64, greedy as u64)
    }
}

fn units(count: u64) -> String {
    many(count, "unit", "units")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Verb = Verb::Claim;

    fn books(stock: u64, taken: u64) -> Books {
        Books { stock, available: stock - taken, ordered: taken, ..Books::default() }
    }

    /// Each user is granted the claim of the number after theirs.
    fn granted(users: u32) -> Tally {
        let mut tally = Tally::default();
        for user in 0..users {
            tally.heard(&ask(DONE, user), &Answer::Done { number: user + 1 });
            tally.heard(&ask(DONE, user), &Answer::Refused("already_claimed"));
        }
        tally
    }

    fn ask(verb: Verb, user: u32) -> Ask {
        Ask { verb, user, key: 1 }
    }

    fn check(tally: &Tally, books: &Books, line: &str) {
        let verdict = tally.verdict(books, 1);
        assert_eq!(verdict.line, line);
        assert_eq!(verdict.exact, line.starts_with("exact: "));
    }

    #[test]
    fn a_sale_that_is_as_told_is_exact() {
        let line = "exact: 1,000 of 1,000 units granted to 1,000 users, books agree";
        check(&granted(1_000), &books(1_000, 1_000), line);
        check(&granted(1), &books(3, 1), "exact: 1 of 3 units granted to 1 user, books agree");
        check(&granted(0), &books(3, 0), "exact: 0 of 3 units granted to 0 users, books agree");
    }

    #[test]
    fn one_unit_too_many_or_too_few_is_found() {
        for taken in [4, 6] {
            let line =
                format!("NOT EXACT: clients were told of 5 units taken, the server says {taken}");
            check(&granted(5), &books(10, taken), &line);
        }
        let oversold = Books { stock: 5, ordered: 6, ..Books::default() };
        let verdict = granted(6).verdict(&oversold, 1);
        assert!(!verdict.exact);
        assert!(verdict.line.contains("6 units were granted"), "{}", verdict.line);
        assert!(verdict.line.contains("do not add up"), "{}", verdict.line);
    }

    #[test]
    fn a_payment_that_got_lost_is_found() {
        let mut tally = granted(2);
        tally.heard(&ask(Verb::Pay, 0), &Answer::Done { number: 0 });
        tally.heard(&ask(Verb::Pay, 0), &Answer::Again { number: 0 });
        let line = "NOT EXACT: clients were told of 1 unit paid, the server says 0";
        check(&tally, &books(2, 2), line);
        let paid = Books { ordered: 1, paid: 1, ..books(2, 2) };
        check(&tally, &paid, "exact: 2 of 2 units granted to 2 users, books agree");
    }

    #[test]
    fn a_server_that_is_gone_proves_nothing() {
        let verdict = granted(3).unproven("nobody answers");
        assert_eq!(verdict.line, "NOT PROVEN: the books cannot be read: nobody answers");
        assert_eq!((verdict.exact, verdict.granted, verdict.users), (false, 3, 3));
    }

    #[test]
    fn one_number_for_two_is_found() {
        let mut tally = granted(2);
        tally.heard(&ask(DONE, 0), &Answer::Done { number: 1 });
        check(&tally, &books(2, 2), "NOT EXACT: 1 claim was granted twice");
        let mut tally = granted(2);
        tally.heard(&ask(DONE, 0), &Answer::Again { number: 2 });
        check(&tally, &books(2, 2), "NOT EXACT: 1 claim was told to two users");
    }

    #[test]
    fn a_user_over_the_limit_is_found() {
        let mut tally = granted(2);
        tally.heard(&ask(DONE, 0), &Answer::Done { number: 3 });
        check(&tally, &books(3, 3), "NOT EXACT: 1 user has more than allowed");
        assert!(tally.verdict(&books(3, 3), 2).exact);
    }

    #[test]
    fn a_repetition_of_nothing_is_found_unless_an_answer_was_lost() {
        let mut tally = granted(2);
        tally.heard(&ask(DONE, 2), &Answer::Again { number: 3 });
        check(&tally, &books(3, 3), "NOT EXACT: 1 were repeated that nobody was granted");
        tally.lost(&ask(DONE, 2));
        check(&tally, &books(3, 3), "exact: 3 of 3 units granted to 3 users, books agree");
    }

    #[test]
    fn what_is_given_back_counts_once() {
        let mut tally = granted(5);
        for number in [1, 2, 2] {
            tally.heard(&ask(Verb::Release, 0), &Answer::Done { number });
        }
        let line = "exact: 3 of 9 units taken (5 granted to 5 users, 2 given back), books agree";
        check(&tally, &books(9, 3), line);
    }

    #[test]
    fn what_nobody_knows_is_not_guessed() {
        let mut tally = granted(5);
        tally.unknown(&ask(DONE, 7));
        tally.unknown(&ask(Verb::Look, 7));
        let line = "NOT PROVEN: nobody knows the outcome of 1 request; everything else agrees";
        check(&tally, &books(9, 5), line);
        check(&tally, &books(9, 6), line);
        let line = "NOT EXACT: clients were told of 5 units taken, the server says 7";
        check(&tally, &books(9, 7), line);
        tally.unknown(&ask(Verb::Release, 7));
        assert!(
            tally
                .verdict(&books(9, 4), 1)
                .line
                .starts_with("NOT PROVEN: nobody knows the outcome of 2 req")
        );
    }

    #[test]
    fn books_that_differ_are_not_exact() {
        let books = Books { differences: 2, ..books(5, 5) };
        check(&granted(5), &books, "NOT EXACT: 2 differences between the books");
    }
}
