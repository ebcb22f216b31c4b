//! What `--help` and the manual page say about settings, and after the arguments.

use clap::Arg;
use quorlock::tools::SETTINGS;

/// Gives an option without a text that of the setting with its name. `-h` shows the first sentence.
pub(crate) fn of_table(option: Arg) -> Arg {
    let id = option.get_id().clone();
    let row = SETTINGS.iter().find(|[_, key, ..]| id == *key);
    let Some([_, _, kind, text]) = row.filter(|_| option.get_help().is_none()) else {
        return option;
    };
    let text = text.trim_end_matches('.');
    let (short, _) = text.split_once(". ").unwrap_or((text, ""));
    let long = text.replacen(". ", ".\n\n", 1);
    option.value_name(*kind).help(short).long_help(long)
}

pub(crate) const AFTER: &str = "\
Exit status: 0 success, 64 wrong arguments, 69 no majority of masters, 71 the system refused \
something, 74 output could not be written, 75 another holder has the lock, 76 the lock was lost, \
78 a setting that cannot be used. `quorlock man | man -l -` shows all statuses, variables and files.";

pub(crate) const RUN: &str = "\
Exit status: the status of CMD, or 128+n if signal n ended CMD. If signal n ends the wait for the \
lock, the status is 128+n, too. Otherwise 64 wrong arguments, 69 no majority of masters, 71 no \
more processes, 75 another holder has the lock, 76 the lock was lost while CMD ran, or was gone \
before --attach, 78 wrong configuration, 126 CMD cannot be executed, 127 CMD was not found.

Environment of CMD: QUORLOCK_LOCK is the name of the lock; several names are on a line each. \
QUORLOCK_VOTES, such as 2/3, counts the votes when CMD starts: a majority is enough, and the others \
may come later. QUORLOCK_VALID_UNTIL_MS is the time until which the lock is valid if it is never \
renewed, in milliseconds since 1970. Each renewal moves this time, but the variable stays as it is. With --fence, \
QUORLOCK_FENCING_TOKEN is the fencing token. With --permits N, QUORLOCK_SLOT is a number from 0 to \
N-1 that no other holder has at the same time. CMD inherits all other variables, also \
QUORLOCK_PASSWORD.

CMD gets the signals HUP, INT, QUIT, TERM, USR1 and USR2. If the lock is lost, or about to end \
without a renewal, CMD gets TERM. It gets KILL after the time of --kill-after, and a little before \
the end of the lock at the latest. CMD is also killed if quorlock itself is killed or hangs. \
If CMD leaves processes in the background, they go on without the lock.

Each call is a new process, to which a master that has lost all its data looks new. Unless \
--quarantine is strict, such a master votes at once, so if a majority loses its data, a second \
holder may get a lock that --min-hold left, or that is renewed a moment later. With --quarantine \
strict it has no vote for --max-ttl, and neither has a master that is really new: a first use then \
takes a minute, and -n needs --ready. Use the same --quarantine in all programs.

While CMD runs, each outage and its end are reported once on stderr, unless --quiet is given: a lock \
that is in doubt, because no majority has renewed it, and masters that are down or have no vote. \
Even with --quiet, a lost lock is reported, and a release that no majority confirmed. After such a \
release, the lock ends with its TTL, even if --min-hold is longer, and the status is that of CMD.";

pub(crate) const HOLD: &str = "\
The line is `held NAME votes=2/3`, with ` token=7` after it for --fence, and then ` slot=0` for \
--permits. The votes are those so far: a majority is enough, and the others may come later.

Exit status: 0 a signal or the end of the input ended the hold, and the lock was released. If signal n ends the wait for \
the lock, the status is 128+n. Otherwise 64 wrong arguments, 69 no majority of masters, 74 the \
line could not be written, 75 another holder has the lock, 76 the lock was lost, 78 wrong \
configuration.";

pub(crate) const ACQUIRE: &str = "\
Exit status: 0 the lock is held, and the handle is written. If signal n ends the wait for the lock, \
the status is 128+n. Otherwise 64 wrong arguments, 69 no majority of masters, 74 the handle could \
not be written, and the lock was released, 75 another holder has the lock, 76 the lock was lost, \
78 wrong configuration, such as a --ttl above --max-ttl.";

pub(crate) const RELEASE: &str = "\
Exit status: 0 the lock was released, 64 the file has no handle, 69 too few masters answered, 76 \
the lock is not held any more, 78 the lock belongs to other masters or another key template. The \
handle can be used again after 69 and 78.";

pub(crate) const STATUS: &str = "\
A program that holds a lock may have waited for it since it started. Programs renew their locks \
after a third of the TTL: status waits for that, for up to 4 s, and shows what it saw last; with --now, it does not \
wait. A renewed lock shows that the program that renews it is alive. With `quorlock run`, that is quorlock: CMD may \
hang. A lock that is not renewed in time ends soon: its program has ended or stands still, or never renews.

Without a name, status looks once, and lists the locks of quorlock, not those of other libraries. The masters go \
through all keys of the database, for up to 10 s, and at most 1,000 locks are shown. A lock that is free is left out, \
although a few masters may still have it. A value of 40 hexadecimal digits with a TTL counts as a lock, whatever it is. \
The list needs the rights +scan, +type, +getrange, +hmget and +pttl.

Exit status: 0 free, 75 held or split, 69 no majority of masters answered or can vote, 78 \
the same, until someone changes a setting, such as the login or a right. With several names, the worst counts: 69 or \
78, then 75, then 0. Without a name: 0 the list is complete, 1 it was cut short, 69 and 78 as above.";

pub(crate) const DOCTOR: &str = "\
Exit status, by the worst finding: 0 none or info, 1 unknown, 2 warn, 3 critical.";

pub(crate) const PLAN: &str = "\
Run it before each step. It writes nothing but the key that shows a restart. Masters show which \
programs are connected, and which masters those use. That needs the rights +client|list and \
+client|setname, and +scan for the counters of fencing tokens.

Exit status: 0 the step that is shown can be taken now, 1 wait: old programs still run, or not \
all can be seen, so make sure yourself that none is left, 3 the step is not safe.";

pub(crate) const BREAK: &str = "\
Exit status: 0 a majority of masters is free of that holder, 64 nobody confirmed, or WHO is no \
holder, 69 too few masters answered, 75 a newer holder has the lock, 78 the key is not a lock, or \
has no TTL.";
