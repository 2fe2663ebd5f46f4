#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Checks of the modules and programs in a root of an old release, with the files of $BUILD. Prints a line for each check:
# `ok NAME`, or `failed NAME: REASON`. An extracted root has no accounts and no nsswitch.conf; the script writes both.
#
# usage: BUILD=DIR inside.sh lookups|programs|login …

ok() { echo "ok $1"; }
failed() { echo "failed $1: $2"; }

# same NAME EXPECTED FOUND: two files that have to be equal.
same() {
	if [ -s "$2" ] && cmp -s "$2" "$3"; then
		ok "$1"
	else
		failed "$1" "$(diff "$2" "$3" 2>&1 | head -n 3 | tr '\n' ' ')"
	fi
}

# The service of both databases.
use() {
	printf 'passwd: %s\ngroup: %s\ninitgroups: %s\n' "$1" "$1" "$1" >/etc/nsswitch.conf
}

snapshot=/var/lib/roster/snap/roster.v3.snap

publish() {
	cp "$1" "$snapshot.new"
	chown 0:0 "$snapshot.new"
	chmod 644 "$snapshot.new"
	mv -f "$snapshot.new" "$snapshot"
}

set_up() {
	for libc in /usr/lib/*-linux-gnu*/libc.so.6 /lib/*-linux-gnu*/libc.so.6; do
		[ ! -e "$libc" ] || libraries=${libc%/*}
	done
	mkdir -p /var/lib/roster/snap /etc/pam.d /tmp "$libraries/security"
	cp "$BUILD/libnss_roster.so.2" "$libraries/"
	cp "$BUILD/pam_roster.so" "$libraries/security/"
	chown -R 0:0 /var/lib/roster
	chmod 755 /var/lib/roster /var/lib/roster/snap
}

# Replies of the present service for the sample.
replies() {
	sed -n 's/:.*//p' "$BUILD/sample.users" | while read -r name; do
		id "$name"
		getent passwd "$name"
	done
	sed -n 's/^[^:]*:[^:]*:\([0-9]*\):.*/\1/p' "$BUILD/sample.groups" | while read -r gid; do getent group "$gid"; done
}

lookups() {
	cat "$BUILD/corpus/passwd" >/etc/passwd
	cat "$BUILD/corpus/group" >/etc/group
	use files
	replies >/tmp/files.txt 2>&1
	echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd
	echo 'root:x:0:' >/etc/group
	publish "$BUILD/corpus.snap"
	use roster
	replies >/tmp/roster.txt 2>&1
	same lookups /tmp/files.txt /tmp/roster.txt
	# Lists are compared with the text: `files` of glibc before 2.28 loses an entry where a long line meets the end of its
	# buffer.
	getent passwd >/tmp/passwd.txt
	same users "$BUILD/corpus/passwd" /tmp/passwd.txt
	getent group >/tmp/group.txt
	same groups "$BUILD/corpus/group" /tmp/group.txt

	# A program that runs sees the next snapshot.
	use 'files roster'
	new=$(sed -n '1s/:.*//p' "$BUILD/second/passwd")
	if perl -e '
		die "found before its publication\n" if getpwnam($ARGV[0]);
		rename($ARGV[1], $ARGV[2]) or die "rename: $!\n";
		for (1 .. 1200) { exit 0 if getpwnam($ARGV[0]); select(undef, undef, undef, 0.05); }
		die "not found within 60 s\n"' "$new" "$(put_second)" "$snapshot" 2>/tmp/switch.txt; then
		ok replacement
	else
		failed replacement "$(cat /tmp/switch.txt)"
	fi

	# A damaged file: an error, and local accounts stay.
	head -c 1000 "$BUILD/corpus.snap" >/tmp/damaged.snap
	publish /tmp/damaged.snap
	getent passwd "$new" >/tmp/damaged.txt 2>&1
	status=$?
	if [ $status -eq 2 ] && getent passwd root >/dev/null; then
		ok damage
	else
		failed damage "getent exits with $status: $(cat /tmp/damaged.txt)"
	fi
	rm -f "$snapshot"
}

# The name of a file with the second snapshot, beside the published one.
put_second() {
	cp "$BUILD/second.snap" "$snapshot.second"
	chown 0:0 "$snapshot.second"
	chmod 644 "$snapshot.second"
	echo "$snapshot.second"
}

# The PAM module loads with all symbols bound. Without rosterd it answers so.
pam_module() {
	if ! command -v pamtester >/dev/null; then
		echo "skipped pam: the root has no pamtester"
		return
	fi
	# The stack of an extracted root includes files that its packages write at their configuration.
	printf 'auth required pam_deny.so\naccount required pam_deny.so\n' >/etc/pam.d/other
	printf 'auth required pam_roster.so nodelay\naccount required pam_roster.so\n' >/etc/pam.d/alone
	echo wrong | pamtester alone nobody authenticate >/tmp/pam.txt 2>&1
	if grep -q 'Authentication service cannot retrieve authentication info' /tmp/pam.txt; then
		ok pam
	else
		failed pam "$(tail -n 1 /tmp/pam.txt)"
	fi
}

# The programs start, and compile and verify a snapshot.
programs() {
	for program in roster rosterd roster-rootwrap roster-rootwrap-daemon roster-lab; do
		"$BUILD/$program" --version >/tmp/version.txt 2>&1 || failed "$program" "$(head -n 1 /tmp/version.txt)"
	done
	# It has no such option, and says so if it starts.
	"$BUILD/roster-krb5" >/tmp/version.txt 2>&1
	grep -q 'RST-' /tmp/version.txt || failed roster-krb5 "$(head -n 1 /tmp/version.txt)"
	"$BUILD/roster" compile --passwd "$BUILD/corpus/passwd" --group "$BUILD/corpus/group" --output /tmp/here.snap \
		>/tmp/compile.txt 2>&1
	if "$BUILD/roster" verify /tmp/here.snap >>/tmp/compile.txt 2>&1; then
		ok programs
	else
		failed programs "$(tail -n 1 /tmp/compile.txt)"
	fi
}

# Servers of this script, to end.
servers=

wait_for() {
	tries=0
	until "$@" >/tmp/wait.txt 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 600 ] || return 1
		sleep 0.1
	done
}

start_slapd() {
	mkdir -p /tmp/ldap /run/slapd
	cat >/tmp/slapd.conf <<-CONF
		include /etc/ldap/schema/core.schema
		include /etc/ldap/schema/cosine.schema
		include /etc/ldap/schema/nis.schema
		modulepath /usr/lib/ldap
		moduleload back_mdb
		moduleload syncprov
		database mdb
		suffix dc=lab,dc=test
		rootdn cn=admin,dc=lab,dc=test
		rootpw secret
		directory /tmp/ldap
		index entryUUID,entryCSN eq
		overlay syncprov
	CONF
	slapadd -q -f /tmp/slapd.conf <<-LDIF
		dn: dc=lab,dc=test
		objectClass: domain
		dc: lab

		dn: uid=alice,dc=lab,dc=test
		objectClass: account
		objectClass: posixAccount
		uid: alice
		cn: Alice
		uidNumber: 20000
		gidNumber: 20000
		homeDirectory: /home/alice
		loginShell: /bin/sh
		userPassword: correct horse

		dn: cn=lab,dc=lab,dc=test
		objectClass: posixGroup
		cn: lab
		gidNumber: 20000
		memberUid: alice
	LDIF
	slapd -h ldap://127.0.0.1:3890 -f /tmp/slapd.conf -d 0 >/tmp/slapd.txt 2>&1 &
	servers="$servers $!"
}

start_rosterd() {
	uid=990
	echo 'roster:x:990:' >>/etc/group
	for role in bus publisher nss pam metrics backend-0; do
		echo "roster-$role:x:$uid:990::/:/usr/sbin/nologin" >>/etc/passwd
		uid=$((uid + 1))
	done
	mkdir -p /etc/roster /usr/libexec/roster
	cp "$BUILD/roster" "$BUILD/rosterd" /usr/sbin/
	cp "$BUILD/roster-krb5" /usr/libexec/roster/
	printf secret >/etc/roster/password
	chmod 600 /etc/roster/password
	cat >/etc/roster/roster.toml <<-CONF
		[host]
		domains = ["lab"]

		[domain.lab]
		provider = "ldap"
		uris = ["ldap://127.0.0.1:3890"]
		base = "dc=lab,dc=test"
		schema = "rfc2307"
		bind_dn = "cn=admin,dc=lab,dc=test"
		bind_password_file = "/etc/roster/password"
		auth = "ldap"
	CONF
	rosterd --config /etc/roster/roster.toml >/tmp/rosterd.txt 2>&1 &
	servers="$servers $!"
}

# rosterd mirrors a slapd of the release, and logs a user in.
login() {
	echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd
	echo 'root:x:0:' >/etc/group
	use 'files roster'
	start_slapd
	start_rosterd
	if wait_for id alice && grep -q '^uid=20000(alice) gid=20000(lab)' /tmp/wait.txt; then
		ok mirror
	else
		failed mirror "$(cat /tmp/wait.txt) $(tail -n 3 /tmp/rosterd.txt | tr '\n' ' ')"
	fi
	echo 'correct horse' | pamtester alone alice authenticate acct_mgmt >/tmp/login.txt 2>&1
	status=$?
	echo 'swordfish' | pamtester alone alice authenticate >>/tmp/login.txt 2>&1
	if [ $status -eq 0 ] && grep -q 'Authentication failure' /tmp/login.txt; then
		ok login
	else
		failed login "$(tail -n 1 /tmp/login.txt)"
	fi
	for server in $servers; do
		kill "$server"
	done
	wait
}

set_up
for check; do
	"$check"
done
