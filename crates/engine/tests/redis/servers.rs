//! Looking into servers from outside the engine.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;

use qiang_core::PoolId;
use qiang_engine::redis::{Engine, hash_tag};
use qiang_testkit::servers::Redis;
pub(crate) use qiang_testkit::servers::redis::own;

/// The port in the URL of a single server.
pub(crate) fn port(url: &str) -> u16 {
    url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("redis://host:port")
}

/// Removes keys, as a server does that loses its data.
pub(crate) fn forget(url: &str, pattern: &str) {
    let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
                  n = n + redis.call('DEL', key) end return n";
    let removed = command(url, &["EVAL", script, "0", pattern]);
    assert!(removed.starts_with(':') && removed != ":0\r\n", "{pattern}: {removed}");
}

/// One command, and the beginning of the answer as it comes.
pub(crate) fn command(url: &str, words: &[&str]) -> String {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    String::from_utf8_lossy(&send(port(url), &bytes)).into_owned()
}

/// Sends bytes and returns what came back first.
pub(crate) fn send(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(bytes).expect("it reads");
    let mut answer = vec![0; 64 * 1024];
    let length = BufReader::new(stream).read(&mut answer).expect("it answers");
    answer.truncate(length);
    answer
}

/// How often each command was called.
pub(crate) fn calls(server: &Redis) -> BTreeMap<String, u64> {
    let stats = server.command(&["INFO", "commandstats"]).expect("it answers").text();
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    calls.collect()
}

/// Units in one bucket of a pool, as it lies in Redis.
pub(crate) fn available_in(
    url: &str,
    prefix: &str,
    engine: &Engine,
    id: PoolId,
    bucket: u16,
) -> u32 {
    let partition = engine.partitions_of(id, bucket + 1)[usize::from(bucket)];
    let key = format!("{prefix}:{{{}}}:pool:{id}/{bucket}", hash_tag(partition));
    let script = "return cmsgpack.unpack(redis.call('HGET', KEYS[1], 'state'))[4]";
    let answer = command(url, &["EVAL", script, "1", &key]);
    let number = answer.strip_prefix(':').and_then(|rest| rest.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{key}: {answer}"))
}

/// Transfers between buckets that were begun and are not settled.
pub(crate) fn transfers(url: &str, prefix: &str) -> u32 {
    let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
                  local moves = redis.call('HGETALL', key) for i = 1, #moves, 2 do \
                  if string.match(moves[i], '^to:') and cmsgpack.unpack(moves[i + 1])[2] > 0 \
                  then n = n + 1 end end end return n";
    let answer = command(url, &["EVAL", script, "0", &format!("{prefix}:*:moves:*")]);
    let number = answer.strip_prefix(':').and_then(|rest| rest.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{answer}"))
}

/// What one partition holds at a moment.
pub(crate) struct Saved<'a> {
    url: &'a str,
    keys: String,
}

impl<'a> Saved<'a> {
    /// Keeps a copy of everything in a partition, as a replica has it that hears nothing more.
    pub(crate) fn of(url: &'a str, prefix: &str, partition: u16) -> Self {
        let keys = format!("{prefix}:{{{}}}:", hash_tag(partition));
        let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do \
                      redis.call('COPY', key, 'saved:' .. key, 'REPLACE') end return 1";
        assert_eq!(command(url, &["EVAL", script, "0", &keys]), ":1\r\n");
        Self { url, keys }
    }

    /// Makes the partition what it was then.
    pub(crate) fn put_back(&self) {
        let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do \
                      redis.call('DEL', key) end \
                      for _, key in ipairs(redis.call('KEYS', 'saved:' .. ARGV[1] .. '*')) do \
                      redis.call('COPY', key, string.sub(key, 7)) end return 1";
        assert_eq!(command(self.url, &["EVAL", script, "0", &self.keys]), ":1\r\n");
    }
}
