// Package eventsink turns the core/v1 Events of every cluster into records,
// one for each occurrence, and loses and doubles none.
//
// Each cluster has a watcher of its own: goroutine, connection, backoff. A
// session reads the saved position, lists if there is none or it has expired,
// then watches from it. Whatever goes wrong ends the session, and the next
// one begins at the saved position: there is no other way to recover. Batches
// are durable before the position behind them is saved, so a replay repeats
// records that the journal ignores. No Event is held in memory for longer
// than its batch.
//
// An Event that the API server deletes, by TTL as a rule, is no record. What
// the recorders inside the clusters drop before it reaches the API server
// cannot be seen from here.
package eventsink
