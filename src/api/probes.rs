//! How the daemon is: for people, for supervisors, for Prometheus.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Surface;
use super::answer::{Refusal, no_such_route};
use crate::control::StatusView;

/// Serving is the whole proof.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(State(surface): State<Surface>) -> Response {
    let health = surface.control.health().await;
    let status = if health.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(health)).into_response()
}

pub(super) async fn metrics(State(surface): State<Surface>) -> Response {
    match &surface.metrics {
        Some(render) => (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
            render(),
        )
            .into_response(),
        None => no_such_route(axum::http::Uri::from_static("/metrics"))
            .await
            .into_response(),
    }
}

pub(super) async fn status(State(surface): State<Surface>) -> Result<Json<StatusView>, Refusal> {
    Ok(Json(surface.control.status().await?))
}
