//! The event log's history.

use axum::Json;
use axum::extract::State;
use globset::GlobBuilder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Surface;
use super::answer::Refusal;
use super::body::Parameters;
use crate::control::EventQuery;

/// How many events are given unless more are asked for.
const EVENTS_SHOWN: usize = 100;
/// The most events that are given at once.
const EVENTS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Glob over names of events.
    r#type: Option<String>,
    item: Option<String>,
    delivery: Option<String>,
    /// Milliseconds since 1970.
    since: Option<i64>,
    /// Sequence number.
    after: Option<u64>,
    limit: Option<usize>,
}

pub(super) async fn history(
    State(surface): State<Surface>,
    Parameters(which): Parameters<Which>,
) -> Result<Json<Vec<Box<RawValue>>>, Refusal> {
    let kind = which
        .r#type
        .as_deref()
        .map(|glob| GlobBuilder::new(glob).build())
        .transpose()
        .map_err(|error| Refusal::bad_input(error.to_string()))?
        .map(|glob| glob.compile_matcher());
    let query = EventQuery {
        kind,
        item: which.item.as_deref().map(Surface::item).transpose()?,
        delivery: which.delivery,
        since: which.since,
        after: which.after.unwrap_or(0),
    };
    let limit = which.limit.unwrap_or(EVENTS_SHOWN).min(EVENTS_MAX);
    Ok(Json(surface.control.events(query, limit).await?))
}
