//! The book in memory as an engine: what the rules are without anything around them.

use std::cell::{Cell, Ref, RefCell};
use std::convert::Infallible;

use qiang_core::{
    Book, Claim, ClaimId, Command, Event, Kind, Pool, PoolId, PoolView, Reply, Timestamp,
};

use crate::contract::Subject;

/// A book, the time, and everything that ever left the book.
#[derive(Debug)]
pub struct OnBook {
    book: RefCell<Book>,
    events: RefCell<Vec<Event>>,
    now: Cell<Timestamp>,
}

impl Default for OnBook {
    fn default() -> Self {
        let now = Cell::new(Timestamp::default());
        Self { book: RefCell::new(Book::new(7)), events: RefCell::default(), now }
    }
}

impl OnBook {
    /// The book as it is.
    pub fn book(&self) -> Ref<'_, Book> {
        self.book.borrow()
    }

    /// Everything that left the book from the `from`th event on.
    pub fn events_from(&self, from: usize) -> Vec<Event> {
        self.events.borrow()[from..].to_vec()
    }
}

impl Subject for OnBook {
    type Error = Infallible;

    async fn ask(&self, command: Command) -> Result<Reply, Infallible> {
        let mut events = self.events.borrow_mut();
        let mut log = |event: &Event| events.push(event.clone());
        Ok(self.book.borrow_mut().handle(&command, self.now.get(), &mut log))
    }

    async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Infallible> {
        Ok(self.book().pool(id).map(Pool::view))
    }

    async fn claim(&self, id: ClaimId) -> Result<Option<Claim>, Infallible> {
        Ok(self.book().claim(id))
    }

    async fn pools(&self, kind: Kind) -> Result<Vec<PoolView>, Infallible> {
        Ok(self.book().newest(kind, None).map(Pool::view).collect())
    }

    async fn events(&self) -> Result<Vec<Event>, Infallible> {
        Ok(self.events_from(0))
    }

    async fn set_time(&self, now: Timestamp) -> Result<(), Infallible> {
        self.now.set(now.max(self.now.get()));
        let mut events = self.events.borrow_mut();
        let mut log = |event: &Event| events.push(event.clone());
        while self.book.borrow_mut().expire_due(self.now.get(), 1, &mut log) > 0 {}
        Ok(())
    }
}
