//! Asks the headers of the interpreter where a thread state keeps what the hooks read.

use std::path::PathBuf;

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    let config = pyo3_build_config::get();
    println!("cargo::rerun-if-changed=src/state.c");
    let python = config.executable().expect("the module is built for an interpreter that is here");
    let script = "import sysconfig; print(sysconfig.get_paths()['include'])";
    let said = std::process::Command::new(python)
        .args(["-c", script])
        .output()
        .expect("the interpreter runs");
    let include = PathBuf::from(String::from_utf8(said.stdout).expect("a path").trim());
    cc::Build::new().file("src/state.c").include(include).compile("ledgerline_python_state");
}
