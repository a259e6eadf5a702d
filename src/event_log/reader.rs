//! Reading the log: all of it that is still there, filtered, and then what comes.
//!
//! A reader needs nothing from the daemon. It goes by the numbers of the lines,
//! so that a rotation under its hands neither hides a line from it nor shows it
//! one twice; a line that is not whole yet waits.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::GlobMatcher;
use serde::Deserialize;

use super::{file, rotation};
use crate::clock;

/// How often a following reader looks for more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

const READ_BYTES: usize = 64 * 1024;

/// Which events are wanted; what is not set excludes nothing.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Glob over the event's name.
    pub event: Option<GlobMatcher>,
    /// Reference of the work item, in any case.
    pub work_item: Option<String>,
    /// Id of the delivery.
    pub delivery: Option<String>,
    /// Told at or after, milliseconds since 1970.
    pub since: Option<i64>,
    /// With a larger number only.
    pub after: u64,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    ts: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    work_item: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delivery: Option<Cow<'a, str>>,
}

impl EventFilter {
    fn wants(&self, line: &[u8]) -> bool {
        let Ok(head) = serde_json::from_slice::<Head<'_>>(line) else {
            return false;
        };
        let event = self.event.as_ref();
        let item = self.work_item.as_deref();
        let delivery = self.delivery.as_deref();
        event.is_none_or(|glob| glob.is_match(&*head.event))
            && item.is_none_or(|item| {
                head.work_item
                    .is_some_and(|found| found.eq_ignore_ascii_case(item))
            })
            && delivery.is_none_or(|delivery| head.delivery.as_deref() == Some(delivery))
            // All of them are UTC with three digits, so text order is time order.
            && self
                .since
                .is_none_or(|since| *head.ts >= *clock::rfc3339(since))
    }
}

/// A place in the log.
pub struct EventReader {
    path: PathBuf,
    filter: EventFilter,
    /// What is read now, and what follows it.
    tail: Option<Tail>,
    queue: VecDeque<Tail>,
    /// Number of the last line seen.
    last: u64,
}

/// A file and the part of it that was read but not used.
struct Tail {
    file: File,
    id: (u64, u64),
    /// How much of the file was read.
    read: u64,
    buffer: Vec<u8>,
    /// Where the unused part of `buffer` begins.
    start: usize,
}

impl EventReader {
    /// Begins at the oldest line that is still there. A log that does not exist
    /// yet is empty.
    ///
    /// # Errors
    ///
    /// Returns what the system says if files of the log cannot be opened.
    pub fn open(path: &Path, filter: EventFilter) -> io::Result<Self> {
        let last = filter.after;
        let mut reader = Self {
            path: path.to_owned(),
            filter,
            tail: None,
            queue: VecDeque::new(),
            last,
        };
        reader.queue = reader.gather()?;
        Ok(reader)
    }

    /// Returns the next wanted line without its end; none if there is no more
    /// for now.
    ///
    /// # Errors
    ///
    /// Returns what the system says if a file of the log cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<String>> {
        loop {
            if self.tail.is_none() {
                if self.queue.is_empty() {
                    self.queue = self.gather()?;
                }
                self.tail = self.queue.pop_front();
            }
            let Some(tail) = &mut self.tail else {
                return Ok(None);
            };
            if let Some(line) = tail.next_line()? {
                let Some(seq) = file::seq_of(line).filter(|seq| *seq > self.last) else {
                    continue;
                };
                self.last = seq;
                if self.filter.wants(line) {
                    return Ok(Some(String::from_utf8_lossy(line).into_owned()));
                }
            } else if !self.queue.is_empty() {
                self.tail = None;
            } else if tail.is_still(&self.path)? {
                return Ok(None);
            } else {
                // Rotated, or cut by a restart: more may have been written since.
                self.tail = None;
                self.queue = self.gather()?;
            }
        }
    }

    /// Returns the next wanted line, waiting for it.
    ///
    /// # Errors
    ///
    /// As for [`EventReader::next_line`].
    ///
    /// # Cancel safety
    ///
    /// A line is lost only by losing the answer.
    pub async fn follow_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(line) = self.next_line()? {
                return Ok(line);
            }
            tokio::time::sleep(FOLLOW_INTERVAL).await;
        }
    }

    /// Opens every file that may hold a line after the last one seen, oldest
    /// first.
    ///
    /// Files move up while this looks, so it goes from the newest to the oldest:
    /// one may then be met twice, and none be missed.
    fn gather(&self) -> io::Result<VecDeque<Tail>> {
        let mut found: Vec<(Option<u64>, Tail)> = Vec::new();
        let highest = match rotation::finished(&self.path) {
            Ok(finished) => finished.last().map_or(0, |(number, _)| *number),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let current = std::iter::once(self.path.clone());
        let finished =
            (1..=highest.saturating_add(1)).map(|number| rotation::numbered(&self.path, number));
        for path in current.chain(finished) {
            let tail = match Tail::open(&path) {
                Ok(tail) => tail,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if found.iter().any(|(_, other)| other.id == tail.id) {
                continue;
            }
            let mut tail = tail;
            let first = tail.first_seq()?;
            let is_enough = first.is_some_and(|first| first <= self.last + 1);
            found.push((first, tail));
            if is_enough {
                break;
            }
        }
        // A file without a whole line is the one that was just begun.
        found.sort_by_key(|(first, _)| first.unwrap_or(u64::MAX));
        Ok(found.into_iter().map(|(_, tail)| tail).collect())
    }
}

impl Tail {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok(Self {
            id: (metadata.dev(), metadata.ino()),
            file,
            read: 0,
            buffer: Vec::new(),
            start: 0,
        })
    }

    /// Returns the number of the first good line, and uses up none.
    fn first_seq(&mut self) -> io::Result<Option<u64>> {
        loop {
            let unused = &self.buffer[self.start..];
            if let Some(end) = unused.iter().position(|byte| *byte == b'\n') {
                return Ok(file::seq_of(&unused[..end]));
            }
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Returns the next whole line without its end.
    fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let mut searched = 0;
        loop {
            let unsearched = &self.buffer[self.start + searched..];
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line = self.start..self.start + searched + end;
                self.start = line.end + 1;
                return Ok(Some(&self.buffer[line]));
            }
            searched += unsearched.len();
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + READ_BYTES, 0);
        let outcome = self.file.read(&mut self.buffer[before..]);
        let count = *outcome.as_ref().unwrap_or(&0);
        self.buffer.truncate(before + count);
        self.read += count as u64;
        outcome
    }

    /// Answers whether `path` is still this file and has not become shorter.
    /// While nothing is there, a rotation is under way and the answer is yes.
    fn is_still(&self, path: &Path) -> io::Result<bool> {
        match std::fs::metadata(path) {
            Ok(found) => Ok((found.dev(), found.ino()) == self.id && found.len() >= self.read),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}
