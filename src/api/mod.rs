//! The HTTP surface of the operations, on the operator's Unix socket.
//!
//! # What this module promises
//!
//! 1. Whoever can open the socket is the operator; it is never open to others,
//!    not even while it is being made.
//! 2. Every answer of `/api/v1` is JSON, an error among them:
//!    `{"error":{"code","reason","message","details"}}`, all four always there.
//! 3. A field or a parameter that is not known is refused, never ignored.
//! 4. What a request began goes on when its client is gone.

mod answer;
mod archives;
mod body;
mod checkouts;
mod deliveries;
mod events;
mod gc;
mod probes;
mod serve;
mod sessions;
mod socket;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

use crate::control::{Control, ControlError};

pub use answer::{ErrorBody, ErrorDetail};
pub use serve::serve;
pub use socket::{BindError, ControlSocket, bind, connect};

/// The largest body of a request: all of them are a few names.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Renders the metrics in Prometheus' text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

#[derive(Clone)]
struct Surface {
    control: Control,
    metrics: Option<RenderMetrics>,
}

/// Returns the routes; without `metrics` there is no `/metrics`.
pub fn router(control: Control, metrics: Option<RenderMetrics>) -> Router {
    let v1 = Router::new()
        .route("/status", get(probes::status))
        .route("/checkouts", get(checkouts::list).post(checkouts::prepare))
        .route("/checkouts/{ref}", get(checkouts::show))
        .route("/checkouts/{ref}/explain", get(checkouts::explain))
        .route("/checkouts/{ref}/exit", post(checkouts::exit))
        .route("/items/{ref}/start", post(checkouts::start))
        .route("/items/{ref}/stop", post(checkouts::stop))
        .route("/items/{ref}/pause", post(checkouts::pause))
        .route("/items/{ref}/resume", post(checkouts::resume))
        .route("/items/{ref}/cleanup", post(checkouts::cleanup))
        .route("/sessions", get(sessions::list))
        .route("/sessions/{id}", get(sessions::show))
        .route("/sessions/{id}/log", get(sessions::log))
        .route("/sessions/{id}/close", post(sessions::close))
        .route("/deliveries", get(deliveries::list))
        .route("/deliveries/{id}", get(deliveries::show))
        .route("/deliveries/{id}/replay", post(deliveries::replay))
        .route("/archives", get(archives::list))
        .route(
            "/archives/{id}",
            get(archives::show).delete(archives::purge),
        )
        .route("/archives/{id}/restore", post(archives::restore))
        .route("/events", get(events::history))
        .route("/gc", post(gc::gc));
    Router::new()
        .nest("/api/v1", v1)
        .route("/healthz", get(probes::healthz))
        .route("/readyz", get(probes::readyz))
        .route("/metrics", get(probes::metrics))
        .fallback(answer::no_such_route)
        .method_not_allowed_fallback(answer::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Surface { control, metrics })
}

impl Surface {
    fn item(text: &str) -> Result<crate::domain::work_item::ItemQuery, ControlError> {
        crate::domain::work_item::parse_item_query(text)
            .map_err(|error| ControlError::Invalid(error.to_string()))
    }
}
