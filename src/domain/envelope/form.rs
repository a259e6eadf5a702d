//! Bodies of type `application/x-www-form-urlencoded`: `payload=<JSON>`.

/// Returns the decoded value of the first field called `payload`.
///
/// What is not a valid escape stands for itself, as browsers have it: the JSON
/// inside is judged afterwards anyway.
pub(super) fn payload(body: &[u8]) -> Option<Vec<u8>> {
    body.split(|b| *b == b'&')
        .find_map(|pair| pair.strip_prefix(b"payload="))
        .map(decode)
}

fn decode(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (*first, after) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high * 16 + low);
                    rest = after;
                }
                _ => out.push(b'%'),
            },
            (other, _) => out.push(other),
        }
    }
    out
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_plus_signs_are_decoded() {
        let body = b"a=1&payload=%7b%22x%22%3A+%22%F0%9F%90%88+%2B%26%22%7D&payload=2";
        assert_eq!(
            payload(body).expect("there"),
            "{\"x\": \"🐈 +&\"}".as_bytes()
        );
    }

    #[test]
    fn a_broken_escape_stands_for_itself() {
        for text in ["%", "%4", "%zz", "100%"] {
            let body = format!("payload={text}");
            assert_eq!(payload(body.as_bytes()).expect("there"), text.as_bytes());
        }
        assert_eq!(payload(b"xpayload=1"), None);
        assert_eq!(payload(b""), None);
    }
}
