//! Money: each packet was funded with what was taken, went back and is left; its account has what is left;
//! the engine says the same; and all accounts together are 0.
//!
//! Nothing here is mended: money that is wrong is put right by another movement, by a person.

use qiang_core::{Cents, PoolId};
use qiang_store::packets::PacketBook;

use super::compare::Audit;
use super::{Error, Which};

/// Packets on one page.
const PACKETS: u32 = 100;

impl Audit<'_> {
    pub(super) async fn money(&mut self) -> Result<(), Error> {
        let mut after = None;
        loop {
            // The engine first. What is recorded after that must be as new or newer.
            let page = self.store.packet_books(after, PACKETS).await?;
            let Some(last) = page.last().map(|book| book.pool) else { break };
            let mut left = Vec::with_capacity(page.len());
            for book in &page {
                left.push(self.left(book.pool).await?);
            }
            self.source.recorded().await?;
            let books = self.store.packet_books(after, PACKETS).await?;
            for book in books.iter().filter(|book| book.pool <= last) {
                let place = page.iter().position(|seen| seen.pool == book.pool);
                let left = place.and_then(|place| left[place]);
                self.report.packets += 1;
                self.packet(book);
                self.left_in_engine(book, left).await?;
            }
            after = Some(last);
        }
        let sums = self.store.sums().await?;
        if !sums.add_up() {
            self.report.difference_count += 1;
            self.report.accounts_off = Some(format!(
                "all accounts together have {} cents and not 0, {} cents are held and open holds are {}, {} \
                 balances are not what their statements say",
                sums.posted.get(),
                sums.held.get(),
                sums.open_holds.get(),
                sums.accounts_off
            ));
        }
        Ok(())
    }

    /// What the engine says is left of a packet, while it knows it.
    async fn left(&self, pool: PoolId) -> Result<Option<Cents>, Error> {
        let pool = self.source.pool(pool).await?.filter(|pool| !pool.cleared);
        Ok(pool.and_then(|pool| pool.cents_left))
    }

    fn packet(&mut self, book: &PacketBook) {
        let mut differ = |which, what: String| self.report.differ(book.pool, None, which, what);
        if book.grabbed != book.grabs {
            let (row, grabs) = (book.grabbed.get(), book.grabs.get());
            let what =
                format!("the packet says that {row} cents were taken, its grabs are {grabs}");
            differ(Which::Records, what);
        }
        if book.in_account != book.should_have() {
            differ(
                Which::Accounts,
                format!(
                    "{} cents were sent, {} taken, {} went back, {} wait: its account should have {} and has {}",
                    book.total.get(),
                    book.grabs.get(),
                    book.refunded.get(),
                    book.waiting.get(),
                    book.should_have().get(),
                    book.in_account.get()
                ),
            );
        }
        if book.recycled_at.is_some() && book.grabs.plus(book.refunded) != book.total {
            let missing = book.total.get() - book.grabs.get() - book.refunded.get();
            differ(Which::Records, format!("it is over, and {missing} cents went to nobody"));
        }
    }

    /// What was left before the records were read, what they say, and what is left now: in this order.
    async fn left_in_engine(
        &mut self,
        book: &PacketBook,
        before: Option<Cents>,
    ) -> Result<(), Error> {
        let Some(before) = before else { return Ok(()) };
        let recorded = Cents::new(book.total.get() - book.grabs.get());
        if recorded == before {
            return Ok(());
        }
        let now = self.left(book.pool).await?.unwrap_or(Cents::ZERO);
        if !(now..=before).contains(&recorded) {
            let (said, recorded) = (before.get(), recorded.get());
            let what = format!("{recorded} cents are left, and the engine says {said}");
            self.report.differ(book.pool, None, Which::Records, what);
        }
        Ok(())
    }
}
