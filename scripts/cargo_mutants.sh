#!/usr/bin/env bash
# Changes the rules in src/core/ one by one, and checks that a unit test notices each change.
#
# Usage: cargo_mutants.sh [FILE], where FILE is a path such as src/core/vote/round.rs.
#
# The core needs neither a runtime nor the redis crate. So it is copied into a crate of its own,
# which builds in two seconds.
set -eu
cd "$(dirname "$0")/.."

crate=target/cargo-mutants
mkdir -p "$crate"
rm -rf "$crate/src" "$crate/lua" "$crate/tests" "$crate/mutants.out"
mkdir "$crate/src" "$crate/tests"
cp -r src/core "$crate/src/core"
cp -r lua "$crate/lua"
cp -r tests/golden "$crate/tests/golden" # the unit tests of src/core/protocol/ read it
cp Cargo.lock "$crate/Cargo.lock"
cat >"$crate/Cargo.toml" <<END
[package]
name = "quorlock-core"
version = "0.0.0"
edition = "2024"

[workspace]

[features]
default = ["test-util"]
test-util = []

[dependencies]
$(grep '^thiserror = ' Cargo.toml)

[dev-dependencies]
$(grep '^proptest = ' Cargo.toml)

[profile.dev]
debug = false

[profile.dev.package."*"]
opt-level = 2
END
printf '#![allow(dead_code, unused)]\nmod core;\n' >"$crate/src/lib.rs"
cd "$crate"

# Failures are not kept: an input that noticed one change would help to notice the next.
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
options="--in-place --no-shuffle --build-timeout 600"
if [ -n "${1:-}" ]; then options="$options --file $1"; fi

if [ -z "$(cargo mutants $options --list)" ]; then
    echo "cargo-mutants: nothing can be changed in ${1:-src/core}. Only files of src/core/ are changed." >&2
    exit 1
fi

# A change that makes the tests hang is noticed, too: cargo-mutants then ends with status 3.
run() {
    status=0
    cargo mutants $options "$@" || status=$?
    [ "$status" != 3 ] || status=0
}

# First without the tests that explore all schedules, which take many seconds.
run --timeout 40 -- --lib -- --skip explore
[ "$status" = 0 ] || [ "$status" = 2 ] || exit "$status"
[ "$status" = 0 ] || run --timeout 300 --iterate -- --lib
exit "$status"
