//! The notation of rows for a master's answers.

use super::{step::*, *};

/// Writes a vote. `note` is the text of the reply, if there is one.
pub(super) fn written(vote: &Vote, note: &str) -> String {
    match vote {
        Vote::Grant if !note.is_empty() => inspected(note),
        Vote::Grant => "granted".to_owned(),
        Vote::Refuse(Refusal::Gone) => "gone".to_owned(),
        Vote::Refuse(Refusal::OtherKind) => "kind".to_owned(),
        Vote::Refuse(Refusal::Queued { position }) => format!("queued{}", position_of(*position)),
        Vote::Refuse(Refusal::Skewed { .. }) => "skewed".to_owned(),
        // `Subject::answer` writes this vote itself, with a counter relative to the start of the
        // row.
        Vote::Refuse(Refusal::Stale { counter }) => format!("stale {counter}"),
        Vote::Refuse(Refusal::Held {
            remaining,
            owners,
            depth,
            position,
        }) => {
            let depth = |owner: &String| format!(" {} x{depth}", short(owner));
            let holder: String = owners.iter().map(depth).collect();
            let holder = holder + &position_of(*position);
            let remaining = remaining.map_or_else(
                || "-".to_owned(),
                |remaining| in_seconds(remaining.as_secs_f64()),
            );
            format!("held{holder} {remaining}")
        }
        Vote::Fail(failure) => format!("failed: {}", without_keys(&failure.to_string())),
    }
}

/// Returns `text` with two dots in place of the key that it names.
fn without_keys(text: &str) -> String {
    let parts = text.split_once("the key ").and_then(|(before, rest)| {
        let (_, after) = rest.rsplit_once(" is not ")?;
        Some(format!("{before}the key .. is not {after}"))
    });
    parts.unwrap_or_else(|| text.to_owned())
}

fn position_of(position: Option<u64>) -> String {
    position.map_or_else(String::new, |position| format!(" #{position}"))
}

/// Writes an inspection as `KIND OWNER xDEPTH LEFT` for each holder, and the waiters.
fn inspected(note: &str) -> String {
    let lines = note.lines().map(|line| {
        let words: Vec<_> = line.splitn(5, ' ').collect();
        match words[..] {
            ["free"] => "free".to_owned(),
            [kind, left, depth, digest, owner] => holder(kind, left, depth, digest, owner),
            _ => short(line), // a ticket
        }
    });
    lines.collect::<Vec<_>>().join(" ")
}

fn holder(kind: &str, left: &str, depth: &str, digest: &str, owner: &str) -> String {
    let left = left.parse::<f64>().unwrap();
    let left = if left < 0.0 {
        "-".to_owned()
    } else {
        in_seconds(left / 1000.0)
    };
    let owner = match LockKind::of_word(kind_of(kind)) {
        Some(kind) if !kind.has_owner() => {
            let tokens = ['A', 'B', 'C', '?'].map(|who| text_of(&token(who)));
            assert!(digest.len() >= 16 && !tokens.iter().any(|token| token.contains(digest)));
            assert!(digest.bytes().all(|digit| digit.is_ascii_hexdigit()));
            let mark = if owner.is_empty() { "" } else { "@" };
            format!("digest{mark}{owner}")
        }
        None => return format!("{kind} {left}"),
        Some(_) => short(owner),
    };
    format!("{kind} {owner} x{depth} {left}")
}

/// Returns the word of the kind in a line of an inspection.
pub(super) fn kind_of(word: &str) -> &str {
    word.strip_suffix("/shared").unwrap_or(word)
}

pub(super) fn in_seconds(seconds: f64) -> String {
    format!("{seconds:.3}s")
}

/// Returns whether two texts are the same. Times may differ by `slack`, which includes stalls of
/// the machine.
pub(super) fn alike(one: &str, other: &str, slack: Duration) -> bool {
    let slack = (slack + MILLISECOND * 2).as_secs_f64();
    let same = |(one, other): (&str, &str)| match (time(one), time(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= slack,
        _ => one == other,
    };
    let (one, other) = (one.split([' ', ':', '=']), other.split([' ', ':', '=']));
    one.clone().count() == other.clone().count() && one.zip(other).all(same)
}

pub(super) fn time(word: &str) -> Option<f64> {
    word.strip_suffix('s')?.parse().ok()
}
