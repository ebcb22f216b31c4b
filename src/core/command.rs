//! The one table: what each verb sends to a master, and what the reply means.

use std::time::Duration;

use super::{
    lease::Ttl,
    name::{Resource, Token},
    quorum::{Failure, Refusal, Vote},
};

/// What is asked of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Acquire,
    Extend,
    Release,
}

impl Verb {
    /// Whether `vote` counts towards the majority that this verb needs.
    pub(crate) fn is_done(self, vote: &Vote) -> bool {
        match (self, vote) {
            (_, Vote::Grant) => true,
            (_, Vote::Fail(_)) => false,
            // Whoever's the key is now, it is not ours: released.
            (Self::Release, Vote::Refuse(_)) => true,
            (Self::Acquire | Self::Extend, Vote::Refuse(_)) => false,
        }
    }
}

/// A script that masters keep, from `lua/`.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
}

const EXTEND: Script = Script {
    text: include_str!("../../lua/mutex/extend.lua"),
};
const RELEASE: Script = Script {
    text: include_str!("../../lua/mutex/release.lua"),
};

/// Every script; a [`Request::Script`] names one by its place in this list.
pub(crate) const SCRIPTS: [Script; 2] = [EXTEND, RELEASE];

/// How a command goes to a server: a plain one word by word, or a script with its key and arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Plain(&'a [&'a [u8]]),
    Script {
        script: usize,
        key: &'a [u8],
        arguments: &'a [&'a [u8]],
    },
}

/// What a master replied, as far as any verb needs to tell replies apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// An error reply, whole, without the leading `-`.
    Error(&'a str),
    Int(i64),
    Nil,
    Ok,
    /// Something that no command of ours is answered with.
    Other,
}

/// One thing to do on one master, atomically there.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) verb: Verb,
    pub(crate) resource: Resource,
    pub(crate) token: Token,
    /// How long the key lives; of no meaning to a release.
    pub(crate) ttl: Ttl,
    /// Whether a release tells those who wait. What was never held need not be waited for.
    pub(crate) wakes: bool,
}

impl Command {
    /// Hands `send` the words for a server.
    pub(crate) fn request<T>(&self, send: impl FnOnce(Request<'_>) -> T) -> T {
        let (key, token) = (self.resource.key().as_bytes(), self.token.as_bytes());
        let mut digits = [0; 20];
        let ttl = decimal(self.ttl.millis(), &mut digits);
        match self.verb {
            Verb::Acquire => send(Request::Plain(&[b"SET", key, token, b"NX", b"PX", ttl])),
            Verb::Extend => send(Request::Script {
                script: 0,
                key,
                arguments: &[token, ttl],
            }),
            Verb::Release => send(Request::Script {
                script: 1,
                key,
                arguments: &[token, self.wake_channel().as_bytes()],
            }),
        }
    }

    /// Where a release is made known, or nothing.
    pub(crate) fn wake_channel(&self) -> &str {
        if self.wakes {
            self.resource.channel()
        } else {
            ""
        }
    }

    /// What a reply says about the lock. An error reply is no answer, whatever it says, but for
    /// WRONGTYPE: a lock of another kind is held under the name, and that is knowledge.
    pub(crate) fn vote(&self, reply: &Reply<'_>) -> Vote {
        let held = |remaining| Vote::Refuse(Refusal::Held { remaining });
        match (self.verb, reply) {
            (_, Reply::Error(text)) if is_wrong_type(text) => held(None),
            (_, Reply::Error(text)) => Vote::Fail(Failure::Rejected((*text).into())),
            (Verb::Acquire, Reply::Ok) => Vote::Grant,
            (Verb::Extend | Verb::Release, Reply::Int(1)) => Vote::Grant,
            (Verb::Extend | Verb::Release, Reply::Int(0)) => Vote::Refuse(Refusal::Gone),
            (Verb::Extend | Verb::Release, Reply::Int(left)) if *left < 0 => {
                held(Some(Duration::from_millis(left.unsigned_abs())))
            }
            (Verb::Acquire | Verb::Extend | Verb::Release, Reply::Nil) => held(None),
            (_, Reply::Int(_) | Reply::Ok | Reply::Other) => {
                Vote::Fail(Failure::Rejected("a reply that makes no sense".into()))
            }
        }
    }
}

/// Redis 6 wraps the errors of a script, so that the word is not always the first one.
fn is_wrong_type(error: &str) -> bool {
    error.starts_with("WRONGTYPE")
        || (error.starts_with("ERR Error running script") && error.contains(": WRONGTYPE "))
}

/// `number` in decimal, in the buffer it is given.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{lease::Drift, name::KeyTemplate};

    fn command(verb: Verb) -> Command {
        Command {
            verb,
            resource: KeyTemplate::parse("{name}")
                .unwrap()
                .resource("r".into())
                .unwrap(),
            token: Token::new([0; 20]),
            ttl: Ttl::parse(
                Duration::from_secs(10),
                Duration::ZERO,
                Drift::from_ppm(0).unwrap(),
            )
            .unwrap(),
            wakes: true,
        }
    }

    fn words(verb: Verb) -> String {
        command(verb).request(|request| match request {
            Request::Plain(words) => String::from_utf8(words.join(&b' ')).unwrap(),
            Request::Script {
                script,
                key,
                arguments,
            } => {
                let head = SCRIPTS[script].text.split(':').next().unwrap();
                let rest = [&[key], arguments].concat().join(&b' ');
                format!("[{head}] {}", String::from_utf8(rest).unwrap())
            }
        })
    }

    #[test]
    fn request_table() {
        let token = "0".repeat(40);
        for (verb, expected) in [
            (Verb::Acquire, format!("SET r {token} NX PX 10000")),
            (Verb::Extend, format!("[-- mutex/extend] r {token} 10000")),
            (
                Verb::Release,
                format!("[-- mutex/release] r {token} quorlock:wake:{{r}}"),
            ),
        ] {
            assert_eq!(words(verb), expected);
        }
    }

    #[test]
    fn vote_table() {
        use Verb::{Acquire, Extend, Release};
        let held = |remaining: Option<u64>| {
            Vote::Refuse(Refusal::Held {
                remaining: remaining.map(Duration::from_millis),
            })
        };
        let gone = || Vote::Refuse(Refusal::Gone);
        let rejected = |text: &str| Vote::Fail(Failure::Rejected(text.into()));
        let nonsense = || rejected("a reply that makes no sense");
        for (verb, reply, vote) in [
            (Acquire, Reply::Ok, Vote::Grant),
            (Acquire, Reply::Nil, held(None)),
            (Acquire, Reply::Int(1), nonsense()),
            (
                Acquire,
                Reply::Error("OOM command not allowed"),
                rejected("OOM command not allowed"),
            ),
            (Acquire, Reply::Error("WRONGTYPE Operation"), held(None)),
            (Extend, Reply::Int(1), Vote::Grant),
            (Extend, Reply::Int(0), gone()),
            (Extend, Reply::Int(-250), held(Some(250))),
            (Extend, Reply::Int(2), nonsense()),
            (Extend, Reply::Nil, held(None)),
            (Extend, Reply::Ok, nonsense()),
            (Release, Reply::Int(1), Vote::Grant),
            (Release, Reply::Int(0), gone()),
            (Release, Reply::Int(i64::MIN), held(Some(1 << 63))),
            (Release, Reply::Nil, held(None)),
            (
                Release,
                Reply::Error(
                    "ERR Error running script (call to f_1): @user_script:13: WRONGTYPE Op",
                ),
                held(None),
            ),
            (
                Release,
                Reply::Error("ERR no WRONGTYPE"),
                rejected("ERR no WRONGTYPE"),
            ),
            (Release, Reply::Error("READONLY"), rejected("READONLY")),
            (Release, Reply::Other, nonsense()),
        ] {
            assert_eq!(command(verb).vote(&reply), vote, "{verb:?} {reply:?}");
        }
    }

    #[test]
    fn an_error_is_never_a_refusal() {
        for text in [
            "OOM",
            "BUSY",
            "LOADING",
            "READONLY",
            "MISCONF",
            "NOREPLICAS",
            "NOAUTH",
            "NOPERM",
            "MASTERDOWN",
            "TRYAGAIN",
            "CLUSTERDOWN",
            "ERR",
            "",
        ] {
            for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
                assert!(matches!(
                    command(verb).vote(&Reply::Error(text)),
                    Vote::Fail(Failure::Rejected(_))
                ));
            }
        }
    }

    #[test]
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
