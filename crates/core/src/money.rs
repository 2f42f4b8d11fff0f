//! Money: integer cents, never a float.

/// An amount in cents of the shop's currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cents(i64);

impl Cents {
    pub const ZERO: Self = Self(0);
    /// The highest price of one unit: with [`crate::MAX_UNITS`] units no total can overflow.
    pub const MAX_PRICE: Self = Self(1_000_000_000);

    #[must_use]
    pub const fn new(cents: i64) -> Self {
        Self(cents)
    }

    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// This amount for each of `quantity` units.
    #[must_use]
    pub fn times(self, quantity: u32) -> Self {
        Self(
            self.0
                .checked_mul(i64::from(quantity))
                .expect("MAX_PRICE times MAX_UNITS fits in 63 bits"),
        )
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.checked_add(other.0).expect("sums of bounded amounts fit in 63 bits"))
    }
}
