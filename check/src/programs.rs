//! The programs that are connected with a master, by the names of their connections, and the
//! findings about those that use other masters or settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use quorlock::tools::{ConnectionName, ListsId};

use crate::{
    facts::{Facts, Master},
    report::Finding,
    table::{
        APART, EARLIER_APART, EARLIER_LISTS, EARLIER_OLD, EARLIER_OLD_LIST, OTHER_CHANGE,
        OTHER_DATABASE, OTHER_LISTS, OTHER_MAX_TTL, OTHER_TEMPLATE, Row,
    },
};

/// The programs that are connected with one master, as the master shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MasterPrograms {
    /// The address of the master.
    pub master: Arc<str>,
    /// The programs, or the reason why the master does not show them.
    pub programs: Result<Vec<Program>, String>,
}

/// Programs with the same lists of masters, keys and longest TTL that have dialled a master. They
/// may be gone.
pub(crate) struct EarlierProgram {
    /// What the last of them says about itself.
    name: ConnectionName,
    /// The time since the first dial.
    first_dial: Duration,
    last_dial: Duration,
    /// The time since one of them was connected. One may have stayed for a minute more.
    seen: Duration,
}

impl EarlierProgram {
    pub(crate) fn parse(entry: &str) -> Option<Self> {
        let mut words = entry.split(' ');
        let mut age = || Some(Duration::from_millis(words.next()?.parse().ok()?));
        let (first_dial, last_dial, seen) = (age()?, age()?, age()?);
        Some(Self {
            name: ConnectionName::parse(words.next()?)?,
            first_dial,
            last_dial,
            seen,
        })
    }

    /// Returns a program that is connected, as one that came when its connection began: what it left
    /// may have been deleted since.
    fn here(program: &Program) -> Option<Self> {
        Some(Self {
            name: program.name.clone()?,
            first_dial: program.age,
            last_dial: program.age,
            seen: Duration::ZERO,
        })
    }

    /// Returns the name of the last program, and when it was there.
    fn shown(&self) -> String {
        format!("{} {} ago", self.name.who(), time(self.seen))
    }
}

/// The connections of one program with one master. Programs that say the same about themselves are
/// shown as one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// What the program says about itself. `None` if it says nothing: it is no program of
    /// `quorlock`, or one whose user may not name its connections.
    pub name: Option<ConnectionName>,
    /// The [client name](quorlock::Builder::client_name) of the program, if it has one. For a
    /// program that says nothing about itself, the name of the connection.
    pub client: Option<String>,
    /// The number of the database that these connections use.
    pub database: i64,
    /// The number of its connections with the master.
    pub connections: usize,
    /// The age of the oldest of these connections, in whole seconds.
    pub age: Duration,
}

/// The name of the connections of a check.
pub(crate) const CHECK: &str = "quorlock-check";

/// Returns the programs in the text of `CLIENT LIST`, without replicas, checks and connections that
/// have sent nothing. Also returns why programs may be missing: if our own connection has no name,
/// the same may be true for other programs. A connection that shows no database has our `database`.
pub(crate) fn read(text: &str, database: i64) -> (Vec<Program>, Option<String>) {
    let (mut programs, mut has_name) = (BTreeMap::<_, Program>::new(), false);
    for line in text.lines() {
        let field = |name: &str| {
            let mut words = line.split(' ');
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let name = field("name").unwrap_or_default();
        let is_servers = field("flags").is_some_and(|flags| flags.contains(['S', 'M']));
        has_name |= name == CHECK;
        // A new connection may have a name soon.
        if is_servers || field("cmd") == Some("NULL") || name == CHECK {
            continue;
        }
        let age = field("age").and_then(|age| age.parse().ok());
        let age = Duration::from_secs(age.unwrap_or_default());
        let used = field("db").and_then(|number| number.parse().ok());
        let used = used.unwrap_or(database);
        let program = programs
            .entry((name, used))
            .or_insert_with(|| Program::named(name, used));
        program.connections += 1;
        program.age = program.age.max(age);
    }
    let unnamed = "its user may not use CLIENT SETNAME".to_owned();
    (
        programs.into_values().collect(),
        (!has_name).then_some(unnamed),
    )
}

impl Program {
    /// Returns a program without connections. `text` is the name that its connections have.
    fn named(text: &str, database: i64) -> Self {
        let name = ConnectionName::parse(text);
        let client = match &name {
            Some(name) => name.client.clone(),
            None => (!text.is_empty()).then(|| text.to_owned()),
        };
        Self {
            name,
            client,
            database,
            connections: 0,
            age: Duration::ZERO,
        }
    }
}

/// The programs that are no surprise.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The name that a program with our settings has.
    pub(crate) ours: ConnectionName,
    /// Without quarantine, the longest TTL means nothing.
    pub(crate) has_quarantine: bool,
    /// Our lists, and those of programs before, during and after our change of the masters.
    pub(crate) lists: Vec<ListsId>,
    /// The lists before and after our change. Programs with one and programs with the other must
    /// not be connected at the same time.
    pub(crate) apart: Option<[ListsId; 2]>,
}

impl Expected {
    /// Returns whether a program with our keys also writes the origin key, as far as its name says.
    pub(crate) fn writes_origin_key(&self, program: &Program) -> bool {
        let name = program.name.as_ref();
        name.is_some_and(|name| {
            name.keys == self.ours.keys
                && name.max_ttl != ConnectionName::MAX_TTL_WITHOUT_QUARANTINE
        })
    }

    /// Returns whether a program with our keys has none of our lists.
    fn is_apart(&self, name: &ConnectionName) -> bool {
        self.lists.iter().all(|own| own.is_apart_from(name.lists))
    }

    /// Returns for how long locks may stay after a program.
    fn longest_ttl(&self, one: &EarlierProgram) -> Duration {
        self.ours.max_ttl.max(one.name.max_ttl)
    }

    /// Returns for how long a program counts as there after it was seen.
    fn stays(&self, one: &EarlierProgram) -> Duration {
        const HOUR: Duration = Duration::from_secs(3_600);
        self.longest_ttl(one).saturating_add(HOUR)
    }

    /// Returns how much of this time is left.
    fn recent_for(&self, one: &EarlierProgram) -> Duration {
        self.stays(one).saturating_sub(one.seen)
    }

    /// Returns the settings of a program that are a surprise, and what to call the program. With
    /// another key template, it shares no key with us, so the rest means nothing.
    fn surprises(&self, name: &ConnectionName, is_here: bool) -> Vec<(Row, String)> {
        let (who, max_ttl) = (name.who().to_owned(), name.max_ttl);
        if name.keys != self.ours.keys {
            return vec![(OTHER_TEMPLATE, who)];
        }
        let is_other_ttl = self.has_quarantine
            && ![
                self.ours.max_ttl,
                ConnectionName::MAX_TTL_WITHOUT_QUARANTINE,
            ]
            .contains(&max_ttl);
        let lists = match self.is_apart(name) {
            true => OTHER_LISTS,
            false => OTHER_CHANGE,
        };
        let lists = (!self.lists.contains(&name.lists)).then(|| (lists, who.clone()));
        let database = (!is_here).then(|| (OTHER_DATABASE, who.clone()));
        let max_ttl = is_other_ttl.then(|| (OTHER_MAX_TTL, format!("{who} with {max_ttl:?}")));
        [lists, database, max_ttl].into_iter().flatten().collect()
    }
}

/// Returns the findings about programs that may hold a lock at the same time as we do, or wait for
/// it in vain. We use this `database` of the master.
pub(crate) fn find(programs: &[Program], database: i64, expected: &Expected) -> Vec<Finding> {
    let surprises = programs.iter().filter_map(|program| {
        let is_here = program.database == database;
        Some(expected.surprises(program.name.as_ref()?, is_here))
    });
    let mut found = BTreeMap::<_, (Row, BTreeSet<String>)>::new();
    for (row, who) in surprises.flatten() {
        let (_, all) = found
            .entry((row.setting, row.why))
            .or_insert((row, BTreeSet::new()));
        all.insert(who);
    }
    let found = found.into_values();
    found.map(|(row, who)| row.with(in_short(&who))).collect()
}

/// Returns the finding about programs that have only the masters before our change, and programs
/// that have only the masters after it. The two may be connected with different masters.
pub(crate) fn apart(masters: &[Master], expected: &Expected) -> Option<Finding> {
    let facts = masters.iter().filter_map(Master::facts);
    let here = facts.flat_map(|facts| {
        let programs = facts.programs.iter();
        programs.filter(|one| one.database == facts.database)
    });
    let names = here.filter_map(|program| program.name.as_ref());
    let names: Vec<_> = names
        .filter(|name| name.keys == expected.ours.keys)
        .collect();
    let [old, new] = expected.apart?.map(|lists| {
        let its = names.iter().filter(|name| name.lists == lists);
        its.map(|name| name.who()).collect::<BTreeSet<_>>()
    });
    let value = || {
        let [old, new] = [&old, &new].map(in_short);
        APART.with(format!("{old} with the old list, {new} with the new one"))
    };
    (!old.is_empty() && !new.is_empty()).then(value)
}

/// Returns the findings about programs that are not connected with any master, and have lists that
/// are not, or must not be, in use.
pub(crate) fn earlier(masters: &[Master], expected: &Expected) -> Vec<Finding> {
    let facts = masters.iter().filter_map(Master::facts);
    let here = facts.clone().flat_map(|facts| &facts.programs);
    let here: Vec<_> = here.filter_map(EarlierProgram::here).collect();
    let is_ours = |one: &EarlierProgram| one.name.keys == expected.ours.keys;
    let earlier: Vec<_> = facts.flat_map(Facts::earlier).filter(is_ours).collect();
    let is_connected = |lists: ListsId| here.iter().any(|one| one.name.lists == lists);
    let is_recent = |one: &EarlierProgram| !expected.recent_for(one).is_zero();
    let is_old = |lists: ListsId| expected.apart.is_some_and(|[old, _]| old == lists);
    // The programs with the new list must not begin before those with the old one have ended.
    let is_early = |one: &EarlierProgram| {
        let is_new = |[old, new]: [ListsId; 2]| new == one.name.lists && is_connected(old);
        expected.apart.is_some_and(is_new) && is_recent(one)
    };
    let others = earlier
        .iter()
        .filter(|one| is_old(one.name.lists) || is_early(one) || expected.is_apart(&one.name));
    let ours = here.iter().filter(|one| is_ours(one)).chain(&earlier);
    let near = ours.filter(|one| !expected.is_apart(&one.name));
    // Programs that came before the first of those near us, or long after the last, are no danger
    // once their locks have ended: that was a change.
    let beside_for = |one: &EarlierProgram, other: &EarlierProgram| {
        let until = one.first_dial.saturating_add(expected.stays(one));
        let is_there = is_connected(other.name.lists) || other.seen <= until;
        let came = one.last_dial <= other.first_dial;
        match other.name.is_apart_from(&one.name) {
            _ if !is_there => Duration::ZERO,
            // Step 2 of a change may take long: what comes once a day comes again.
            false if came && is_old(one.name.lists) => WEEK.saturating_sub(one.seen),
            _ if came => expected.recent_for(one),
            true => expected.longest_ttl(one).saturating_sub(one.seen),
            false => Duration::ZERO,
        }
    };
    // For how long a finding stays, too.
    let rank = |one: &EarlierProgram| {
        let is_other = |other: &&EarlierProgram| other.name.lists != one.name.lists;
        let beside = near.clone().filter(is_other).map(|other| {
            let rank = 2 + usize::from(other.name.is_apart_from(&one.name));
            (rank, beside_for(one, other))
        });
        let least = if is_early(one) {
            3
        } else {
            is_old(one.name.lists).into()
        };
        let beside = beside.filter(|(_, left)| !left.is_zero());
        let all = beside.chain([(least, expected.recent_for(one))]);
        all.max().unwrap_or_default()
    };
    // Each master has its own entry.
    let mut found = BTreeMap::<_, ((usize, Duration), &EarlierProgram)>::new();
    for one in others.filter(|one| here.iter().all(|it| it.name != one.name)) {
        let lists = one.name.lists.to_string();
        let (worst, newest) = found.entry(lists).or_insert(((0, Duration::ZERO), one));
        *worst = rank(one).max(*worst);
        if one.seen < newest.seen {
            *newest = one;
        }
    }
    let rows = [EARLIER_LISTS, EARLIER_OLD_LIST, EARLIER_OLD, EARLIER_APART]
        .into_iter()
        .enumerate();
    let findings = rows.filter_map(|(rank, row)| {
        let of_row = found.values().filter(|((worst, _), _)| *worst == rank);
        let who: BTreeSet<_> = of_row.clone().map(|(_, one)| one.shown()).collect();
        let left = of_row.map(|((_, left), _)| *left).max()?;
        let until = match rank {
            0 | 1 => String::new(),
            _ => format!("; this ends in {} if none comes again", time(left)),
        };
        Some(row.with(in_short(&who) + &until))
    });
    findings.collect()
}

/// The time for which a master keeps what a program left.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes @ 1..120 => format!("{minutes} min"),
        minutes @ 120..2_880 => format!("{} h", minutes / 60),
        minutes => format!("{} days", minutes / 1_440),
    }
}

fn in_short(who: &BTreeSet<impl ToString>) -> String {
    const MOST: usize = 5;
    let mut texts: Vec<_> = who.iter().take(MOST).map(ToString::to_string).collect();
    if who.len() > MOST {
        texts.push(format!("{} more", who.len() - MOST));
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(lists: &str, key: &str, seconds: u64, client: &str) -> String {
        let lists = ListsId::of([lists], []);
        let client = (!client.is_empty()).then_some(client);
        ConnectionName::new(lists, key, Duration::from_secs(seconds), client).to_string()
    }

    #[test]
    fn connections_of_one_program_are_counted_together() {
        let [own, other] = [name("a:1", "k", 60, ""), name("b:1", "k", 60, "a:b")];
        let text = format!(
            "id=3 addr=127.0.0.1:1 name={own} age=0 idle=0 flags=t db=0\n\
             id=4 addr=127.0.0.1:2 name={other} age=7 flags=t\n\
             id=5 addr=127.0.0.1:3 name={other} age=90 flags=P\n\
             id=11 addr=127.0.0.1:9 name={other} age=5 flags=P db=3\n\
             id=6 addr=127.0.0.1:4 name= age=1 flags=N\n\
             id=7 addr=127.0.0.1:5 name=sidekiq age=1 flags=N\n\
             id=8 addr=127.0.0.1:6 name= age=1 flags=S\n\
             id=9 addr=127.0.0.1:7 name= age=0 flags=N cmd=NULL\n\
             id=10 addr=127.0.0.1:8 name=quorlock-check age=0 flags=N cmd=client\n"
        );
        let (mut programs, unseen) = read(&text, 0);
        assert_eq!(unseen, None);
        programs.sort_by_key(|program| program.client.clone());
        let found = programs.iter().map(|one| {
            let (client, age) = (one.client.as_deref(), one.age.as_secs());
            (
                one.name.is_some(),
                client,
                one.database,
                one.connections,
                age,
            )
        });
        let expected = [
            (false, None, 0, 1, 1),
            (true, None, 0, 1, 0),
            (true, Some("a:b"), 0, 2, 90),
            (true, Some("a:b"), 3, 1, 5),
            (false, Some("sidekiq"), 0, 1, 1),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn programs_with_other_masters_or_settings_are_found_if_they_use_our_keys() {
        let ours = ConnectionName::parse(&name("a:1", "k", 60, "us")).unwrap();
        let expected = Expected {
            lists: vec![ours.lists, ListsId::of(["b:1"], [])],
            has_quarantine: true,
            apart: None,
            ours,
        };
        let off = ConnectionName::MAX_TTL_WITHOUT_QUARANTINE.as_secs();
        // The masters, the key and the longest TTL of each program, and its client name.
        for (programs, expected_values) in [
            (&[][..], ""),
            (&[("a:1", "k", 60, "x"), ("b:1", "k", 60, "y")], ""),
            (&[("a:1", "k", off, "x")], ""),
            (
                &[
                    ("c:1", "k", 60, "x"),
                    ("c:1", "k", 60, ""),
                    ("d:1", "k", 60, "y"),
                ],
                "lists: a program without a client name, x, y\n",
            ),
            (&[("c:1", "other", 30, "x")], "key template: x\n"),
            (&[("c:1", "k", 30, "x")], "lists: x\nmax_ttl: x with 30s\n"),
            (
                &[("a:1", "k", 30, "x"), ("b:1", "k", 90, "y")],
                "max_ttl: x with 30s, y with 90s\n",
            ),
            (
                &["1", "2", "3", "4", "5", "6", "7"].map(|client| ("c:1", "k", 60, client)),
                "lists: 1, 2, 3, 4, 5, 2 more\n",
            ),
        ] {
            let names = programs.iter();
            let names = names.map(|(lists, key, max_ttl, who)| name(lists, key, *max_ttl, who));
            let names = names.chain(["redis-cli".to_owned()]);
            let programs: Vec<_> = names.map(|name| Program::named(&name, 0)).collect();
            let findings = find(&programs, 0, &expected);
            let findings = findings.iter();
            let values = findings.map(|one| format!("{}: {}\n", one.setting, one.value));
            assert_eq!(values.collect::<String>(), expected_values, "{programs:?}");
        }
    }
}
