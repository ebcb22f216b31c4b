#!/usr/bin/env bash
# Builds the crate with each wrong rule of tests/mutants/, and checks that the simulator notices it.
#
# Usage: mutants.sh [NAME ..], where a NAME is that of a patch without .patch, or `today` for two of
# them, others every day.
#
# A wrong rule is noticed if a schedule breaks a rule of the simulator that the first paragraph of
# the patch names, and if the right code breaks no rule in this schedule.
set -euo pipefail
cd "$(dirname "$0")/.."

work="$PWD/target/mutants"
export CARGO_TARGET_DIR="$work/target"
# As ./dev sim, but each change builds only what it changed.
export CARGO_PROFILE_TEST_OPT_LEVEL=2 CARGO_INCREMENTAL=1
# In a part of another repository, git apply would change nothing.
export GIT_CEILING_DIRECTORIES="$work"

main() {
    all=(tests/mutants/*.patch)
    if [ "${1:-}" = today ]; then
        day=$((2 * ($(date +%s) / 86400)))
        set -- "${all[day % ${#all[@]}]}" "${all[(day + 1) % ${#all[@]}]}"
    elif [ $# = 0 ]; then
        set -- "${all[@]}"
    fi
    names=
    for name in "$@"; do
        name="$(basename "$name" .patch)"
        [ -e "tests/mutants/$name.patch" ] || die "there is no tests/mutants/$name.patch"
        names="$names $name"
    done
    # With the time of now, so that cargo builds what the last run has left changed.
    rm -rf "$work/copy"
    mkdir -p "$work/copy"
    tar -c --exclude ./target --exclude ./fuzz/target --exclude ./.git . | tar -x -m -C "$work/copy"
    program="$(build)" || die "the code does not build"
    cp "$program" "$work/right"
    missed=
    for name in $names; do
        judge "$name" || missed="$missed $name"
    done
    [ -z "$missed" ] || die "not noticed:$missed"
}

# Builds the crate with one wrong rule, and lets the simulator judge it.
judge() {
    patch="$PWD/tests/mutants/$1.patch"
    git -C "$work/copy" apply "$patch" || die "$1 does not apply"
    program="$(build)" || die "$1 does not build"
    began=$SECONDS
    found="$(first_broken "$program" 0 10000)"
    took="$((SECONDS - began)) s"
    git -C "$work/copy" apply -R "$patch"
    read -r seed rule <<<"$found"
    if [ -z "$seed" ]; then
        echo "$1: MISSED in 10,000 schedules, $took"
    elif ! sed '/^$/q' "$patch" | grep -q "\`$rule\`"; then
        echo "$1: MISSED: schedule $seed broke $rule, which the patch does not name"
    elif [ -n "$(first_broken "$work/right" "$seed" 1)" ]; then
        echo "$1: MISSED: the right code also breaks a rule in schedule $seed"
    else
        echo "$1: noticed by $rule after $((seed + 1)) schedules, $took"
        return
    fi
    return 1
}

# Prints the path of the program with the unit tests of the copy.
build() {
    cd "$work/copy"
    cargo test -p quorlock --all-features --lib --no-run 2>&1 | tee "$work/build" >&2 || return
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$work/build"
}

# Prints the first schedule in which a program broke a rule, and the rule.
first_broken() {
    SIM_FIRST="$2" SIM_COUNT="$3" SIM_STOP=1 \
        "$1" --exact sim::tests::no_rule_breaks_within_the_model --nocapture >"$work/run" 2>&1 &&
        return
    sed -n 's/^seeds broke rules: {\([0-9]*\): \([A-Za-z]*\).*/\1 \2/p' "$work/run"
}

die() {
    echo "mutants: $*" >&2
    exit 1
}

main "$@"
