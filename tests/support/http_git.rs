//! A smart HTTP server for git: `git http-backend` behind a small HTTP/1.1
//! server on this machine.
//!
//! It serves every bare repository below a directory as
//! `http://127.0.0.1:<port>/<owner>/<name>.git`, counts what is asked, and can be
//! slow, silent or in need of a password. Each connection has a thread of its
//! own and carries one request.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How the server treats the requests that come from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Answers at once.
    Prompt,
    /// Answers after this long.
    Late(Duration),
    /// Takes the request and answers nothing until the manner changes.
    Silent,
    /// Answers the head and this many bytes of the body, then nothing more until
    /// the manner changes.
    Stalling {
        /// Bytes of the body that are sent.
        after: usize,
    },
    /// Answers with this status and nothing else.
    Refusing(u16),
}

/// What the server allows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether pushing is allowed.
    pub receive_pack: bool,
    /// User and password that every request needs.
    pub credentials: Option<(String, String)>,
}

/// One request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Method.
    pub method: String,
    /// Path with query.
    pub target: String,
    /// Whether it carried credentials, right or wrong.
    pub authorized: bool,
    /// `Git-Protocol`, if it was sent.
    pub protocol: Option<String>,
}

/// The running server; dropping it ends it, with every connection.
pub struct HttpGit {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    root: PathBuf,
    options: Options,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    manner: Manner,
    seen: Vec<Seen>,
    ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in one connection must not hide what the others saw.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the manner is `manner`, at most `limit`. Returns whether the
    /// server goes on.
    fn wait_while(&self, manner: Manner, limit: Option<Duration>) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut state = self.state();
        while !state.ended && state.manner == manner {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        !state.ended
    }
}

impl HttpGit {
    /// Serves the bare repositories below `root`, for reading only.
    pub fn serve(root: &Path) -> Self {
        Self::serve_with(root, Options::default())
    }

    /// Serves the bare repositories below `root`.
    pub fn serve_with(root: &Path, options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on this machine");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            options,
            state: Mutex::new(State {
                manner: Manner::Prompt,
                seen: vec![],
                ended: false,
            }),
            changed: Condvar::new(),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if for_acceptor.state().ended {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&for_acceptor);
                std::thread::spawn(move || {
                    // A client that went away is no failure of the server.
                    let _ = serve_one(&shared, &stream);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Returns `127.0.0.1:<port>`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the URL of a repository `<root>/<owner>/<name>.git`.
    pub fn url(&self, owner: &str, name: &str) -> String {
        format!("http://{}/{owner}/{name}.git", self.address)
    }

    /// Returns the `cloneUrl` template under which the repositories are reached.
    pub fn template(&self) -> String {
        self.url("{owner}", "{repo}")
    }

    /// Changes how requests are treated, also those that wait.
    pub fn set_manner(&self, manner: Manner) {
        self.shared.state().manner = manner;
        self.shared.changed.notify_all();
    }

    /// Returns every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.state().seen.clone()
    }

    /// Returns how many requests came so far.
    pub fn requests(&self) -> usize {
        self.shared.state().seen.len()
    }

    /// Returns how many times a client began to read: once for each clone, fetch
    /// or `ls-remote` that reached the server.
    pub fn reads(&self) -> usize {
        self.count("/info/refs?service=git-upload-pack")
    }

    /// Returns how many times a client began to push.
    pub fn pushes(&self) -> usize {
        self.count("/info/refs?service=git-receive-pack")
    }

    fn count(&self, ending: &str) -> usize {
        let state = self.shared.state();
        let matching = state
            .seen
            .iter()
            .filter(|seen| seen.target.ends_with(ending));
        matching.count()
    }

    /// Waits until at least this many requests came.
    ///
    /// # Panics
    ///
    /// After `limit`, with what was seen until then.
    pub fn await_requests(&self, at_least: usize, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut state = self.shared.state();
        while state.seen.len() < at_least {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "{at_least} requests were awaited for {limit:?}; seen: {:?}",
                state.seen
            );
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for HttpGit {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
        // Wakes the acceptor, which looks at `ended`.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// The head of a request.
struct Head {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

impl Head {
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Ok(None);
        };
        let mut headers = vec![];
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        Ok(Some(Self {
            method,
            target,
            headers,
        }))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }
}

fn serve_one(shared: &Shared, stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let Some(head) = Head::read(&mut reader)? else {
        return Ok(());
    };
    let manner = {
        let mut state = shared.state();
        state.seen.push(Seen {
            method: head.method.clone(),
            target: head.target.clone(),
            authorized: head.header("authorization").is_some(),
            protocol: head.header("git-protocol").map(str::to_owned),
        });
        state.manner
    };
    shared.changed.notify_all();
    let goes_on = match manner {
        Manner::Prompt | Manner::Stalling { .. } => true,
        Manner::Late(by) => shared.wait_while(manner, Some(by)),
        Manner::Silent => shared.wait_while(manner, None),
        Manner::Refusing(status) => return refuse(stream, status, ""),
    };
    if !goes_on {
        return Ok(());
    }
    let user = match &shared.options.credentials {
        None => None,
        Some((user, password)) => {
            let wanted = format!("Basic {}", base64(format!("{user}:{password}").as_bytes()));
            if head.header("authorization") != Some(wanted.as_str()) {
                return refuse(stream, 401, "WWW-Authenticate: Basic realm=\"git\"\r\n");
            }
            Some(user.as_str())
        }
    };
    if head
        .header("expect")
        .is_some_and(|what| what.eq_ignore_ascii_case("100-continue"))
    {
        write!(&mut &*stream, "HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut backend = start_backend(shared, &head, user)?;
    let answered = pass_on(shared, manner, &head, &mut reader, stream, &mut backend);
    let _ = backend.kill();
    backend.wait()?;
    answered
}

fn start_backend(shared: &Shared, head: &Head, user: Option<&str>) -> io::Result<Child> {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let receive_pack = shared.options.receive_pack.to_string();
    let mut command = Command::new("git");
    command
        .arg("http-backend")
        .env_clear()
        .env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin")),
        )
        .env("HOME", &shared.root)
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        // The tests may run as another user than the one the files belong to.
        .env("GIT_CONFIG_COUNT", "2")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("GIT_CONFIG_KEY_1", "http.receivepack")
        .env("GIT_CONFIG_VALUE_1", receive_pack)
        .env("GIT_PROJECT_ROOT", &shared.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &head.method)
        .env("PATH_INFO", decode(path))
        .env("QUERY_STRING", query)
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("SERVER_PROTOCOL", "HTTP/1.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for (header, variable) in [
        ("content-type", "CONTENT_TYPE"),
        ("content-length", "CONTENT_LENGTH"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ] {
        if let Some(value) = head.header(header) {
            command.env(variable, value);
        }
    }
    if let Some(user) = user {
        command.env("REMOTE_USER", user);
    }
    command.spawn()
}

/// Hands the request's body to the backend and its answer to the client. Both at
/// once, since git answers some requests before it has read them whole.
fn pass_on(
    shared: &Shared,
    manner: Manner,
    head: &Head,
    body: &mut BufReader<&TcpStream>,
    stream: &TcpStream,
    backend: &mut Child,
) -> io::Result<()> {
    let mut stdin = backend.stdin.take();
    let stdout = backend.stdout.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(stdin) = &mut stdin {
                // The backend may close its end before the body is over.
                let _ = copy_body(head, body, stdin);
            }
            drop(stdin);
        });
        let answered = match stdout {
            Some(stdout) => answer(shared, manner, BufReader::new(stdout), stream),
            None => Ok(()),
        };
        // Ends the copying of a body whose answer is complete.
        let _ = stream.shutdown(Shutdown::Read);
        answered
    })
}

fn copy_body(head: &Head, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
    let chunked = head
        .header("transfer-encoding")
        .is_some_and(|encoding| encoding.eq_ignore_ascii_case("chunked"));
    if !chunked {
        let length = head
            .header("content-length")
            .and_then(|length| length.parse().ok());
        io::copy(&mut from.take(length.unwrap_or(0)), to)?;
        return Ok(());
    }
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        if size == 0 {
            return Ok(());
        }
        io::copy(&mut from.take(size), to)?;
        let mut end = [0; 2];
        from.read_exact(&mut end)?;
    }
}

fn answer(
    shared: &Shared,
    manner: Manner,
    mut cgi: impl BufRead,
    mut to: &TcpStream,
) -> io::Result<()> {
    let mut status = "200 OK".to_owned();
    let mut headers = String::new();
    loop {
        let mut line = String::new();
        if cgi.read_line(&mut line)? == 0 {
            return refuse(to, 500, "");
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("status") => {
                value.trim().clone_into(&mut status);
            }
            _ => {
                headers.push_str(line);
                headers.push_str("\r\n");
            }
        }
    }
    write!(
        to,
        "HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n"
    )?;
    if let Manner::Stalling { after } = manner {
        let first = u64::try_from(after).unwrap_or(u64::MAX);
        io::copy(&mut (&mut cgi).take(first), &mut to)?;
        if !shared.wait_while(manner, None) {
            return Ok(());
        }
    }
    io::copy(&mut cgi, &mut to)?;
    to.flush()
}

fn refuse(mut to: &TcpStream, status: u16, headers: &str) -> io::Result<()> {
    write!(
        to,
        "HTTP/1.1 {status} Refused\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    to.flush()
}

/// Decodes percent escapes of a path.
fn decode(path: &str) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| path.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    OsString::from_vec(out)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0; 3];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place)) & 63;
            let digit = char::from(DIGITS[digit as usize]);
            out.push(if place <= chunk.len() { digit } else { '=' });
        }
    }
    out
}
