//! What a request says of itself before its body is read.

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderName};

use super::{IngressSettings, Problem};

const SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature-256");
const EVENT: HeaderName = HeaderName::from_static("x-github-event");
const DELIVERY: HeaderName = HeaderName::from_static("x-github-delivery");

/// Longer names and ids are nobody's.
const VALUE_BYTES_MAX: usize = 200;

/// A signature as it was announced; its absence and its being malformed are
/// the same to the sender, and not to the operator.
enum Signature {
    Absent,
    Malformed,
    Given([u8; 32]),
}

pub(super) struct Announced {
    content: Option<Content>,
    signature: Signature,
    /// `Content-Length`.
    pub(super) length: Option<u64>,
    /// The sender waits with the body until it is asked for.
    pub(super) expects_continue: bool,
    pub(super) event: Result<String, Problem>,
    pub(super) delivery: Result<String, Problem>,
}

#[derive(Clone, Copy)]
enum Content {
    Json,
    Form,
}

impl Announced {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            content: content(headers),
            signature: signature(headers),
            length: headers
                .get(CONTENT_LENGTH)
                .and_then(|value| value.to_str().ok()?.parse().ok()),
            expects_continue: headers.contains_key(EXPECT),
            event: word(headers, &EVENT),
            delivery: word(headers, &DELIVERY),
        }
    }

    /// Returns whether the body is a form, and the signature to check. None is
    /// checked only where unsigned requests are allowed and this is one.
    ///
    /// # Errors
    ///
    /// Returns [`Problem`] for what needs no body to be refused.
    pub(super) fn require(
        &self,
        settings: &IngressSettings,
    ) -> Result<(bool, Option<[u8; 32]>), Problem> {
        let form = match self.content {
            Some(Content::Json) => false,
            Some(Content::Form) => true,
            None => return Err(Problem::UnsupportedMediaType),
        };
        if self
            .length
            .is_some_and(|length| length > settings.max_body_bytes)
        {
            return Err(Problem::TooLarge {
                max: settings.max_body_bytes,
            });
        }
        match self.signature {
            Signature::Given(signature) => Ok((form, Some(signature))),
            Signature::Absent if settings.allow_unsigned => Ok((form, None)),
            Signature::Absent => Err(Problem::MissingSignature),
            Signature::Malformed => Err(Problem::BadSignature),
        }
    }
}

/// Returns the value of a header that must be there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

fn content(headers: &HeaderMap) -> Option<Content> {
    let value = std::str::from_utf8(only(headers, &CONTENT_TYPE)?).ok()?;
    let essence = value.split(';').next()?.trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Some(Content::Json)
    } else if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        Some(Content::Form)
    } else {
        None
    }
}

fn signature(headers: &HeaderMap) -> Signature {
    if !headers.contains_key(&SIGNATURE) {
        return Signature::Absent;
    }
    let mut signature = [0; 32];
    let decoded = only(headers, &SIGNATURE)
        .and_then(|value| value.strip_prefix(b"sha256="))
        .is_some_and(|digits| hex::decode_to_slice(digits, &mut signature).is_ok());
    if decoded {
        Signature::Given(signature)
    } else {
        Signature::Malformed
    }
}

/// Returns a header's value if it is one printable word.
fn word(headers: &HeaderMap, name: &HeaderName) -> Result<String, Problem> {
    let problem = || Problem::BadHeader {
        name: name.as_str().to_owned(),
    };
    let value = only(headers, name).ok_or_else(problem)?;
    if value.is_empty() || value.len() > VALUE_BYTES_MAX || !value.iter().all(u8::is_ascii_graphic)
    {
        return Err(problem());
    }
    String::from_utf8(value.to_vec()).map_err(|_not_ascii| problem())
}
