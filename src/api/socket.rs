//! The control socket: made so that it is never open to others, and found at a
//! path of any length.
//!
//! It is bound in a fresh directory of mode 0700, given mode 0600, and then
//! renamed to its place: there is no moment at which another user could open
//! it. A path longer than a socket's address can hold is reached through
//! `/proc/self/fd`.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};

/// The longest path that fits into a socket's address.
const PATH_BYTES_MAX: usize = 107;

/// A listening control socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon listens there.
    #[error("another process answers at the control socket `{}`", path.display())]
    Held {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket stands there.
    #[error("`{}` exists and is not a socket; move it away, or set control.socket", path.display())]
    Occupied {
        /// What stands there.
        path: PathBuf,
    },
    /// The system refused.
    #[error("could not make the control socket `{}`", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl ControlSocket {
    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Only our own: a later daemon may have put another in its place.
        if let Ok(metadata) = fs::symlink_metadata(&self.path)
            && (metadata.dev(), metadata.ino()) == self.inode
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "The control socket was not removed.");
        }
    }
}

/// Listens at `path`. A socket that is left over there, with nobody answering,
/// is replaced.
///
/// # Errors
///
/// Returns [`BindError`]; nothing was changed then.
pub async fn bind(path: &Path) -> Result<ControlSocket, BindError> {
    let failed = |source| BindError::Io {
        path: path.to_owned(),
        source,
    };
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::Occupied {
                path: path.to_owned(),
            });
        }
        Ok(_) => match connect(path).await {
            Ok(_answers) => {
                return Err(BindError::Held {
                    path: path.to_owned(),
                });
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            // Gone in between, or not ours to open: the rename tells.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // `tempdir` makes it with mode 0700.
    let private = tempfile::Builder::new()
        .prefix(".control-")
        .tempdir_in(dir)
        .map_err(failed)?;
    let made = private.path().join("s");
    let listener = {
        let reachable = Reachable::new(&made).map_err(failed)?;
        UnixListener::bind(reachable.path()).map_err(failed)?
    };
    fs::set_permissions(&made, Permissions::from_mode(0o600)).map_err(failed)?;
    let metadata = fs::symlink_metadata(&made).map_err(failed)?;
    fs::rename(&made, path).map_err(failed)?;
    Ok(ControlSocket {
        listener,
        path: path.to_owned(),
        inode: (metadata.dev(), metadata.ino()),
    })
}

/// Connects to the socket at `path`, however long that is.
///
/// # Errors
///
/// Returns what the system says: not found, refused (nobody listens), denied.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let reachable = Reachable::new(path)?;
    UnixStream::connect(reachable.path()).await
}

/// A path that fits into a socket's address; the directory stays open as long.
struct Reachable {
    path: PathBuf,
    _dir: Option<OwnedFd>,
}

impl Reachable {
    fn new(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self {
                path: path.to_owned(),
                _dir: None,
            });
        }
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the path names no socket",
            ));
        };
        let dir = rustix::fs::open(
            dir,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            path: Path::new("/proc/self/fd")
                .join(dir.as_raw_fd().to_string())
                .join(name),
            _dir: Some(dir),
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("there").mode() & 0o777
    }

    #[tokio::test]
    async fn it_is_private_and_goes_with_its_listener() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("control.sock");
        let socket = bind(&path).await.expect("bound");
        assert_eq!(mode(&path), 0o600);
        connect(&path).await.expect("it answers");
        drop(socket);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[tokio::test]
    async fn a_path_too_long_for_an_address_works() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = dir.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&deep).expect("made");
        let path = deep.join("control.sock");
        let _socket = bind(&path).await.expect("bound");
        connect(&path).await.expect("it answers");
    }

    #[tokio::test]
    async fn one_that_answers_is_left_alone_and_one_left_over_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("control.sock");
        let first = bind(&path).await.expect("bound");
        assert!(matches!(bind(&path).await, Err(BindError::Held { .. })));
        connect(&path).await.expect("the first still answers");
        drop(first);
        drop(std::os::unix::net::UnixListener::bind(&path).expect("left over"));
        let _second = bind(&path).await.expect("replaced");
        connect(&path).await.expect("it answers");
    }

    #[tokio::test]
    async fn a_file_in_its_place_is_not_touched() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("control.sock");
        fs::write(&path, "mine").expect("written");
        assert!(matches!(bind(&path).await, Err(BindError::Occupied { .. })));
        assert_eq!(fs::read(&path).expect("read"), b"mine");
    }
}
