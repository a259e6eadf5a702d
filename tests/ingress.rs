//! The intake listener over TCP, with the real store behind it. Nobody
//! dispatches here: an answer may wait for the store only.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use innkeeper::inbox::{Inbox, InboxLimits};
use innkeeper::ingress::{Ingress, IngressSettings, Secrets, ServeLimits, serve};
use innkeeper::store::{DeliveryFilter, DeliveryState, Store};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use rstest::rstest;
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

const SECRET: &str = "a secret";

/// A listener on a free port.
struct World {
    address: SocketAddr,
    ingress: Ingress,
    inbox: Inbox,
    store: Store,
    shutdown: CancellationToken,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Setup {
    settings: IngressSettings,
    inbox: InboxLimits,
    serve: ServeLimits,
    secrets: Vec<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            settings: IngressSettings::default(),
            inbox: InboxLimits {
                max_pending: 1000,
                min_free_bytes: 0,
            },
            serve: ServeLimits::default(),
            secrets: vec![SECRET],
        }
    }
}

fn secrets(all: &[&str]) -> Secrets {
    Secrets::new(all).expect("none is empty")
}

impl World {
    async fn start(state: &Path, setup: Setup) -> Self {
        let store = Store::open(&state.join("innkeeper.db"), "node").expect("opens");
        let inbox = Inbox::new(store.clone(), state.to_owned(), setup.inbox, || {});
        let ingress = Ingress::new(inbox.clone(), setup.settings, secrets(&setup.secrets));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(serve(
            listener,
            ingress.router(),
            setup.serve,
            shutdown.clone(),
        ));
        Self {
            address,
            ingress,
            inbox,
            store,
            shutdown,
            server,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.server)
            .await
            .expect("the listener ends")
            .expect("no panic");
        self.store.close().await;
    }

    async fn send(&self, request: Request) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.expect("connects");
        // A refusal may come before all of the body is sent.
        let _refused_early = stream.write_all(&request.bytes()).await;
        read_reply(&mut stream).await
    }

    async fn rows(&self) -> usize {
        let all = DeliveryFilter {
            limit: 10_000,
            ..DeliveryFilter::default()
        };
        let rows = self.store.read(move |reader| reader.deliveries(&all)).await;
        rows.expect("read").len()
    }

    async fn events(&self, name: &str) -> Vec<serde_json::Value> {
        let events = self
            .store
            .read(|reader| reader.events_after(0, 10_000))
            .await;
        let events = events.expect("read");
        let parsed = events
            .iter()
            .map(|(_, line)| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        parsed.filter(|event| event["event"] == name).collect()
    }

    async fn wait_for_event(&self, name: &str) -> Vec<serde_json::Value> {
        let found = async {
            loop {
                let events = self.events(name).await;
                if !events.is_empty() {
                    return events;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, found)
            .await
            .expect("the event comes")
    }
}

#[derive(Clone)]
struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    chunked: bool,
}

fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

impl Request {
    /// A request as GitHub sends it, signed.
    fn delivery(id: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let mut request = Self {
            method: "POST",
            path: "/webhooks/github".to_owned(),
            headers: Vec::new(),
            body,
            chunked: false,
        };
        request = request
            .with("Content-Type", "application/json")
            .with("X-GitHub-Event", "issues")
            .with("X-GitHub-Delivery", id);
        request.signed(SECRET)
    }

    fn signed(self, secret: &str) -> Self {
        let signature = format!("sha256={}", signature(secret, &self.body));
        self.with("X-Hub-Signature-256", &signature)
    }

    fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.and(name, value)
    }

    /// Adds a header, also if there is one of this name.
    fn and(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: x\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        let mut bytes;
        if self.chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
            bytes = head.into_bytes();
            for chunk in self.body.chunks(50_000) {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            let length = self.body.len().to_string();
            head.extend(["Content-Length: ", &length, "\r\n\r\n"]);
            bytes = head.into_bytes();
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: serde_json::Value,
}

impl Reply {
    fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    fn has_header(&self, name: &str) -> bool {
        self.head.contains(&format!("\r\n{name}: "))
    }
}

async fn read_reply(stream: &mut TcpStream) -> Reply {
    tokio::time::timeout(DEADLINE, read_reply_unbounded(stream))
        .await
        .expect("an answer comes")
}

async fn read_reply_unbounded(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let mut next = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec())
                .expect("text")
                .to_ascii_lowercase();
            let length: usize = head
                .split("\r\n")
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().expect("a number"));
            if bytes.len() >= end + 4 + length {
                let body = &bytes[end + 4..end + 4 + length];
                return Reply {
                    status: head[9..12].parse().expect("a status"),
                    body: serde_json::from_slice(body).unwrap_or_default(),
                    head,
                };
            }
        }
        let count = stream.read(&mut next).await.expect("reads");
        assert!(count > 0, "the connection ended without an answer");
        bytes.extend_from_slice(&next[..count]);
    }
}

fn state() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn metrics() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        PrometheusBuilder::new()
            .install_recorder()
            .expect("the only recorder")
    })
}

#[tokio::test]
async fn a_signed_delivery_is_stored_and_answered() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let reply = world.send(Request::delivery("d-1", "{}")).await;
    assert_eq!(reply.status, 202);
    assert_eq!(
        reply.body,
        serde_json::json!({"delivery": "d-1", "status": "accepted"})
    );
    let pending = world.store.read(|reader| reader.pending_after(0, 10)).await;
    let pending = pending.expect("read");
    assert_eq!(pending[0].body, b"{}");
    assert_eq!(pending[0].row.state, DeliveryState::Received);
    assert_eq!(world.events("webhook.received").await.len(), 1);
    assert!(world.ingress.health().last_verified_ms.is_some());
    world.stop().await;
}

/// H1, H2: what is signed are the bytes, not what they mean.
#[rstest]
#[case::emoji("{\"title\":\"🎉 größer 日本\"}".as_bytes())]
#[case::odd_spacing(b"{ \"a\" :\t1.0 ,\r\n \"b\":\"\\u003c\" }\n")]
#[case::not_json(b"{\"broken\":")]
#[case::not_text(b"\xff\xfe\x00")]
#[case::empty(b"")]
#[tokio::test]
async fn a_body_is_taken_as_it_came(#[case] body: &[u8]) {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let reply = world.send(Request::delivery("d", body)).await;
    assert_eq!(reply.status, 202);
    let stored = world.store.read(|reader| reader.pending_after(0, 1)).await;
    assert_eq!(stored.expect("read")[0].body, body);
    world.stop().await;
}

/// H6: every way of not having a good signature, end to end.
#[tokio::test]
async fn a_request_without_a_good_signature_is_refused_and_leaves_no_trace() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let good = Request::delivery("d", "{\"a\":1}");
    let mac = signature(SECRET, &good.body);
    let name = "X-Hub-Signature-256";
    let signed = |value: &str| good.clone().with(name, value);
    let cases = [
        ("none", good.clone().without(name)),
        ("empty", signed("")),
        ("prefix only", signed("sha256=")),
        ("short", signed(&format!("sha256={}", &mac[..62]))),
        ("odd", signed(&format!("sha256={}", &mac[..63]))),
        ("long", signed(&format!("sha256={mac}00"))),
        (
            "not hexadecimal",
            signed(&format!("sha256=zz{}", &mac[2..])),
        ),
        ("no prefix", signed(&mac)),
        ("another prefix", signed(&format!("sha1={mac}"))),
        (
            "a wrong byte",
            signed(&format!("sha256={:02x}{}", !0x41_u8, &mac[2..])),
        ),
        ("another secret", good.clone().signed("another")),
        ("an empty secret", good.clone().signed("")),
        (
            "another body",
            Request {
                body: b"{\"a\":2}".to_vec(),
                ..good.clone()
            },
        ),
        (
            "sha1 only",
            good.clone()
                .without(name)
                .with("X-Hub-Signature", "sha1=3b"),
        ),
        (
            "two, both good",
            good.clone().and(name, &format!("sha256={mac}")),
        ),
    ];
    for (case, request) in cases {
        let reply = world.send(request).await;
        assert_eq!(reply.status, 401, "{case}");
        assert!(reply.code().starts_with("signature_"), "{case}");
        assert!(!reply.body.to_string().contains(&mac), "{case}");
    }
    assert_eq!(world.rows().await, 0);
    for (case, value) in [
        ("upper case", mac.to_ascii_uppercase()),
        ("lower case", mac.clone()),
    ] {
        let reply = world.send(signed(&format!("sha256={value}"))).await;
        assert_eq!(reply.status, 202, "{case}");
    }
    world.stop().await;
}

/// H9: while a secret is replaced both are good, and the metric tells which is used.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_can_be_rotated_without_losing_a_delivery() {
    let rendered = metrics();
    let dir = state();
    let setup = Setup {
        secrets: vec!["new", "old"],
        ..Setup::default()
    };
    let world = World::start(dir.path(), setup).await;
    for (id, secret) in [("a", "old"), ("b", "new")] {
        let reply = world.send(Request::delivery(id, "{}").signed(secret)).await;
        assert_eq!(reply.status, 202, "{secret}");
    }
    for secret in ["0", "1"] {
        let line = format!("innkeeper_webhook_verified_total{{secret=\"{secret}\"}}");
        assert!(rendered.render().contains(&line), "{line}");
    }
    world.ingress.set_secrets(secrets(&["new"]));
    let reply = world.send(Request::delivery("c", "{}").signed("old")).await;
    assert_eq!(reply.status, 401);
    let reply = world.send(Request::delivery("c", "{}").signed("new")).await;
    assert_eq!(reply.status, 202);
    world.stop().await;
}

/// H10: a secret that is wrong on one side is noticed; a flood fills no disk.
#[tokio::test]
async fn many_bad_signatures_are_told_once_and_counted() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    assert_eq!(world.ingress.health().degraded, None);
    for _ in 0..60 {
        let reply = world
            .send(Request::delivery("d", "{}").signed("wrong"))
            .await;
        assert_eq!(reply.status, 401);
    }
    let degraded = world.wait_for_event("intake.degraded").await;
    assert_eq!(degraded.len(), 1);
    let health = world.ingress.health();
    assert!(health.degraded.is_some());
    assert_eq!((health.refused, health.bad_signatures), (60, 60));
    let told = world.wait_for_event("webhook.rejected").await;
    assert!(told.len() <= 5, "{} events for 60 requests", told.len());
    assert_eq!(told[0]["reason"], "signature_bad");
    world.stop().await;
}

/// H11: as large as GitHub sends, and larger, announced or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_25_megabytes_is_taken_and_one_of_26_is_not() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let body = |bytes: usize| {
        let mut body = b"{\"commits\":\"".to_vec();
        body.resize(bytes - 2, b'x');
        body.extend_from_slice(b"\"}");
        body
    };
    for (id, bytes) in [("a", 156 * 1024), ("b", 24_900_000)] {
        let reply = world.send(Request::delivery(id, body(bytes))).await;
        assert_eq!(reply.status, 202, "{bytes} bytes");
    }
    let large = Request::delivery("c", body(26 * 1024 * 1024));
    let in_chunks = Request {
        chunked: true,
        ..large.clone()
    };
    for request in [large, in_chunks] {
        let reply = world.send(request).await;
        assert_eq!((reply.status, reply.code()), (413, "body_too_large"));
    }
    let in_chunks = Request {
        chunked: true,
        ..Request::delivery("d", body(1_000_000))
    };
    assert_eq!(world.send(in_chunks).await.status, 202);
    assert_eq!(world.rows().await, 3);
    world.stop().await;
}

#[tokio::test]
async fn a_sender_that_waits_to_be_asked_is_refused_before_it_sends() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let mut stream = TcpStream::connect(world.address).await.expect("connects");
    let head = "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let reply = read_reply(&mut stream).await;
    assert_eq!(reply.status, 413);
    world.stop().await;
}

/// The memory for bodies is bounded for all of them together.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_budget_are_told_to_come_later() {
    let dir = state();
    let setup = Setup {
        settings: IngressSettings {
            body_budget_bytes: 200_000,
            ..IngressSettings::default()
        },
        ..Setup::default()
    };
    let world = World::start(dir.path(), setup).await;
    let request = Request::delivery("held", vec![b'x'; 150_000]);
    let bytes = request.bytes();
    let mut held = TcpStream::connect(world.address).await.expect("connects");
    held.write_all(&bytes[..bytes.len() - 1])
        .await
        .expect("sent");
    // Until the listener has read what was sent, others still fit.
    let refused = async {
        for n in 0.. {
            let request = Request::delivery(&format!("d-{n}"), vec![b'x'; 150_000]);
            let reply = world.send(request).await;
            if reply.status == 503 {
                return reply;
            }
            assert_eq!(reply.status, 202);
        }
        unreachable!("the loop has no end");
    };
    let reply = tokio::time::timeout(DEADLINE, refused)
        .await
        .expect("refused");
    assert_eq!(reply.code(), "body_budget");
    assert!(reply.has_header("retry-after"));
    held.write_all(&bytes[bytes.len() - 1..])
        .await
        .expect("sent");
    assert_eq!(read_reply(&mut held).await.status, 202);
    let reply = world
        .send(Request::delivery("last", vec![b'x'; 150_000]))
        .await;
    assert_eq!(reply.status, 202, "the budget is given back");
    world.stop().await;
}

/// H14, H23: whatever is authentic is taken; understanding it comes later.
#[rstest]
#[case("ping", r#"{"zen":"x","hook_id":1}"#)]
#[case("ping", r#"{"zen":"x","organization":{"login":"acme"}}"#)]
#[case("ping", r#"{"zen":"x","repository":{"full_name":"acme/app"}}"#)]
#[case("installation", r#"{"action":"new_permissions_accepted"}"#)]
#[case("nobody_knows_this_one", "[]")]
#[tokio::test]
async fn every_authentic_event_is_taken(#[case] event: &str, #[case] body: &str) {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let request = Request::delivery("d", body).with("X-GitHub-Event", event);
    assert_eq!(world.send(request).await.status, 202);
    let received = world.events("webhook.received").await;
    assert_eq!(received[0]["gh_event"], event);
    world.stop().await;
}

#[tokio::test]
async fn a_form_is_signed_as_a_whole_and_kept_as_one() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let request = Request::delivery("d", "payload=%7B%22a%22%3A+1%7D").with(
        "Content-Type",
        "application/x-www-form-urlencoded; charset=utf-8",
    );
    assert_eq!(world.send(request).await.status, 202);
    let stored = world.store.read(|reader| reader.pending_after(0, 1)).await;
    let stored = stored.expect("read");
    assert!(stored[0].row.form);
    assert_eq!(stored[0].body, b"payload=%7B%22a%22%3A+1%7D");
    world.stop().await;
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_with_its_reason() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let good = Request::delivery("d", "{}");
    let long = "x".repeat(201);
    let cases = [
        (400, good.clone().without("X-GitHub-Event")),
        (400, good.clone().without("X-GitHub-Delivery")),
        (400, good.clone().with("X-GitHub-Delivery", "")),
        (400, good.clone().with("X-GitHub-Delivery", &long)),
        (400, good.clone().with("X-GitHub-Delivery", "a\tb")),
        (400, good.clone().with("X-GitHub-Event", "größe")),
        (400, good.clone().and("X-GitHub-Delivery", "e")),
        (415, good.clone().without("Content-Type")),
        (415, good.clone().with("Content-Type", "text/plain")),
        (
            405,
            Request {
                method: "GET",
                ..good.clone()
            },
        ),
        (
            405,
            Request {
                method: "PUT",
                ..good.clone()
            },
        ),
        (
            404,
            Request {
                path: "/webhooks".into(),
                ..good.clone()
            },
        ),
        (
            404,
            Request {
                path: "/webhooks/github/x".into(),
                ..good.clone()
            },
        ),
        (
            404,
            Request {
                path: "/".into(),
                ..good.clone()
            },
        ),
        (
            405,
            Request {
                path: "/healthz".into(),
                ..good.clone()
            },
        ),
    ];
    for (status, request) in cases {
        let shown = format!("{} {} {:?}", request.method, request.path, request.headers);
        let reply = world.send(request).await;
        assert_eq!(reply.status, status, "{shown}");
        assert!(!reply.code().is_empty(), "{shown}");
        assert!(reply.body["error"]["message"].is_string(), "{shown}");
        assert_eq!(reply.has_header("allow"), status == 405, "{shown}");
    }
    // A bad signature says nothing about what else is wrong.
    let unsigned = good.clone().without("X-GitHub-Event").signed("wrong");
    assert_eq!(world.send(unsigned).await.status, 401);
    assert_eq!(world.rows().await, 0);
    let slash = Request {
        path: "/webhooks/github/".into(),
        ..good
    };
    assert_eq!(world.send(slash).await.status, 202, "never a redirect");
    world.stop().await;
}

#[tokio::test]
async fn health_is_answered_to_anybody() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let request = Request {
        method: "GET",
        path: "/healthz".into(),
        headers: Vec::new(),
        body: Vec::new(),
        chunked: false,
    };
    assert_eq!(world.send(request).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn unsigned_requests_are_taken_only_where_allowed_and_a_wrong_signature_never() {
    let dir = state();
    let setup = Setup {
        settings: IngressSettings {
            allow_unsigned: true,
            ..IngressSettings::default()
        },
        ..Setup::default()
    };
    let world = World::start(dir.path(), setup).await;
    let unsigned = Request::delivery("a", "{}").without("X-Hub-Signature-256");
    assert_eq!(world.send(unsigned).await.status, 202);
    let wrong = Request::delivery("b", "{}").signed("wrong");
    assert_eq!(world.send(wrong).await.status, 401);
    world.stop().await;
}

/// H25, H27: the same id at once, again, and after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_identical_deliveries_at_once_are_one_and_stay_one_after_a_restart() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let address = world.address;
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            let request = Request::delivery("same", "{}").bytes();
            stream.write_all(&request).await.expect("sent");
            read_reply(&mut stream).await
        }));
    }
    let mut accepted = 0;
    for answer in answers {
        let reply = answer.await.expect("no panic");
        assert_eq!(reply.status, 202);
        accepted += usize::from(reply.body["status"] == "accepted");
    }
    assert_eq!(accepted, 1);
    assert_eq!(world.events("webhook.received").await.len(), 1);
    assert_eq!(world.events("delivery.duplicate").await.len(), 19);
    world.stop().await;

    let world = World::start(dir.path(), Setup::default()).await;
    let reply = world.send(Request::delivery("same", "{}")).await;
    assert_eq!(
        (reply.status, &reply.body["status"]),
        (202, &"duplicate".into())
    );
    assert_eq!(world.rows().await, 1);
    world.stop().await;
}

/// H16, H18: a burst is answered and kept whole while nothing is dispatched.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_taken_whole_over_one_connection() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let mut stream = TcpStream::connect(world.address).await.expect("connects");
    for n in 0..100 {
        let request = Request::delivery(&format!("d-{n}"), "{}").bytes();
        stream.write_all(&request).await.expect("sent");
        assert_eq!(read_reply(&mut stream).await.status, 202);
    }
    assert_eq!(world.rows().await, 100);
    world.stop().await;
}

#[tokio::test]
async fn a_full_inbox_says_later_and_takes_again_when_there_is_room() {
    let dir = state();
    let setup = Setup {
        inbox: InboxLimits {
            max_pending: 2,
            min_free_bytes: 0,
        },
        ..Setup::default()
    };
    let world = World::start(dir.path(), setup).await;
    for id in ["a", "b"] {
        assert_eq!(world.send(Request::delivery(id, "{}")).await.status, 202);
    }
    let reply = world.send(Request::delivery("c", "{}")).await;
    assert_eq!((reply.status, reply.code()), (503, "inbox_full"));
    assert!(reply.has_header("retry-after"));
    let degraded = world.wait_for_event("intake.degraded").await;
    assert!(degraded[0]["reason"].to_string().contains("waiting"));
    let finished = world.store.write(|tx| tx.delivery_done(1)).await;
    finished.expect("finished");
    assert_eq!(world.send(Request::delivery("c", "{}")).await.status, 202);
    world.stop().await;
}

#[tokio::test]
async fn a_disk_below_its_reserve_says_later() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    world.inbox.set_limits(InboxLimits {
        max_pending: 10,
        min_free_bytes: u64::MAX,
    });
    let reply = world.send(Request::delivery("a", "{}")).await;
    assert_eq!((reply.status, reply.code()), (503, "disk_full"));
    assert!(reply.has_header("retry-after"));
    world.stop().await;
}

/// A file system of its own, gone with the value.
struct TinyDisk(PathBuf);

impl TinyDisk {
    fn mount(at: &Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=3m", "innkeeper-test"])
            .arg(at)
            .output();
        mounted
            .is_ok_and(|done| done.status.success())
            .then(|| Self(at.to_owned()))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _left_mounted = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "a test that is skipped has to say so")]
async fn a_disk_that_is_really_full_loses_nothing_that_was_answered() {
    let dir = state();
    let Some(disk) = TinyDisk::mount(dir.path()) else {
        eprintln!("skipped: a full disk needs the right to mount a tmpfs");
        return;
    };
    let filler = dir.path().join("filler");
    std::fs::write(&filler, vec![1; 700_000]).expect("fits");
    let world = World::start(dir.path(), Setup::default()).await;
    let mut taken = Vec::new();
    let mut refused = 0;
    let mut random = 1_u64;
    for n in 0..200 {
        let body: Vec<u8> = std::iter::repeat_with(|| {
            // xorshift: cannot be compressed.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_le_bytes()[0]
        })
        .take(50_000)
        .collect();
        let id = format!("d-{n}");
        let reply = world.send(Request::delivery(&id, body)).await;
        match reply.status {
            202 => taken.push(id),
            503 => {
                assert!(
                    ["disk_full", "store_failed"].contains(&reply.code()),
                    "{reply:?}"
                );
                assert!(reply.has_header("retry-after"));
                refused += 1;
            }
            other => panic!("{other}"),
        }
        if refused > 5 {
            break;
        }
    }
    assert!(refused > 5, "the disk became full");
    assert!(!taken.is_empty());
    std::fs::remove_file(&filler).expect("removed");
    let reply = world.send(Request::delivery("after", "{}")).await;
    assert_eq!(reply.status, 202, "there is room again: {reply:?}");
    taken.push("after".to_owned());
    world.stop().await;

    let world = World::start(dir.path(), Setup::default()).await;
    assert_eq!(world.rows().await, taken.len());
    for id in taken {
        let found = world.store.read(move |reader| reader.delivery(&id)).await;
        assert!(found.expect("read").is_some());
    }
    world.stop().await;
    drop(disk);
}

#[tokio::test]
async fn a_closed_store_says_later() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    world.store.close().await;
    let reply = world.send(Request::delivery("a", "{}")).await;
    assert_eq!((reply.status, reply.code()), (503, "shutting_down"));
    world.stop().await;
}

#[tokio::test]
async fn shutting_down_answers_what_is_under_way_and_takes_nothing_new() {
    let dir = state();
    let world = World::start(dir.path(), Setup::default()).await;
    let bytes = Request::delivery("a", "{\"a\":1}").bytes();
    let mut stream = TcpStream::connect(world.address).await.expect("connects");
    // One whole request proves that the connection was accepted.
    stream
        .write_all(&Request::delivery("first", "{}").bytes())
        .await
        .expect("sent");
    assert_eq!(read_reply(&mut stream).await.status, 202);
    let (most, rest) = bytes.split_at(bytes.len() - 3);
    stream.write_all(most).await.expect("sent");
    let verified = Request::delivery("between", "{}");
    assert_eq!(world.send(verified).await.status, 202);
    world.shutdown.cancel();
    let refused = async {
        while TcpStream::connect(world.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, refused)
        .await
        .expect("nothing new is taken");
    stream.write_all(rest).await.expect("sent");
    assert_eq!(read_reply(&mut stream).await.status, 202);
    world.stop().await;
}

#[tokio::test]
async fn a_sender_of_half_a_request_holds_neither_its_place_nor_the_shutdown() {
    let dir = state();
    let setup = Setup {
        serve: ServeLimits {
            max_connections: 1,
            header_timeout: Duration::from_millis(100),
            drain_grace: Duration::from_millis(100),
        },
        ..Setup::default()
    };
    let world = World::start(dir.path(), setup).await;
    let mut slow = TcpStream::connect(world.address).await.expect("connects");
    slow.write_all(b"POST /webhooks/github HTTP/1.1\r\nHost:")
        .await
        .expect("sent");
    // The only place is taken until the slow one has lost it.
    assert_eq!(world.send(Request::delivery("a", "{}")).await.status, 202);

    let mut stuck = TcpStream::connect(world.address).await.expect("connects");
    let bytes = Request::delivery("b", "{\"a\":1}").bytes();
    stuck
        .write_all(&bytes[..bytes.len() - 1])
        .await
        .expect("sent");
    world.stop().await;
}
