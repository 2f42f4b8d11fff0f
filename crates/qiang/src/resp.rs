//! The RESP front door: any Redis client, in any language, pipelined. For a shop's own backend.
//!
//! It speaks RESP2 and RESP3 and knows a handful of commands ([`spec`]). A refusal is a reply, an
//! error is something that was not understood or could not be done. Everything that stands in
//! the buffer of a connection is decided as one batch and answered in order.

mod access;
mod connection;
mod frame;
mod reply;
mod session;
pub mod spec;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qiang_accounts::Accounts;
use qiang_sales::Sales;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::Patience;
use self::session::Session;
use crate::config::Resp;
use crate::listener::{self, Listener};
use crate::tls;

/// Serves until told to stop; then takes nothing new, and returns when everything heard is
/// answered or the grace is over.
pub async fn serve(
    listener: Listener,
    tls: Option<tls::Door>,
    sales: Sales,
    accounts: Accounts,
    settings: Resp,
    stop: CancellationToken,
) {
    let (http, settings) = (&sales.app.config.http, Arc::new(settings));
    let patience = Patience { sign_in: http.header_timeout, rest: http.body_timeout };
    let (connections, last_id) = (TaskTracker::new(), AtomicU64::new(0));
    let serve = |stream: TcpStream, origin| {
        let id = last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let session =
            Session::new(sales.clone(), accounts.clone(), Arc::clone(&settings), id, origin);
        let (tls, stop) = (tls.clone(), stop.child_token());
        connections.track_future(async move {
            let greeting = tls::greet(tls.as_ref(), stream, patience.sign_in);
            if let Some(Some(stream)) = stop.run_until_cancelled(greeting).await {
                connection::serve(stream, session, patience, stop.clone()).await;
            }
        })
    };
    listener::accept(listener, settings.max_connections, &stop, serve).await;
    connections.close();
    if tokio::time::timeout(http.shutdown_grace, connections.wait()).await.is_err() {
        tracing::warn!("some RESP connections were still open when the grace was over");
    }
}
