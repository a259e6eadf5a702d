//! Reads the webhook secrets that the configuration names.
//!
//! An empty secret is a valid key of an HMAC, so that anybody could sign with
//! it: one that is set but empty refuses, it is not passed over.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretSlice};

use super::environment::Environment;
use super::key_path::KeyPath;
use super::problem::{ConfigErrors, Problem, Warning};
use super::settings::Config;

/// A secret and where it was read. It does not print.
#[derive(Clone)]
pub struct Secret {
    origin: String,
    value: SecretSlice<u8>,
}

impl Secret {
    /// Returns the name of the variable, or the path of the file.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the secret, to compute a signature with.
    pub fn expose(&self) -> &[u8] {
        self.value.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.origin)
    }
}

/// Reads the secrets of the webhook listener, in the order of the file. A
/// variable is one secret, whatever it holds.
///
/// Blocks while it reads files.
///
/// # Errors
///
/// Returns an error if one of them is empty, if a file cannot be read, or if
/// none is left although the listener is enabled and wants signatures.
pub fn resolve_secrets(
    config: &Config,
    env: &Environment,
) -> Result<(Vec<Secret>, Vec<Warning>), ConfigErrors> {
    let webhook = &config.webhooks.github;
    if !webhook.enabled {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut secrets = Vec::new();
    let mut problems = Vec::new();

    let key = KeyPath::of("webhooks.github.secretEnv");
    for (at, name) in webhook.secret_env.iter().enumerate() {
        let key = key.index(at);
        let Some(value) = env.var(name) else {
            problems.push(Problem::warning(
                key,
                format!("the variable {name} is not set; no secret is taken from it"),
            ));
            continue;
        };
        let value = value.as_encoded_bytes();
        if is_blank(value) {
            problems.push(Problem::error(
                key,
                format!("the variable {name} is set but empty: anybody could sign with it"),
            ));
            continue;
        }
        if value.contains(&b',') {
            problems.push(Problem::warning(
                key,
                format!("the variable {name} holds a comma; it is one secret, not a list"),
            ));
        }
        secrets.push(secret(name.clone(), value));
    }

    let key = KeyPath::of("webhooks.github.secretFiles");
    for (at, path) in webhook.secret_files.iter().enumerate() {
        let key = key.index(at);
        let shown = path.display();
        match read_file(path) {
            Err(error) => problems.push(Problem::error(
                key,
                format!("cannot read the secret in `{shown}`: {error}"),
            )),
            Ok((value, _)) if is_blank(&value) => problems.push(Problem::error(
                key,
                format!("the file `{shown}` is empty: anybody could sign with it"),
            )),
            Ok((value, mode)) => {
                if mode & 0o077 != 0 {
                    problems.push(
                        Problem::warning(
                            key,
                            format!("others may read the secret in `{shown}` (mode {mode:o})"),
                        )
                        .help(format!("chmod 600 {shown}")),
                    );
                }
                secrets.push(secret(shown.to_string(), &value));
            }
        }
    }

    let refused = problems.iter().any(Problem::is_error);
    if secrets.is_empty() && !webhook.allow_unsigned && !refused {
        problems.push(
            Problem::error(
                KeyPath::of("webhooks.github"),
                "there is no webhook secret, so no delivery could be verified",
            )
            .help(
                "set a variable that `webhooks.github.secretEnv` names, or list a file in `webhooks.github.secretFiles`",
            ),
        );
    }
    if problems.iter().any(Problem::is_error) {
        return Err(ConfigErrors::new(problems));
    }
    Ok((secrets, problems))
}

fn secret(origin: String, value: &[u8]) -> Secret {
    Secret {
        origin,
        value: value.to_vec().into(),
    }
}

fn is_blank(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_whitespace)
}

fn read_file(path: &Path) -> std::io::Result<(Vec<u8>, u32)> {
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
    let mut value = std::fs::read(path)?;
    while value.ends_with(b"\n") || value.ends_with(b"\r") {
        value.pop();
    }
    Ok((value, mode))
}
