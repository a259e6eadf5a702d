//! Giving back what nobody needs.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::Surface;
use super::answer::Refusal;
use super::body::Body;
use crate::dispatch::gc::{GcReport, GcRequest};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gc {
    /// Change nothing, only say what would go.
    #[serde(default)]
    dry_run: bool,
    /// First let removals go on that were halted.
    #[serde(default)]
    resume_removals: bool,
}

pub(super) async fn gc(
    State(surface): State<Surface>,
    Body(asked): Body<Gc>,
) -> Result<Json<GcReport>, Refusal> {
    let asked = GcRequest {
        dry_run: asked.dry_run,
        resume_removals: asked.resume_removals,
    };
    Ok(Json(surface.control.gc(asked).await?))
}
