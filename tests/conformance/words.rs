//! What a master said, as rows write it.

use super::{step::*, *};

/// A vote, and what the master said in more words.
pub(super) fn written(vote: &Vote, note: &str) -> String {
    match vote {
        Vote::Grant if !note.is_empty() => inspected(note),
        Vote::Grant => "granted".to_owned(),
        Vote::Refuse(Refusal::Gone) => "gone".to_owned(),
        Vote::Refuse(Refusal::OtherKind) => "kind".to_owned(),
        Vote::Refuse(Refusal::Queued { position }) => format!("queued{}", place_of(*position)),
        Vote::Refuse(Refusal::Skewed { .. }) => "skewed".to_owned(),
        Vote::Refuse(Refusal::Stale { counter }) => format!("stale {counter}"), // with the row's time where there is one
        Vote::Refuse(Refusal::Held(report)) => {
            let holder = report.owner().map_or_else(String::new, |owner| {
                let (owner, place) = (short(owner), place_of(report.position()));
                format!(" {owner} x{}{place}", report.depth())
            });
            let remaining = report.remaining().map_or_else(
                || "-".to_owned(),
                |remaining| in_seconds(remaining.as_secs_f64()),
            );
            format!("held{holder} {remaining}")
        }
        Vote::Fail(failure) => format!("failed: {}", without_keys(&failure.to_string())),
    }
}

/// `text` with two dots for the key that it names.
fn without_keys(text: &str) -> String {
    let parts = text.split_once("the key ").and_then(|(before, rest)| {
        let (_, after) = rest.rsplit_once(" is not ")?;
        Some(format!("{before}the key .. is not {after}"))
    });
    parts.unwrap_or_else(|| text.to_owned())
}

fn place_of(place: Option<u64>) -> String {
    place.map_or_else(String::new, |place| format!(" #{place}"))
}

/// `KIND OWNER xDEPTH LEFT WAITERS`.
fn inspected(note: &str) -> String {
    let mut lines = note.lines();
    let words: Vec<_> = lines.next().unwrap().splitn(4, ' ').collect();
    let [kind, left, depth, owner] = words[..] else {
        panic!("a holder is told in four words: {note}");
    };
    let left = left.parse::<f64>().unwrap();
    let left = if left < 0.0 {
        "-".to_owned()
    } else {
        in_seconds(left / 1000.0)
    };
    let owner = match kind {
        "mutex" => {
            let tokens = ['A', 'B', 'C', '?'].map(|who| text_of(token(who)));
            assert!(owner.len() >= 16 && !tokens.iter().any(|token| token.contains(owner)));
            "digest".to_owned()
        }
        _ => short(owner),
    };
    let waiters: String = lines.map(|ticket| format!(" {}", short(ticket))).collect();
    if owner.is_empty() {
        return format!("{kind} {left}{waiters}");
    }
    format!("{kind} {owner} x{depth} {left}{waiters}")
}

pub(super) fn in_seconds(seconds: f64) -> String {
    format!("{seconds:.3}s")
}

/// Whether two texts say the same, give or take the time between them. A stall of the machine makes no difference:
/// it is in `slack`.
pub(super) fn alike(one: &str, other: &str, slack: Duration) -> bool {
    let slack = (slack + MILLISECOND * 2).as_secs_f64();
    let same = |(one, other): (&str, &str)| match (time(one), time(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= slack,
        _ => one == other,
    };
    let (one, other) = (one.split(' '), other.split(' '));
    one.clone().count() == other.clone().count() && one.zip(other).all(same)
}

pub(super) fn time(word: &str) -> Option<f64> {
    word.strip_suffix('s')?.parse().ok()
}
