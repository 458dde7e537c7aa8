//! A terminal that a test types on and reads: tmux, with its own server.

use super::{binary, have, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A shell on its own terminal. The server ends when this value is dropped.
pub struct Tmux {
    socket: String,
    folder: tempfile::TempDir,
}

impl Tmux {
    /// Starts a shell in its own folder; `None` if tmux is not installed.
    pub fn start(width: u32, height: u32) -> Option<Tmux> {
        if !have("tmux") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let socket = format!("ledgerline-{}", folder.path().file_name().unwrap().display());
        let tmux = Tmux { socket, folder };
        let (width, height) = (width.to_string(), height.to_string());
        let size = ["-x", &width, "-y", &height];
        // Without the user's own settings and prompt.
        let shell = format!(
            "env PS1='$ ' RUST_BACKTRACE=0 LC_ALL=C.UTF-8 TERM=screen LEDGERLINE={} sh",
            binary()
        );
        let session = ["-f", "/dev/null", "new-session", "-d", "-c"];
        let folder = tmux.folder().to_str().expect("text");
        let output = tmux.command(&[&session[..], &[folder], &size, &[&shell]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        tmux.wait_for_shell();
        Some(tmux)
    }

    /// Returns the shell's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, arguments: &[&str]) -> Output {
        // If the locale does not set UTF-8, `-u` does.
        Command::new("tmux")
            .args(["-u", "-L", &self.socket])
            .args(arguments)
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .env_remove("COLORTERM")
            .output()
            .expect("tmux starts")
    }

    /// Types a line, and Enter.
    pub fn line(&self, text: &str) {
        self.command(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Presses keys, by tmux's names.
    pub fn keys(&self, keys: &[&str]) {
        let output = self.command(&[&["send-keys"], keys].concat());
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// Resizes the terminal.
    pub fn resize(&self, width: u32, height: u32) {
        let (width, height) = (width.to_string(), height.to_string());
        self.command(&["resize-window", "-x", &width, "-y", &height]);
    }

    /// Returns the terminal's content.
    pub fn screen(&self) -> String {
        let output = self.command(&["capture-pane", "-p"]);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the terminal's content, with its escape sequences for colours and the like.
    pub fn coloured_screen(&self) -> String {
        let output = self.command(&["capture-pane", "-p", "-e"]);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns whether the alternate screen is shown, on which programs draw.
    pub fn is_drawn_on(&self) -> bool {
        let output = self.command(&["display-message", "-p", "#{alternate_on}"]);
        String::from_utf8_lossy(&output.stdout).trim() == "1"
    }

    /// Waits until the terminal shows something; returns its content.
    pub fn wait_for(&self, what: &str, shown: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if shown(&screen) {
                return screen;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{what} does not come:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the shell is ready for a line. A program that is about to end might still read the typed keys.
    pub fn wait_for_shell(&self) -> String {
        self.wait_for("a prompt", |screen| screen.trim_end().lines().last() == Some("$"))
    }

    /// Runs a line in the shell, and waits until it ended; returns the terminal's settings then.
    pub fn settings(&self, name: &str) -> String {
        self.wait_for_shell();
        let file = self.folder().join(name);
        self.line(&format!("stty -a > {name}; mv {name} {name}.done"));
        let done = PathBuf::from(format!("{}.done", file.display()));
        let start = Instant::now();
        while !done.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::read_to_string(done).expect("the settings")
    }

    /// Waits until the terminal matches a golden file. With LEDGERLINE_BLESS set, writes its content after a while.
    pub fn shows(&self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        if std::env::var_os("LEDGERLINE_BLESS").is_some() {
            std::thread::sleep(Duration::from_secs(2));
            std::fs::write(&path, self.screen()).expect("the file can be written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if screen == expected {
                return;
            }
            if start.elapsed() > Duration::from_secs(20) {
                assert_eq!(screen, expected, "{name}; LEDGERLINE_BLESS=1 writes it anew");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}
