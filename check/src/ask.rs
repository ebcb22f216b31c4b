//! Asks one master, over connections of the check's own.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use quorlock::{
    MasterSpec,
    tools::{ExampleKey, ServerError},
};
use redis::{Pipeline, Value, pipe};

use crate::{
    CheckSettings,
    cure::{after, said},
    facts::{CLOCK_WINDOW, Facts},
    link::{Answer, Link, map, text, wall_micros},
    programs,
    report::Finding,
    rules::ORIGIN,
    table::{EVAL, NO_EVAL, NOT_NOW},
};

/// The settings to ask for. Each setting has its own `CONFIG GET`, because a pattern would also
/// return passwords, and only Redis 7 and later take several names at once.
const SETTINGS: [&str; 4] = [
    "active-replica",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "timeout",
];
const FACTS: &str = include_str!("../lua/check.lua");
const COUNTERS: &str = include_str!("../lua/counters.lua");
/// A script that only tries whether the user may use its key, whatever commands the user may use.
const KEY: &str = "return 0";
/// A script that no server has.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// Asks one master for everything. If the masters are changed (`is_change`), also asks for its
/// counters. To find them, it looks at all keys.
pub(crate) async fn ask(
    master: &MasterSpec,
    keys: &[ExampleKey],
    shared: &CheckSettings,
    is_change: bool,
) -> Result<Facts, Finding> {
    let mut link = Link::open(master, shared).await?;
    let sent = wall_micros();
    let answers = link.ask(&questions(keys)).await?;
    let mut facts = read(&answers, keys, master.database(), [sent, wall_micros()])?;
    match is_one_of_several(master, shared, &facts).await {
        Ok(is_it) => facts.is_one_of_several = is_it,
        Err(why) => facts.uncompared = Some(why.value),
    }
    if is_change {
        facts.counters = Some(counters(&mut link).await);
    }
    Ok(facts)
}

fn questions(keys: &[ExampleKey]) -> Pipeline {
    let mut questions = pipe();
    questions.cmd("CLIENT").arg("LIST");
    questions.cmd("EVALSHA").arg(NO_SCRIPT).arg(0);
    // The names of keys are arguments, not `KEYS`: in a cluster, these keys are on several servers.
    let facts = questions.cmd("EVAL").arg(FACTS).arg(0);
    facts.arg(&keys[0].key).arg(&keys[1].key);
    // With its key, so that a part of a cluster says if it does not have the key.
    for (_, key) in tried(keys) {
        questions.cmd("EVAL").arg(KEY).arg(1).arg(key);
    }
    for setting in SETTINGS {
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    questions
        .cmd("CLIENT")
        .arg("TRACKING")
        .arg("ON")
        .arg("OPTIN");
    questions.cmd("CLIENT").arg("CACHING").arg("YES");
    questions
}

/// Returns the keys that are tried, with their purposes.
fn tried(keys: &[ExampleKey]) -> impl Iterator<Item = (&str, &str)> {
    let companions = keys[1..].iter().map(|key| (key.purpose, &*key.key));
    [("key", &*keys[0].key), ("origin_key", ORIGIN)]
        .into_iter()
        .chain(companions)
}

/// Reads the answers to `questions`. Our wall clock showed `times` before and after them.
fn read(
    answers: &[Answer],
    keys: &[ExampleKey],
    database: i64,
    [sent, received]: [u64; 2],
) -> Result<Facts, Finding> {
    let [list, evalsha, facts, rest @ ..] = answers else {
        return Err(NOT_NOW.with("answered too little"));
    };
    let facts = facts.as_ref().map_err(|error| refused(error))?;
    let mut facts = Facts::parse(&text(facts), sent, received);
    facts.database = database;
    (facts.programs, facts.unseen) = match list {
        Ok(list) => programs::read(&text(list), database),
        Err(why) => (Vec::new(), Some(said(why))),
    };
    facts.evalsha = evalsha.as_ref().err().and_then(|error| {
        let is_denied = ServerError::of(error).is_denial();
        is_denied.then(|| said(error))
    });
    let (tries, rest) = rest.split_at(keys.len() + 1);
    for ((purpose, _), answer) in tried(keys).zip(tries) {
        if let Err(error) = answer {
            facts.add(&format!("try.{purpose}"), error.clone());
        }
    }
    let (settings, tracking) = rest.split_at(SETTINGS.len());
    for (setting, answer) in SETTINGS.iter().zip(settings) {
        match answer.as_ref().map(|value| map(value).remove(*setting)) {
            Ok(value) => value
                .into_iter()
                .for_each(|value| facts.add(setting, value)),
            Err(why) => facts.withheld = Some(said(why)),
        }
    }
    facts.untracked = tracking
        .iter()
        .find_map(|answer| Some(said(answer.as_ref().err()?)));
    Ok(facts)
}

/// Returns the finding about a server that answers, but does not run the script.
fn refused(error: &str) -> Finding {
    let row = match ServerError::of(error).is_denial() {
        true => EVAL,
        false => NOT_NOW,
    };
    after(row, &said(error), NO_EVAL)
}

/// Opens further connections to the address of a master, and returns whether one of them met
/// another server. Fails with the reason if that is unknown: perhaps the master takes no more
/// connections.
async fn is_one_of_several(
    master: &MasterSpec,
    shared: &CheckSettings,
    facts: &Facts,
) -> Result<bool, Finding> {
    /// The number of further connections. A balancer that chooses between two servers at random is
    /// found in 15 of 16 checks.
    const MORE: usize = 4;
    let Some(ours) = facts.get("run_id") else {
        return Ok(false); // the missing run id is a finding of its own
    };
    let met = join_all((0..MORE).map(|_| async {
        let mut link = Link::open(master, shared).await?;
        let answers = link.ask(pipe().cmd("INFO").arg("server")).await?;
        let info = answers.into_iter().next().unwrap_or(Ok(Value::Nil));
        let info = text(&info.map_err(|error| NOT_NOW.with(said(&error)))?);
        Ok(Facts::parse(&info, 0, 0).get("run_id") != Some(ours))
    }));
    let met = met.await;
    if met.contains(&Ok(true)) {
        return Ok(true);
    }
    met.into_iter().find(Result::is_err).unwrap_or(Ok(false))
}

/// Looks at all counters of a master. Returns those that are too far ahead, or why the master shows
/// none.
async fn counters(link: &mut Link) -> Result<BTreeMap<String, Duration>, String> {
    /// The most calls, for a server whose cursor never ends.
    const MOST: usize = 1_000_000;
    let window = CLOCK_WINDOW.as_micros().to_string();
    let (mut cursor, mut ahead) = ("0".to_owned(), BTreeMap::new());
    for _ in 0..MOST {
        let mut question = pipe();
        question
            .cmd("EVAL")
            .arg(COUNTERS)
            .arg(0)
            .arg(&cursor)
            .arg(&window);
        let answers = link.ask(&question).await.map_err(|finding| finding.value)?;
        let page = answers.into_iter().next().unwrap_or(Ok(Value::Nil));
        let page = text(&page.map_err(|error| said(&error))?);
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
    Err("more keys than can be looked at".to_owned())
}
