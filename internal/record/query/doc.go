// Package query is the one query language over records, a subset of
// Lucene's: Parse turns text into an Expr, which every store translates into
// its own terms and which Match evaluates on a record in memory. Both ways
// give the same answer.
//
//	reason:BackOff AND kind:Pod          field equals; letter case is ignored
//	name:web-* NOT type:Normal           * stands for any run of characters
//	reason:(BackOff OR Failed)           a field over a group
//	back-off "restarting failed"         words and phrases of the message
//	count:>3 occurrences:[2 TO 10]       numbers; {2 TO 10} excludes the ends
//	time:>=2026-11-30T10:00:00Z          times; 2026-11-30 is the whole day
//	namespace:*                          the field is not empty
//
// Adjacent terms are joined by AND. AND, OR and NOT count only in capitals.
// A word of the message can end in *; the other fields take * anywhere.
// Any character can be escaped by a backslash.
package query
