//! One connection under load: takes whoever is next in line, sends, reads, and tells.
//!
//! A request whose answer got lost (a cut connection, a timeout, the server's own
//! `outcome_unknown`) is sent again as it was, under the same key, a bounded number of times; its
//! latency goes on from the time it was planned. If no answer ever comes it is recorded as
//! unknown, never as failed.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::ask::{Answer, Ask};
use super::resp::Resp;
use super::wire::Door;
use super::work::Work;

/// An answer that takes longer is taken for lost. A server gives up before, and says so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection that takes longer is not made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// So often a request is sent, and so long, until its outcome counts as unknown: long enough for a
/// server to be started again.
const MAX_ATTEMPTS: u32 = 16;
const GIVE_UP: Duration = Duration::from_secs(60);
/// Half of the pause before the second attempt; pauses double up to 128 times this.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_DOUBLINGS: u32 = 7;
/// A connection that was idle for longer may have been closed: it is looked at before it is used.
const IDLE: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 16 << 10;

/// A connection, with TLS or without.
pub(crate) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// One request on its way.
#[derive(Debug)]
struct Flight {
    ask: Ask,
    planned: Duration,
    sent: Duration,
    attempts: u32,
}

/// One connection and what is on its way over it.
pub(crate) struct Link<'a> {
    work: &'a Work,
    stream: Option<Stream>,
    flights: VecDeque<Flight>,
    /// What has to be sent, or sent again.
    ready: VecDeque<Flight>,
    out: Vec<u8>,
    input: BytesMut,
    used_at: Duration,
    /// Nobody comes any more.
    over: bool,
}

impl<'a> Link<'a> {
    pub(crate) fn new(work: &'a Work, stream: Stream) -> Self {
        let (flights, ready) = (VecDeque::new(), VecDeque::new());
        let input = BytesMut::with_capacity(READ_BYTES);
        let used_at = Duration::ZERO;
        let stream = Some(stream);
        Self { work, stream, flights, ready, out: Vec::new(), input, used_at, over: false }
    }

    /// Works until nobody comes any more and everything has ended.
    pub(crate) async fn run(mut self) {
        loop {
            if self.flights.is_empty() && self.ready.is_empty() {
                if self.over {
                    return;
                }
                let next = self.work.next().await;
                self.take(next);
                continue;
            }
            self.fill();
            if let Err(broken) = self.step().await {
                self.broken(&broken).await;
            }
        }
    }

    fn take(&mut self, planned: Option<Duration>) {
        match planned.and_then(|planned| Some((planned, self.work.ask()?))) {
            Some((planned, ask)) => {
                let flight = Flight { ask, planned, sent: Duration::ZERO, attempts: 0 };
                self.ready.push_back(flight);
            }
            None => self.over = true,
        }
    }

    /// Takes as many as may be on their way at once, without waiting for any.
    fn fill(&mut self) {
        while !self.over && self.has_room() {
            match self.work.try_next() {
                Some(planned) => self.take(Some(planned)),
                None => return,
            }
        }
    }

    fn has_room(&self) -> bool {
        self.flights.len() + self.ready.len() < self.work.depth
    }

    /// Sends what is ready and reads what comes, once.
    async fn step(&mut self) -> io::Result<()> {
        if !self.ready.is_empty() {
            self.send().await?;
        }
        let room = !self.over && self.has_room();
        let Some(stream) = &mut self.stream else { return Err(io::ErrorKind::NotConnected.into()) };
        self.input.reserve(READ_BYTES);
        let read = timeout(ANSWER_TIMEOUT, stream.read_buf(&mut self.input));
        if room {
            tokio::select! {
                read = read => self.received(read??),
                next = self.work.next() => {
                    self.take(next);
                    Ok(())
                }
            }
        } else {
            let read = read.await;
            self.received(read??)
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        let attempts = self.ready.iter().map(|flight| flight.attempts).max().unwrap_or(0);
        if attempts > 0 {
            sleep(FIRST_PAUSE * (1 << attempts.min(MAX_DOUBLINGS))).await;
        }
        let now = self.work.elapsed();
        if now.saturating_sub(self.used_at) > IDLE && self.flights.is_empty() {
            self.drop_if_closed();
        }
        if self.stream.is_none() {
            self.stream = Some(connect(&self.work.door).await?);
        }
        let Some(stream) = &mut self.stream else { return Err(io::ErrorKind::NotConnected.into()) };
        self.out.clear();
        let now = self.work.elapsed();
        while let Some(mut flight) = self.ready.pop_front() {
            if flight.attempts == 0 {
                flight.sent = now;
            }
            flight.attempts += 1;
            self.work.door.wire.write(&flight.ask, &mut self.out);
            self.flights.push_back(flight);
        }
        let sent = async {
            stream.write_all(&self.out).await?;
            stream.flush().await
        };
        timeout(ANSWER_TIMEOUT, sent).await?
    }

    /// A server may close what nobody uses. Nothing is on its way, so nothing is lost.
    fn drop_if_closed(&mut self) {
        let open = self.stream.as_mut().is_some_and(|stream| {
            let (mut byte, mut now) = ([0], Context::from_waker(Waker::noop()));
            Pin::new(stream).poll_read(&mut now, &mut ReadBuf::new(&mut byte)).is_pending()
        });
        if !open {
            self.stream = None;
        }
    }

    fn received(&mut self, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.used_at = self.work.elapsed();
        while let Some(flight) = self.flights.front() {
            let read = self.work.door.wire.read(&self.input, &flight.ask);
            let Some(read) = read.map_err(io::Error::other)? else { return Ok(()) };
            self.input.advance(read.used);
            if let Some(flight) = self.flights.pop_front() {
                self.answered(flight, read.answer);
            }
            if read.last {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        if self.input.is_empty() {
            return Ok(());
        }
        Err(io::Error::other("an answer to nothing"))
    }

    fn answered(&mut self, flight: Flight, answer: Answer) {
        if answer == Answer::Unknown {
            self.lost(flight);
        } else {
            self.work.answered(&flight.ask, &answer, flight.planned, flight.sent);
        }
    }

    fn lost(&mut self, flight: Flight) {
        self.work.lost(&flight.ask);
        self.again(flight);
    }

    fn again(&mut self, flight: Flight) {
        let since = self.work.elapsed().saturating_sub(flight.sent);
        if flight.attempts < MAX_ATTEMPTS && since < GIVE_UP {
            self.ready.push_back(flight);
        } else {
            self.work.unknown(&flight.ask, flight.planned, flight.sent);
        }
    }

    /// The connection is gone, or could not be made: whatever was on its way is sent again.
    async fn broken(&mut self, error: &io::Error) {
        tracing::debug!(%error, "a connection of the load ended");
        self.stream = None;
        self.input.clear();
        let unsent = std::mem::take(&mut self.ready);
        for flight in std::mem::take(&mut self.flights) {
            self.lost(flight);
        }
        for mut flight in unsent {
            if flight.attempts == 0 {
                // Never sent: nothing can have happened.
                self.work.no_connection(&flight.ask, flight.planned);
                sleep(FIRST_PAUSE).await;
                continue;
            }
            // An attempt to connect is one, too.
            flight.attempts += 1;
            self.again(flight);
        }
    }
}

/// A connection that may be used at once.
pub(crate) async fn connect(door: &Door) -> io::Result<Stream> {
    let greeted = async {
        let stream = TcpStream::connect(door.address).await?;
        stream.set_nodelay(true)?;
        let mut stream = match &door.tls {
            None => Either::Left(stream),
            Some(tls) => {
                let greeted = tls.connector.connect(tls.name.clone(), stream).await?;
                Either::Right(Box::new(greeted))
            }
        };
        if let Some(greeting) = door.wire.greeting() {
            stream.write_all(&greeting).await?;
            stream.flush().await?;
            let mut input = BytesMut::new();
            while Resp::welcomed(&input).map_err(io::Error::other)?.is_none() {
                if stream.read_buf(&mut input).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(stream)
    };
    timeout(CONNECT_TIMEOUT, greeted).await?
}
