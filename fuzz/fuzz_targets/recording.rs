//! Whatever the bytes: a recording of a run is read or refused in one line, and what is read can be shown.

#![no_main]

use ledgerline_view::report::{Recording, page, picture, summary};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Recording::parse(bytes) {
        Ok(recording) => {
            let _ = summary::text(&recording);
            let _ = picture::svg(&recording);
            summary::json(&recording).expect("it is written");
            page::html(&recording).expect("it is written");
        }
        Err(error) => assert!(!error.contains('\n'), "{error}"),
    }
});
