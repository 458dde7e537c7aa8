//! The output of unpacking is bounded, whatever the size of the compressed data's contents.

use std::io::Write;

use crate::support::have;
use ledgerline_layout::image::unpack::Packing;

const LIMIT: usize = 1 << 20;

#[test]
fn more_than_the_limit_is_refused_and_exactly_the_limit_is_not() {
    for (program, arguments) in [
        ("gzip", &["-c"][..]),
        ("xz", &["-c"]),
        ("xz", &["--format=lzma", "-c"]),
        ("zstd", &["-q", "-c"]),
        ("lz4", &["-l", "-q", "-c"]),
        ("lz4", &["-q", "-c"]),
    ] {
        if !have(program) {
            continue;
        }
        for (size, allowed) in [(LIMIT, true), (LIMIT + 1, false), (64 * LIMIT, false)] {
            let packed = packed(program, arguments, size);
            let packing = Packing::of(&packed).unwrap();
            assert_eq!(
                packing.name(),
                if arguments.len() == 2 && program == "xz" { "lzma" } else { program }
            );
            match packing.unpack(&packed, LIMIT) {
                Ok(out) => {
                    assert!(allowed && out.len() == size, "{program} gave {} bytes", out.len())
                }
                Err(error) => {
                    assert!(!allowed, "{program}: {error}");
                    let said = error.to_string();
                    let name = packing.name();
                    let expected =
                        format!("its {name} data unpacks to more than {LIMIT} bytes, the limit");
                    assert!(said.starts_with(&expected), "{said}");
                }
            }
        }
    }
}

/// Returns packed zeros, since these pack best.
fn packed(program: &str, arguments: &[&str], size: usize) -> Vec<u8> {
    let mut child = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(&vec![0; size]).unwrap());
        child.wait_with_output().unwrap().stdout
    })
}

#[test]
fn a_window_larger_than_is_allowed_is_refused_before_it_is_taken() {
    // The headers of a zstd frame with a window of 2 GiB, and of an lzma file with a dictionary of nearly 4 GiB.
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 1, 0, 0];
    let lzma =
        [[0x5d, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0]]
            .concat();
    for (data, said) in [(&zstd[..], "window"), (&lzma, "memory")] {
        let packing = Packing::of(data).unwrap();
        let error = packing.unpack(data, LIMIT).unwrap_err().to_string();
        assert!(error.contains(said), "{packing:?}: {error}");
    }
}
