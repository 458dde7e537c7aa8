//! Options that open a store in addition to its address: a user, certificates, time limits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Kind, StoreError};

/// Options that open a store in addition to its address. Options in the address take precedence.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The prefix of all keys; `ledgerline` by default.
    pub prefix: Option<String>,
    /// The time limit of a call; one second by default.
    pub timeout: Option<Duration>,
    /// The user's name. A password without a name belongs to Redis's user `default`.
    pub user: Option<String>,
    /// The user's password. It is never shown.
    pub password: Option<String>,
    /// A user's name and password at Redis's sentinels, if these have users of their own.
    pub sentinels: Option<(String, String)>,
    /// Whether a password may go to another machine without encryption.
    pub insecure: bool,
    /// Options of addresses that ask for TLS.
    pub tls: Tls,
}

/// The trusted authorities of a TLS connection, and this side's own certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A file with the certificates of authorities, as PEM. Without it, the system's are trusted.
    pub ca: Option<PathBuf>,
    /// A file with this client's certificate and the intermediate ones up to the authority, as PEM.
    pub certificate: Option<PathBuf>,
    /// A file with the key of that certificate, as PEM.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must have, if it differs from the host of the address. For etcd alone.
    pub server_name: Option<String>,
}

impl Access {
    /// Reads the options from the environment, so that no password appears in a list of processes: `LEDGERLINE_FLEET_` and
    /// `PREFIX`, `USER`, `PASSWORD` or `PASSWORD_FILE`, `SENTINEL_USER`, `SENTINEL_PASSWORD`, `INSECURE` (`1`), `CA`,
    /// `CERTIFICATE`, `KEY`, `SERVER_NAME`.
    ///
    /// # Errors
    /// [`Kind::Address`] if a variable is not text, or the password's file cannot be read.
    pub fn from_environment() -> Result<Self, StoreError> {
        let password = match (variable("PASSWORD")?, variable("PASSWORD_FILE")?) {
            (Some(password), _) => Some(password),
            (None, Some(file)) => Some(secret(Path::new(&file))?),
            (None, None) => None,
        };
        let sentinels = match variable("SENTINEL_PASSWORD")? {
            Some(password) => {
                let user = variable("SENTINEL_USER")?.unwrap_or_else(|| "default".to_owned());
                Some((user, password))
            }
            None => None,
        };
        Ok(Self {
            prefix: variable("PREFIX")?,
            timeout: None,
            user: variable("USER")?,
            password,
            sentinels,
            insecure: variable("INSECURE")?.as_deref() == Some("1"),
            tls: Tls {
                ca: variable("CA")?.map(PathBuf::from),
                certificate: variable("CERTIFICATE")?.map(PathBuf::from),
                key: variable("KEY")?.map(PathBuf::from),
                server_name: variable("SERVER_NAME")?,
            },
        })
    }
}

impl fmt::Debug for Access {
    /// Formats the options without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("user", &self.user)
            .field("sentinels", &self.sentinels.as_ref().map(|(user, _)| user))
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Returns the first line of a file that holds a password.
pub(super) fn secret(file: &Path) -> Result<String, StoreError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        refused(format!("the file {} of a password cannot be read: {error}", file.display()))
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(refused(format!("the file {} has no password", file.display()))),
    }
}

/// Returns the error for an address, or for options, that open no store.
pub(super) fn refused(detail: impl fmt::Display) -> StoreError {
    StoreError::new("the store", Kind::Address, detail)
}

/// Returns the value of a variable. An empty one counts as unset.
fn variable(name: &str) -> Result<Option<String>, StoreError> {
    let name = format!("LEDGERLINE_FLEET_{name}");
    match std::env::var_os(&name).map(std::ffi::OsString::into_string) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value).filter(|value| !value.is_empty())),
        Some(Err(_)) => Err(refused(format!("the variable {name} is no text"))),
    }
}
