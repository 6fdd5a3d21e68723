#!/usr/bin/env bash
# Clients find holdfastd: by its own portmap, and by Debian's rpcbind.
#
# Needs root, iproute2, util-linux and rpcbind (for rpcbind and rpcinfo); skips itself, with status 77, where
# they are missing. Everything happens in two network namespaces of its own, a server's and a client's.
#
#	HOLDFASTD=build/holdfastd tests/net/portmap.sh
set -euo pipefail

HOLDFASTD=$(realpath "${HOLDFASTD:?the path of holdfastd}")
LIB=$(realpath "$(dirname "$0")/lib")
PATH=$PATH:/usr/sbin:/sbin

[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
for tool in ip unshare setpriv rpcbind rpcinfo od; do
	command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done

S=hf-pm-s-$$ C=hf-pm-c-$$        # the namespaces
S4=10.99.0.1 S6=fd99::1          # the server, as the client sees it
DIR=$(mktemp -d /tmp/hf-portmap.XXXXXX)
PROGRAMS="100003 100005 100021 100024"
EXPORTS="[{path: $DIR/export}]"  # of holdfastd, as YAML has it
daemon='' rpcbind=''             # process ids
export S C DIR PROGRAMS daemon   # for wait_for

# Ends a process of this script and waits for it. Its exit status.
end() { # PID [SIGNAL]
	kill -"${2:-TERM}" "$1" 2>/dev/null || true
	local status=0
	wait "$1" 2>/dev/null || status=$?
	return $status
}

clean_up() {
	[ -z "$daemon" ] || end "$daemon" KILL || true
	[ -z "$rpcbind" ] || end "$rpcbind" KILL || true
	ip netns del $S 2>/dev/null || true
	ip netns del $C 2>/dev/null || true
	rm -rf "$DIR"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

fail() {
	echo "FAILED: $*"
	echo "--- log of holdfastd"
	cat "$DIR/log" 2>/dev/null || true
	exit 1
}

ok() { echo "ok: $*"; }

# Runs a command again until it succeeds, for SECONDS at most. It may be a function of this script.
wait_for() { # SECONDS WHAT COMMAND...
	local seconds=$1 what=$2 said
	shift 2
	said=$("$LIB/until_succeeds.py" "$seconds" "$what" bash -c "$(declare -f); \"\$@\"" wait_for "$@" 2>&1) || fail "$said"
}

in_s() { ip netns exec $S "$@"; }
in_c() { ip netns exec $C "$@"; }

link_is_up() { ip -n "$1" link show veth0 | grep -q 'state UP'; }

make_network() {
	ip netns add $S
	ip netns add $C
	ip -n $S link set lo up
	ip -n $C link set lo up
	ip -n $S link add veth0 type veth peer name veth0 netns $C
	ip -n $S addr add $S4/24 dev veth0
	ip -n $C addr add 10.99.0.2/24 dev veth0
	ip -n $S addr add $S6/64 dev veth0 nodad
	ip -n $C addr add fd99::2/64 dev veth0 nodad
	ip -n $S link set veth0 up
	ip -n $C link set veth0 up
	wait_for 60 "the server's link is up" link_is_up $S
	wait_for 60 "the client's link is up" link_is_up $C
}

# holdfastd. Afterwards $daemon is its process id, and its log $DIR/log.
start() { # MODE [PREFIX...]
	local mode=$1
	shift
	rm -rf "$DIR/state"
	mkdir -p "$DIR/state" "$DIR/export"
	chmod 777 "$DIR" "$DIR/state"
	cat >"$DIR/holdfast.yaml" <<-EOF
		server:
		  portmap: $mode
		  state_dir: $DIR/state
		store:
		  backend: memory
		api:
		  listen: ""
		exports: $EXPORTS
	EOF
	ip netns exec $S "$@" "$HOLDFASTD" --config "$DIR/holdfast.yaml" >"$DIR/log" 2>&1 &
	daemon=$!
}

is_ready() { [ -s "$DIR/state/ports.json" ]; }

start_ready() {
	start "$@"
	wait_for 60 "holdfastd is ready" is_ready
}

stop() {
	end "$daemon" TERM || fail "holdfastd ended with status $? at SIGTERM"
	daemon=''
}

# Debian's rpcbind, in the server's namespace and with a /run of its own.
start_rpcbind() {
	# No function here: the process id must be rpcbind's own.
	ip netns exec $S unshare --mount --propagation private sh -c \
		'mount -t tmpfs tmpfs /run && mkdir /run/rpcbind && exec rpcbind -f' >>"$DIR/rpcbind.log" 2>&1 &
	rpcbind=$!
	wait_for 60 "rpcbind answers" in_s rpcinfo -T tcp 127.0.0.1 100000 4
}

kill_rpcbind() {
	end "$rpcbind" KILL || true
	rpcbind=''
}

# rpcbind is started again and knows nothing; again where holdfastd, which looks now and then, was there already.
forget_all() {
	local try
	for try in 1 2 3; do
		kill_rpcbind
		start_rpcbind
		is_not_listed 100021 && return
	done
	fail "rpcbind has not forgotten"
}

# A version 2 SET or UNSET, by hand, over TCP: prints 1 or 0 as rpcbind answers.
change() { # HOST PROCEDURE PROGRAM VERSION PROTOCOL PORT
	local words=(0x80000038 0x4242 0 2 100000 2 "$2" 0 0 0 0 "$3" "$4" "$5" "$6") text='' word
	for word in "${words[@]}"; do
		text+=$(printf '\\x%02x' $((word >> 24 & 255)) $((word >> 16 & 255)) $((word >> 8 & 255)) $((word & 255)))
	done
	exec 3<>"/dev/tcp/$1/111"
	printf '%b' "$text" >&3
	timeout 60 head -c 32 <&3 | od -An -tx1 -j28 | tr -d ' \n' | sed 's/^0*//;s/^$/0/'
	exec 3>&-
}

# For use under "ip netns exec", which knows no functions.
change_in() { # NAMESPACE ARGUMENT...
	local ns=$1
	shift
	ip netns exec "$ns" bash -c "$(declare -f change); change \"\$@\"" change "$@"
}

# The versions that rpcinfo must find alive; it tries those in the gaps, too, and complains about them.
versions_of() {
	case $1 in
	100000) echo 2 3 4 ;;
	100003) echo 3 ;;
	100005) echo 1 2 3 ;;
	100021) echo 1 3 4 ;;
	100024) echo 1 ;;
	esac
}

answers() { # RUNNER HOST TRANSPORT PROGRAM
	local version out
	for version in $(versions_of "$4"); do
		$1 rpcinfo -T "$3" "$2" "$4" "$version" >/dev/null || fail "rpcinfo -T $3 $2 $4 $version"
	done
	out=$($1 rpcinfo -T "$3" "$2" "$4" 2>&1 || true)
	for version in $(versions_of "$4"); do
		grep -q "program $4 version $version ready and waiting" <<<"$out" || fail "rpcinfo -T $3 $2 $4: $out"
	done
}

# Everything a client asks rpcinfo's way.
is_found() { # RUNNER IPV4-HOST IPV6-HOST
	local run=$1 program out uaddr
	out=$($run rpcinfo -p "$2") || fail "rpcinfo -p $2"
	for program in $PROGRAMS; do
		grep -q "^ *$program .* tcp " <<<"$out" || fail "rpcinfo -p $2 has no $program by tcp"
		grep -q "^ *$program .* udp " <<<"$out" || fail "rpcinfo -p $2 has no $program by udp"
	done
	for host in "$2" "$3"; do
		out=$($run rpcinfo -s "$host") || fail "rpcinfo -s $host"
		for program in $PROGRAMS; do
			grep -q "^ *$program .*tcp6" <<<"$out" || fail "rpcinfo -s $host has no $program by tcp6"
		done
		$run rpcinfo "$host" >/dev/null || fail "rpcinfo $host"
		$run rpcinfo -m "$host" >/dev/null || fail "rpcinfo -m $host"
	done
	for program in 100000 $PROGRAMS; do
		answers "$run" "$2" tcp "$program"
		answers "$run" "$2" udp "$program"
		answers "$run" "$3" tcp6 "$program"
		answers "$run" "$3" udp6 "$program"
	done
	out=$($run rpcinfo -l "$2" 100021 4) || fail "rpcinfo -l $2"
	uaddr=$(awk '/inet\/tcp/ { print $4 }' <<<"$out")
	[ "${uaddr%.*.*}" = "$2" ] || fail "rpcinfo -l $2 gives the address $uaddr"
	$run rpcinfo -a "$uaddr" -T tcp 100021 4 >/dev/null || fail "rpcinfo -a $uaddr"
}

is_listed() { in_s rpcinfo -p 127.0.0.1 | grep -q "^ *$1 "; }
is_not_listed() { ! is_listed "$1"; }
all_listed() { for p in $PROGRAMS; do is_listed "$p" || return 1; done; }
has_logged() { grep -q "$1" "$DIR/log"; }

test_embedded() {
	start_ready embedded
	has_logged 'serving the port mapper' || fail "the log does not say who serves the portmap port"
	is_found in_s 127.0.0.1 ::1
	ok "embedded: found by loopback"
	is_found in_c $S4 $S6
	ok "embedded: found from another host"

	[ "$(change_in $C $S4 1 700000 1 6 7000)" = 0 ] || fail "SET from another host was granted"
	[ "$(change_in $C $S4 2 100021 4 6 0)" = 0 ] || fail "UNSET from another host was granted"
	has_logged 'SET or UNSET refused' || fail "the refusal is not in the log"
	[ "$(change_in $S 127.0.0.1 2 100021 4 6 0)" = 0 ] || fail "a program of ours was unset"
	[ "$(change_in $S 127.0.0.1 1 100021 4 6 700)" = 0 ] || fail "a program of ours was set"
	[ "$(change_in $S 127.0.0.1 1 700000 1 6 7000)" = 1 ] || fail "SET from this host was refused"
	is_listed 700000 || fail "what was SET is not there"
	[ "$(change_in $S 127.0.0.1 2 700000 1 6 0)" = 1 ] || fail "UNSET from this host was refused"
	is_not_listed 700000 || fail "what was UNSET is still there"
	ok "embedded: SET and UNSET for this host alone, and not of our programs"
	stop
	! in_s rpcinfo -p 127.0.0.1 >/dev/null 2>&1 || fail "a program still serves port 111"
	start_ready auto
	has_logged 'serving the port mapper' || fail "auto does not serve the free port"
	stop
	ok "auto: serves a free port"
}

test_unprivileged() {
	start_ready auto setpriv --reuid 65534 --regid 65534 --clear-groups
	wait_for 60 "it warns about privilege" has_logged 'warn.*privilege.*locks will hang'
	stop
	ok "auto: without privilege it warns and goes on"
}

test_system() {
	start_rpcbind
	# What a dead server has left
	[ "$(change_in $S 127.0.0.1 1 100024 1 17 9)" = 1 ] || fail "rpcbind refuses SET"
	start_ready auto
	wait_for 20 "the registrations are there" all_listed
	has_logged "with the system's rpcbind" || fail "the log does not say who serves the portmap port"
	is_found in_s 127.0.0.1 ::1
	is_found in_c $S4 $S6
	ok "auto: registered with rpcbind, and found"

	forget_all
	kill -HUP "$daemon"
	wait_for 15 "the registrations are back after SIGHUP" all_listed
	wait_for 15 "the log says so" has_logged 'registrations with rpcbind were missing and are renewed'
	ok "system: renewed at SIGHUP"

	kill_rpcbind
	start_rpcbind
	wait_for 120 "the registrations are back by themselves" all_listed
	answers in_s 127.0.0.1 udp 100024
	ok "system: renewed by itself"

	stop
	for program in $PROGRAMS; do
		is_not_listed "$program" || fail "$program is still registered"
	done
	ok "system: removed on stop"

	start embedded
	if end_itself; then fail "embedded started beside an rpcbind"; fi
	has_logged 'portmap port is in use' || fail "the log does not say why it did not start"
	ok "embedded: refuses a taken port"
	kill_rpcbind
}

has_port() { in_s rpcinfo -p 127.0.0.1 | grep -q "^ *$1 .* tcp *$2 "; }
others_listed() { has_port 100003 4049 && has_port 100005 4050; }

# Without exports it is the lock and status service beside another NFS server, whose programs holdfastd does not name.
test_beside() {
	local EXPORTS='[]' PROGRAMS="100021 100024"
	start_ready embedded
	is_listed 100021 && is_listed 100024 || fail "beside another server, its locks are not found"
	is_not_listed 100003 && is_not_listed 100005 || fail "files that we do not serve are found at our port"
	[ "$(change_in $S 127.0.0.1 1 100003 3 6 4049)" = 1 ] || fail "the other server cannot be found at our portmap"
	stop
	ok "beside another server: our own port mapper leaves its programs to it"

	start_rpcbind
	[ "$(change_in $S 127.0.0.1 1 100003 3 6 4049)$(change_in $S 127.0.0.1 1 100005 3 6 4050)" = 11 ] ||
		fail "rpcbind refuses SET"
	start_ready auto
	wait_for 20 "the registrations are there" all_listed
	others_listed || fail "we took the other server's place at rpcbind: $(in_s rpcinfo -p 127.0.0.1)"
	stop
	others_listed || fail "we withdrew the other server's programs"
	is_not_listed 100021 || fail "100021 is still registered"
	kill_rpcbind
	ok "beside another server: rpcbind still names it"
}

# The daemon is to end by itself. Its status.
end_itself() {
	local status=0
	wait_for 60 "holdfastd gives up" has_ended
	wait "$daemon" 2>/dev/null || status=$?
	daemon=''
	return $status
}
has_ended() { ! kill -0 "$daemon" || grep -q '^State:.*Z' "/proc/$daemon/status"; }

make_network
test_embedded
test_unprivileged
test_system
test_beside
echo "passed in $SECONDS s"
