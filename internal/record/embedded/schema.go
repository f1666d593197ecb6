package embedded

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// version is the user_version of a day file.
const version = 1

// schema of a day file. The columns that can be asked for carry the names of
// the query language. words has no content of its own: it is fed the tokens
// of the message, separated by spaces, so that its tokenizer has nothing to
// decide.
const schema = `
CREATE TABLE records (
	seq              INTEGER PRIMARY KEY,
	id               TEXT NOT NULL COLLATE NOCASE UNIQUE,
	record           TEXT NOT NULL COLLATE NOCASE,
	cluster          TEXT NOT NULL COLLATE NOCASE,
	time             INTEGER NOT NULL,
	first_time       INTEGER NOT NULL,
	last_time        INTEGER NOT NULL,
	type             TEXT NOT NULL COLLATE NOCASE,
	reason           TEXT NOT NULL COLLATE NOCASE,
	message          TEXT NOT NULL,
	action           TEXT NOT NULL COLLATE NOCASE,
	api_version      TEXT NOT NULL COLLATE NOCASE,
	kind             TEXT NOT NULL COLLATE NOCASE,
	namespace        TEXT NOT NULL COLLATE NOCASE,
	name             TEXT NOT NULL COLLATE NOCASE,
	uid              TEXT NOT NULL COLLATE NOCASE,
	field_path       TEXT NOT NULL COLLATE NOCASE,
	component        TEXT NOT NULL COLLATE NOCASE,
	host             TEXT NOT NULL COLLATE NOCASE,
	count            INTEGER NOT NULL,
	occurrences      INTEGER NOT NULL,
	event_uid        TEXT NOT NULL COLLATE NOCASE,
	event            TEXT NOT NULL COLLATE NOCASE,
	event_namespace  TEXT NOT NULL COLLATE NOCASE,
	resource_version TEXT NOT NULL,
	raw              BLOB NOT NULL
);
CREATE INDEX records_time ON records (time);
CREATE INDEX records_event_uid ON records (event_uid);
CREATE INDEX records_reason ON records (reason, time);
CREATE INDEX records_name ON records (name, time);
CREATE VIRTUAL TABLE words USING fts5 (message, content='', tokenize='ascii');
`

const columns = `id, record, cluster, time, first_time, last_time, type, reason, message, action,
	api_version, kind, namespace, name, uid, field_path, component, host, count, occurrences,
	event_uid, event, event_namespace, resource_version, raw`

const (
	insertRecord = `INSERT INTO records (` + columns + `)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO NOTHING`
	insertWords = `INSERT INTO words (rowid, message) VALUES (?, ?)`
	selectSeen  = `SELECT count, last_time, resource_version FROM records
		WHERE event_uid = ? AND cluster = ? COLLATE BINARY ORDER BY seq DESC LIMIT 1`
	selectNew = `SELECT seq, ` + columns + ` FROM records WHERE seq > ? ORDER BY seq LIMIT ?`
)

func values(r *record.Record) []any {
	raw := []byte(r.Raw)
	if raw == nil {
		raw = []byte{}
	}
	return []any{
		r.ID, r.Kind, r.Cluster, nanos(r.Time), nanos(r.FirstTime), nanos(r.LastTime), r.Type, r.Reason, r.Message, r.Action,
		r.Object.APIVersion, r.Object.Kind, r.Object.Namespace, r.Object.Name, r.Object.UID, r.Object.FieldPath,
		r.Source.Component, r.Source.Host, r.Count, r.Occurrences,
		r.Event.UID, r.Event.Name, r.Event.Namespace, r.Event.ResourceVersion, raw,
	}
}

// scan reads one row of seq and columns.
func scan(rows *sql.Rows) (seq int64, r record.Record, err error) {
	var at, first, last int64
	var raw []byte
	err = rows.Scan(&seq,
		&r.ID, &r.Kind, &r.Cluster, &at, &first, &last, &r.Type, &r.Reason, &r.Message, &r.Action,
		&r.Object.APIVersion, &r.Object.Kind, &r.Object.Namespace, &r.Object.Name, &r.Object.UID, &r.Object.FieldPath,
		&r.Source.Component, &r.Source.Host, &r.Count, &r.Occurrences,
		&r.Event.UID, &r.Event.Name, &r.Event.Namespace, &r.Event.ResourceVersion, &raw,
	)
	if err != nil {
		return 0, r, fmt.Errorf("read a record: %w", err)
	}
	r.Time, r.FirstTime, r.LastTime = fromNanos(at), fromNanos(first), fromNanos(last)
	if len(raw) > 0 {
		r.Raw = json.RawMessage(raw)
	}
	return seq, r, nil
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
