//! `[packets]`: what may be sent.

use qiang_app::config::Layers;
use qiang_core::Cents;

use crate::packets::zone::Zone;

/// The most cents a packet can have: 500 shares of the largest.
const MAX_CENTS: u64 = 500_000_000_000;
/// The most cents of one share.
const MAX_SHARE_CENTS: u64 = 1_000_000_000;

/// What the operator decided about this domain.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[packets]`
    pub(crate) packets: Packets,
}

#[derive(Debug, Clone)]
pub(crate) struct Packets {
    /// Where a day and a year begin.
    pub(crate) time_zone: Zone,
    /// In one packet.
    pub(crate) max_packet_cents: Cents,
    /// In one share; of a lucky packet, in the mean.
    pub(crate) max_share_cents: Cents,
    /// By one user on one day.
    pub(crate) max_day_cents: u64,
    /// By one user on one day.
    pub(crate) max_day_packets: u32,
    /// Attempts at the password of one packet by one user.
    pub(crate) max_attempts: u32,
}

impl Settings {
    /// Takes this domain's part of the configuration.
    pub fn take(layers: &mut Layers) -> Self {
        let cents = |cents: i64| Cents::new(cents);
        let (packet, share) = ("packets.max_packet_cents", "packets.max_share_cents");
        let packets = Packets {
            time_zone: layers.text("packets.time_zone", "+08:00", Zone::read),
            max_packet_cents: cents(layers.number(packet, 2_000_000, 1..=MAX_CENTS)),
            max_share_cents: cents(layers.number(share, 20_000, 1..=MAX_SHARE_CENTS)),
            max_day_cents: layers.number("packets.max_day_cents", 10_000_000, 1..=MAX_CENTS),
            max_day_packets: layers.number("packets.max_day_packets", 1_000, 1..=1_000_000),
            max_attempts: layers.number("packets.max_attempts", 5, 1..=1_000),
        };
        Self { packets }
    }
}
