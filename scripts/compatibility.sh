#!/usr/bin/env bash
# Runs the tests that need real servers on each version that ./dev servers has fetched, and on
# masters of different versions. Writes docs/compatibility.md. ./dev servers --test runs this
# script.
set -eu
cd "$(dirname "$0")/.."

wanted="$1"
bin="${QUORLOCK_TEST_SERVERS:-$PWD/target/servers/bin}"
work="$PWD/target/servers/compatibility"
page=docs/compatibility.md

main() {
    rm -rf "$work"
    mkdir -p "$work/none"
    found=
    for name in $wanted; do
        if [ -x "$bin/$name" ]; then found="$found $name"; fi
    done
    [ -n "$found" ] || { echo "no version is there: ./dev servers fetches them" >&2; exit 1; }
    write_mixed
    cargo test --all-features --no-run --lib --test redis
    failures=
    for name in $wanted; do
        if [ -x "$bin/$name" ]; then
            # Tests that start several versions run once, on the mixed quorum.
            run "$name" "$bin/$name" "$work/none"
        else
            row "$name" "-" "**absent**" "-" "-"
        fi
    done
    run "one of each" "$work/mixed" "$bin"
    write_page
    cat "$page"
    [ -z "$failures" ]
}

# Writes a program that starts the version that the port decides. The masters of a test have
# neighbouring ports. Its --version names all versions.
write_mixed() {
    # shellcheck disable=SC2086 # one word for each version
    set -- ${found/ redis-6.2/}
    {
        echo '#!/bin/sh'
        echo 'if [ "$1" = --version ]; then'
        printf '    "%s" --version\n' "${@/#/$bin/}"
        echo '    exit'
        echo 'fi'
        echo "case \$((\$2 % $#)) in"
        at=0
        for name in "$@"; do
            printf '%s) exec "%s" "$@" ;;\n' "$at" "$bin/$name"
            at=$((at + 1))
        done
        echo 'esac'
    } >"$work/mixed"
    chmod +x "$work/mixed"
}

# Runs the tests with a server program, and adds a row to the table.
run() {
    log="$work/${1// /-}.log"
    printf '\n==> %s\n' "$1"
    : >"$log"
    for tests in "-p quorlock --lib conformance" "-p quorlock-tests --test redis"; do
        # shellcheck disable=SC2086 # several words
        QUORLOCK_TEST_SERVER="$2" QUORLOCK_TEST_SERVERS="$3" \
            cargo test --all-features --no-fail-fast $tests >>"$log" 2>&1 || true
        tail -n 4 "$log"
    done
    passed="$(sum passed)"
    failed="$(sum failed)"
    # A run that did not end has no result.
    [ "$(grep -c '^test result' "$log")" = 2 ] || failed="**did not end**"
    left_out="$(grep '^SKIPPED' "$log" | grep -vc 'is missing (./dev servers)')" || true
    version="$("$2" --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p' | paste -sd / - | sed 's|/|, |g')"
    row "$1" "$version" "$passed" "$failed" "$left_out"
    if [ "$failed" != 0 ]; then
        failures="$failures $1"
        grep -E '^test .* FAILED$' "$log" | sed "s/^test \(.*\) \.\.\. FAILED/- $1: \1/" >>"$work/failed"
    fi
}

# Adds up one of the numbers in the results.
sum() {
    sed -n "s/^test result:.* \([0-9]*\) $1;.*/\1/p" "$log" | awk "{ all += \$1 } END { print all + 0 }"
}

row() {
    printf '| %s | %s | %s | %s | %s |\n' "$@" >>"$work/rows"
}

write_page() {
    verdict="No test failed, so locks work on each of these versions, and on masters of different versions."
    if [ -e "$work/failed" ]; then verdict="Some tests failed. They are listed below."; fi
    cat >"$page" <<END
# Servers

$verdict

\`./dev servers --test\` fetches server programs, runs the tests that need real masters on each of them, and writes this
page. The last row mixes the versions: the port of a master decides its version.

| server | version | passed | failed | left out |
|---|---|---|---|---|
$(cat "$work/rows")

- A test is left out, and counts as passed, if the servers cannot do what it tests. Some tests need version 7, TLS, or a
  replica of the same version. The last row uses no server before version 7, and no replicas.
- A server marked **absent** could not be fetched. \`./dev servers\` says why.
END
    if [ -e "$work/failed" ]; then
        printf '\nFailed:\n\n' >>"$page"
        cat "$work/failed" >>"$page"
    fi
}

main
