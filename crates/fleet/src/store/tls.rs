//! TLS by rustls. Certificates are read once, and ring does the cryptography.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::StoreError;
use super::access::{Tls, refused};

/// The contents of the files of a [`Tls`]. It has no `Debug`, which would show a key.
pub(super) struct Certificates {
    /// The authorities, as PEM.
    pub ca: Option<Vec<u8>>,
    /// A certificate and its key, as PEM.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    config: Arc<ClientConfig>,
}

impl Certificates {
    pub(super) fn read(tls: &Tls) -> Result<Self, StoreError> {
        // The redis crate uses the process's default provider. A provider that the program has chosen stays.
        if CryptoProvider::get_default().is_none() {
            let _ = ring::default_provider().install_default();
        }
        let ca = tls.ca.as_deref().map(file).transpose()?;
        let client = match (&tls.certificate, &tls.key) {
            (Some(name), Some(key_name)) => Some((name, file(name)?, key_name, file(key_name)?)),
            (None, None) => None,
            _ => return Err(refused("a certificate needs its key, and a key its certificate")),
        };
        let roots = match (&tls.ca, &ca) {
            (Some(name), Some(pem)) => trusted(name, pem)?,
            _ => systems()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_root_certificates(roots);
        let (config, client) = match client {
            Some((name, certificate, key_name, key)) => {
                let chain = chain(name, &certificate)?;
                let secret = PrivateKeyDer::from_pem_slice(&key)
                    .map_err(|error| broken(key_name, "key", error))?;
                let config = builder.with_client_auth_cert(chain, secret);
                let config =
                    config.map_err(|error| broken(key_name, "key of the certificate", error))?;
                (config, Some((certificate, key)))
            }
            None => (builder.with_no_client_auth(), None),
        };
        Ok(Self { ca, client, config: Arc::new(config) })
    }
}

/// A TLS configuration for one server, which must prove its name.
pub(super) struct Secured {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Secured {
    /// Creates the configuration. The server's certificate must be for this host.
    pub(super) fn new(certificates: &Certificates, host: &str) -> Result<Self, StoreError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| refused("the name of a server is neither a host's nor an address"))?;
        Ok(Self { connector: TlsConnector::from(Arc::clone(&certificates.config)), name })
    }

    pub(super) async fn connect(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), socket).await
    }
}

fn file(name: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(name)
        .map_err(|error| refused(format!("the file {} cannot be read: {error}", name.display())))
}

fn broken(name: &Path, what: &str, error: impl std::fmt::Display) -> StoreError {
    refused(format!("the file {} has no {what} as PEM: {error}", name.display()))
}

/// Parses a chain of at least one certificate.
fn chain(name: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| broken(name, "certificate", error))?;
    if chain.is_empty() { Err(broken(name, "certificate", "it has none")) } else { Ok(chain) }
}

fn trusted(name: &Path, pem: &[u8]) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(name, pem)? {
        roots.add(certificate).map_err(|error| broken(name, "authority's certificate", error))?;
    }
    Ok(roots)
}

/// Returns the authorities that the system trusts, as far as they can be read.
fn systems() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(refused(
            "the system has no certificates of authorities to trust: a file of them is to be named",
        ));
    }
    Ok(roots)
}
