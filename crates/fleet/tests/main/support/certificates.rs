//! Certificates of an authority made by a test.

use std::path::PathBuf;

use ledgerline_fleet::store::Tls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority, and a folder with the files that it signed.
pub struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of the tests");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("a file of ours");
        Self { folder, issuer }
    }

    /// Returns a file of this folder, as a program's argument.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Signs a certificate for these hosts: `name.pem`, and its key in `name.key`.
    pub fn signs(&self, name: &str, hosts: &[&str]) {
        self.signs_as(name, hosts, |_| ());
    }

    pub fn signs_as(&self, name: &str, hosts: &[&str], changed: impl Fn(&mut CertificateParams)) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names of hosts");
        params.distinguished_name.push(DnType::CommonName, name);
        changed(&mut params);
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.file(&format!("{name}.pem")), signed.pem()).expect("a file of ours");
        let key = key.serialize_pem();
        std::fs::write(self.file(&format!("{name}.key")), key).expect("a file of ours");
    }

    /// Returns options that trust this authority and use a certificate of it.
    pub fn client(&self, name: &str) -> Tls {
        Tls {
            ca: Some(PathBuf::from(self.file("ca.pem"))),
            certificate: Some(PathBuf::from(self.file(&format!("{name}.pem")))),
            key: Some(PathBuf::from(self.file(&format!("{name}.key")))),
            server_name: None,
        }
    }
}

/// Makes the certificate expire in the year 2001.
pub fn expired(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
}
