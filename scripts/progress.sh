#!/usr/bin/env bash
# progress.sh WHAT HOW-LONG COMMAND...: runs a build and says what is built and
# for how long, with a sign of life every ten seconds.
set -u
what=$1 hint=$2
shift 2
began=$SECONDS
echo "building $what (about $hint) ..."
"$@" &
build=$!
trap 'kill $build 2>/dev/null' INT TERM
while kill -0 $build 2>/dev/null; do
	for _ in {1..20}; do
		sleep 0.5
		kill -0 $build 2>/dev/null || break 2
	done
	echo "  still building $what, $((SECONDS - began)) s"
done
wait $build
status=$?
if [ $status -eq 0 ]; then
	echo "built $what in $((SECONDS - began)) s"
else
	echo "building $what failed after $((SECONDS - began)) s; the compiler's words are above" >&2
fi
exit $status
