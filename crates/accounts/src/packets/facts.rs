//! What a grab has to know of a packet before the engine is asked. It never changes, so a node
//! remembers it for the packets that were looked at last.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use qiang_app::problem::Problem;
use qiang_core::{PoolId, UserId};
use qiang_store::packets::Packet;

use super::{PacketId, no_such_packet};
use crate::Accounts;

/// Packets that are remembered before the older half is forgotten.
const HALF: usize = 2_000;

/// Who may grab, and how.
#[derive(Debug)]
pub(crate) struct Facts {
    random_part: String,
    recipients: Option<HashSet<UserId>>,
    pub(crate) password_hash: Option<String>,
}

impl Facts {
    fn of(packet: &Packet) -> Self {
        Self {
            random_part: packet.random_part.clone(),
            recipients: packet.recipients.as_ref().map(|users| users.iter().cloned().collect()),
            password_hash: packet.password_hash.clone(),
        }
    }

    pub(crate) fn is_for(&self, user: &UserId) -> bool {
        self.recipients.as_ref().is_none_or(|users| users.contains(user))
    }
}

/// The packets that were looked at last: at most two halves, of which the older one is dropped when the
/// newer one is full.
#[derive(Debug, Default)]
pub(crate) struct Remembered(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    newer: HashMap<PoolId, Arc<Facts>>,
    older: HashMap<PoolId, Arc<Facts>>,
}

impl Remembered {
    fn get(&self, pool: PoolId) -> Option<Arc<Facts>> {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = halves.newer.get(&pool) {
            return Some(Arc::clone(found));
        }
        let found = halves.older.remove(&pool)?;
        halves.keep(pool, Arc::clone(&found));
        Some(found)
    }

    fn insert(&self, pool: PoolId, facts: Arc<Facts>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keep(pool, facts);
    }
}

impl Halves {
    fn keep(&mut self, pool: PoolId, facts: Arc<Facts>) {
        if self.newer.len() >= HALF {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(pool, facts);
    }
}

impl Accounts {
    /// What is known of the packet with this id. Another random part is the id of no packet.
    pub(crate) async fn facts(&self, id: PacketId<'_>) -> Result<Arc<Facts>, Problem> {
        let facts = match self.remembered.get(id.pool) {
            Some(facts) => facts,
            None => {
                let packet = self.app.store.packet(id.pool).await?.ok_or_else(no_such_packet)?;
                let facts = Arc::new(Facts::of(&packet));
                self.remembered.insert(id.pool, Arc::clone(&facts));
                facts
            }
        };
        if facts.random_part == id.random_part { Ok(facts) } else { Err(no_such_packet()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_last_is_remembered_and_the_rest_is_bounded() {
        let remembered = Remembered::default();
        let facts =
            Arc::new(Facts { random_part: String::new(), recipients: None, password_hash: None });
        let pool = |id: usize| PoolId::new(id as u64 + 1).expect("an id");
        for id in 0..10 * HALF {
            remembered.insert(pool(id), Arc::clone(&facts));
            assert!(remembered.get(pool(0)).is_some(), "looked at again and again");
        }
        let halves = remembered.0.lock().expect("not poisoned");
        assert!(halves.newer.len() + halves.older.len() <= 2 * HALF);
    }
}
