//! The intake listener: verifies, stores, answers.
//!
//! # What this module promises
//!
//! 1. What is answered with 202 is in the inbox, on disk.
//! 2. Nothing of a body is looked at before its signature was found good, over
//!    the bytes as they came, against every secret, in constant time.
//! 3. An answer waits for the store, and for nothing else.
//! 4. Memory, connections and waiting have bounds: a body, all bodies together,
//!    the time for headers and for a body. Beyond one, the request is refused.
//! 5. Headers are neither stored nor logged, except the event's name and the
//!    delivery's id.
//! 6. A flood of bad requests writes a few events a minute, and their count.
//!
//! # On the wire
//!
//! ```text
//! POST <path>     202 {"delivery":ID,"status":"accepted"|"duplicate"}
//!                 400 401 408 413 415 503  {"error":{"code","message"}}
//! GET  /healthz   200 {"status":"ok"}
//! ```
//!
//! A slash at the end of the path is tolerated; there is never a redirect.

mod body;
mod budget;
mod headers;
mod problem;
mod rejections;
mod secrets;
mod serve;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde::Serialize;

pub use budget::BodyBudget;
pub use problem::Problem;
pub use rejections::IntakeHealth;
pub use secrets::{EmptySecret, Secrets};
pub use serve::{ServeLimits, serve};

use crate::domain::log_event::Source;
use crate::inbox::{Accepted, Arrival, Inbox};
use headers::Announced;
use rejections::Rejections;

/// Bodies from this size on are verified off the async threads.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// What the listener takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressSettings {
    /// Path of the webhook.
    pub path: String,
    /// Whether a request without a signature is taken.
    pub allow_unsigned: bool,
    /// The largest body.
    pub max_body_bytes: u64,
    /// The most that all bodies together may take while they are read.
    pub body_budget_bytes: u64,
}

impl Default for IngressSettings {
    fn default() -> Self {
        Self {
            path: "/webhooks/github".to_owned(),
            allow_unsigned: false,
            max_body_bytes: 26_214_400,
            body_budget_bytes: 67_108_864,
        }
    }
}

/// The listener's state; cheap to clone.
#[derive(Clone)]
pub struct Ingress {
    inner: Arc<Inner>,
}

struct Inner {
    inbox: Inbox,
    settings: RwLock<Arc<IngressSettings>>,
    secrets: RwLock<Arc<Secrets>>,
    budget: BodyBudget,
    rejections: Rejections,
}

/// A delivery that is authentic, with the part of the budget that it takes.
pub struct Verified {
    arrival: Arrival,
    _held: budget::Held,
}

impl Verified {
    /// Returns the delivery's id.
    pub fn id(&self) -> &str {
        &self.arrival.id
    }
}

/// Answer to a delivery.
#[derive(Serialize)]
struct Answer<'a> {
    delivery: &'a str,
    status: &'static str,
}

impl Ingress {
    /// Returns a listener that stores into `inbox`.
    pub fn new(inbox: Inbox, settings: IngressSettings, secrets: Secrets) -> Self {
        Self {
            inner: Arc::new(Inner {
                rejections: Rejections::new(inbox.clone()),
                inbox,
                budget: BodyBudget::new(settings.body_budget_bytes),
                settings: RwLock::new(Arc::new(settings)),
                secrets: RwLock::new(Arc::new(secrets)),
            }),
        }
    }

    /// Verifies with other secrets from the next request on.
    pub fn set_secrets(&self, secrets: Secrets) {
        let mut place = self
            .inner
            .secrets
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(secrets);
    }

    /// Goes by other settings from the next request on.
    pub fn set_settings(&self, settings: IngressSettings) {
        self.inner.budget.set_limit(settings.body_budget_bytes);
        let mut place = self
            .inner
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(settings);
    }

    /// Returns how the intake is doing.
    pub fn health(&self) -> IntakeHealth {
        self.inner.rejections.health()
    }

    /// Returns the routes, for [`serve()`].
    pub fn router(&self) -> Router {
        // The path is configuration and may hold what a pattern would read as
        // its own; so it is compared, not registered.
        Router::new().fallback(route).with_state(self.clone())
    }

    /// Reads and verifies a request to the webhook's path.
    ///
    /// # Errors
    ///
    /// Returns [`Problem`] as it is to be answered; nothing was stored.
    pub async fn verify(&self, request: Request) -> Result<Verified, Problem> {
        let settings = self.settings();
        let (head, body) = request.into_parts();
        let announced = Announced::of(&head.headers);
        let early = announced.require(&settings);
        let (form, signature) = match early {
            Ok(announced) => announced,
            Err(problem) => {
                if !announced.expects_continue {
                    body::discard(body, settings.max_body_bytes).await;
                }
                return Err(problem);
            }
        };
        let (body, held) = body::read(
            body,
            announced.length,
            settings.max_body_bytes,
            &self.inner.budget,
        )
        .await?;
        let body = match signature {
            Some(signature) => self.require_signature(body, signature).await?,
            None => body,
        };
        self.inner.rejections.verified();
        let arrival = Arrival {
            gh_event: announced.event?,
            id: announced.delivery?,
            source: Source::Webhook,
            form,
            body,
        };
        Ok(Verified {
            arrival,
            _held: held,
        })
    }

    async fn require_signature(
        &self,
        body: bytes::Bytes,
        signature: [u8; 32],
    ) -> Result<bytes::Bytes, Problem> {
        let secrets = self.secrets();
        let matching = if body.len() < LARGE_BODY_BYTES {
            secrets.matching(&body, &signature)
        } else {
            let body = body.clone();
            tokio::task::spawn_blocking(move || secrets.matching(&body, &signature))
                .await
                .map_err(|_stopped| Problem::Closing)?
        };
        let index = matching.ok_or(Problem::BadSignature)?;
        metrics::counter!("innkeeper_webhook_verified_total", "secret" => index.to_string())
            .increment(1);
        Ok(body)
    }

    async fn take(&self, request: Request) -> Result<Response, Problem> {
        let verified = self.verify(request).await?;
        let id = verified.arrival.id.clone();
        let accepted = self.inner.inbox.accept(verified.arrival).await?;
        Ok(accepted_response(&id, accepted))
    }

    fn settings(&self) -> Arc<IngressSettings> {
        let place = self.inner.settings.read();
        Arc::clone(&place.unwrap_or_else(PoisonError::into_inner))
    }

    fn secrets(&self) -> Arc<Secrets> {
        let place = self.inner.secrets.read();
        Arc::clone(&place.unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the answer to a delivery that was taken.
pub fn accepted_response(id: &str, accepted: Accepted) -> Response {
    let status = match accepted {
        Accepted::New(_) => "accepted",
        Accepted::Duplicate => "duplicate",
    };
    metrics::counter!("innkeeper_webhook_deliveries_total", "status" => status).increment(1);
    let answer = Answer {
        delivery: id,
        status,
    };
    (StatusCode::ACCEPTED, Json(answer)).into_response()
}

async fn route(State(ingress): State<Ingress>, request: Request) -> Response {
    let path = request.uri().path();
    if path == "/healthz" {
        return match *request.method() {
            Method::GET | Method::HEAD => Json(serde_json::json!({"status": "ok"})).into_response(),
            _ => Problem::MethodNotAllowed { allow: "GET, HEAD" }.into_response(),
        };
    }
    if path.trim_end_matches('/') != ingress.settings().path.trim_end_matches('/') {
        return Problem::NotFound.into_response();
    }
    if request.method() != Method::POST {
        return Problem::MethodNotAllowed { allow: "POST" }.into_response();
    }
    let began = Instant::now();
    let response = match ingress.take(request).await {
        Ok(response) => response,
        Err(problem) => {
            ingress.inner.rejections.refused(&problem);
            problem.into_response()
        }
    };
    metrics::histogram!("innkeeper_webhook_seconds").record(began.elapsed().as_secs_f64());
    response
}

/// Returns a response that ends its connection, for a body that was not read.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(
        header::CONNECTION,
        header::HeaderValue::from_static("close"),
    );
    response
}
