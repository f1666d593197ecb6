// Package embedded keeps records in SQLite files, one for each UTC day of
// record time, with a full-text index of the messages: the default store.
//
// Order of writing: the records of a batch are committed and fsynced day file
// by day file, then the positions. A crash in between leaves positions behind
// the records, and the replay is ignored by ID. Batches of several clusters
// share one commit.
//
// A day file that turns out corrupt is moved aside and reported; the other
// days stay in service. Retention removes whole day files, oldest first.
package embedded
