//! What can be asked of an engine that takes commands as they are, each by its name.

/// The methods, for an engine with `async fn ask(&self, Command) -> Result<Reply, Error>`.
/// Whoever uses it names the types.
macro_rules! commands {
    () => {
        /// Opens a pool. Asking again with the same terms gives the pool as it is.
        pub async fn open_pool(
            &self,
            pool: PoolId,
            terms: Arc<Terms>,
        ) -> Result<Outcome<PoolView>, Error> {
            assert_eq!(terms.check(), Ok(()), "terms are checked before they get here");
            self.ask(Command::Open { pool, terms }).await.map(Reply::into_pool)
        }

        /// Takes units for a user.
        pub async fn claim(&self, wish: ClaimRequest) -> Result<Outcome<Claim>, Error> {
            self.ask(Command::Claim(wish)).await.map(Reply::into_claim)
        }

        /// Turns a hold into an order. A user may only touch their own; `None` is the shop itself.
        pub async fn order(
            &self,
            claim: ClaimId,
            by: Option<UserId>,
        ) -> Result<Outcome<Claim>, Error> {
            self.ask(Command::Order { claim, by }).await.map(Reply::into_claim)
        }

        /// Tells that money arrived for an order.
        pub async fn pay(&self, pay: PayRequest) -> Result<Outcome<Settlement>, Error> {
            self.ask(Command::Pay(pay)).await.map(Reply::into_settlement)
        }

        /// Owes back a payment that came for a cleared pool.
        pub async fn refund(&self, pay: PayRequest) -> Result<Outcome<Settlement>, Error> {
            self.ask(Command::Refund(pay)).await.map(Reply::into_settlement)
        }

        /// Gives units and quota back.
        pub async fn release(
            &self,
            claim: ClaimId,
            by: Option<UserId>,
            reason: ReleaseReason,
        ) -> Result<Outcome<Claim>, Error> {
            self.ask(Command::Release { claim, by, reason }).await.map(Reply::into_claim)
        }

        /// Adds units to a pool.
        pub async fn restock(
            &self,
            pool: PoolId,
            units: NonZeroU32,
            request: RequestId,
        ) -> Result<Outcome<PoolView>, Error> {
            self.ask(Command::Restock { pool, units, request }).await.map(Reply::into_pool)
        }

        /// Ends granting.
        pub async fn close(&self, pool: PoolId) -> Result<Outcome<PoolView>, Error> {
            self.ask(Command::Close { pool }).await.map(Reply::into_pool)
        }

        /// Drops a closed pool whose claims are all settled.
        pub async fn clear(&self, pool: PoolId) -> Result<Outcome<PoolView>, Error> {
            self.ask(Command::Clear { pool }).await.map(Reply::into_pool)
        }
    };
}

pub(crate) use commands;
