//! What `git status --porcelain=v2 -z` says, as a value.
//!
//! A line that is not understood is an error, never passed over: an unknown
//! line may be work.

/// One entry, its path as bytes relative to the checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What kind of entry.
    pub kind: Kind,
    /// Its path; a directory that is untracked or ignored as a whole ends in a slash.
    pub path: Vec<u8>,
}

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Differs between HEAD, index and tree, or is unmerged.
    Changed,
    /// Git does not track it.
    Untracked,
    /// Git was told to ignore it.
    Ignored,
}

/// The output was not what porcelain v2 is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of git status was not understood: {0:?}")]
pub struct NotUnderstood(pub String);

/// Reads the output of `status --porcelain=v2 -z`.
///
/// # Errors
///
/// For any record that is not one of the format's.
pub fn parse_status(output: &[u8]) -> Result<Vec<Entry>, NotUnderstood> {
    let mut entries = Vec::new();
    if output.is_empty() {
        return Ok(entries);
    }
    let Some(body) = output.strip_suffix(b"\0") else {
        return Err(not_understood(output));
    };
    let mut records = body.split(|byte| *byte == 0);
    while let Some(record) = records.next() {
        let (kind, fields) = match record.first() {
            Some(b'#') => continue,
            Some(b'1') => (Kind::Changed, 8),
            Some(b'2') => {
                // The origin's path is a record of its own.
                records.next().ok_or_else(|| not_understood(record))?;
                (Kind::Changed, 9)
            }
            Some(b'u') => (Kind::Changed, 10),
            Some(b'?') => (Kind::Untracked, 1),
            Some(b'!') => (Kind::Ignored, 1),
            _ => return Err(not_understood(record)),
        };
        let path = record
            .splitn(fields + 1, |byte| *byte == b' ')
            .nth(fields)
            .filter(|path| !path.is_empty())
            .ok_or_else(|| not_understood(record))?;
        entries.push(Entry {
            kind,
            path: path.to_vec(),
        });
    }
    Ok(entries)
}

fn not_understood(record: &[u8]) -> NotUnderstood {
    let shown = &record[..record.len().min(80)];
    NotUnderstood(String::from_utf8_lossy(shown).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OID: &str = "0123456789012345678901234567890123456789";

    fn entry(kind: Kind, path: &[u8]) -> Entry {
        Entry {
            kind,
            path: path.to_vec(),
        }
    }

    #[test]
    fn every_kind_of_record_is_read_with_its_path_as_it_is() {
        let output = format!(
            "# branch.oid x\0\
             1 .M N... 100644 100644 100644 {OID} {OID} with space\n and line\0\
             2 R. N... 100644 100644 100644 {OID} {OID} R100 new name\0old name\0\
             u UU N... 100644 100644 100644 100644 {OID} {OID} {OID} both\0\
             ? free\0! out/\0"
        );
        assert_eq!(
            parse_status(output.as_bytes()).expect("it is porcelain"),
            [
                entry(Kind::Changed, b"with space\n and line"),
                entry(Kind::Changed, b"new name"),
                entry(Kind::Changed, b"both"),
                entry(Kind::Untracked, b"free"),
                entry(Kind::Ignored, b"out/"),
            ]
        );
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_an_error() {
        for output in [
            &b"? no end"[..],
            b"x what\0",
            b"\0",
            b"1 .M N... 100644\0",
            b"2 R. N... 1 1 1 a b R100 new\0",
            b"? \0",
        ] {
            assert!(parse_status(output).is_err(), "{output:?}");
        }
        assert_eq!(parse_status(b""), Ok(vec![]));
    }
}
