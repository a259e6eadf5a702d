//! Accepting connections, within bounds, until told to stop.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause after a connection could not be accepted, mostly for want of file
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// The most connections at once; more wait in the kernel's queue.
    pub max_connections: usize,
    /// The longest time for a request's headers, and between two requests.
    pub header_timeout: Duration,
    /// How long requests may take that are under way when the end comes.
    pub drain_grace: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            max_connections: 512,
            header_timeout: Duration::from_secs(10),
            drain_grace: Duration::from_secs(10),
        }
    }
}

/// Serves `router` on `listener` until `shutdown`; then accepts nothing more,
/// and returns when what was under way is answered or the grace is over.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServeLimits,
    shutdown: CancellationToken,
) {
    let slots = std::sync::Arc::new(Semaphore::new(limits.max_connections));
    let connections = TaskTracker::new();
    let cut_off = CancellationToken::new();
    loop {
        let slot = tokio::select! {
            slot = std::sync::Arc::clone(&slots).acquire_owned() => slot,
            () = shutdown.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, _peer)) => {
                let served = serve_connection(stream, router.clone(), limits, shutdown.clone());
                let cut_off = cut_off.clone();
                connections.spawn(async move {
                    let _slot = slot;
                    tokio::select! {
                        () = served => {}
                        () = cut_off.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "A connection to the intake could not be accepted.");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain_grace, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            "{} connections to the intake were cut off.",
            connections.len()
        );
        cut_off.cancel();
        connections.wait().await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    router: Router,
    limits: ServeLimits,
    shutdown: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "Small packets may be held back.");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "A connection to the intake ended early.");
    }
}
