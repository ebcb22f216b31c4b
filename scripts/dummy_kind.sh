#!/usr/bin/env bash
# Adds a kind of lock to a copy of the crate: rows in the tables of kinds and of their words, a module
# in src/core/kind/, and a folder in lua/. Checks that this is enough to build the crate, and to load, run, inspect and
# break locks of the kind on a server. Also checks that the build or a test fails while a part is
# missing.
set -eu
cd "$(dirname "$0")/.."

copy=target/dummy_kind
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
rm -rf "$copy"
mkdir -p "$copy"
# The whole workspace, so that its dependencies have the features with which they are built already.
cp -r Cargo.toml Cargo.lock README.md src lua docs examples \
    benches check cli memory recipes tests "$copy/"
# Another version, so that the binaries in the shared directory do not replace those of the crate.
find "$copy" -name Cargo.toml -exec sed -i 's/"0\.[01]\.0"/"0.2.0"/' {} +
for other in benches check recipes tests/interop; do : >"$copy/$other/src/lib.rs"; done
added="$PWD/tests/dummy_kind"
cd "$copy"

say() { echo "dummy_kind: $*"; }

# Runs a command that must fail, and whose output must contain the given text.
fails_with() {
    text="$1"
    shift
    if "$@" >log 2>&1; then
        say "passed, and must not: $*"
        exit 1
    fi
    if ! grep -qF -- "$text" log; then
        tail -n 40 log
        say "failed without saying '$text': $*"
        exit 1
    fi
}

tests() { cargo test --workspace --all-features --lib -- "$@"; }

# The first line with only this brace ends the table.
sed -i '0,/^        }$/s//            \/\/\/ A kind for a test.\n            Dummy => dummy,\n&/' \
    src/core/kind/mod.rs
sed -i 's/^pub(crate) mod fair;$/pub(crate) mod dummy;\n&/' src/core/kind/mod.rs
fails_with 'file not found for module `dummy`' tests
cp "$added/dummy.rs" src/core/kind/
fails_with 'lua/dummy/describe.lua' tests
mkdir lua/dummy
cp "$added"/lua/*.lua lua/dummy/
fails_with 'LockKind::Dummy, Verb::Acquire)' tests
sed -i "/^        match (self.lock_id.kind(), self.verb()) {$/r $added/table.txt" src/core/protocol/words.rs
rows=tests/conformance/rows/dummy.txt
fails_with "$rows" tests core::protocol::words
: >"$rows"
tests core::kind::companion core::protocol::words core::view --skip the_words_of_all_commands
fails_with 'each_script_has_a_row' tests each_script_has_a_row
cp "$added/rows.txt" "$rows"
cat "$added/test.rs" >>tests/conformance/rows.rs
tests conformance
fails_with 'dummy.txt' tests the_words_of_all_commands
say "rows, a module and a folder are enough"
