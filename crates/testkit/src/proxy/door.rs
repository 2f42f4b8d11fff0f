//! Where clients come in: takes them, or is closed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc as ack;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Doings, relay};

/// What the door is told; it says when it is done.
pub(super) enum Order {
    Close(ack::Sender<io::Result<()>>),
    Open(ack::Sender<io::Result<()>>),
}

enum Happening {
    Order(Option<Order>),
    Came(io::Result<(TcpStream, SocketAddr)>),
}

/// Serves until the proxy is dropped.
pub(super) async fn keep(
    listener: TcpListener,
    upstream: SocketAddr,
    doings: Arc<Doings>,
    mut orders: mpsc::Receiver<Order>,
) {
    let Ok(own) = listener.local_addr() else { return };
    let mut listener = Some(listener);
    let mut relays = JoinSet::new();
    loop {
        let happening = tokio::select! {
            biased;
            order = orders.recv() => Happening::Order(order),
            came = accept(listener.as_ref()) => Happening::Came(came),
            // Those that are over are forgotten; the pattern fails when there are none.
            Some(_) = relays.join_next() => continue,
        };
        // An order that nobody waits for any more needs no answer.
        match happening {
            Happening::Order(None) => return,
            Happening::Order(Some(Order::Close(done))) => {
                listener = None;
                drop(done.send(Ok(())));
            }
            Happening::Order(Some(Order::Open(done))) => {
                let opened = open(&mut listener, own).await;
                drop(done.send(opened));
            }
            Happening::Came(Ok((client, from))) => {
                let relay = relay::run(client, from.ip(), upstream, Arc::clone(&doings));
                relays.spawn(relay);
            }
            // One who hung up before being let in; the next may be luckier.
            Happening::Came(Err(_)) => tokio::task::yield_now().await,
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn open(listener: &mut Option<TcpListener>, own: SocketAddr) -> io::Result<()> {
    if listener.is_none() {
        *listener = Some(TcpListener::bind(own).await?);
    }
    Ok(())
}
