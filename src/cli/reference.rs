//! REF on the command line.

use crate::domain::work_item::{BadReference, parse_item_query};

/// A REF that was understood, as it was written.
#[derive(Clone, Debug)]
pub(super) struct Reference(String);

impl std::str::FromStr for Reference {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_item_query(text).map(|_understood| Self(text.trim().to_owned()))
    }
}

impl Reference {
    /// Returns it as it was written.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns it as a segment of a path.
    pub(super) fn segment(&self) -> String {
        percent_encoded(&self.0)
    }
}

/// Returns a text with everything but letters, digits, `-`, `.`, `_` and `~` as
/// `%XX`, so that it stands for itself in a path or a parameter.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push_str(&hex::encode_upper([byte]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_one_segment_of_a_path() {
        let reference: Reference = "github:o/r#15".parse().expect("understood");
        assert_eq!(reference.segment(), "github%3Ao%2Fr%2315");
    }
}
