// Package snapshot reads a cluster once and keeps what the checks need, as
// plain values that can be saved, replayed and compared.
//
// Invariants:
//   - Every read has a deadline, a size bound and an entry in Snapshot.Reads.
//     A read that fails says why there; it never leaves an empty list that
//     looks like a healthy one.
//   - A list is kept whole or not at all.
//   - No Secret and no ConfigMap is read, and no credential or key is kept.
//   - Collect never hangs: it returns when Options.Timeout has passed, with
//     whatever was read until then.
package snapshot
