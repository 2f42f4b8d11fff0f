//! Requests written byte by byte, for what a well-behaved client never does.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than any answer takes; only a server that hangs meets it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The head of a claim with a body of so many bytes, up to the empty line.
pub(crate) fn claim_head(sale: &str, token: &str, length: usize) -> String {
    format!(
        "POST /api/v1/sales/{sale}/claims HTTP/1.1\r\nhost: shop\r\nauthorization: {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.expect("somebody listens");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Everything the server says until it closes. A reset after the answer is a close, too: the
/// server need not read what it does not want.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await;
        match read.expect("the server answers or closes") {
            Ok(0) | Err(_) => return String::from_utf8(all).expect("UTF-8"),
            Ok(read) => all.extend_from_slice(&buffer[..read]),
        }
    }
}

/// What the server says until `mark` appears in it.
pub(crate) async fn read_until(stream: &mut TcpStream, mark: &str) -> String {
    let mut all = String::new();
    let mut buffer = [0; 4096];
    while !all.contains(mark) {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await;
        let read = read.expect("the server answers").expect("the connection holds");
        assert!(read > 0, "the server closed after {all:?}");
        all.push_str(std::str::from_utf8(&buffer[..read]).expect("UTF-8"));
    }
    all
}

/// Sends bytes and reads until the server closes.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address).await;
    // The server may answer and close before it has read everything.
    let _sent = stream.write_all(request).await;
    read_to_end(&mut stream).await
}
