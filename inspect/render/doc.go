// Package render writes inspection reports for terminals, programs, chats and
// people: table, JSON, Markdown and self-contained HTML.
//
// Every renderer shows every cluster, and unknown results right after failed
// ones: what could not be seen is never hidden behind what passed. All text
// from clusters is escaped for its format.
package render
