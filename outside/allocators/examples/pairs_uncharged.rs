//! The same program with the system's allocator; see `pairs/body.rs`.

#[path = "pairs/body.rs"]
mod body;

fn main() {
    body::run(|| ());
}
