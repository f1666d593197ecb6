package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// unsafeToPrint says which characters of a document are shown as escapes:
// what a cluster says must not steer the terminal, and YAML refuses some.
func unsafeToPrint(r rune) bool {
	return r >= 0x7f && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) ||
		r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff')
}

// escapeJSON writes the unsafe characters of a JSON document as \uXXXX; they
// can only stand in its strings.
func escapeJSON(doc []byte) []byte {
	text := string(doc)
	if strings.IndexFunc(text, unsafeToPrint) < 0 {
		return doc
	}
	var b strings.Builder
	for _, r := range text {
		if unsafeToPrint(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}

// standIn is the first of the private characters that stand for printable
// but unsafe ones while YAML is written: its writer escapes these, as
// \U0010FF00, and the others not.
const standIn = 0x10ff00

// marshalYAML is yaml.Marshal with unsafe characters as escapes.
func marshalYAML(v any) ([]byte, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jsonToYAML(doc)
}

func jsonToYAML(doc []byte) ([]byte, error) {
	var bidi []rune // at its index from standIn
	text := strings.Map(func(r rune) rune {
		if !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		for i, seen := range bidi {
			if seen == r {
				return standIn + rune(i)
			}
		}
		bidi = append(bidi, r)
		return standIn + rune(len(bidi)-1)
	}, string(doc))
	out, err := yaml.JSONToYAML(escapeJSON([]byte(text)))
	if err != nil || len(bidi) == 0 {
		return out, err
	}
	var pairs []string
	for i, r := range bidi {
		pairs = append(pairs, fmt.Sprintf(`\U%08X`, standIn+i), fmt.Sprintf(`\u%04X`, r))
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(out))), nil
}
