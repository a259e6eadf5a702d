//! Errors as they are answered: a status, and a body of one shape.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::ControlError;
use crate::domain::code::FailureCode;
use crate::domain::reason::Kept;

/// The body of an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// Stable word for programs.
    pub code: String,
    /// Kind of failure, coarser than the code.
    pub reason: Option<String>,
    /// For people.
    pub message: String,
    /// What else there is to know.
    pub details: Option<Value>,
}

/// An error on its way out.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    body: ErrorBody,
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        code: &str,
        reason: Option<&str>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            body: ErrorBody {
                error: ErrorDetail {
                    code: code.to_owned(),
                    reason: reason.map(str::to_owned),
                    message: message.into(),
                    details: None,
                },
            },
        }
    }

    pub(super) fn bad_input(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad_input",
            Some("validation_failed"),
            message,
        )
    }

    /// The answer to a removal that would lose work: how much of each kind, the
    /// first paths, and what a consent has to name.
    pub(super) fn kept(reasons: &[Kept], checkout: &str, token: Option<&str>) -> Self {
        let codes: Vec<_> = reasons
            .iter()
            .map(|kept| format!("{} ({})", kept.code, kept.count))
            .collect();
        let mut refusal = Self::new(
            StatusCode::CONFLICT,
            "work_at_risk",
            Some("api_rejected"),
            format!(
                "the checkout `{checkout}` stays, as something in it may exist nowhere else: {}",
                codes.join(", ")
            ),
        );
        let counts: serde_json::Map<_, _> = reasons
            .iter()
            .map(|kept| (kept.code.to_string(), json!(kept.count)))
            .collect();
        let paths: serde_json::Map<_, _> = reasons
            .iter()
            .map(|kept| (kept.code.to_string(), json!(kept.paths)))
            .collect();
        refusal.body.error.details = Some(json!({
            "checkout": checkout,
            "counts": counts,
            "paths": paths,
            "reasons": reasons,
            "token": token,
        }));
        refusal
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            source = inner.source();
        }
        let status = status_of(&error);
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(error = message, "A request to the control socket failed.");
        }
        Self::new(status, error.code(), error.reason(), message)
    }
}

const fn status_of(error: &ControlError) -> StatusCode {
    match error {
        ControlError::NotFound(_) => StatusCode::NOT_FOUND,
        ControlError::Invalid(_) => StatusCode::BAD_REQUEST,
        ControlError::Ambiguous(_) | ControlError::InUse(_) | ControlError::Refused(_) => {
            StatusCode::CONFLICT
        }
        ControlError::Failed { code, .. } => match code {
            FailureCode::BadInput => StatusCode::BAD_REQUEST,
            FailureCode::PathOccupied => StatusCode::CONFLICT,
            FailureCode::DiskFull | FailureCode::DiskLow | FailureCode::Quota => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            FailureCode::Timeout | FailureCode::Slow | FailureCode::LockTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            FailureCode::BaseUnresolvable
            | FailureCode::RefNotYet
            | FailureCode::RefGone
            | FailureCode::CommitMismatch
            | FailureCode::UnbornHead
            | FailureCode::Auth
            | FailureCode::Network
            | FailureCode::RateLimited
            | FailureCode::RepositoryMissing => StatusCode::BAD_GATEWAY,
            FailureCode::Corrupt
            | FailureCode::SetupFailed
            | FailureCode::LfsUnavailable
            | FailureCode::GitMissing
            | FailureCode::GitTooOld
            | FailureCode::Internal
            | FailureCode::BadPayload
            | FailureCode::SessionStartFailed
            | FailureCode::TemplateFailed
            | FailureCode::Interrupted => StatusCode::INTERNAL_SERVER_ERROR,
        },
        ControlError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        ControlError::File { .. } | ControlError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

pub(super) async fn no_such_route(uri: Uri) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "no_such_route",
        Some("validation_failed"),
        format!("there is no `{}`", uri.path()),
    )
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "no_such_method",
        Some("validation_failed"),
        format!("`{}` does not take {method}", uri.path()),
    )
}
