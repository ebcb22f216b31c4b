//! The read-write lock, and the semaphore: a lock with a number of slots, each of which has one
//! holder.
//!
//! A client has claims, one after the other. A claim asks in rounds, each of which is an attempt
//! with a number of its own. At a semaphore, an attempt asks for one slot at most: some masters
//! choose, and the others are asked for a slot that one of them has chosen. If the lock is fenced,
//! an attempt may have a second round, with another candidate for the fencing token. A holder
//! extends the lock and puts it back where it is missing, again and again.
//!
//! Not modelled: calls of waiters and reports of changes, the check of the time in a ticket,
//! masters that fail for long, the queue of a semaphore, and fencing tokens of a read-write lock.

mod client;
mod model;
mod progress;
mod rounds;
mod sent;
mod steps;
mod tests;

use super::masters::Edit;

/// A rule of the clients or of the quarantine that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A token that did not win one slot asks for another one.
    ChangesSlot,
    /// A token that has asked for one slot asks for any in its next round.
    ChoosesAgain,
    /// Grants of different slots count together.
    CountsGrants,
    /// A token asks again, and the grants of its earlier rounds still count.
    KeepsVotes,
    /// A master that lost its data votes again at once.
    NoQuarantine,
    /// No rule is broken.
    Not,
    /// A reader asks for the write lock, and keeps its read lock meanwhile.
    UpgradeInPlace,
}

/// A break of a read-write lock deletes the key, with all holders.
const BREAK_DELETES_ALL: &[Edit] = &[(
    "shared/break",
    "    redis.call('HDEL', key, READER .. owner)\n",
    "    redis.call('DEL', key)\n",
)];

/// A break of a semaphore deletes the key, with all holders.
const BREAK_DELETES_SLOTS: &[Edit] = &[(
    "shared/break",
    "    if permit then\n      remove_permit(key, permit)\n",
    "    if permit then\n      redis.call('DEL', key)\n",
)];

/// A master only counts its readers, so that a release takes away any of them.
const COUNTED_READERS: &[Edit] = &[(
    "read_write/release",
    "  is_mine, frees_readers = remove_attempt(entries, ARGV[1], ARGV[2])\n",
    "  for _, entry in ipairs(not is_writer and all_entries(KEYS[1], now) or {}) do
    redis.call('HDEL', KEYS[1], entry.field)
    delete_if_free(KEYS[1])
    break
  end
  is_mine, frees_readers = remove_attempt(entries, ARGV[1], ARGV[2])\n",
)];

/// An extension puts an entry back where nothing is in its way, and counts.
const EXTENSION_REVIVES: &[Edit] = &[(
    "read_write/extend",
    "return #others > 0 and describe_entries(others, now, 0) or 0\n",
    "return #others > 0 and describe_entries(others, now, 0)
  or store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], now + tonumber(ARGV[4]), now)\n",
)];

/// A writer is put back where readers are.
const HEAL_BESIDE_READER: &[Edit] = &[(
    "read_write/acquire",
    "  elseif is_mine or is_writer or entry.is_writer then\n",
    "  elseif is_mine or is_writer and silent_waiter_timeout >= 0 or entry.is_writer then\n",
)];

/// A heal takes the slot of another holder.
const HEAL_TAKES_HELD: &[Edit] = &[(
    "semaphore/acquire",
    "  if not redis.call('HMGET', KEYS[1], SLOT .. ARGV[5])[1] then\n",
    "  if silent_waiter_timeout < 0 or not redis.call('HMGET', KEYS[1], SLOT .. ARGV[5])[1] then\n",
)];

/// A release also removes the entry of a later attempt.
const LATE_RELEASE: &[Edit] = &[(
    "read_write/",
    "    if entry.owner == owner and entry.attempt <= tonumber(attempt) then\n",
    "    if entry.owner == owner then\n",
)];

/// A reader passes writers that came first.
const NO_MARK: &[Edit] = &[(
    "read_write/acquire",
    "if is_free and not first and not reader then\n",
    "if is_free and (not is_writer or not first and not reader) then\n",
)];

/// An entry of an earlier attempt is taken over, past the queue.
const OLD_ENTRY_PASSES: &[Edit] = &[
    (
        "read_write/acquire",
        "  local is_same = is_mine and entry.attempt == attempt\n",
        "  local is_same = is_mine and entry.attempt <= attempt\n",
    ),
    (
        "read_write/acquire",
        "is_mine and (entry.attempt < attempt\n",
        "is_mine and (false\n",
    ),
];

/// A reader's extension puts its entry back beside a writer.
const REFRESH_BESIDE_WRITER: &[Edit] = &[(
    "read_write/extend",
    "local others = {}\nfor _, entry in ipairs(is_writer and",
    "if not is_writer then
  return store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], now + tonumber(ARGV[4]), now)
end
local others = {}\nfor _, entry in ipairs(is_writer and",
)];

/// A reader that asks to write keeps its entry, and is not in its own way.
const UPGRADE_IN_PLACE: &[Edit] = &[
    (
        "read_write/acquire",
        "is_mine and (entry.attempt < attempt\n",
        "is_mine and (false\n",
    ),
    (
        "read_write/acquire",
        "  elseif is_mine or is_writer or entry.is_writer then\n",
        "  elseif not is_mine and (is_writer or entry.is_writer) then\n",
    ),
];
