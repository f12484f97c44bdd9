#!/bin/sh
# Installs p4lang's packages of BMv2 and p4c, as root, where they exist for this release; else prints what that costs.
# usage: p4lang-packages.sh [REPOSITORIES]     REPOSITORIES: the address that they are all below
#
# There are two, at the Open Build Service. "latest" comes first: of 2026, with the last releases of both, and tried
# from installation to tutorials on Ubuntu 22.04. The other is of 2023 (BMv2 1.15.0, p4c 1.2.4) and has no packages
# for newer releases. Both packages are taken from one of them, as they are built for one another, or from neither.
set -eu
repositories=${1:-https://download.opensuse.org/repositories}
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
list=/etc/apt/sources.list.d/p4lang.list
key=/usr/share/keyrings/p4lang.asc
# shellcheck source=/dev/null
. /etc/os-release
case $ID in
    ubuntu) release=xUbuntu_$VERSION_ID ;;
    *) release=Debian_${VERSION_ID:-unstable} ;;
esac

unreached=
fetch() { # fetch COMMAND...: with what it prints; a failure in which no server reports that there is no such file is the network's
    status=0
    said=$("$@" 2>&1) || status=$?
    printf '%s\n' "$said"
    case $status,$said in
        0,* | *'404 '* | *'File not found'*) ;;
        *) unreached=yes ;;
    esac
    return "$status"
}
works() { # they start, which takes the libraries that they were built with
    simple_switch_grpc --version >/dev/null 2>&1 && p4c-bm2-ss --version >/dev/null 2>&1
}
install_from() { # install_from ADDRESS
    fetch /usr/lib/apt/apt-helper -o Acquire::http::Timeout=60 download-file "$1/Release.key" "$key" || return
    chmod 644 "$key" # apt reads it as a user of its own
    echo "deb [signed-by=$key] $1/ /" >"$list"
    fetch apt-get update -q -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=- \
        -o APT::Get::List-Cleanup=0 || return
    apt-get install -q -y p4lang-bmv2 p4lang-p4c || return
    works && return
    apt-get purge -q -y p4lang-bmv2 p4lang-p4c
    return 1
}

if works; then
    echo "BMv2 and p4c are installed"
    exit 0
fi
for repository in home:/p4lang:/latest home:/p4lang; do
    if install_from "$repositories/$repository/$release"; then
        echo "BMv2 and p4c are installed, from $repository"
        exit 0
    fi
    rm -f "$list" "$key" # a repository without packages would break the next apt-get update
done
if [ -n "$unreached" ]; then
    why="$repositories cannot be reached"
    fix="./p4lang-packages.sh again, with a network"
else
    why="p4lang has no packages that work for ${PRETTY_NAME:-this release} on $(dpkg --print-architecture)"
    fix="Ubuntu 22.04 (vagrant up), or docs/reference/bmv2.md with a build"
fi
echo "BMv2 and p4c are not installed: $why. fanin has a switch and a compiler of its own; only fanin demo" \
    "--switch bmv2, --compiler p4c and fanin diff need them. What helps: $fix."
