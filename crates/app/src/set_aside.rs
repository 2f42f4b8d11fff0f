//! Claims of which a change could not be recorded and waits for a person, as this node knows them: read
//! now and then, so that whoever looks at such a claim can be told without asking the database.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use qiang_core::ClaimId;

/// Claims with a dead letter.
#[derive(Debug, Default)]
pub struct SetAside(RwLock<HashSet<ClaimId>>);

impl SetAside {
    /// Whether a person has to look at a claim.
    #[must_use]
    pub fn contains(&self, claim: ClaimId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&claim)
    }

    /// Takes over what the records say.
    pub fn replace(&self, claims: HashSet<ClaimId>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = claims;
    }
}
