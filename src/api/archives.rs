//! Archives.

use std::path::PathBuf;

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;

use super::Surface;
use super::answer::Refusal;
use super::body::{Body, Parameters};
use super::checkouts::{Asker, Nothing};
use crate::control::ArchiveView;
use crate::dispatch::request::Answer;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    /// Absolute; none for a new checkout of the item.
    to: Option<PathBuf>,
    #[serde(default)]
    source: Asker,
}

pub(super) async fn list(
    State(surface): State<Surface>,
) -> Result<Json<Vec<ArchiveView>>, Refusal> {
    Ok(Json(surface.control.archives().await?))
}

pub(super) async fn show(
    State(surface): State<Surface>,
    Path(id): Path<String>,
) -> Result<Json<ArchiveView>, Refusal> {
    Ok(Json(surface.control.archive(&id).await?))
}

pub(super) async fn restore(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    Body(asked): Body<Restore>,
) -> Result<Json<Answer>, Refusal> {
    let source = asked.source.source();
    Ok(Json(surface.control.restore(&id, asked.to, source).await?))
}

pub(super) async fn purge(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    Parameters(asked): Parameters<Nothing>,
) -> Result<Json<Answer>, Refusal> {
    Ok(Json(
        surface.control.purge(&id, asked.source.source()).await?,
    ))
}
