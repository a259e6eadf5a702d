//! Serving the control socket until the daemon shuts down.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ControlSocket;

/// How long requests in flight have once the daemon shuts down.
const DRAIN_GRACE: Duration = Duration::from_secs(10);

/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// Connections that are served at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;

/// How long to wait when the system is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then finishes what is in flight, at most for a grace.
/// The socket's file is gone when it returns.
pub async fn serve(socket: ControlSocket, router: Router, shutdown: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {}
            accepted = socket.listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(converse(stream, router.clone(), shutdown.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "A connection to the control socket was not accepted.");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
    // Nobody new gets in while the rest is finished.
    drop(socket);
    let drained = tokio::time::timeout(DRAIN_GRACE, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "Requests to the control socket were cut off."
        );
        connections.shutdown().await;
    }
}

async fn converse(stream: UnixStream, router: Router, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(router);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        // A client that has sent its request and is gone does not cancel it.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut asked = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "A connection to the control socket ended early.");
                }
                return;
            }
            () = shutdown.cancelled(), if !asked => {
                asked = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
