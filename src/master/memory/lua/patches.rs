//! Changes that memory masters make to the scripts of `lua/`.

/// A change of a script.
struct Patch {
    is_on: fn() -> bool,
    replaced: &'static str,
    by: &'static str,
}

const PATCHES: [Patch; 18] = [
    // Keys and waiters expire by a clock that a test can pause. Tickets have the time of day.
    Patch {
        is_on: || true,
        replaced: "return math.floor(micros / 1000), micros",
        by: "return redis.call('MILLIS'), micros",
    },
    // So do quarantines. That clock starts at 0, which means `never` in an origin record.
    Patch {
        is_on: || true,
        replaced: "local now = math.floor((time[1] * 1000000 + time[2]) / 1000)",
        by: "local now = math.max(redis.call('MILLIS'), 1)",
    },
    Patch {
        is_on: || mutant!(CountsOnly),
        replaced: "if micros and (offered <",
        by: "if false and (offered <",
    },
    Patch {
        is_on: || mutant!(ExtensionTakes),
        replaced: "local holder = redis.call('GET', KEYS[1])\nif not holder then\n  return 0",
        by: "local holder = redis.call('GET', KEYS[1])\nif not holder then\n  \
             redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n  return 1",
    },
    Patch {
        is_on: || mutant!(FirstHeard),
        replaced: "redis.call('ZADD', queue, 0, ticket)",
        by: "redis.call('ZADD', queue, string.format('%.0f', now), ticket)",
    },
    Patch {
        is_on: || mutant!(HealIsStale),
        replaced: "if offered <= counter and width == 0 or",
        by: "if offered == counter and width == 0 or",
    },
    Patch {
        is_on: || mutant!(IgnoresQueue),
        replaced: "if is_free and (not head or head == ARGV[5]) then",
        by: "if is_free then",
    },
    Patch {
        is_on: || mutant!(LeavesNoReader),
        replaced: "  local reply = store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], ends, now)\n  \
                   if is_downgrade then",
        by: "  if is_downgrade then\n    return 1\n  end\n  \
             local reply = store_entry(is_writer, ARGV[1], ARGV[2], ARGV[3], ends, now)\n  \
             if is_downgrade then",
    },
    Patch {
        is_on: || mutant!(OldCandidates),
        replaced: "(offered < micros - width or offered >",
        by: "(offered >",
    },
    Patch {
        is_on: || mutant!(ReadersPassWriters),
        replaced: "if is_free and not first and not reader then",
        by: "if is_free and (not is_writer or not first and not reader) then",
    },
    Patch {
        is_on: || mutant!(ReleasesOthers),
        replaced: "if holder == ARGV[1] then\n  redis.call('DEL', KEYS[1])",
        by: "if holder then\n  redis.call('DEL', KEYS[1])",
    },
    Patch {
        is_on: || mutant!(ReplidIgnored),
        replaced: "elseif recorded_replid ~= replid then",
        by: "elseif false then",
    },
    Patch {
        is_on: || mutant!(RunIdIgnored),
        replaced: "if recorded ~= run_id then",
        by: "if false then",
    },
    Patch {
        is_on: || mutant!(SameCandidate),
        replaced: "if offered <= counter and width == 0 or offered == counter and is_mine then",
        by: "if offered <= counter and width == 0 or offered == counter then",
    },
    Patch {
        is_on: || mutant!(StrictTrusts),
        replaced: "if since == 0 and ARGV[1] == 'strict' then",
        by: "if false then",
    },
    Patch {
        is_on: || mutant!(TakesSlots),
        replaced: "if not redis.call('HMGET', KEYS[1], SLOT .. ARGV[6])[1] then",
        by: "if true then",
    },
    Patch {
        is_on: || mutant!(UpgradesInPlace),
        replaced: "is_alive(entry, now)\n      and (entry.is_writer or not is_writer) then",
        by: "is_alive(entry, now) then",
    },
    Patch {
        is_on: || mutant!(WritersPassReaders),
        replaced: "elseif is_mine or is_writer or entry.is_writer then",
        by: "elseif is_mine or entry.is_writer then",
    },
];

/// Returns a bit for each patch that is on.
pub(super) fn on() -> u32 {
    let on = PATCHES.iter().rev();
    on.fold(0, |bits, patch| bits << 1 | u32::from((patch.is_on)()))
}

/// Returns the text of a script with the patches that are on.
pub(super) fn patched(text: &str) -> String {
    let on = PATCHES.iter().filter(|patch| (patch.is_on)());
    on.fold(text.to_owned(), |text, patch| {
        text.replace(patch.replaced, patch.by)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{kind::table::fixture::scripts, protocol::script::ORIGIN};

    #[test]
    fn each_patch_finds_its_text() {
        let scripts = scripts().chain([&ORIGIN]);
        let scripts: Vec<_> = scripts.map(|script| script.text()).collect();
        for (patch, expected) in PATCHES
            .iter()
            .zip([16, 4, 5, 1, 16, 5, 1, 1, 5, 1, 2, 1, 1, 5, 1, 1, 1, 1])
        {
            let found = scripts
                .iter()
                .map(|text| text.matches(patch.replaced).count());
            let found: Vec<_> = found.filter(|count| *count > 0).collect();
            assert_eq!(found, vec![1; expected], "{}", patch.replaced);
        }
    }
}
