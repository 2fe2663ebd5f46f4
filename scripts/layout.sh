# SPDX-License-Identifier: MIT OR Apache-2.0
# Sourced by scripts/install and scripts/uninstall: the directories of installed files.
# shellcheck shell=bash
# shellcheck disable=SC2034 # each of the two uses some of them

DESTDIR=${DESTDIR:+$(realpath -m -- "$DESTDIR")}
PREFIX=${PREFIX:-/usr/local}
[[ $PREFIX == /* ]] || die "PREFIX=$PREFIX is not an absolute path."
PREFIX=${PREFIX%/}

BINDIR=$PREFIX/bin
SBINDIR=$PREFIX/sbin
# Programs that other programs start, and users do not. The PAM module looks there under /usr and under /usr/local.
LIBEXECDIR=$PREFIX/libexec/roster
DATADIR=$PREFIX/share
# systemd looks under /usr and under /usr/local.
SYSTEMDDIR=$PREFIX/lib/systemd
SYSUSERSDIR=$PREFIX/lib/sysusers.d
TMPFILESDIR=$PREFIX/lib/tmpfiles.d
# AppArmor and the module use these two with any prefix.
SYSCONFDIR=/etc
STATEDIR=/var/lib/roster
MANIFEST=$DATADIR/roster/manifest

# The directory of the module: under the prefix, by the name of glibc's own directory here (lib/x86_64-linux-gnu on
# Debian, lib64 on Fedora, lib on Arch).
module_folder() {
	if [ -n "${LIBDIR:-}" ]; then
		echo "${LIBDIR%/}"
		return
	fi
	local name
	name=$(ldd "$PROGRAM" | sed -nE 's:.*=> (/usr)?/(lib[^ ]*)/libc\.so\.6 .*:\2:p')
	[ -n "$name" ] || die "cannot tell where this system keeps its libraries: say LIBDIR=/absolute/folder."
	echo "$PREFIX/$name"
}

# Debian's zsh reads another directory than the other distributions' zsh.
zsh_folder() {
	if [ -e /etc/debian_version ] && [ "$PREFIX" = /usr ]; then
		echo "$DATADIR/zsh/vendor-completions"
	else
		echo "$DATADIR/zsh/site-functions"
	fi
}
