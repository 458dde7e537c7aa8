//! Passes subcommands of the laboratory to the command `ledgerline-lab`, like git does with `git-NAME`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use ledgerline_view::terminal::output::fail;

/// The laboratory's command.
const NAME: &str = "ledgerline-lab";

/// The exit status if that command does not exist: the same as a shell's.
const NOT_FOUND: u8 = 127;

/// The words after the name of a subcommand that the laboratory has.
#[derive(Args, Debug)]
pub struct LabArgs {
    /// Options and arguments of the subcommand of ledgerline-lab
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Executes `ledgerline-lab` with the same command line, in place of this process. Returns only on failure: the exit
/// status is 127 if the laboratory is not installed, and 126 if it cannot be executed.
pub fn hand_over(subcommand: &str) -> ExitCode {
    let Some(program) = installed() else {
        let what = format!(
            "this is a part of `{NAME}`, which lies neither beside this command nor in PATH; the packages \
             `ledgerline` of Debian and PyPI bring both, and `cargo install --path lab/cli` builds it"
        );
        return fail(subcommand, &what, NOT_FOUND);
    };
    // The original words, since clap drops a leading `--`.
    let error = Command::new(&program).arg0(NAME).args(std::env::args_os().skip(1)).exec();
    fail(subcommand, &format!("{}: {error}", program.display()), 126)
}

/// Returns the laboratory's subcommand whose help the command line requests, as in `help layout show`. `None` if the
/// laboratory is not installed: then this command prints its own help.
pub fn asked_for_help() -> Option<&'static str> {
    let words: Vec<OsString> = std::env::args_os().skip(1).take(3).collect();
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let subcommand = match words[..] {
        ["help", "layout", ..] => "layout",
        ["help", "reproduce", ..] => "reproduce",
        ["help", "calibrate", ..] => "calibrate",
        ["help", "bench", "numa" | "rss"] => "bench",
        _ => return None,
    };
    installed().map(|_| subcommand)
}

/// Returns the path of the laboratory's command, if it is installed.
pub fn installed() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    find(own.as_deref(), std::env::split_paths(&paths))
}

/// Finds the laboratory's command: beside this one, or else in the first of these folders that has it.
fn find(own: Option<&Path>, paths: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let beside = own.and_then(Path::parent).map(Path::to_path_buf);
    let mut places = beside.into_iter().chain(paths).map(|folder| folder.join(NAME));
    places.find(|program| {
        rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok() && program.is_file()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(folder: &Path, mode: u32) -> PathBuf {
        let path = folder.join(NAME);
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_laboratory_beside_the_command_comes_before_that_in_path_and_what_cannot_be_executed_is_none()
     {
        let [beside, first, second] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let own = beside.path().join("ledgerline");
        let paths = || [&first, &second].map(|folder| folder.path().to_owned()).into_iter();
        assert_eq!(find(Some(&own), paths()), None);
        program(first.path(), 0o644);
        let in_path = program(second.path(), 0o755);
        assert_eq!(find(Some(&own), paths()), Some(in_path.clone()));
        assert_eq!(find(None, paths()), Some(in_path));
        std::fs::create_dir(beside.path().join(NAME)).unwrap();
        assert_ne!(find(Some(&own), paths()), Some(beside.path().join(NAME)));
        std::fs::remove_dir(beside.path().join(NAME)).unwrap();
        let in_place = program(beside.path(), 0o755);
        assert_eq!(find(Some(&own), paths()), Some(in_place));
    }
}
