//! Why a request was refused, as the sender is told.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::closing;
use crate::inbox::Refused;

/// Seconds after which a sender may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// A refusal. What is told of the reason is what the sender said itself, or
/// nothing.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// No such path.
    #[error("there is nothing here")]
    NotFound,
    /// The path has another method.
    #[error("this path takes {allow}")]
    MethodNotAllowed {
        /// Methods that it takes.
        allow: &'static str,
    },
    /// Neither JSON nor a form.
    #[error("the content type must be application/json or application/x-www-form-urlencoded")]
    UnsupportedMediaType,
    /// The body is larger than allowed.
    #[error("the body is larger than {max} bytes")]
    TooLarge {
        /// The limit.
        max: u64,
    },
    /// Body or pauses within it took too long.
    #[error("the body came too slowly")]
    Slow,
    /// The body ended before its end.
    #[error("the body is not whole")]
    Broken,
    /// No signature.
    #[error("X-Hub-Signature-256 is missing")]
    MissingSignature,
    /// A signature that is malformed, doubled, or made by nobody we know.
    #[error("X-Hub-Signature-256 does not match")]
    BadSignature,
    /// A header that says what this is about is missing or senseless.
    #[error("{name} is missing, doubled, too long or not a printable word")]
    BadHeader {
        /// Name of the header.
        name: String,
    },
    /// The bodies being read take all the memory that they may.
    #[error("too many large bodies at once")]
    BudgetUsedUp,
    /// The inbox did not take it.
    #[error("the delivery was not stored")]
    NotTaken(#[from] Refused),
    /// The daemon is shutting down.
    #[error("the daemon is shutting down")]
    Closing,
}

impl Problem {
    /// Returns the stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::TooLarge { .. } => "body_too_large",
            Self::Slow => "body_too_slow",
            Self::Broken => "body_broken",
            Self::MissingSignature => "signature_missing",
            Self::BadSignature => "signature_bad",
            Self::BadHeader { .. } => "header_bad",
            Self::BudgetUsedUp => "body_budget",
            Self::NotTaken(Refused::InboxFull { .. }) => "inbox_full",
            Self::NotTaken(Refused::DiskFull) => "disk_full",
            Self::NotTaken(Refused::NotStored(_)) => "store_failed",
            Self::NotTaken(Refused::Closed) | Self::Closing => "shutting_down",
        }
    }

    /// Returns the status.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken | Self::BadHeader { .. } => StatusCode::BAD_REQUEST,
            Self::MissingSignature | Self::BadSignature => StatusCode::UNAUTHORIZED,
            Self::BudgetUsedUp | Self::NotTaken(_) | Self::Closing => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let error = serde_json::json!({
            "error": { "code": self.code(), "message": self.to_string() }
        });
        let mut response = (status, Json(error)).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        match self {
            Self::MethodNotAllowed { allow } => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allow));
                response
            }
            // Part of the body may still be under way.
            Self::TooLarge { .. } | Self::Slow | Self::Broken | Self::Closing => closing(response),
            Self::NotFound
            | Self::UnsupportedMediaType
            | Self::MissingSignature
            | Self::BadSignature
            | Self::BadHeader { .. }
            | Self::BudgetUsedUp
            | Self::NotTaken(_) => response,
        }
    }
}
