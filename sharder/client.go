package sharder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// answerLimit bounds what is read of any answer.
const answerLimit = 256 << 20

// errFenced means that a newer sharder owns the shard.
var errFenced = errors.New("a newer sharder is at work on this shard; stop one of the two, then restart the other")

// notStoringError is a shard's own word that it keeps no samples.
type notStoringError string

func (e notStoringError) Error() string { return string(e) }

// shardClient speaks to one shard. Callers bring the deadline.
type shardClient struct {
	name, base string
	http       *http.Client
}

func (c *shardClient) status(ctx context.Context) (target.Status, error) {
	var out target.Status
	if err := c.call(ctx, http.MethodGet, "status", nil, &out); err != nil {
		return out, fmt.Errorf("read the status of %s: %w", c.name, err)
	}
	if out.Shard != c.name {
		return out, fmt.Errorf("read the status of %s: %s answers as shard %q; check the addresses", c.name, c.base, out.Shard)
	}
	return out, nil
}

func (c *shardClient) apply(ctx context.Context, a target.Assignment) (target.Applied, error) {
	var out target.Applied
	if err := c.call(ctx, http.MethodPut, "assignment", a, &out); err != nil {
		return out, fmt.Errorf("assign targets to %s: %w", c.name, err)
	}
	if out.Epoch != a.Epoch || out.Revision != a.Revision {
		return out, fmt.Errorf("assign targets to %s: it applied epoch %d revision %d, want %d and %d", c.name, out.Epoch, out.Revision, a.Epoch, a.Revision)
	}
	return out, nil
}

func (c *shardClient) probe(ctx context.Context, req target.ProbeRequest) (target.Probe, error) {
	var out target.Probe
	if err := c.call(ctx, http.MethodPost, "probe", req, &out); err != nil {
		return out, fmt.Errorf("probe target %s from %s: %w", req.Target.ID, c.name, err)
	}
	if out.Error != "" {
		return out, fmt.Errorf("probe target %s from %s: %s", req.Target.ID, c.name, out.Error)
	}
	return out, nil
}

func (c *shardClient) call(ctx context.Context, method, what string, body, into any) error {
	var reader io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/fleetwatch/v1/"+what, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(req)
	if err != nil {
		return err
	}
	return decodeAnswer(answer, into)
}

// decodeAnswer reads one JSON answer to its end, so that the connection can
// be used again, and closes it.
func decodeAnswer(answer *http.Response, into any) error {
	defer answer.Body.Close()
	limited := io.LimitReader(answer.Body, answerLimit)
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(limited, 4<<10))
		if err != nil {
			return fmt.Errorf("HTTP status %s: %w", answer.Status, err)
		}
		if answer.StatusCode == http.StatusConflict {
			return errFenced
		}
		if answer.StatusCode == http.StatusInsufficientStorage {
			var said struct {
				Error string `json:"error"`
			}
			if json.Unmarshal(text, &said) == nil && said.Error != "" {
				return notStoringError(said.Error)
			}
		}
		return fmt.Errorf("HTTP status %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	if err := json.NewDecoder(limited).Decode(into); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	_, err := io.Copy(io.Discard, limited)
	return err
}
