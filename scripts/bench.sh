#!/usr/bin/env bash
# The measured figures of this repository, each with its bar. Absolute times
# depend on the machine; ratios within one run do not.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== the gateway's CPU per scraped MB against fetching the target directly"
go test -run NONE -bench 'Gateway|Direct' -benchtime 2s ./collector | grep -E '^Benchmark|ratio' || exit 1

echo
echo "== a shard's CPU per 1,000 samples, scraped and stored (the gateway that feeds it included)"
go test -run NONE -bench 'ShardScrape' -benchtime 2000x ./sharder/shard | grep -E '^Benchmark' || exit 1

echo
echo "== one plan of the sharder for 20,000 targets"
go test -run NONE -bench 'Plan' ./sharder | grep -E '^Benchmark' || exit 1

echo
echo "== records per second into the embedded store"
go test -run NONE -bench 'Append' ./internal/record/embedded | grep -E '^Benchmark' || exit 1

echo
echo "== memory of a collector with 1,000 targets (bar: 60 MiB resident)"
go test -count=1 -run '^TestMemory$' -v ./collector -args -fleetwatch "$PWD/bin/fleetwatch" | grep -E 'collector of|FAIL' || exit 1

echo
echo "== memory of fleetwatch up without its children (bar: 150 MiB), times of recovery: printed by make test-e2e"
