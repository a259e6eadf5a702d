//! Sessions and their logs.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::Surface;
use super::answer::Refusal;
use super::body::{Body, Parameters};
use super::checkouts::Nothing;
use crate::control::SessionView;
use crate::dispatch::request::Answer;

/// Where to go on reading a log.
pub const LOG_NEXT: HeaderName = HeaderName::from_static("innkeeper-log-next");
/// Whether more of a log may come.
pub const LOG_MORE: HeaderName = HeaderName::from_static("innkeeper-log-more");

/// How many sessions are listed unless more are asked for.
const SESSIONS_SHOWN: u32 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    #[serde(default)]
    live: bool,
    limit: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Piece {
    #[serde(default)]
    from: u64,
    tail: Option<u64>,
}

pub(super) async fn list(
    State(surface): State<Surface>,
    Parameters(which): Parameters<Which>,
) -> Result<Json<Vec<SessionView>>, Refusal> {
    let limit = which.limit.unwrap_or(SESSIONS_SHOWN);
    Ok(Json(surface.control.sessions(which.live, limit).await?))
}

pub(super) async fn show(
    State(surface): State<Surface>,
    Path(id): Path<String>,
) -> Result<Json<SessionView>, Refusal> {
    Ok(Json(surface.control.session(&id).await?))
}

/// Answers with bytes, not JSON: a log is whatever the command wrote. The headers
/// say where to go on and whether more may come.
pub(super) async fn log(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    Parameters(piece): Parameters<Piece>,
) -> Result<Response, Refusal> {
    let chunk = surface
        .control
        .session_log(&id, piece.from, piece.tail)
        .await?;
    Ok((
        [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/octet-stream"),
            ),
            (LOG_NEXT, HeaderValue::from(chunk.next)),
            (
                LOG_MORE,
                HeaderValue::from_static(if chunk.more { "true" } else { "false" }),
            ),
        ],
        chunk.bytes,
    )
        .into_response())
}

pub(super) async fn close(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    Body(asked): Body<Nothing>,
) -> Result<Json<Answer>, Refusal> {
    Ok(Json(
        surface
            .control
            .close_session(&id, asked.source.source())
            .await?,
    ))
}
