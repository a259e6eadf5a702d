//! Deliveries.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Surface;
use super::answer::Refusal;
use super::body::{Body, Parameters};
use crate::control::{DeliveryQuery, DeliveryView};
use crate::store::DeliveryState;

/// How many deliveries are listed unless more are asked for.
const DELIVERIES_SHOWN: u32 = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    state: Option<DeliveryState>,
    item: Option<String>,
    /// Milliseconds since 1970.
    since: Option<i64>,
    limit: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WithPayload {
    #[serde(default)]
    payload: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    #[serde(default)]
    force: bool,
}

pub(super) async fn list(
    State(surface): State<Surface>,
    Parameters(which): Parameters<Which>,
) -> Result<Json<Vec<DeliveryView>>, Refusal> {
    let query = DeliveryQuery {
        state: which.state,
        item: which.item.as_deref().map(Surface::item).transpose()?,
        since: which.since,
        limit: which.limit.unwrap_or(DELIVERIES_SHOWN),
    };
    Ok(Json(surface.control.deliveries(query).await?))
}

pub(super) async fn show(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    Parameters(wanted): Parameters<WithPayload>,
) -> Result<Json<DeliveryView>, Refusal> {
    Ok(Json(surface.control.delivery(&id, wanted.payload).await?))
}

pub(super) async fn replay(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    Body(asked): Body<Replay>,
) -> Result<Json<Value>, Refusal> {
    surface.control.replay(&id, asked.force).await?;
    Ok(Json(json!({ "delivery": id, "replayed": true })))
}
