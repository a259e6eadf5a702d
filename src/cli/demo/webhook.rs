//! What GitHub would send: a signed pull request event.

use std::net::SocketAddr;

use anyhow::Context as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::net::TcpStream;

use super::origin::{BRANCH, OWNER, REPO};

/// The host that the payload names; its clone URL is configured.
pub(super) const HOST: &str = "forge.demo";

/// Returns the payload of a pull request event.
pub(super) fn pull_request(action: &str, head: &str, before: Option<&str>, merged: bool) -> Value {
    let open = action != "closed";
    let repository = json!({
        "id": 1, "name": REPO, "full_name": format!("{OWNER}/{REPO}"),
        "html_url": format!("https://{HOST}/{OWNER}/{REPO}"),
        "clone_url": format!("https://{HOST}/{OWNER}/{REPO}.git"),
        "owner": { "login": OWNER }, "default_branch": "main",
    });
    let mut payload = json!({
        "action": action,
        "number": 1,
        "repository": repository,
        "sender": { "login": "octocat", "type": "User" },
        "pull_request": {
            "number": 1, "title": "Greet the world", "body": "It should greet everybody.",
            "html_url": format!("https://{HOST}/{OWNER}/{REPO}/pull/1"),
            "state": if open { "open" } else { "closed" },
            "merged": merged, "draft": false, "labels": [],
            "user": { "login": "octocat", "type": "User" },
            "author_association": "OWNER",
            "head": { "ref": BRANCH, "sha": head, "repo": repository },
            "base": { "ref": "main", "repo": repository },
        },
    });
    if let (Some(before), Some(object)) = (before, payload.as_object_mut()) {
        object.insert("before".to_owned(), before.into());
        object.insert("after".to_owned(), head.into());
    }
    payload
}

/// Sends a payload as GitHub would; returns the status and the answer.
pub(super) async fn post(
    to: SocketAddr,
    secret: &[u8],
    delivery: &str,
    payload: &Value,
) -> anyhow::Result<(StatusCode, String)> {
    let body = serde_json::to_vec(payload)?;
    let mut signature = Hmac::<Sha256>::new_from_slice(secret).context("the secret")?;
    signature.update(&body);
    let signature = hex::encode(signature.finalize().into_bytes());
    let stream = TcpStream::connect(to)
        .await
        .context("the webhook listener")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post("/webhooks/github")
        .header("host", to.to_string())
        .header("content-type", "application/json")
        .header("x-github-event", "pull_request")
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", format!("sha256={signature}"))
        .body(Full::new(Bytes::from(body)))?;
    let response = sender
        .send_request(request)
        .await
        .context("the webhook was not answered")?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&answer).into_owned()))
}
