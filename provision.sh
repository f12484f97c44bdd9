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
# shellcheck source=/dev/null
. /etc/os-release

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
./system-packages.sh python3

# Slim kernels of cloud images keep some modules in another package.
for module in veth sch_htb cls_bpf; do
    if command -v modprobe >/dev/null && ! modprobe -q "$module"; then
        apt-get install -q -y --no-install-recommends "linux-modules-extra-$(uname -r)" ||
            echo "no package with the kernel's module $module; fanin doctor will tell whether it is missed"
        break
    fi
done

# Ubuntu 24.04 forbids user namespaces to ordinary users; with them fanin needs no sudo.
restriction=kernel.apparmor_restrict_unprivileged_userns
if [ -w "/proc/sys/$(echo $restriction | tr . /)" ]; then
    echo "$restriction = 0" >/etc/sysctl.d/60-fanin.conf
    sysctl -q -p /etc/sysctl.d/60-fanin.conf
fi

say "p4c and BMv2"
packages=
for package in p4lang-p4c p4lang-bmv2; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || packages="$packages $package"
done
add_p4lang() {
    repository=https://download.opensuse.org/repositories/home:/p4lang/xUbuntu_$VERSION_ID
    apt-get install -q -y --no-install-recommends curl gpg || return
    curl -fsSL "$repository/Release.key" -o /tmp/p4lang.key || return
    gpg --batch --yes --dearmor -o /usr/share/keyrings/p4lang.gpg /tmp/p4lang.key || return
    echo "deb [signed-by=/usr/share/keyrings/p4lang.gpg] $repository/ /" >/etc/apt/sources.list.d/p4lang.list
    # shellcheck disable=SC2086  # a list of packages
    apt-get update -q && apt-get install -q -y $packages
}
if [ -z "$packages" ]; then
    echo "installed"
elif [ "$ID" = ubuntu ] && [ "$(dpkg --print-architecture)" = amd64 ]; then
    add_p4lang || {
        rm -f /etc/apt/sources.list.d/p4lang.list # a repository without packages would break the next apt-get update
        echo "no packages of p4c and BMv2 for Ubuntu $VERSION_ID: fanin uses its own compiler and switch"
    }
else
    echo "no packages of p4c and BMv2 for $ID on $(dpkg --print-architecture): fanin uses its own compiler and switch"
fi

say "Virtual environment"
install -d -o "$user" "$home"
as_user() {
    if [ "$user" = root ]; then "$@"; else sudo -H -u "$user" "$@"; fi
}
as_user make setup VENV="$venv"
ln -sf "$venv/bin/fanin" /usr/local/bin/fanin

say "fanin doctor"
as_user fanin doctor
