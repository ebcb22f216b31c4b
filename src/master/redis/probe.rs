//! Asks a server the questions of a check.

use std::{ops::ControlFlow, sync::LazyLock, time::Duration};

use super::{
    dialer::Dialer, encode::encode, greeter::LoggedIn, greeting::entry, resp::reply, wire::Wire,
    wire_error::WireError,
};
use crate::{
    core::{protocol::command::Reply, vote::Failure},
    master::{
        dial_error::DialError,
        question::{Answer, Question, is_unknown_script},
    },
};

/// The script that answers [`Question::Facts`]. Other connections do not load it.
const CHECK: &str = include_str!("../../../lua/shared/check.lua");

/// The script that answers [`Question::Counters`]. It is sent with each question, because hardly
/// anyone asks.
const COUNTERS: &str = include_str!("../../../lua/shared/counters.lua");

static HASH: LazyLock<String> = LazyLock::new(|| ::redis::Script::new(CHECK).get_hash().to_owned());

/// A connection for questions.
pub(in crate::master) struct RedisProbe<'a> {
    dialer: &'a Dialer,
    wire: Wire,
    reports_changes: bool,
}

impl<'a> RedisProbe<'a> {
    pub(in crate::master) async fn dial(dialer: &'a Dialer) -> Result<(Self, Duration), DialError> {
        let LoggedIn {
            wire,
            round_trip,
            reports_changes,
            ..
        } = dialer.greeter.log_in().await?;
        let probe = Self {
            dialer,
            wire,
            reports_changes,
        };
        Ok((probe, round_trip))
    }

    /// Appends one answer to `answers` for each question.
    pub(in crate::master) async fn ask(
        &mut self,
        questions: &[Question<'_>],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Failure> {
        for question in questions {
            // The answer to EVALSHA shows whether the user may run it. If the server does not know
            // the script, its text is sent next.
            self.send(*question, [b"EVALSHA", HASH.as_bytes()]);
        }
        let mut asked = questions.iter();
        let on_frame = |frame: &[u8]| {
            answers.extend(asked.next().map(|question| read(*question, frame)));
            if asked.len() == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        self.wire.answers(on_frame).await.map_err(broken)?;
        for (question, answer) in questions.iter().zip(answers) {
            if is_unknown_script(answer) {
                self.send(*question, [b"EVAL", CHECK.as_bytes()]);
                let read = |frame: &[u8]| read(*question, frame);
                *answer = self.wire.answer(read).await.map_err(broken)?;
            }
            if let (Question::Facts(_), Ok(Some(facts)), false) =
                (question, answer, self.reports_changes)
            {
                facts.push_str("\nreports_changes:no");
            }
        }
        Ok(())
    }

    pub(in crate::master) async fn observe(
        &mut self,
        run_id: Option<&str>,
    ) -> Result<(), DialError> {
        let tracker = self.dialer.tracker.detached();
        if !tracker.has_met(self.dialer.master, run_id) {
            self.dialer.incarnation(&tracker, &mut self.wire).await?;
        }
        Ok(())
    }

    fn send(&mut self, question: Question<'_>, script: [&[u8]; 2]) {
        match question {
            Question::Connections => encode(self.wire.out(), &[b"CLIENT", b"LIST"]),
            Question::Counters([cursor, window]) => {
                let arguments = [cursor.as_bytes(), window.as_bytes()];
                let words = [&[b"EVAL", COUNTERS.as_bytes(), b"0"][..], &arguments].concat();
                encode(self.wire.out(), &words);
            }
            Question::Setting(name) => {
                encode(self.wire.out(), &[b"CONFIG", b"GET", name.as_bytes()]);
            }
            Question::Facts(arguments) => {
                // The names of keys are passed as arguments. In a cluster, these keys are on
                // several servers.
                let arguments = arguments.iter().map(|argument| argument.as_bytes());
                let words: Vec<_> = script
                    .into_iter()
                    .chain([&b"0"[..]])
                    .chain(arguments)
                    .collect();
                encode(self.wire.out(), &words);
            }
        }
    }
}

fn read(question: Question<'_>, frame: &[u8]) -> Answer {
    match (reply(frame), question) {
        (Reply::Error(error), _) => Err(Failure::Rejected((&*error).into())),
        (Reply::Text(text), Question::Counters(_) | Question::Facts(_)) => {
            Ok(Some(text.into_owned()))
        }
        (_, Question::Connections) if frame.starts_with(b"=") => Ok(verbatim(frame)),
        (_, Question::Setting(name)) if frame.starts_with(b"%") => Ok(entry(frame, name)),
        _ => Err(Failure::Rejected("a reply that makes no sense".into())),
    }
}

/// Returns a text that a server sends with its format. Long texts are not cut.
fn verbatim(frame: &[u8]) -> Option<String> {
    let text = ::redis::parse_redis_value(frame).ok()?;
    ::redis::from_redis_value_ref(&text).ok()
}

fn broken(error: WireError) -> Failure {
    Failure::Disconnected(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_its_kind_of_answer() {
        let (facts, setting) = (Question::Facts(&[]), Question::Setting("save"));
        let (connections, counters) = (Question::Connections, Question::Counters(["0", "1"]));
        let said = |text: &str| Ok(Some(text.to_owned()));
        let rejected = |error: &str| Err(Failure::Rejected(error.into()));
        let nonsense = || rejected("a reply that makes no sense");
        for (question, frame, expected) in [
            (facts, "$9\r\nrole:fine\r\n", said("role:fine")),
            (facts, "%0\r\n", nonsense()),
            (facts, "-NOPERM no\r\n", rejected("NOPERM no")),
            (connections, "=12\r\ntxt:id=1 a=b\r\n", said("id=1 a=b")),
            (connections, "+OK\r\n", nonsense()),
            (counters, "$1\r\n0\r\n", said("0")),
            (counters, "-NOPERM no\r\n", rejected("NOPERM no")),
            (setting, "%0\r\n", Ok(None)),
            (
                setting,
                "%1\r\n$4\r\nsave\r\n$5\r\n60 \r\n\r\n",
                said("60 \r\n"),
            ),
            (setting, "%1\r\n$4\r\nsave\r\n$0\r\n\r\n", said("")),
            (setting, "+OK\r\n", nonsense()),
            (setting, "-NOPERM no\r\n", rejected("NOPERM no")),
        ] {
            assert_eq!(read(question, frame.as_bytes()), expected, "{frame:?}");
        }
    }
}
