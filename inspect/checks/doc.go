// Package checks holds the catalogue of inspection checks: pure functions
// from one snapshot to one result each.
//
// Invariants:
//   - A check does no I/O and reads no clock: all it knows is the snapshot.
//   - It declares what it reads. When a declared read failed, the result is
//     unknown with the reason; the check itself is not even asked.
//   - Nothing to look at is n/a with the reason, never a pass.
//   - Thresholds, severities and sources stand in the check and in docs/checks.md.
package checks
