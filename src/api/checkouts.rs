//! Checkouts and the items they belong to.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::Value;

use super::Surface;
use super::answer::Refusal;
use super::body::{Body, Parameters};
use crate::control::{CheckoutView, ItemView};
use crate::dispatch::request::{Answer, What};
use crate::domain::checkout::Strategy;
use crate::domain::log_event::Source;

/// Who asks. The command line says so, as it uses the same socket.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Asker {
    #[default]
    Api,
    Cli,
}

impl Asker {
    pub(super) const fn source(self) -> Source {
        match self {
            Self::Api => Source::Api,
            Self::Cli => Source::Cli,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WithSize {
    #[serde(default)]
    size: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prepare {
    work_item: String,
    commit: Option<String>,
    branch: Option<String>,
    strategy: Option<Strategy>,
    #[serde(default)]
    source: Asker,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExitAction {
    Keep,
    Remove,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exit {
    action: ExitAction,
    #[serde(default)]
    stop: bool,
    /// The token of a refusal. Anything else, `true` included, is answered with
    /// the token that would do.
    #[serde(default)]
    discard_changes: Option<Value>,
    #[serde(default)]
    source: Asker,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {
    #[serde(default)]
    pub(super) source: Asker,
}

pub(super) async fn list(
    State(surface): State<Surface>,
    Parameters(wanted): Parameters<WithSize>,
) -> Result<Json<Vec<CheckoutView>>, Refusal> {
    Ok(Json(surface.control.checkouts(wanted.size).await?))
}

pub(super) async fn show(
    State(surface): State<Surface>,
    Path(reference): Path<String>,
    Parameters(wanted): Parameters<WithSize>,
) -> Result<Json<ItemView>, Refusal> {
    let item = Surface::item(&reference)?;
    Ok(Json(surface.control.show(&item, wanted.size).await?))
}

async fn ask(
    surface: &Surface,
    reference: &str,
    what: What,
    asker: Asker,
) -> Result<Json<Answer>, Refusal> {
    let item = Surface::item(reference)?;
    match surface.control.request(item, what, asker.source()).await? {
        Answer::Kept {
            reasons,
            checkout,
            token,
        } => Err(Refusal::kept(&reasons, &checkout, token.as_deref())),
        answer => Ok(Json(answer)),
    }
}

pub(super) async fn prepare(
    State(surface): State<Surface>,
    Body(asked): Body<Prepare>,
) -> Result<Json<Answer>, Refusal> {
    if let Some(commit) = &asked.commit {
        require_full_id(commit)?;
    }
    let what = What::Prepare {
        commit: asked.commit,
        branch: asked.branch,
        strategy: asked.strategy,
    };
    ask(&surface, &asked.work_item, what, asked.source).await
}

/// A shortened id could mean another commit tomorrow.
fn require_full_id(commit: &str) -> Result<(), Refusal> {
    let is_hex = commit.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hex && (commit.len() == 40 || commit.len() == 64) {
        Ok(())
    } else {
        Err(Refusal::bad_input(format!(
            "`{commit}` is no full commit id (40 or 64 hex digits)"
        )))
    }
}

pub(super) async fn explain(
    State(surface): State<Surface>,
    Path(reference): Path<String>,
    Parameters(asked): Parameters<Nothing>,
) -> Result<Json<Answer>, Refusal> {
    ask(&surface, &reference, What::Explain, asked.source).await
}

pub(super) async fn exit(
    State(surface): State<Surface>,
    Path(reference): Path<String>,
    Body(asked): Body<Exit>,
) -> Result<Json<Answer>, Refusal> {
    let stop = asked.stop;
    let discard = asked.discard_changes.map(|said| match said {
        Value::String(token) => token,
        other => other.to_string(),
    });
    let what = match asked.action {
        ExitAction::Keep if discard.is_some() => {
            let why = "`discard_changes` is for removing; keeping discards nothing";
            return Err(Refusal::bad_input(why));
        }
        ExitAction::Keep => What::ExitKeep { stop },
        ExitAction::Remove => What::ExitRemove { stop, discard },
    };
    ask(&surface, &reference, what, asked.source).await
}

macro_rules! item_routes {
    ($($name:ident => $what:ident;)*) => {
        $(pub(super) async fn $name(
            State(surface): State<Surface>,
            Path(reference): Path<String>,
            Body(asked): Body<Nothing>,
        ) -> Result<Json<Answer>, Refusal> {
            ask(&surface, &reference, What::$what, asked.source).await
        })*
    };
}

item_routes! {
    start => Start;
    stop => Stop;
    pause => Pause;
    resume => Resume;
    cleanup => Cleanup;
}
