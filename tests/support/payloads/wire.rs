//! Signing a delivery and posting it, over a connection of its own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::Payload;

/// How long a reply may take before the test fails.
const REPLY_DEADLINE: Duration = Duration::from_secs(30);

/// Returns the value of `X-Hub-Signature-256` for a body.
pub fn signature(secret: &[u8], body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Returns a header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("the reply is no JSON: {error}: {self:?}"))
    }
}

/// Posts a delivery as GitHub does, signed, and returns the answer.
pub fn deliver(
    address: SocketAddr,
    path: &str,
    secret: &[u8],
    delivery: &str,
    payload: &Payload,
) -> io::Result<Reply> {
    let body = payload.bytes();
    let signature = signature(secret, &body);
    let headers = [
        ("Content-Type", "application/json"),
        ("User-Agent", "GitHub-Hookshot/0a1b2c3"),
        ("X-GitHub-Event", payload.event.as_str()),
        ("X-GitHub-Delivery", delivery),
        ("X-GitHub-Hook-ID", "333222111"),
        ("X-GitHub-Hook-Installation-Target-Type", "repository"),
        ("X-GitHub-Hook-Installation-Target-ID", "7"),
        ("X-Hub-Signature-256", signature.as_str()),
    ];
    post(address, path, &headers, &body)
}

/// Posts a body to a server on this machine and returns the answer.
pub fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Reply> {
    request(address, "POST", path, headers, body)
}

/// Makes one request, on a connection of its own.
///
/// An answer that comes before the whole body was taken, such as a refusal of a
/// large one, is an answer.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Reply> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(REPLY_DEADLINE))?;
    stream.set_write_timeout(Some(REPLY_DEADLINE))?;
    let mut lines = vec![
        format!("{method} {path} HTTP/1.1"),
        format!("Host: {address}"),
        "Connection: close".to_owned(),
        format!("Content-Length: {}", body.len()),
    ];
    lines.extend(
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    let head = lines.join("\r\n") + "\r\n\r\n";
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
    let mut answer = Vec::new();
    let received = stream.read_to_end(&mut answer);
    if answer.is_empty() {
        sent?;
        received?;
    }
    parse_reply(&answer)
}

fn parse_reply(answer: &[u8]) -> io::Result<Reply> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .ok_or_else(|| bad("the answer has no end of headers"))?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .ok_or_else(|| bad("the answer has no status"))?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let raw = &answer[end + 4..];
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value.eq_ignore_ascii_case("chunked"));
    let body = if chunked {
        unchunk(raw).ok_or_else(|| bad("a chunk is cut off"))?
    } else {
        raw.to_vec()
    };
    Ok(Reply {
        status,
        headers,
        body,
    })
}

fn unchunk(mut raw: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = raw.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&raw[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        let chunk = raw.get(end + 2..end + 2 + size)?;
        body.extend_from_slice(chunk);
        raw = raw.get(end + 2 + size + 2..)?;
    }
}
