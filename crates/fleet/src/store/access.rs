//! What opens a store beside its address: a user, how servers and clients prove who they are, how long a call may take.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Kind, StoreError};

/// What opens a store beside its address. What the address says itself goes before it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// What all keys begin with; `ledgerline` if nobody says.
    pub prefix: Option<String>,
    /// How long a call may take; a second if nobody says.
    pub timeout: Option<Duration>,
    /// The user's name. A password without a name is that of Redis's user `default`.
    pub user: Option<String>,
    /// The user's password. Never shown.
    pub password: Option<String>,
    /// A user's name and password at Redis's sentinels, where these have users of their own.
    pub sentinels: Option<(String, String)>,
    /// Whether a password may go to another machine without encryption.
    pub insecure: bool,
    /// What goes with addresses that ask for TLS.
    pub tls: Tls,
}

/// Whom this side of a TLS connection trusts, and how it proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A file with the certificates of authorities, as PEM. Without it, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// A file with this client's certificate and those between it and the authority, as PEM.
    pub certificate: Option<PathBuf>,
    /// A file with the key of that certificate, as PEM.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must have, where it is not the host of the address. For etcd alone.
    pub server_name: Option<String>,
}

impl Access {
    /// What the environment says, so that no password is in a list of processes: `LEDGERLINE_FLEET_` and `PREFIX`, `USER`,
    /// `PASSWORD` or `PASSWORD_FILE`, `SENTINEL_USER`, `SENTINEL_PASSWORD`, `INSECURE` (`1`), `CA`, `CERTIFICATE`, `KEY`,
    /// `SERVER_NAME`.
    ///
    /// # Errors
    /// [`Kind::Address`] if a variable is no text, or the file of the password cannot be read.
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
    /// Without passwords.
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

/// The first line of a file that holds a password.
pub(super) fn secret(file: &Path) -> Result<String, StoreError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        refused(format!("the file {} of a password cannot be read: {error}", file.display()))
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(refused(format!("the file {} has no password", file.display()))),
    }
}

/// The address, or what goes with it, opens no store.
pub(super) fn refused(detail: impl fmt::Display) -> StoreError {
    StoreError::new("the store", Kind::Address, detail)
}

/// A variable that is empty says nothing.
fn variable(name: &str) -> Result<Option<String>, StoreError> {
    let name = format!("LEDGERLINE_FLEET_{name}");
    match std::env::var_os(&name).map(std::ffi::OsString::into_string) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value).filter(|value| !value.is_empty())),
        Some(Err(_)) => Err(refused(format!("the variable {name} is no text"))),
    }
}
