#!/bin/sh
# Installs the system packages that fanin needs and this machine lacks (as root), or prints how to (as anybody else).
# usage: system-packages.sh [PYTHON]     PYTHON: the interpreter that the virtual environment is made with
set -eu
python=${1:-python3}
PATH=$PATH:/usr/sbin:/sbin # where Debian keeps tc and ethtool, away from ordinary users

command -v "$python" >/dev/null || { echo "fanin needs Python 3.11 or newer; '$python' is not here" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "fanin needs Python 3.11 or newer; $("$python" --version) is too old (make PYTHON=python3.12 names another)" >&2
    exit 1
}

missing=
need() { # need PACKAGE COMMAND...: PACKAGE where COMMAND fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
compiles() { # a C program with the C library's headers
    printf '#include <stdint.h>\nint main(void) { return 0; }\n' | cc -x c -o /dev/null -
}
need mininet test -d /usr/lib/python3/dist-packages/mininet -a -x /usr/bin/mnexec
need ethtool command -v ethtool
need iproute2 command -v ip
need iproute2 command -v tc
need util-linux command -v unshare
need procps command -v sysctl
need gcc command -v cc
need libc6-dev compiles
need "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" \
    "$python" -c 'import ensurepip, venv'

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "fanin needs these packages (Debian's names):$missing" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "fanin needs system packages that are not installed. As root, type:" >&2
    echo "    apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
apt-get update -q
# shellcheck disable=SC2086  # a list of packages
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing || {
    # Without a network apt-get update only warns, and then no package is known.
    echo "fanin needs these packages, which apt-get has not installed:$missing. If apt-get could not reach its" \
        "archive (\"Failed to fetch\" above), run this again with a network" >&2
    exit 1
}
