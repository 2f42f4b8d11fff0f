//! Just enough of Redis's protocol to set servers up and to look at them from outside: one
//! connection for each question, so that nothing is left behind in the server.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How long a server may take to answer one question.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Answers are small; a length beyond this is no length.
const LONGEST: i64 = 64 << 20;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing there.
    Nil,
    /// A number.
    Integer(i64),
    /// A status or a string.
    Text(String),
    /// Several.
    List(Vec<Value>),
}

impl Value {
    /// The text or the number as text; empty for what is neither.
    pub fn text(&self) -> String {
        self.to_string()
    }

    /// The elements; none for what is no list.
    pub fn list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            _ => &[],
        }
    }

    /// The number, also if it came as text.
    pub fn integer(&self) -> Option<i64> {
        self.to_string().parse().ok()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Nil | Self::List(_) => Ok(()),
        }
    }
}

/// Asks the server at `port` of this machine. An error reply is an error.
pub(super) fn ask(port: u16, password: Option<&str>, command: &[&str]) -> Result<Value> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)
        .with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    if let Some(password) = password {
        stream.write_all(&encode(&["AUTH", password]))?;
        read(&mut answers).context("AUTH")?;
    }
    stream.write_all(&encode(command))?;
    read(&mut answers).with_context(|| format!("{} at {address}", command.join(" ")))
}

fn encode(command: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

fn read(from: &mut impl BufRead) -> Result<Value> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let Some(line) = line.strip_suffix("\r\n") else { bail!("the connection ended") };
    let (kind, rest) = line.split_at_checked(1).context("an empty answer")?;
    Ok(match kind {
        "+" => Value::Text(rest.to_owned()),
        "-" => bail!("it says: {rest}"),
        ":" => Value::Integer(rest.parse()?),
        "$" => match length(rest)? {
            None => Value::Nil,
            Some(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Value::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
        },
        "*" => match length(rest)? {
            None => Value::Nil,
            Some(length) => Value::List((0..length).map(|_| read(from)).collect::<Result<_>>()?),
        },
        other => bail!("an answer of kind {other:?}"),
    })
}

fn length(text: &str) -> Result<Option<usize>> {
    match text.parse()? {
        -1 => Ok(None),
        length @ 0..LONGEST => Ok(Some(usize::try_from(length)?)),
        length => bail!("a length of {length}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    fn read(bytes: &str) -> anyhow::Result<Value> {
        super::read(&mut bytes.as_bytes())
    }

    #[test]
    fn answers_are_understood() {
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(read("+OK\r\n").unwrap(), text("OK"));
        assert_eq!(read("$3\r\na\nb\r\n").unwrap(), text("a\nb"));
        assert_eq!(read("$-1\r\n").unwrap(), Value::Nil);
        let list = read("*2\r\n:-7\r\n*1\r\n$1\r\n5\r\n").unwrap();
        assert_eq!(list.list()[0].integer(), Some(-7));
        assert_eq!(list.list()[1].list()[0].integer(), Some(5));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for bad in
            ["", "+OK", "-ERR no\r\n", "$99999999999\r\n", "$3\r\na", "*2\r\n:1\r\n", "?\r\n"]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn commands_carry_their_lengths() {
        assert_eq!(super::encode(&["GET", "ü"]), "*2\r\n$3\r\nGET\r\n$2\r\nü\r\n".as_bytes());
    }
}
