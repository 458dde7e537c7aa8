//! The server embedded in a program: serves the ledgers in files until it is interrupted.
//!
//! `cargo run --release -p ledgerline-view --example serve_file -- FILE...`

use ledgerline_view::serve::{Server, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let server = Server::bind(Settings { named: Some(files), ..Settings::default() })?;
    let address = server.address();
    server.run_until_signal(|| {
        println!("http://{address}/");
        Ok(())
    })?;
    Ok(())
}
