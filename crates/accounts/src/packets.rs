//! Red packets (红包): sent, grabbed, recycled, looked at, verified.
//!
//! A packet is a pool of portions of kind `packet` with an account of its own. The engine decides who gets
//! which portion; money moves in SQL, when that is recorded. Nothing here answers with a portion that
//! nobody has taken: [`view`] says who may see what.

mod facts;
pub mod grab;
pub mod lists;
mod open;
mod password;
mod recycle;
pub mod send;
pub mod verify;
pub mod view;
pub(crate) mod zone;

use qiang_app::problem::{Code, Problem};
use qiang_core::PoolId;

pub(crate) use facts::Facts;
pub(crate) use facts::Remembered;

/// Bytes of a packet's id that nobody can guess.
const RANDOM_BYTES: usize = 10;

/// A packet's public id, `<pool>-<random part>`, taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketId<'a> {
    pub(crate) pool: PoolId,
    pub(crate) random_part: &'a str,
}

impl<'a> PacketId<'a> {
    /// What cannot be an id is the id of no packet.
    pub(crate) fn read(text: &'a str) -> Result<Self, Problem> {
        let read = || {
            let (pool, random_part) = text.split_once('-')?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            let fits = random_part.len() == 2 * RANDOM_BYTES && random_part.bytes().all(is_hex);
            fits.then_some(Self { pool: pool.parse().ok()?, random_part })
        };
        read().ok_or_else(no_such_packet)
    }
}

fn no_such_packet() -> Problem {
    Problem::new(Code::NoSuchPacket)
}

/// Random bytes of the operating system.
fn random<const BYTES: usize>() -> Result<[u8; BYTES], Problem> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the operating system gives no random bytes");
        Problem::new(Code::Internal)
    })?;
    Ok(bytes)
}
