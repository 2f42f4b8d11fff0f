//! Commands as they come over the wire: an array of bulk strings, or a line of words.
//!
//! Nothing is copied: a frame is a list of places in the buffer. What cannot be a command is told
//! apart from what has not arrived yet, and everything has a bound.

use std::ops::Range;

/// A longer command is refused. The longest of ours has some hundred bytes.
pub(super) const MAX_BYTES: usize = 64 << 10;
/// A command of more words is refused.
pub(super) const MAX_WORDS: usize = 256;
/// A longer line without an array before it is refused.
const MAX_LINE_BYTES: usize = 4 << 10;
/// Digits of a length, sign included, and nothing more.
const MAX_DIGITS: usize = 10;

/// What every TLS client says first, and no RESP client.
const HANDSHAKE: u8 = 0x16;

/// What no client of this protocol would say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadFrame {
    /// An array longer than any command.
    #[error("invalid multibulk length")]
    Words,
    /// A word longer than any command.
    #[error("invalid bulk length")]
    Length,
    /// An element of a command that is no bulk string.
    #[error("expected '$'")]
    NoBulk,
    /// A bulk string without an end where its length says.
    #[error("expected CRLF after a bulk string")]
    NoEnd,
    /// A line that does not end.
    #[error("too big inline request")]
    Line,
    /// Quotes that do not match.
    #[error("unbalanced quotes in request")]
    Quotes,
    /// A request for the other door.
    #[error("this is HTTP, and here is the port for RESP (Redis clients)")]
    Http,
    /// A handshake, where there is no TLS.
    #[error("this is TLS, which is off here: set `tls_cert` and `tls_key` in [resp]")]
    Tls,
    /// All words together are too long.
    #[error("too big request: a command has at most {MAX_BYTES} bytes")]
    Bytes,
}

/// The places of one command's words. It is used again and again, so that its memory is.
#[derive(Debug, Default)]
pub(super) struct Frame {
    words: Vec<Range<usize>>,
}

impl Frame {
    /// Reads the command `input` begins with and says how many bytes it took; `None` is that some
    /// of it has not arrived. A command may have no words; it is to be passed over.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<Option<usize>, BadFrame> {
        self.words.clear();
        let read = match input.first() {
            None => return Ok(None),
            Some(b'*') => self.read_array(input)?,
            Some(&HANDSHAKE) => return Err(BadFrame::Tls),
            Some(_) => self.read_line(input)?,
        };
        match read {
            Some(end) if end <= MAX_BYTES => Ok(Some(end)),
            None if input.len() <= MAX_BYTES => Ok(None),
            _ => Err(BadFrame::Bytes),
        }
    }

    /// How many words there are.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// A word of the command that `input` begins with.
    pub(super) fn word<'a>(&self, input: &'a [u8], place: usize) -> Option<&'a [u8]> {
        self.words.get(place).map(|word| &input[word.clone()])
    }

    fn read_array(&mut self, input: &[u8]) -> Result<Option<usize>, BadFrame> {
        let Some((count, mut at)) = number(input, 1, BadFrame::Words)? else { return Ok(None) };
        let count = usize::try_from(count).unwrap_or(0);
        if count > MAX_WORDS {
            return Err(BadFrame::Words);
        }
        for _ in 0..count {
            match input.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(_) => return Err(BadFrame::NoBulk),
            }
            let Some((len, begin)) = number(input, at + 1, BadFrame::Length)? else {
                return Ok(None);
            };
            let len = usize::try_from(len).map_err(|_| BadFrame::Length)?;
            if len > MAX_BYTES {
                return Err(BadFrame::Length);
            }
            let end = begin + len;
            match input.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(BadFrame::NoEnd),
            }
            self.words.push(begin..end);
            at = end + 2;
        }
        Ok(Some(at))
    }

    /// Words with spaces between them, for people with telnet. A word may stand in quotes.
    fn read_line(&mut self, input: &[u8]) -> Result<Option<usize>, BadFrame> {
        let head = &input[..input.len().min(MAX_LINE_BYTES)];
        let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
            return if input.len() < MAX_LINE_BYTES { Ok(None) } else { Err(BadFrame::Line) };
        };
        let mut at = 0;
        while at < end {
            match head[at] {
                byte if byte.is_ascii_whitespace() => at += 1,
                quote @ (b'"' | b'\'') => {
                    let rest = &head[at + 1..end];
                    let len = rest.iter().position(|byte| *byte == quote);
                    let len = len.ok_or(BadFrame::Quotes)?;
                    let behind = rest.get(len + 1);
                    if behind.is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return Err(BadFrame::Quotes);
                    }
                    self.words.push(at + 1..at + 1 + len);
                    at += len + 2;
                }
                _ => {
                    let rest = &head[at..end];
                    let len = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                    self.words.push(at..at + len);
                    at += len;
                }
            }
            if self.words.len() > MAX_WORDS {
                return Err(BadFrame::Words);
            }
        }
        let last = self.words.last().map(|word| &head[word.clone()]);
        if last.is_some_and(|word| word.starts_with(b"HTTP/")) {
            return Err(BadFrame::Http);
        }
        Ok(Some(end + 1))
    }
}

/// A decimal number from `at` to the end of its line, and where the next line begins.
fn number(input: &[u8], at: usize, bad: BadFrame) -> Result<Option<(i64, usize)>, BadFrame> {
    let (negative, digits) = match input.get(at) {
        Some(b'-') => (true, at + 1),
        _ => (false, at),
    };
    let (mut value, mut end) = (0_i64, digits);
    while let Some(digit @ b'0'..=b'9') = input.get(end) {
        value = value * 10 + i64::from(digit - b'0');
        end += 1;
        if end - at > MAX_DIGITS {
            return Err(bad);
        }
    }
    match (input.get(end), input.get(end + 1)) {
        (None, _) | (Some(b'\r'), None) => Ok(None),
        (Some(b'\r'), Some(b'\n')) if end > digits => {
            Ok(Some((if negative { -value } else { value }, end + 2)))
        }
        _ => Err(bad),
    }
}

#[cfg(test)]
mod tests;
