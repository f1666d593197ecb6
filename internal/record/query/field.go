package query

import (
	"strings"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// Type is how a field is compared.
type Type int

// Types of fields.
const (
	TypeKeyword Type = iota
	TypeText
	Number
	Time
)

// Field is something of a record that can be asked for.
type Field struct {
	Name string
	Type Type
}

// fields lists what can be asked for; read-only. Every store and the matcher
// know each of them, which the conformance test checks.
var fields = []Field{
	{"cluster", TypeKeyword},
	{"type", TypeKeyword},
	{"reason", TypeKeyword},
	{"kind", TypeKeyword},
	{"namespace", TypeKeyword},
	{"name", TypeKeyword},
	{"message", TypeText},
	{"count", Number},
	{"occurrences", Number},
	{"time", Time},
	{"component", TypeKeyword},
	{"host", TypeKeyword},
	{"action", TypeKeyword},
	{"uid", TypeKeyword},
	{"api_version", TypeKeyword},
	{"field_path", TypeKeyword},
	{"event", TypeKeyword},
	{"event_uid", TypeKeyword},
	{"record", TypeKeyword},
	{"id", TypeKeyword},
}

// Fields lists every field in the order in which people should read them.
func Fields() []Field { return append([]Field(nil), fields...) }

func lookup(name string) (Field, bool) {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			return f, true
		}
	}
	return Field{}, false
}

func fieldNames() string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// text is the value of a keyword or text field.
func (f Field) text(r *record.Record) string {
	switch f.Name {
	case "cluster":
		return r.Cluster
	case "type":
		return r.Type
	case "reason":
		return r.Reason
	case "kind":
		return r.Object.Kind
	case "namespace":
		return r.Object.Namespace
	case "name":
		return r.Object.Name
	case "message":
		return r.Message
	case "component":
		return r.Source.Component
	case "host":
		return r.Source.Host
	case "action":
		return r.Action
	case "uid":
		return r.Object.UID
	case "api_version":
		return r.Object.APIVersion
	case "field_path":
		return r.Object.FieldPath
	case "event":
		return r.Event.Name
	case "event_uid":
		return r.Event.UID
	case "record":
		return r.Kind
	case "id":
		return r.ID
	}
	return ""
}

// number is the value of a number or time field.
func (f Field) number(r *record.Record) int64 {
	switch f.Name {
	case "count":
		return r.Count
	case "occurrences":
		return r.Occurrences
	case "time":
		return r.Time.UnixNano()
	}
	return 0
}
