//! One client: reads what it says, lets it be answered, sends the answers. It can be slow, cut
//! off or full of nonsense, and hurts nobody but itself. While it is silent it has no buffers.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::frame::{BadFrame, Frame};
use super::session::{Session, Words};
use crate::listener;

/// Read at once at first; the more a client sends, the more is read, up to a bound.
const FIRST_READ: usize = 4 << 10;
const LARGEST_READ: usize = 128 << 10;
/// Whoever has not signed in has nothing to say that is longer.
const STRANGER_BYTES: usize = 16 << 10;
/// A client that sends a lot keeps the room for it when it pauses, for so long.
const PAUSE: Duration = Duration::from_secs(1);
/// Answers are sent when this many bytes of them are ready, at the latest.
const ANSWER_BYTES: usize = 128 << 10;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// To sign in, from the first moment on.
    pub(super) sign_in: Duration,
    /// To say the rest of a command it began, or to take its answers.
    pub(super) rest: Duration,
}

/// Talks with one client until either side has enough.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    mut session: Session,
    patience: Patience,
    stop: CancellationToken,
) {
    let mut input = BytesMut::new();
    let (mut frame, mut read_bytes) = (Frame::default(), FIRST_READ);
    // Runs on however many bytes arrive, or a client could drip for ever.
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let mut stopped = std::pin::pin!(stop.cancelled());
    loop {
        // Whoever has signed in may be silent for as long as they like, between two commands.
        let limit = match (session.is_somebody(), input.is_empty()) {
            (true, true) => None,
            (true, false) => Some(patience.rest),
            (false, _) => Some(patience.sign_in),
        };
        match limit {
            Some(limit) => drop(timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)))),
            None => timer = None,
        }
        let is_large = read_bytes > FIRST_READ;
        if is_large {
            input.reserve(read_bytes);
        } else if input.is_empty() {
            input = BytesMut::new();
            session.rest();
        }
        let room = if is_large { input.capacity() - input.len() } else { FIRST_READ };
        let may_pause = is_large && input.is_empty();
        let reading = async {
            if is_large {
                stream.read_buf(&mut input).await
            } else {
                listener::read::<FIRST_READ>(&mut stream, &mut input).await
            }
        };
        let arrived = tokio::select! {
            biased;
            // First, or somebody who never stops talking would never be late.
            () = up(&mut timer) => {
                session.late();
                let _best_effort = send(&mut stream, &mut session, patience).await;
                return listener::close(stream).await;
            }
            arrived = reading => arrived,
            () = stopped.as_mut() => return,
            () = async { tokio::time::sleep(PAUSE).await }, if may_pause => {
                read_bytes = FIRST_READ;
                continue;
            }
        };
        match arrived {
            Ok(0) | Err(_) => return,
            Ok(len) if len == room && session.is_somebody() => {
                read_bytes = (read_bytes * 2).min(LARGEST_READ);
            }
            Ok(_) => {}
        }
        session.look_at_clock();
        while !session.ended {
            match frame.read(&input) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    if frame.len() > 0 {
                        session.hear(Words { input: &input, frame: &frame }).await;
                    }
                    input.advance(len);
                    if session.is_somebody() {
                        timer = None;
                    }
                }
                Err(wrong) => end(&mut session, wrong).await,
            }
            if session.answers.bytes.len() >= ANSWER_BYTES
                && send(&mut stream, &mut session, patience).await.is_err()
            {
                return;
            }
        }
        if input.len() > STRANGER_BYTES && !session.is_somebody() && !session.ended {
            session.end_with("Protocol error: too much said before signing in").await;
        }
        session.decide().await;
        if send(&mut stream, &mut session, patience).await.is_err() {
            return;
        }
        if session.ended || stop.is_cancelled() {
            return listener::close(stream).await;
        }
    }
}

async fn end(session: &mut Session, wrong: BadFrame) {
    session.end_with(&format!("Protocol error: {wrong}")).await;
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    session: &mut Session,
    patience: Patience,
) -> std::io::Result<()> {
    let answers = &mut session.answers.bytes;
    if answers.is_empty() {
        return Ok(());
    }
    let sent = async {
        stream.write_all(answers).await?;
        stream.flush().await
    };
    let sent = tokio::time::timeout(patience.rest, sent).await;
    answers.clear();
    sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

/// Returns when the time is up; without a limit, never.
async fn up(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}
