//! Commands about the connection that sends them.

use super::{arity, is, unknown_subcommand, whole};
use crate::heart::{
    database::{Answer, Error, SYNTAX, Words},
    reply::Reply,
    server::{Server, Tracking},
};

pub(super) fn hello(server: &mut Server, number: u64, words: Words<'_>) -> Answer {
    let mut is_resp3 = server.connection(number).is_resp3;
    if let Some(version) = words.get(1) {
        let version = whole(version);
        let version = version
            .map_err(|_| Error::from("ERR Protocol version is not an integer or out of range"))?;
        is_resp3 = match version {
            2 => false,
            3 => true,
            _ => return Err("NOPROTO unsupported protocol version".into()),
        };
    }
    let mut options = words.iter().skip(2);
    let mut name = None;
    while let Some(option) = options.next() {
        if is(option, "AUTH")
            && let (Some(user), Some(password)) = (options.next(), options.next())
        {
            server.log_in(number, user, password)?;
        } else if is(option, "SETNAME")
            && let Some(named) = options.next()
        {
            name = Some(name_of(named)?);
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
        }
    }
    if !server.connection(number).is_logged_in {
        let how = "otherwise the HELLO <proto> AUTH <user> <pass> option can be used to \
                   authenticate the client and select the RESP protocol version at the same time";
        let error = "NOAUTH HELLO must be called with the client already authenticated";
        return Err(format!("{error}, {how}").into());
    }
    let connection = server.connection(number);
    connection.is_resp3 = is_resp3;
    if let Some(name) = name {
        connection.name = name;
    }
    let text = |name: &str, value: &str| (Reply::bulk(name), Reply::bulk(value));
    let count = |name: &str, value: Reply| (Reply::bulk(name), value);
    Ok(Reply::Map(vec![
        text("server", "redis"),
        text("version", server.about().number()),
        count("proto", Reply::Int(if is_resp3 { 3 } else { 2 })),
        count("id", Reply::count(number as usize)),
        text("mode", "standalone"),
        text("role", "master"),
        count("modules", Reply::Array(Vec::new())),
    ]))
}

pub(super) fn auth(server: &mut Server, number: u64, words: Words<'_>) -> Answer {
    match words {
        [_, password] if server.demands_login() => server.log_in(number, b"default", password)?,
        [_, _] => {
            return Err(
                "ERR AUTH <password> called without any password configured for the \
                        default user. Are you sure your configuration is correct?"
                    .into(),
            );
        }
        [_, user, password] => server.log_in(number, user, password)?,
        _ => return Err(SYNTAX),
    }
    Ok(Reply::ok())
}

pub(super) fn select(server: &mut Server, number: u64, words: Words<'_>) -> Answer {
    let index = whole(words[1])?;
    let index = u32::try_from(index).ok().filter(|index| *index < 16);
    server.connection(number).database = index.ok_or("ERR DB index is out of range")?;
    Ok(Reply::ok())
}

pub(super) fn quit(server: &mut Server, number: u64, _words: Words<'_>) -> Answer {
    server.connection(number).is_ending = true;
    Ok(Reply::ok())
}

pub(super) fn subscribe(server: &mut Server, number: u64, words: Words<'_>) -> Answer {
    let mut last = Reply::Nil;
    for channel in &words[1..] {
        if last != Reply::Nil {
            server.send(number, &last);
        }
        let count = server.listen(number, channel, true);
        last = confirmation("subscribe", Reply::bulk(channel), count);
    }
    Ok(last)
}

pub(super) fn unsubscribe(server: &mut Server, number: u64, words: Words<'_>) -> Answer {
    let all = server.channels_of(number);
    let channels: Vec<_> = match words {
        [_] => all.iter().map(Vec::as_slice).collect(),
        [_, channels @ ..] => channels.to_vec(),
        [] => Vec::new(),
    };
    let mut last = confirmation("unsubscribe", Reply::Nil, 0);
    for (at, channel) in channels.into_iter().enumerate() {
        if at > 0 {
            server.send(number, &last);
        }
        let count = server.listen(number, channel, false);
        last = confirmation("unsubscribe", Reply::bulk(channel), count);
    }
    Ok(last)
}

fn confirmation(what: &str, channel: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(what), channel, Reply::count(count)])
}

pub(super) fn client(server: &mut Server, number: u64, words: Words<'_>) -> Answer {
    let arguments = &words[2..];
    let sub = String::from_utf8_lossy(words[1]).to_uppercase();
    match (sub.as_str(), arguments) {
        ("ID", []) => Ok(Reply::count(number as usize)),
        ("INFO", []) => Ok(Reply::Verbatim(server.describe(number))),
        ("GETNAME", []) => match &server.connection(number).name {
            name if name.is_empty() => Ok(Reply::Nil),
            name => Ok(Reply::bulk(name)),
        },
        ("SETNAME", [name]) => {
            server.connection(number).name = name_of(name)?;
            Ok(Reply::ok())
        }
        ("SETINFO", [_, _]) | ("NO-EVICT" | "NO-TOUCH", [_]) => Ok(Reply::ok()),
        ("TRACKING", [switch, options @ ..]) => track(server, number, switch, options),
        ("CACHING", [answer]) => {
            let connection = server.connection(number);
            if !matches!(connection.tracking, Tracking::OptIn { .. }) {
                return Err(
                    "ERR CLIENT CACHING can be called only when the client is in tracking \
                            mode with OPTIN or OPTOUT mode enabled"
                        .into(),
                );
            }
            let is_next = is(answer, "YES");
            if !is_next {
                return Err(match is(answer, "NO") {
                    true => {
                        "ERR CLIENT CACHING NO is only valid when tracking is enabled in \
                             OPTOUT mode."
                    }
                    false => "ERR syntax error",
                }
                .into());
            }
            connection.tracking = Tracking::OptIn { is_next };
            Ok(Reply::ok())
        }
        ("LIST", _) => {
            let lines: String = server.numbers().map(|one| server.describe(one)).collect();
            Ok(Reply::Verbatim(lines))
        }
        ("KILL", arguments) => kill(server, number, arguments),
        (
            "ID" | "INFO" | "GETNAME" | "SETNAME" | "SETINFO" | "NO-EVICT" | "NO-TOUCH"
            | "TRACKING" | "CACHING",
            _,
        ) => Err(arity(&format!("client|{sub}"))),
        _ => Err(unknown_subcommand("CLIENT", words[1])),
    }
}

fn track(server: &mut Server, number: u64, switch: &[u8], options: Words<'_>) -> Answer {
    let is_opt_in = options.iter().any(|option| is(option, "OPTIN"));
    if !options.iter().all(|option| is(option, "OPTIN")) {
        return Err("ERR a server in memory tracks keys with OPTIN or without options".into());
    }
    let tracking = match (is(switch, "ON"), is(switch, "OFF")) {
        (true, _) if is_opt_in => Tracking::OptIn { is_next: false },
        (true, _) => Tracking::All,
        (_, true) => Tracking::Off,
        _ => return Err(SYNTAX),
    };
    server.connection(number).tracking = tracking;
    server.forget_tracked(number);
    Ok(Reply::ok())
}

/// Closes the connection with an `ID`, or all others of a `TYPE`.
fn kill(server: &mut Server, number: u64, filter: Words<'_>) -> Answer {
    let victims: Vec<u64> = match filter {
        [id, victim] if is(id, "ID") => {
            let victim = whole(victim)
                .ok()
                .and_then(|victim| u64::try_from(victim).ok());
            let victim = victim.ok_or("ERR client-id should be greater than 0")?;
            server.numbers().filter(|one| *one == victim).collect()
        }
        [of_type, wanted] if is(of_type, "TYPE") => {
            let wants_listeners = is(wanted, "PUBSUB");
            if !wants_listeners && !is(wanted, "NORMAL") {
                let wanted = String::from_utf8_lossy(wanted);
                return Err(format!("ERR Unknown client type '{wanted}'").into());
            }
            let others = server.numbers().filter(|one| *one != number);
            let is_wanted = |one: &u64| server.channels_of(*one).is_empty() != wants_listeners;
            others.filter(is_wanted).collect()
        }
        _ => return Err(SYNTAX),
    };
    for victim in &victims {
        if *victim == number {
            server.connection(number).is_ending = true;
        } else {
            server.cut(*victim);
        }
    }
    Ok(Reply::count(victims.len()))
}

fn name_of(name: &[u8]) -> Answer<String> {
    if !name.iter().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "ERR Client names cannot contain spaces, newlines or special characters.".into(),
        );
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}
