//! The name under which the locks of this process are shown.

use nix::unistd::gethostname;

/// The length of the longest client name.
const MOST: usize = 64;

/// Returns the host and the process ID, such as `web-3/812`. `None` if the host has no name.
pub(crate) fn client_name() -> Option<String> {
    let host = gethostname().ok()?;
    name(&host.to_string_lossy(), std::process::id())
}

/// Returns the name for a host and a process. A long host is cut, and the process ID is kept.
fn name(host: &str, process: u32) -> Option<String> {
    let process = format!("/{process}");
    let letters = host.chars().map(|letter| match letter {
        '!'..='~' => letter,
        _ => '-',
    });
    let host: String = letters.take(MOST - process.len()).collect();
    (!host.is_empty()).then(|| host + &process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_only_letters_that_a_coordinator_accepts() {
        for (host, expected) in [
            ("web-3", Some("web-3/812")),
            ("web 3\n", Some("web-3-/812")),
            ("büro", Some("b-ro/812")),
            ("", None),
        ] {
            assert_eq!(name(host, 812).as_deref(), expected, "{host:?}");
        }
        let long = name(&"h".repeat(100), u32::MAX).unwrap();
        assert_eq!(long, format!("{}/4294967295", "h".repeat(53)));
    }
}
