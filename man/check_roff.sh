#!/bin/sh
# check_roff.sh GROFF FILE...: a manual page is right when groff has nothing to say about it.
groff=$1
shift
for page in "$@"; do
	said=$("$groff" -man -ww -Tutf8 -z "$page" 2>&1)
	status=$?
	if [ $status -ne 0 ] || [ -n "$said" ]; then
		printf '%s: %s\n' "$page" "$said" >&2
		exit 1
	fi
done
