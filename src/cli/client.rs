//! Talking to the daemon over its control socket.

use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{Failure, Format, Global, Output};
use crate::api::{self, ErrorBody};
use crate::config::Environment;

/// A connection to the daemon, made anew for each request.
pub(super) struct Client {
    socket: PathBuf,
    runtime: Runtime,
    format: Format,
}

/// What the daemon answered.
pub(super) struct Reply {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Client {
    /// Returns a client of the daemon that the configuration means. `format` says
    /// in which form a refusal is told.
    pub(super) fn new(global: &Global, format: Format) -> Result<Self, Failure> {
        let loaded = global.load(&Environment::of_process())?;
        Self::at(loaded.config.control.socket, format)
    }

    /// Returns a client of the daemon behind this socket.
    pub(super) fn at(socket: PathBuf, format: Format) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::failed)?;
        Ok(Self {
            socket,
            runtime,
            format,
        })
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        understood(&self.exchange(Method::GET, path, None)?)
    }

    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        understood(&self.exchange(Method::POST, path, Some(body))?)
    }

    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        understood(&self.exchange(Method::DELETE, path, None)?)
    }

    /// Asks, and returns what was answered unless it is a refusal.
    pub(super) fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Failure> {
        let (status, reply) = self
            .runtime
            .block_on(exchange(&self.socket, method, path, body))?;
        if status.is_success() {
            return Ok(reply);
        }
        Err(self.refusal(status, &reply.body))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> Failure {
        let Ok(told) = serde_json::from_slice::<ErrorBody>(body) else {
            return Failure::failed(anyhow::anyhow!("the daemon answered {status}"));
        };
        if self.format.json {
            let mut output = Output::new(self.format);
            if let Err(failure) = output.json(&told).and_then(|()| output.flush()) {
                return failure;
            }
        }
        Failure::from_daemon(told.error)
    }
}

fn understood<T: DeserializeOwned>(reply: &Reply) -> Result<T, Failure> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        Failure::failed(
            anyhow::Error::from(error)
                .context("the daemon's answer was not understood; it may be of another version"),
        )
    })
}

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Reply), Failure> {
    let unreachable = |error: &dyn std::fmt::Display| {
        Failure::unreachable(anyhow::anyhow!(
            "the daemon is not reachable at {}: {error}",
            socket.display()
        ))
        .help("start it with `innkeeper serve`")
    };
    let stream = api::connect(socket)
        .await
        .map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    let driver = tokio::spawn(connection);
    let bytes = body
        .map(|body| Bytes::from(body.to_string()))
        .unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "innkeeper")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(bytes))
        .map_err(Failure::failed)?;
    let gone = |error: hyper::Error| {
        Failure::unreachable(
            anyhow::Error::from(error)
                .context("the daemon ended the connection before it had answered"),
        )
        .help("it may be shutting down; what was asked for may go on, `innkeeper status` and `innkeeper events` tell")
    };
    let response = sender.send_request(request).await.map_err(gone)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(gone)?.to_bytes();
    driver.abort();
    Ok((
        head.status,
        Reply {
            headers: head.headers,
            body,
        },
    ))
}
