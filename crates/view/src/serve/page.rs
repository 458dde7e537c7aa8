//! The page: plain files, embedded in the binary.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path, type, text.
const FILES: [(&str, &str, &str); 11] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/icon.svg", SVG, include_str!("page/icon.svg")),
    ("/ask.js", JS, include_str!("page/ask.js")),
    ("/app.js", JS, include_str!("page/app.js")),
    ("/chart.js", JS, include_str!("page/chart.js")),
    ("/feed.js", JS, include_str!("page/feed.js")),
    ("/table.js", JS, include_str!("page/table.js")),
    ("/theme.js", JS, include_str!("page/theme.js")),
    ("/treemap.js", JS, include_str!("page/treemap.js")),
    ("/words.js", JS, include_str!("page/words.js")),
];

/// Returns the paths of the page's files.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(path, ..)| path)
}

/// Returns a file of the page.
pub(crate) fn file(path: &str) -> Option<Response> {
    let &(_, kind, text) = FILES.iter().find(|&&(own, ..)| own == path)?;
    Some(([(CONTENT_TYPE, kind)], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_on_the_page_is_inline_or_comes_from_elsewhere() {
        for (path, _, text) in FILES {
            // An XML namespace is not an address that is loaded.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for elsewhere in ["http:", "https:", "src=\"//", "@import", "url(//"] {
                assert!(!text.contains(elsewhere), "{path} has {elsewhere}");
            }
            for inline in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(inline), "{path} has {inline}");
            }
            if path == "/" {
                for inline in ["<style", "style=", "onclick", "javascript:"] {
                    assert!(!text.contains(inline), "{path} has {inline}");
                }
                for script in text.split("<script").skip(1) {
                    let (tag, rest) = script.split_once('>').expect("a tag ends");
                    assert!(tag.contains("src=\"/") && rest.starts_with("</script>"), "{script}");
                }
            }
        }
    }
}
