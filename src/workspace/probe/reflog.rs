//! Reflogs, read as files.
//!
//! They are read in this way, and not through git, because what matters is
//! which commits a checkout's HEAD was ever at, also where the log was written
//! by hand. A line that is not one is an error: it may have been an entry.

use std::collections::BTreeSet;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it was; none for the first.
    pub old: Option<String>,
    /// Where it went; none if it was deleted.
    pub new: Option<String>,
    /// When, in seconds since 1970, as its writer claims.
    pub seconds: i64,
    /// What was done.
    pub message: String,
}

/// A line of a reflog was not understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0} of the reflog was not understood")]
pub struct NotUnderstood(pub usize);

/// Reads a reflog, oldest entry first.
///
/// # Errors
///
/// Names the first line that is none.
pub fn parse_reflog(text: &[u8]) -> Result<Vec<Entry>, NotUnderstood> {
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    // A complete log ends with a newline, so the last piece is empty; one that
    // was cut has lost an entry.
    let (last, lines) = lines.split_last().expect("split gives at least one piece");
    if !last.is_empty() {
        return Err(NotUnderstood(lines.len() + 1));
    }
    lines
        .iter()
        .enumerate()
        .map(|(n, line)| parse_line(line).ok_or(NotUnderstood(n + 1)))
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let tab = line.iter().position(|byte| *byte == b'\t');
    let (head, message) = match tab {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &b""[..]),
    };
    let head = String::from_utf8_lossy(head);
    let mut words = head.splitn(3, ' ');
    let old = parse_id(words.next()?)?;
    let new = parse_id(words.next()?)?;
    let who = words.next()?;
    let mut backwards = who.rsplitn(3, ' ');
    let _zone = backwards.next()?;
    let seconds = backwards.next()?.parse().ok()?;
    Some(Entry {
        old,
        new,
        seconds,
        message: String::from_utf8_lossy(message).into_owned(),
    })
}

/// An id, or none for the one that is all zeros.
#[allow(clippy::option_option)]
fn parse_id(word: &str) -> Option<Option<String>> {
    let is_id = matches!(word.len(), 40 | 64) && word.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| word.bytes().any(|b| b != b'0').then(|| word.to_owned()))
}

/// Returns every id that a log names.
pub fn ids(entries: &[Entry]) -> BTreeSet<String> {
    entries
        .iter()
        .flat_map(|entry| [entry.old.clone(), entry.new.clone()])
        .flatten()
        .collect()
}

/// Returns the names between which a checkout's HEAD was moved, as they were
/// typed: branches mostly, but also ids.
pub fn names(entries: &[Entry]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in entries {
        if let Some(rest) = entry.message.strip_prefix("checkout: moving from ")
            && let Some((from, to)) = rest.split_once(" to ")
        {
            names.extend([from.to_owned(), to.to_owned()]);
        }
        // `git branch -m`, and the end of a rebase that was given a branch.
        for prefix in ["Branch: renamed ", "rebase (finish): returning to "] {
            if let Some(rest) = entry.message.strip_prefix(prefix) {
                names.extend(
                    rest.split(" to ")
                        .map(|name| name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()),
                );
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    #[test]
    fn ids_times_and_branch_names_are_read() {
        let text = format!(
            "{ZERO} {A} A U Thor <a@b> 1700000000 +0100\tcheckout: prepared\n\
             {A} {A} A <a@b> 1700000001 +0000\tcheckout: moving from {A} to feat\n\
             {A} {B} A <a@b> 1700000002 +0000\tcommit: x\n\
             {B} {ZERO} A <a@b> -5 +0000\n"
        );
        let entries = parse_reflog(text.as_bytes()).expect("a reflog");
        assert_eq!(ids(&entries), BTreeSet::from([A.to_owned(), B.to_owned()]));
        assert_eq!(
            names(&entries),
            BTreeSet::from([A.to_owned(), "feat".to_owned()])
        );
        assert_eq!(entries[0].seconds, 1_700_000_000);
        assert_eq!(entries[3].new, None);
    }

    #[test]
    fn a_renamed_branch_and_the_branch_of_a_rebase_are_named() {
        let text = format!(
            "{A} {A} A <a@b> 1 +0000\tBranch: renamed refs/heads/old to refs/heads/new\n\
             {A} {B} A <a@b> 1 +0000\trebase (finish): returning to refs/heads/topic\n"
        );
        let entries = parse_reflog(text.as_bytes()).expect("a reflog");
        let expected = ["new", "old", "topic"].map(str::to_owned);
        assert_eq!(names(&entries), BTreeSet::from(expected));
    }

    #[test]
    fn a_damaged_line_is_an_error() {
        for text in [
            "nonsense\n".to_owned(),
            format!("{A} {B} x\n"),
            format!("{A} {B} A <a@b> later +0000\tm\n"),
            format!("{A} {B} A <a@b> 1 +0000\tm"),
            "\n".to_owned(),
        ] {
            assert!(parse_reflog(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(parse_reflog(b""), Ok(vec![]));
    }
}
