//! The wrong rules that are changes of the scripts of `lua/`. A master that gets such a script runs
//! the changed one.

use std::{cell::RefCell, collections::HashMap};

use quorlock_memory::heart;

use super::commands::{Words, script_of};
use crate::{
    core::{kind::table::fixture::scripts, protocol::script::ORIGIN},
    mutants::Mutant,
};

/// A change of a script.
struct Patch {
    mutant: Mutant,
    replaced: &'static str,
    by: &'static str,
}

const PATCHES: [Patch; 16] = [
    Patch {
        mutant: Mutant::CountsOnly,
        replaced: "if micros and (offered <",
        by: "if false and (offered <",
    },
    Patch {
        mutant: Mutant::ExtensionTakes,
        replaced: "local holder = redis.call('GET', KEYS[1])\nif not holder then\n  return 0",
        by: "local holder = redis.call('GET', KEYS[1])\nif not holder then\n  \
             redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n  return 1",
    },
    Patch {
        mutant: Mutant::FirstHeard,
        replaced: "redis.call('ZADD', queue, 0, ticket)",
        by: "redis.call('ZADD', queue, string.format('%.0f', now), ticket)",
    },
    Patch {
        mutant: Mutant::HealIsStale,
        replaced: "if offered <= counter and width == 0 or",
        by: "if offered == counter and width == 0 or",
    },
    Patch {
        mutant: Mutant::IgnoresQueue,
        replaced: "if is_free and (not head or head == ARGV[5]) then",
        by: "if is_free then",
    },
    Patch {
        mutant: Mutant::LeavesNoReader,
        replaced: "  local reply = store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], ends, now)\n  \
                   if is_downgrade then",
        by: "  if is_downgrade then\n    return 1\n  end\n  \
             local reply = store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], ends, now)\n  \
             if is_downgrade then",
    },
    Patch {
        mutant: Mutant::OldCandidates,
        replaced: "(offered < micros - width or offered >",
        by: "(offered >",
    },
    Patch {
        mutant: Mutant::ReadersPassWriters,
        replaced: "if is_free and not first and not reader then",
        by: "if is_free and (not is_writer or not first and not reader) then",
    },
    Patch {
        mutant: Mutant::ReleasesOthers,
        replaced: "if holder == ARGV[1] then\n  redis.call('DEL', KEYS[1])",
        by: "if holder then\n  redis.call('DEL', KEYS[1])",
    },
    Patch {
        mutant: Mutant::ReplidIgnored,
        replaced: "elseif recorded_replid ~= replid then",
        by: "elseif false then",
    },
    Patch {
        mutant: Mutant::RunIdIgnored,
        replaced: "if recorded ~= run_id then",
        by: "if false then",
    },
    Patch {
        mutant: Mutant::SameCandidate,
        replaced: "if offered <= counter and width == 0 or offered == counter and is_mine then",
        by: "if offered <= counter and width == 0 or offered == counter then",
    },
    Patch {
        mutant: Mutant::StrictTrusts,
        replaced: "if since == 0 and ARGV[1] == 'strict' then",
        by: "if false then",
    },
    Patch {
        mutant: Mutant::TakesSlots,
        replaced: "if not redis.call('HMGET', KEYS[1], SLOT .. ARGV[6])[1] then",
        by: "if true then",
    },
    Patch {
        mutant: Mutant::UpgradesInPlace,
        replaced: "is_alive(entry, now)\n      and (entry.is_writer or not is_writer) then",
        by: "is_alive(entry, now) then",
    },
    Patch {
        mutant: Mutant::WritersPassReaders,
        replaced: "elseif is_mine or is_writer or entry.is_writer then",
        by: "elseif is_mine or entry.is_writer then",
    },
];

/// The texts and hashes of changed scripts, by the name of the script and what the patch replaces.
type Patched = HashMap<[&'static str; 2], [String; 2]>;

/// Passes a command to `run`, with the script that it has while a wrong rule is on.
pub(super) fn patched<T>(words: &Words<'_>, run: impl FnOnce(&Words<'_>) -> T) -> T {
    thread_local! {
        static PATCHED: RefCell<Patched> = RefCell::default();
    }
    let on = Mutant::is_any_on().then(|| PATCHES.iter().find(|patch| patch.mutant.is_on()));
    let (Some(patch), Some(script)) = (on.flatten(), script_of(words)) else {
        return run(words);
    };
    PATCHED.with_borrow_mut(|all| {
        let patched = all.entry([script.name, patch.replaced]).or_insert_with(|| {
            let text = script.text().replace(patch.replaced, patch.by);
            let hash = heart::Script::new(&text).hash().to_owned();
            [text, hash]
        });
        let [text, hash] = patched.each_ref().map(|part| part.as_bytes());
        let mut words = words.to_vec();
        words[1] = if words[0] == b"EVAL" { text } else { hash };
        run(&words)
    })
}

#[test]
fn each_patch_finds_its_text() {
    let scripts = scripts().chain([&ORIGIN]);
    let scripts: Vec<_> = scripts.map(|script| script.text()).collect();
    for (patch, expected) in PATCHES
        .iter()
        .zip([5, 1, 16, 5, 1, 1, 5, 1, 2, 1, 1, 5, 1, 1, 1, 1])
    {
        let found = scripts
            .iter()
            .map(|text| text.matches(patch.replaced).count());
        let found: Vec<_> = found.filter(|count| *count > 0).collect();
        assert_eq!(found, vec![1; expected], "{}", patch.replaced);
    }
}
