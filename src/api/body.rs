//! Bodies and parameters, read strictly.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::answer::Refusal;

/// The JSON body of a request; an empty one is `{}`. The type it is read to
/// refuses unknown fields.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let bytes = axum::body::Bytes::from_request(request, state)
            .await
            .map_err(|error| {
                Refusal::new(
                    error.status(),
                    "bad_input",
                    Some("validation_failed"),
                    format!("the body could not be read: {error}"),
                )
            })?;
        let text: &[u8] = if bytes.trim_ascii().is_empty() {
            b"{}"
        } else {
            &bytes
        };
        serde_json::from_slice(text)
            .map(Self)
            .map_err(|error| Refusal::bad_input(format!("the body is not acceptable: {error}")))
    }
}

/// The parameters behind the question mark. The type they are read to refuses
/// unknown ones.
pub(super) struct Parameters<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Query::<T>::try_from_uri(&parts.uri)
            .map(|Query(value)| Self(value))
            .map_err(|error| {
                let why = std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), ToString::to_string);
                Refusal::bad_input(format!("the parameters are not acceptable: {why}"))
            })
    }
}
