#!/bin/sh
# Runs the tests of the workers, the switch's engine, STF and what compiles C on Debian 12 for arm64, with qemu-user, as
# root: every process of it is translated, and the kernel is this machine's. Networks it cannot have: qemu-user knows
# no packet sockets. The root file system is made once and kept in ${XDG_CACHE_HOME:-~/.cache}/fanin/vm.
# usage: test-arm64.sh PIP [OPTION OF PYTEST…]     PIP: a pip that reaches the package index
set -eu
pip=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$here")

fail() {
    echo "test-arm64: $*" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || fail "a root file system is made and entered by root: sudo make test-arm64"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is not installed: apt-get install mmdebstrap"
if [ "$(uname -m)" != aarch64 ] && [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    fail "this kernel does not run programs for arm64: apt-get install qemu-user-static, then systemctl restart systemd-binfmt"
fi

key=$(cat "$0" "$tree/pyproject.toml" | sha256sum | cut -c 1-12)
image=${XDG_CACHE_HOME:-$HOME/.cache}/fanin/vm/bookworm-arm64-$key.tar
work=$(mktemp -d)
trap 'umount -R "$work/root/proc" "$work/root/dev" 2>/dev/null; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

if [ ! -f "$image" ]; then
    mirror=$("$here/mirror.sh")
    mkdir -p "$(dirname "$image")"
    echo "test-arm64: fetching Python packages" >&2
    platforms=
    for glibc in 2014 _2_17 _2_26 _2_27 _2_28 _2_34; do
        platforms="$platforms --platform manylinux${glibc}_aarch64"
    done
    # shellcheck disable=SC2086  # a list of options
    (cd "$tree" && "$pip" download --quiet --disable-pip-version-check --dest "$work/wheels" --only-binary=:all: \
        --python-version 3.11 $platforms 'hatchling>=1.26' editables '.[test]') >&2
    echo "test-arm64: making a root file system" >&2
    # shellcheck disable=SC2016  # $1 is the hook's
    unshare --mount mmdebstrap --quiet --format=tar --variant=minbase --mode=root --architectures=arm64 \
        --include=python3,python3-venv,gcc,libc6-dev,ca-certificates,util-linux,iproute2,procps \
        --customize-hook="cp -r '$work/wheels' \"\$1/wheels\"" \
        --customize-hook='chroot "$1" python3 -m venv /venv' \
        --customize-hook='chroot "$1" sh -c "/venv/bin/pip install --quiet --no-index --disable-pip-version-check --no-deps /wheels/*.whl"' \
        --customize-hook='rm -r "$1/wheels"' \
        bookworm "$image.new" "deb $mirror bookworm main" >&2
    mv "$image.new" "$image"
fi

# qemu-user lets a process have more memory than it may.
unlimited="tests/native/test_toolchain.py::test_memory_and_output_are_limited[MAX_MEMORY-16777216]"
mkdir -p "$work/root"
tar -C "$work/root" -xf "$image"
mkdir "$work/root/fanin"
(cd "$tree" && git ls-files -z --cached --others --exclude-standard |
    tar --null -T - --ignore-failed-read -cf - ) | tar -C "$work/root/fanin" -xf -
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
mount --make-rslave "$work/root/dev"
chroot "$work/root" env -i HOME=/root LC_ALL=C.UTF-8 PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin FANIN_PATIENCE=10 \
    PYTHONPATH=/fanin sh -eu -c 'uname -m; cd /fanin; exec python -m pytest -p no:cacheprovider -o faulthandler_timeout=6000 "$@"' sh \
    -n logical -m "not live and not slow" --deselect "$unlimited" \
    tests/native tests/workers tests/p4switch/engine tests/p4switch/stf "$@"
