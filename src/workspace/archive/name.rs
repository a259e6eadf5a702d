//! Names as an archive holds them: bytes, which need not be text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A path with slashes, or the target of a link. Written as text where it is
/// text, else as hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub(super) struct Name(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes { hex: String },
}

impl From<Form> for Name {
    fn from(form: Form) -> Self {
        match form {
            Form::Text(text) => Self(text.into_bytes()),
            // What is no hex names nothing, and is refused where names are used.
            Form::Bytes { hex } => Self(hex::decode(hex).unwrap_or_default()),
        }
    }
}

impl From<Name> for Form {
    fn from(name: Name) -> Self {
        match String::from_utf8(name.0) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes {
                hex: hex::encode(error.into_bytes()),
            },
        }
    }
}

impl Name {
    /// Returns it as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Returns it for people.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// Returns whether it stays below where it is used: relative, and without
    /// a component that leads up or nowhere.
    pub fn stays_below(&self) -> bool {
        !self.0.contains(&0)
            && self
                .0
                .split(|byte| *byte == b'/')
                .all(|part| !matches!(part, b"" | b"." | b".."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_being_written_and_only_safe_ones_stay_below() {
        for bytes in [
            &b"a/b"[..],
            b"with\nline",
            b"\xff\xfe",
            "ünï".as_bytes(),
            b"",
        ] {
            let name = Name(bytes.to_vec());
            let text = serde_json::to_string(&name).expect("it serialises");
            assert_eq!(serde_json::from_str::<Name>(&text).expect("read"), name);
        }
        for (name, expected) in [
            ("a", true),
            ("a/..b/.c", true),
            ("-x", true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a//b", false),
            ("../a", false),
            ("a/./b", false),
            ("a\0b", false),
        ] {
            assert_eq!(Name(name.into()).stays_below(), expected, "{name:?}");
        }
    }
}
