//! Pictures as `data:` URIs. Rustdoc copies no files, so its pages have the pictures in themselves.

use std::fmt::Write;

/// Returns the picture as a URI that can be the target of a link in Markdown.
pub fn data(svg: &str) -> String {
    let mut uri = "data:image/svg+xml,".to_owned();
    for byte in svg.trim_end().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'/' | b':' | b'=' | b',' => {
                uri.push(char::from(byte));
            }
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri + "\n"
}
