//! The counters of fencing tokens of one master that are ahead of time.

use std::{collections::BTreeMap, time::Duration};

use super::unanswered::why;
use crate::{
    core::{time::lease::CLOCK_WINDOW, vote::Failure},
    master::{probe::Interview, question::Question},
};

/// What is known of the counters of one master.
#[derive(Clone, Debug, Default)]
pub(super) enum Counters {
    /// The key of each counter that is too far ahead of the master's clock, and how far.
    Ahead(BTreeMap<String, Duration>),
    /// The master was not asked, because the masters are not changed.
    #[default]
    Unasked,
    /// The reason why the master does not show them.
    Unknown(String),
}

impl Counters {
    /// Looks at all counters of a master.
    pub(super) async fn ask(interview: &mut Interview<'_>) -> Self {
        match ahead(interview).await {
            Ok(ahead) => Self::Ahead(ahead),
            Err(failure) => Self::Unknown(why(&failure)),
        }
    }

    /// Returns the key of each counter that is too far ahead, and how far.
    pub(super) fn ahead(&self) -> impl Iterator<Item = (&str, Duration)> {
        let ahead = match self {
            Self::Ahead(ahead) => Some(ahead),
            Self::Unasked | Self::Unknown(_) => None,
        };
        let ahead = ahead.into_iter().flatten();
        ahead.map(|(key, ahead)| (&**key, *ahead))
    }
}

async fn ahead(interview: &mut Interview<'_>) -> Result<BTreeMap<String, Duration>, Failure> {
    /// The most calls, for a server whose cursor never ends.
    const MOST: usize = 1_000_000;
    let window = CLOCK_WINDOW.as_micros().to_string();
    let (mut cursor, mut ahead) = ("0".to_owned(), BTreeMap::new());
    for _ in 0..MOST {
        let question = [Question::Counters([&cursor, &window])];
        let page = interview.ask(&question).await.remove(0)?;
        let page = page.unwrap_or_default();
        let mut lines = page.lines();
        cursor = lines.next().unwrap_or("0").to_owned();
        ahead.extend(lines.filter_map(|line| {
            let (micros, key) = line.split_once(' ')?;
            let ahead = Duration::from_micros(micros.parse().ok()?);
            Some((key.to_owned(), ahead))
        }));
        if cursor == "0" {
            return Ok(ahead);
        }
    }
    Err(Failure::Rejected("more keys than can be looked at".into()))
}
