//! Stubs of the TLS types in a build without TLS. Their values cannot be created.

use std::io;

use tokio::net::TcpStream;

use super::StoreError;
use super::access::{Tls, refused};

pub(super) enum Certificates {}

impl Certificates {
    pub(super) fn read(_: &Tls) -> Result<Self, StoreError> {
        Err(refused(
            "its address asks for TLS, which this build does not have, nor do the packages: one with the feature `tls` has it \
             (cargo install ledgerline-cli --features tls)",
        ))
    }
}

pub(super) enum Secured {}

impl Secured {
    pub(super) fn new(certificates: &Certificates, _: &str) -> Result<Self, StoreError> {
        match *certificates {}
    }

    pub(super) async fn connect(&self, _: TcpStream) -> io::Result<TcpStream> {
        match *self {}
    }
}
