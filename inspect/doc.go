// Package inspect says whether a fleet is ready: it takes one snapshot of each
// cluster, runs the checks over it, draws a verdict and makes a report.
//
// Invariants:
//   - A report holds every cluster that was asked for. One that could not be
//     read is UNKNOWN and says why; it never drops out.
//   - Unknown is never counted as pass, and never part of GO beyond the 5 % of
//     critical and high checks that the design allows.
//   - One cluster's trouble does not delay another beyond its own deadline.
//   - Judge is pure: snapshots, waivers and a time in, a report out.
package inspect
