//! The hash tag of each partition: whatever has it in its key lies in one slot.
//!
//! Buckets of a pool lie in partitions side by side, so partitions side by side should lie on
//! different masters, however many there are. The slots are divided into twelve equal strata, and
//! partitions visit them in an order in which any three neighbours lie in three different thirds,
//! any six in six different sixths, and any two halves are even. Masters usually have one range of
//! slots each, all of the same size, so that evens out over two, three, four and six of them, and
//! nearly over others. Sixty partitions, or any multiple of twelve, are even also where the last one
//! meets the first.

use std::sync::OnceLock;

use super::url::MAX_PARTITIONS;

const SLOTS: u16 = 16_384;
const STRATA: u16 = 12;
/// The order in which strata are visited. It begins with the one that `p0` lies in, so that
/// partition 0 is where it has always been: what it holds says which layout the others have.
const ORDER: [u16; STRATA as usize] = [11, 7, 3, 9, 5, 1, 10, 6, 2, 8, 4, 0];
/// A stratum is filled evenly, whatever the number of partitions: each turn goes on by the golden
/// section of it. In thousandths, from where `p0` lies.
const FIRST: u32 = 632;
const STEP: u32 = 618;
/// How near to that a slot must be, in thousandths of a stratum: about one in forty is.
const NEAR: u32 = 150;

/// The hash tag of a partition.
pub fn hash_tag(partition: u16) -> &'static str {
    static TAGS: OnceLock<Box<[String]>> = OnceLock::new();
    &TAGS.get_or_init(|| (0..MAX_PARTITIONS).map(find).collect())[usize::from(partition)]
}

/// The slot of a partition.
pub(super) fn slot_of(partition: u16) -> u16 {
    slot(hash_tag(partition).as_bytes())
}

/// The first of `p7`, `p7.1`, `p7.2` and so on that lies where it should.
fn find(partition: u16) -> String {
    let size = u32::from(SLOTS) * 1_000 / u32::from(STRATA);
    let stratum = u32::from(ORDER[usize::from(partition % STRATA)]);
    let wanted = (FIRST + STEP * u32::from(partition / STRATA)) % 1_000;
    // Windows stay within their stratum.
    let begin = stratum * size + wanted.clamp(NEAR, 1_000 - NEAR) * (size / 1_000);
    let reach = NEAR * (size / 1_000);
    let is_near = |tag: &String| (u32::from(slot(tag.as_bytes())) * 1_000).abs_diff(begin) < reach;
    let others = (1_u32..).map(|number| format!("p{partition}.{number}"));
    let mut all = std::iter::once(format!("p{partition}")).chain(others);
    all.find(is_near).expect("tags never end, and their slots are scattered")
}

/// The slot of a hash tag: CRC-16 (XMODEM) of it.
fn slot(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::{MAX_PARTITIONS, SLOTS, hash_tag, slot, slot_of};

    /// Which of so many masters, each with one range of slots, has a partition.
    fn master(partition: u16, masters: u16) -> usize {
        usize::from((slot_of(partition) / (SLOTS / masters)).min(masters - 1))
    }

    /// By how much the fullest and the emptiest master differ.
    fn unevenness(partitions: impl Iterator<Item = u16>, masters: u16) -> u16 {
        let mut counts = vec![0_u16; masters.into()];
        partitions.for_each(|partition| counts[master(partition, masters)] += 1);
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    }

    #[test]
    fn slots_are_those_of_redis() {
        // The examples of its cluster specification, and of `CLUSTER KEYSLOT`.
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12182);
    }

    #[test]
    fn tags_are_as_they_were() {
        // Whatever is in Redis already is found under these.
        let first: Vec<&str> = (0..6).map(hash_tag).collect();
        assert_eq!(first, ["p0", "p1.152", "p2.162", "p3.21", "p4.88", "p5.64"]);
        assert_eq!(hash_tag(59), "p59.63");
        assert_eq!(hash_tag(MAX_PARTITIONS - 1), "p1023.52");
    }

    #[test]
    fn neighbours_lie_on_different_masters() {
        const PARTITIONS: u16 = 60;
        for (masters, at_most) in [(2, 0), (3, 0), (4, 1), (5, 2), (6, 0)] {
            for start in 0..PARTITIONS {
                let six = (start..start + 6).map(|partition| partition % PARTITIONS);
                let uneven = unevenness(six, masters);
                assert!(uneven <= at_most, "{masters} masters, from {start}: {uneven}");
            }
        }
    }

    #[test]
    fn all_partitions_together_are_even() {
        for masters in 2..=12 {
            let uneven = unevenness(0..60, masters);
            assert!(uneven <= 3, "{masters} masters: {uneven}");
        }
        assert_eq!(unevenness(0..60, 3), 0);
        let mut slots: Vec<u16> = (0..60).map(slot_of).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), 60);
    }
}
