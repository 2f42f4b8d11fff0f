//! Memory of connections that closed goes back to the operating system.
//!
//! The allocator keeps what is freed for the next who needs it: after a rush, tens of megabytes that nobody
//! may need for days. Giving them back stops everybody who wants memory for some milliseconds. So it is done
//! only when many connections have gone, and never while the process is busy.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::listener::Connections;
use qiang_app::workers::Turn;

/// How often it is looked whether memory can be given back, and so how often that happens at most.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Fewer connections than this hold too little to be worth it: some megabytes.
const WORTH_IT: usize = 500;
/// The process is busy if it took more processor time than this since the last look: a tenth of one core.
const BUSY: Duration = Duration::from_millis(500);

/// Knows when there is memory to give back.
#[derive(Debug)]
pub(crate) struct Spare {
    doors: Vec<Arc<Connections>>,
    /// The processor time of this process at the last look.
    used: Duration,
}

impl Spare {
    /// Watches the connections of these doors.
    pub(crate) fn new(doors: Vec<Arc<Connections>>) -> Self {
        Self { doors, used: processor_time() }
    }

    /// Gives memory back if it is worth it and nobody is kept waiting.
    pub(crate) fn look(&mut self) -> impl Future<Output = Turn> + Send + use<> {
        let gone = self.worth_it(processor_time());
        async move {
            let Some(gone) = gone else { return Ok(()) };
            // It takes milliseconds in which a thread of the runtime could answer somebody.
            if tokio::task::spawn_blocking(qiang_memory::give_back).await? {
                tracing::debug!("the memory of {gone} connections that closed was given back");
            }
            Ok(())
        }
    }

    /// How many connections have gone whose memory was not given back yet, if it should be now.
    fn worth_it(&mut self, used: Duration) -> Option<usize> {
        let taken = used.saturating_sub(self.used);
        self.used = used;
        let gone = self.doors.iter().map(|door| door.gone()).sum();
        if gone < WORTH_IT || taken > BUSY {
            return None;
        }
        self.doors.iter().for_each(|door| door.count_anew());
        Some(gone)
    }
}

/// The processor time that all threads of this process have taken.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Place;

    const LITTLE: Duration = Duration::from_millis(10);

    /// What was watched while so many connections were open, one number after the other, in a process
    /// that takes so much processor time between two looks.
    fn looks(taken: Duration, open: &[usize]) -> Vec<Option<usize>> {
        let door = Arc::new(Connections::default());
        let mut spare = Spare::new(vec![Arc::default(), Arc::clone(&door)]);
        spare.used = Duration::ZERO;
        let mut places = Vec::new();
        let mut used = Duration::ZERO;
        let look = |wanted: &usize| {
            places.resize_with(*wanted, || Place::take(&door, None));
            used += taken;
            spare.worth_it(used)
        };
        open.iter().map(look).collect()
    }

    #[test]
    fn many_that_have_gone_are_worth_it_once() {
        assert_eq!(looks(LITTLE, &[0, 1_000, 100, 100]), [None, None, Some(900), None]);
        assert_eq!(looks(LITTLE, &[1_000, 100, 700, 90]), [None, Some(900), None, Some(610)]);
    }

    #[test]
    fn few_that_have_gone_add_up() {
        let open = [WORTH_IT + 1, 2, 1, 1];
        assert_eq!(looks(LITTLE, &open), [None, None, Some(WORTH_IT), None]);
    }

    #[test]
    fn in_a_rush_it_waits() {
        assert_eq!(looks(BUSY + LITTLE, &[1_000, 0, 0]), [None; 3]);
    }
}
