#!/bin/sh
# Makes a Debian or Ubuntu machine ready for fanin, as root; run again, it only adds what is missing.
# usage: provision.sh [FOLDER]     FOLDER: the project's; by default that of this script
# The virtual environment goes to /opt/fanin, not into the project, which may be a folder shared with another machine.
set -eu
cd "${1:-$(dirname "$0")}"
user=${SUDO_USER:-root}
home=/opt/fanin
venv=$home/venv
export DEBIAN_FRONTEND=noninteractive

say() { printf '\n== %s\n' "$*"; }

say "System packages"
missing=
for package in make python3 ca-certificates; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    apt-get update -q
    # shellcheck disable=SC2086  # a list of packages
    apt-get install -q -y --no-install-recommends $missing
fi
# Ubuntu 22.04's own Python is 3.10; it also has 3.11.
python=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python=python3.11
    command -v $python >/dev/null ||
        { apt-get update -q && apt-get install -q -y --no-install-recommends $python; }
fi
./system-packages.sh $python

# Slim kernels of cloud images keep some modules in another package.
for module in veth sch_htb cls_bpf; do
    if command -v modprobe >/dev/null && ! modprobe -q "$module"; then
        apt-get install -q -y --no-install-recommends "linux-modules-extra-$(uname -r)" ||
            echo "the package with the kernel's module $module was not installed, for the reason above; fanin doctor" \
                "tells whether it is needed"
        break
    fi
done

# Ubuntu 24.04 forbids user namespaces to ordinary users; with them fanin needs no sudo.
restriction=kernel.apparmor_restrict_unprivileged_userns
if [ -w "/proc/sys/$(echo $restriction | tr . /)" ]; then
    echo "$restriction = 0" >/etc/sysctl.d/60-fanin.conf
    sysctl -q -p /etc/sysctl.d/60-fanin.conf
fi

say "Virtual environment"
install -d -o "$user" "$home"
as_user() {
    if [ "$user" = root ]; then "$@"; else sudo -H -u "$user" "$@"; fi
}
as_user make setup VENV="$venv" PYTHON=$python
[ "$(readlink /usr/local/bin/fanin)" = "$venv/bin/fanin" ] || ln -sf "$venv/bin/fanin" /usr/local/bin/fanin

say "BMv2 and p4c"
./p4lang-packages.sh

say "fanin doctor"
as_user fanin doctor
