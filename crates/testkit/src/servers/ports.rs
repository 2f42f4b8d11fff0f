//! Ports nobody listens on.
//!
//! Taken from below the range that the kernel hands out for outgoing connections, so that a
//! server that was killed finds its port free when it starts again. Between looking and taking,
//! somebody else may be faster: whoever asks for a port must be ready to ask for another.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that was free on the loopback interface a moment ago, and is given to nobody else in
/// this process for a long time.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    for _ in 0..COUNT {
        let port = FIRST + (start() + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port from {FIRST} to {} is free", FIRST + COUNT - 1)
}

/// Processes that run at the same time begin in different places.
fn start() -> u16 {
    // Far apart for neighbouring ids, and below COUNT, so that it fits.
    u16::try_from(u64::from(std::process::id()) * 997 % u64::from(COUNT)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_port_that_is_taken_is_not_given() {
        let taken: Vec<TcpListener> = (0..50)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, super::free_port().unwrap())).unwrap())
            .collect();
        let port = super::free_port().unwrap();
        assert!(taken.iter().all(|other| other.local_addr().unwrap().port() != port));
    }
}
