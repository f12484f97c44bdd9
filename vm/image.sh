#!/bin/sh
# Makes the disk image of a virtual machine from a distribution's packages, as root, and prints its folder:
# disk.ext4, vmlinuz and initrd.img. Made once, it is kept in ${XDG_CACHE_HOME:-~/.cache}/fanin/vm.
# usage: image.sh DISTRIBUTION KERNEL PIP     PIP: a pip that reaches the package index, with whatever settings it needs
#
# What takes only processor time is done here, at full speed: the system packages that system-packages.sh asks for
# and the virtual environment. In the virtual machine provision.sh finds both.
set -eu
distribution=$1 kernel=$2 pip=$3
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$here")
mirror=http://deb.debian.org/debian

fail() {
    echo "test-vm: $*" >&2
    exit 1
}

# Which suite the kernel comes from. One of an older release runs under a newer one's programs: Debian 11's own
# Python is 3.9, too old for fanin, and it is the kernel that is to be tried.
case $distribution-$kernel in
    bookworm-5.10) suite=bullseye ;;
    bookworm-6.1) suite=bookworm ;;
    bookworm-6.12) suite=bookworm-backports ;;
    trixie-6.12) suite=trixie ;;
    bullseye-*) fail "bullseye's Python is 3.9, and fanin needs 3.11: its kernel is KERNEL=5.10 DISTRIBUTION=bookworm" ;;
    *) fail "there is no kernel $kernel for $distribution; take KERNEL=5.10, 6.1 or 6.12 on bookworm, or 6.12 on trixie" ;;
esac
case $distribution in
    bookworm) python=3.11 ;;
    trixie) python=3.13 ;;
esac

key=$(cat "$0" "$tree/pyproject.toml" "$tree/system-packages.sh" | sha256sum | cut -c 1-12)
image=${XDG_CACHE_HOME:-$HOME/.cache}/fanin/vm/$distribution-$kernel-$key
if [ -d "$image" ]; then
    echo "$image"
    exit 0
fi

[ "$(id -u)" -eq 0 ] || fail "making the image of $distribution with kernel $kernel needs root, once: sudo make test-vm …"
for command in mmdebstrap mke2fs; do
    command -v "$command" >/dev/null || fail "$command is not installed: apt-get install mmdebstrap e2fsprogs"
done
umask 022
mkdir -p "$(dirname "$image")"
work=$(mktemp -d "$(dirname "$image")/making-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/image"

# pip of this machine, for the image's Python: the index is reached as this machine is set up for it.
echo "test-vm: fetching Python packages" >&2
(cd "$tree" && timeout 1200 "$pip" download --quiet --disable-pip-version-check --dest "$work/wheels" \
    --only-binary=:all: --python-version "$python" 'hatchling>=1.26' editables '.[test]') >&2

# The rest is done in the image, while it is a folder.
cat >"$work/prepare" <<'END'
set -eu
cd "$1"
cp -r "$2/wheels" wheels
mkdir project
cp "$3/pyproject.toml" "$3/system-packages.sh" "$3/Makefile" "$3/README.md" "$3/LICENSE" project
for package in controller experiments fanin p4compiler p4src p4switch topologies workers; do
    mkdir "project/$package" # enough for an editable installation, which only points here
done
echo fanin >etc/hostname
echo '127.0.0.1 localhost fanin' >etc/hosts
echo 'fanin ALL=(ALL) NOPASSWD: ALL' >etc/sudoers.d/fanin
cp "$3/vm/fanin-test.service" etc/systemd/system
chroot . sh -eu <<'INSIDE'
useradd --create-home --shell /bin/bash fanin
mv project /home/fanin/fanin
chown -R fanin: /home/fanin
systemctl -q enable fanin-test.service
cd /home/fanin/fanin
./system-packages.sh python3
install -d -o fanin /opt/fanin
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
sudo -H -u fanin --preserve-env=PIP_NO_INDEX,PIP_FIND_LINKS make setup VENV=/opt/fanin/venv
apt-get clean
INSIDE
rm -r wheels home/fanin/fanin
END

echo "test-vm: making an image of $distribution with kernel $kernel" >&2
sources="deb $mirror $distribution main"
[ "$suite" = "$distribution" ] || sources="$sources
deb $mirror $suite main"
packages=systemd-sysv,udev,dbus,kmod,zstd,sudo,python3,make,ca-certificates,linux-image-amd64/$suite
echo "$sources" | timeout 1800 mmdebstrap --quiet --variant=minbase --mode=root --include="$packages" \
    --customize-hook="sh '$work/prepare' \"\$1\" '$work' '$tree'" "$distribution" "$work/root" - >&2

cp "$work"/root/boot/vmlinuz-"$kernel"* "$work/image/vmlinuz"
cp "$work"/root/boot/initrd.img-"$kernel"* "$work/image/initrd.img"
mke2fs -q -t ext4 -d "$work/root" "$work/image/disk.ext4" 8G
mv "$work/image" "$image"
echo "$image"
