#!/bin/sh
# Makes the disk image of a virtual machine from a distribution's packages, as root, and prints its folder: disk.ext4,
# and for each VERSION a kernel and its initial RAM disk, vmlinuz-VERSION and initrd.img-VERSION, and the same version as
# a program, user-mode Linux, in uml-VERSION.
# Made once, it is kept in ${XDG_CACHE_HOME:-~/.cache}/fanin/vm.
# usage: image.sh DISTRIBUTION KERNEL PIP     KERNEL: one that is wanted   PIP: a pip that reaches the package index, with whatever settings it needs
#
# What takes only processor time is done here, at full speed: the system packages that system-packages.sh asks for
# and the virtual environment. In the virtual machine provision.sh finds both; and, in /wheels, what pip needs, for there is
# no network.
set -eu
distribution=$1 kernel=$2 pip=$3
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$here")

fail() {
    echo "test-vm: $*" >&2
    exit 1
}

mirror=$("$here/mirror.sh")

# The suites whose kernels it gets. Debian 11's runs under Debian 12's programs: its own Python is too old for fanin.
# Backports have no user-mode Linux.
case $distribution in
    bookworm)
        python=3.11 kernels="5.10 6.1 6.12"
        suites="bullseye bookworm bookworm-backports" uml_suites="bullseye bookworm trixie"
        ;;
    trixie) python=3.13 kernels=6.12 suites=trixie uml_suites=trixie ;;
    bullseye) fail "bullseye's Python is 3.9, and fanin needs 3.11; its kernel: KERNEL=5.10 DISTRIBUTION=bookworm" ;;
    *) fail "there is no image of $distribution; take DISTRIBUTION=bookworm or trixie" ;;
esac
case " $kernels " in
    *" $kernel "*) ;;
    *) fail "no kernel $kernel for $distribution; there is $kernels" ;;
esac

key=$(cat "$0" "$here/fanin-test.service" "$tree/pyproject.toml" "$tree/system-packages.sh" | sha256sum | cut -c 1-12)
image=${XDG_CACHE_HOME:-$HOME/.cache}/fanin/vm/$distribution-$key
if [ -d "$image" ]; then
    echo "$image"
    exit 0
fi

[ "$(id -u)" -eq 0 ] || fail "making the image of $distribution needs root, once: sudo vm/image.sh $distribution $kernel $pip"
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
printf '[global]\nno-index = true\nfind-links = /wheels\n' >etc/pip.conf
mkdir project
cp "$3/pyproject.toml" "$3/system-packages.sh" "$3/Makefile" "$3/README.md" "$3/LICENSE" project
for package in controller experiments fanin native p4compiler p4src p4switch scenarios topologies workers; do
    mkdir "project/$package" # enough for an editable installation, which only points here
    touch "project/$package/__init__.py"
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
sudo -H -u fanin make setup VENV=/opt/fanin/venv
INSIDE
for suite in $4; do
    DEBIAN_FRONTEND=noninteractive chroot . \
        apt-get install -q -y --no-install-recommends --allow-downgrades "linux-image-amd64/$suite"
done
# User-mode Linux runs on this machine, with its own suite's loader and C library: this machine's may be older.
for suite in $5; do
    mkdir "$2/uml"
    (cd "$2/uml" && chroot "$1" sh -eu -c "cd /tmp; apt-get download -q user-mode-linux/$suite libc6/$suite" &&
        for package in "$1"/tmp/*.deb; do dpkg-deb -x "$package" .; done)
    rm tmp/*.deb
    cp -r "$2"/uml/usr/lib/uml/modules/* lib/modules
    version=$(ls "$2/uml/usr/lib/uml/modules")
    kernel=$2/image/uml-${version%.*}
    mkdir -p "$kernel/lib64"
    find "$2/uml" -regex '.*/lib/x86_64-linux-gnu/[^/]*' ! -type d -exec cp -P {} "$kernel/lib64" ';'
    # A loader's path that is relative, and as long, so that nothing moves in the program.
    sed 's,/lib64/ld-linux,lib64//ld-linux,' "$2/uml/usr/bin/linux.uml" >"$kernel/linux.uml"
    chmod 755 "$kernel/linux.uml"
    rm -r "$2/uml"
done
chroot . apt-get clean
rm -r home/fanin/fanin
END

echo "test-vm: making an image of $distribution" >&2
packages=systemd-sysv,udev,dbus,kmod,zstd,sudo,python3,make,ca-certificates,initramfs-tools
{
    echo "deb $mirror $distribution main"
    for suite in $suites $uml_suites; do
        [ "$suite" = "$distribution" ] || echo "deb $mirror $suite main"
    done
} | sort -u | timeout 3600 unshare --mount mmdebstrap --quiet --variant=minbase --mode=root --include="$packages" \
    --aptopt="APT::Default-Release \"$distribution\"" \
    --customize-hook="sh '$work/prepare' \"\$1\" '$work' '$tree' '$suites' '$uml_suites'" "$distribution" "$work/root" - >&2

for kernel in "$work"/root/boot/vmlinuz-*; do
    release=${kernel##*/vmlinuz-}
    version=$(echo "$release" | cut -d . -f 1,2 | cut -d + -f 1)
    cp "$kernel" "$work/image/vmlinuz-$version"
    cp "$work/root/boot/initrd.img-$release" "$work/image/initrd.img-$version"
done
mke2fs -q -t ext4 -L fanin -d "$work/root" "$work/image/disk.ext4" 8G >&2
mv "$work/image" "$image"
echo "$image"
