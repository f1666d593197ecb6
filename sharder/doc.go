// Package sharder decides which shard scrapes which target, and makes it so.
//
// Each cycle reads every collector's target list and every shard's status,
// weighs the targets, plans and applies. Plan is a pure function; everything
// else is a thin edge around it. One goroutine, Run's, owns all state.
//
// What stays true: a target goes where its measured weight fits, or to the
// least loaded shard, but never nowhere while a shard is up; nothing moves
// without need; a list that is not known to be complete removes no target; a
// shard that does not answer keeps its targets; an assignment and the intent
// to move are on disk before anyone acts on them, so that a crash at any
// point ends with exactly one scraper of each target.
package sharder
