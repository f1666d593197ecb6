package snapshot

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Schema names the format of a saved file; it changes when a reader of the
// old one could misread the new one.
const Schema = "fleetwatch.io/snapshot/v1"

// loadLimit bounds an unpacked file.
const loadLimit = 2 << 30

// File is what is saved: the snapshots of one inspection.
type File struct {
	Schema    string      `json:"schema"`
	Taken     time.Time   `json:"taken"`
	Snapshots []*Snapshot `json:"snapshots"`
}

// Encode writes a file as gzip-compressed JSON.
func Encode(w io.Writer, taken time.Time, snapshots []*Snapshot) error {
	packed := gzip.NewWriter(w)
	err := json.NewEncoder(packed).Encode(File{Schema: Schema, Taken: taken.UTC(), Snapshots: snapshots})
	return errors.Join(err, packed.Close())
}

// Decode reads what Encode wrote; plain JSON is accepted as well.
func Decode(r io.Reader) (*File, error) {
	buffered := bufio.NewReader(r)
	source := io.Reader(buffered)
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		source = unpacked // its Close only repeats what reading to the end has said
	}
	var file File
	if err := json.NewDecoder(&bounded{source, loadLimit}).Decode(&file); err != nil {
		return nil, fmt.Errorf("read the snapshot: %w", err)
	}
	if file.Schema != Schema {
		return nil, fmt.Errorf("schema is %q, want %q; take the snapshot again with this version", file.Schema, Schema)
	}
	if len(file.Snapshots) == 0 {
		return nil, errors.New("the file holds no snapshot")
	}
	for i, snap := range file.Snapshots {
		if snap == nil || snap.Cluster == "" || snap.Reads == nil {
			return nil, fmt.Errorf("snapshot %d has no cluster or no reads", i+1)
		}
	}
	return &file, nil
}

// Load reads a saved file.
func Load(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoded, err := Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return decoded, nil
}
