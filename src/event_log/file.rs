//! The file being written: opened and mended, appended to, flushed.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::rotation;

/// How much of a finished file's end is read to find its last line. Lines are
/// far shorter; a longer one is found by reading the whole file.
const TAIL_BYTES: u64 = 1024 * 1024;

/// The file being written.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Where the last whole line ends.
    len: u64,
}

/// What a scan of the file being written found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Number of the last line of the part that is in order.
    pub(super) last: Option<u64>,
    /// Where that part ends.
    pub(super) end: u64,
    /// Number of the last good line behind the first fault.
    pub(super) beyond: Option<u64>,
    /// Where the last good line ends.
    pub(super) beyond_end: u64,
}

/// Returns the number of a whole line (without its end), if it is one.
///
/// Zeros are what some file systems leave of a write that a power cut ate.
pub(super) fn seq_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(br#"{"seq":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || rest.get(digits) != Some(&b',') {
        return None;
    }
    if line.last() != Some(&b'}') || line.contains(&0) {
        return None;
    }
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// Reads a log from its beginning. `before` is the number of the line that
/// stands before it, if known.
pub(super) fn scan(source: impl io::Read, before: Option<u64>) -> io::Result<Scan> {
    let mut lines = BufReader::with_capacity(1 << 18, source);
    let mut found = Scan {
        last: before,
        ..Scan::default()
    };
    let mut in_order = true;
    let mut at = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        at += lines.read_until(b'\n', &mut line)? as u64;
        if line.is_empty() {
            return Ok(found);
        }
        let seq = line.strip_suffix(b"\n").and_then(seq_of);
        let follows = seq.is_some_and(|seq| found.last.is_none_or(|last| seq == last + 1));
        in_order = in_order && follows;
        if in_order {
            found.last = seq;
            found.end = at;
        }
        if let Some(seq) = seq {
            found.beyond = Some(seq.max(found.beyond.unwrap_or(0)));
            found.beyond_end = at;
        }
    }
}

/// Returns the number of the last line of the finished files, if there is any.
pub(super) fn last_finished(path: &Path) -> io::Result<Option<u64>> {
    for (_, finished) in rotation::finished(path)? {
        if let Some(seq) = last_line_of(&finished)? {
            return Ok(Some(seq));
        }
    }
    Ok(None)
}

fn last_line_of(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let last = tail.split(|byte| *byte == b'\n').rev().find_map(seq_of);
    if last.is_some() || len <= TAIL_BYTES {
        return Ok(last);
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(scan(file, None)?.beyond)
}

impl LogFile {
    /// Opens the file at `path`, making it if there is none, and scans it.
    pub(super) fn open(path: &Path, before: Option<u64>) -> io::Result<(Self, Scan)> {
        let directory = rotation::directory_of(path);
        std::fs::create_dir_all(directory)?;
        let is_new = !path.try_exists()?;
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        if is_new {
            rotation::flush_directory(directory)?;
        }
        let scan = scan(&file, before)?;
        let len = scan.beyond_end;
        Ok((
            Self {
                path: path.to_owned(),
                file,
                len,
            },
            scan,
        ))
    }

    /// Returns how long the part that is known to be good is.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Cuts off everything from `end` on.
    pub(super) fn cut(&mut self, end: u64) -> io::Result<()> {
        if self.file.metadata()?.len() != end {
            self.file.set_len(end)?;
        }
        self.len = end;
        Ok(())
    }

    /// Appends whole lines.
    ///
    /// # Errors
    ///
    /// Nothing of it counts as written; the next call cuts off what is there.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.cut(self.len)?;
        self.file.write_all(lines)?;
        self.len += lines.len() as u64;
        Ok(())
    }

    /// Returns when everything appended is on disk.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Answers whether this file still stands at its path.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        let here = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok((here.dev(), here.ino()) == (there.dev(), there.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Finishes this file and begins a new one.
    ///
    /// # Errors
    ///
    /// Calling again continues where it stopped.
    pub(super) fn rotate(&mut self, keep_files: u32) -> io::Result<()> {
        self.file.sync_all()?;
        rotation::rotate(&self.path, keep_files)?;
        let (next, _) = Self::open(&self.path, None)?;
        *self = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_have_a_number() {
        assert_eq!(seq_of(br#"{"seq":12,"ts":"x"}"#), Some(12));
        for bad in [
            &br#"{"seq":12,"ts":"x""#[..],
            br#"{"seq":12}"#,
            br#"{"seq":,"a":1}"#,
            br#" {"seq":1,"a":1}"#,
            b"{\"seq\":1,\"a\":\0\0}",
            b"",
        ] {
            assert_eq!(seq_of(bad), None);
        }
    }

    #[test]
    fn a_scan_tells_the_good_part_from_what_follows_a_fault() {
        let good = "{\"seq\":3,\"a\":1}\n{\"seq\":4,\"a\":1}\n";
        let torn = format!("{good}{{\"seq\":5,\"a\"");
        let found = scan(torn.as_bytes(), None).expect("reads");
        assert_eq!((found.last, found.end), (Some(4), good.len() as u64));
        assert_eq!(found.beyond_end, found.end);

        let holed = format!("{good}\0\0\0\n{{\"seq\":6,\"a\":1}}\n");
        let found = scan(holed.as_bytes(), None).expect("reads");
        assert_eq!((found.last, found.beyond), (Some(4), Some(6)));
        assert_eq!(found.beyond_end, holed.len() as u64);

        let found = scan(good.as_bytes(), Some(1)).expect("reads");
        assert_eq!(found.last, Some(1), "2 is missing before it");
        assert_eq!(found.beyond, Some(4));
    }
}
