//! A copy of a call that arrives after the call was answered, held up somewhere on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qiang_core::{Refusal, ReleaseReason};
use qiang_testkit::servers::shared;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::asking::Asking as _;
use crate::fixture::{granted, node, open, orders, pool, prefix, refused, view, wish};
use crate::servers::{port, send};

/// Forwards everything, until told to keep what is sent next and hang up on its sender.
async fn relay(
    listener: TcpListener,
    upstream: u16,
    keep: Arc<AtomicBool>,
    kept: oneshot::Sender<Vec<u8>>,
) {
    let kept = Arc::new(std::sync::Mutex::new(Some(kept)));
    while let Ok((client, _)) = listener.accept().await {
        let (keep, kept) = (Arc::clone(&keep), Arc::clone(&kept));
        tokio::spawn(async move {
            let server = TcpStream::connect(("127.0.0.1", upstream)).await.expect("it listens");
            let ((mut from, mut to), (mut answers, mut requests)) =
                (client.into_split(), server.into_split());
            let back = tokio::spawn(async move { copy(&mut answers, &mut to).await });
            let mut piece = vec![0; 64 * 1024];
            while let Ok(length @ 1..) = from.read(&mut piece).await {
                if keep.swap(false, Ordering::SeqCst) {
                    let kept = kept.lock().expect("nobody panics").take().expect("only once");
                    kept.send(piece[..length].to_vec()).expect("somebody wants it");
                    break;
                }
                requests.write_all(&piece[..length]).await.expect("it reads");
            }
            back.abort();
        });
    }
}

#[tokio::test]
async fn p06_a_late_copy_of_an_answered_call_has_no_effect() {
    let Some(url) = shared::redis() else { return };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let proxied = format!("redis://{}", listener.local_addr().expect("it is bound"));
    let keep = Arc::new(AtomicBool::new(false));
    let (to, kept) = oneshot::channel();
    tokio::spawn(relay(listener, port(&url), Arc::clone(&keep), to));
    let prefix = prefix();
    let (engine, other) = (node(&proxied, &prefix).await, node(&url, &prefix).await);
    let id = pool(1);
    open(&engine, id, orders(1)).await;
    let ann = granted(&engine, wish(id, "ann")).await;
    keep.store(true, Ordering::SeqCst);
    // Its first copy is on its way; the second one is answered.
    assert_eq!(refused(&engine, wish(id, "bob")).await, Refusal::SoldOut);
    let copy = kept.await.expect("it was kept");
    other.release(ann.id, None, ReleaseReason::GaveUp).await.expect("it answers");
    let answer = send(port(&url), &copy);
    assert!(answer.starts_with(b"$"), "{}", String::from_utf8_lossy(&answer));
    let view = view(&engine, id).await;
    assert_eq!((view.available, view.claims), (1, 1), "bob was told that nothing is left");
}
