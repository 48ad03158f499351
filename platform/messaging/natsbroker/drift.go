package natsbroker

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What the server can change in place without forgetting messages, positions
// or ids. Everything else needs a person who knows what it costs.
var (
	streamInPlace   = []string{"description", "max_bytes", "max_age", "max_msg_size", "duplicate_window", "num_replicas", "allow_atomic", "allow_direct", "deny_delete", "deny_purge"}
	consumerInPlace = []string{"description", "ack_wait", "max_ack_pending", "filter_subjects", "max_deliver", "backoff"}
)

// drift compares two configurations field by field, under the names of the
// server's API. It compares all fields, also those that this program does not
// set: what somebody else has set is a difference, too.
func drift[C any](object string, have, want C, inPlace []string) ([]Change, error) {
	haves, err := fields(have)
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", object, err)
	}
	wants, err := fields(want)
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", object, err)
	}
	names := maps.Clone(haves)
	maps.Copy(names, wants)
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !reflect.DeepEqual(haves[name], wants[name]) {
			changes = append(changes, Change{Object: object, Field: name, InPlace: slices.Contains(inPlace, name),
				Have: show(name, haves[name]), Want: show(name, wants[name])})
		}
	}
	return changes, nil
}

// fields returns what is set. A field that is absent and one that holds its
// zero value mean the same to the server. Notes that servers leave in the
// metadata are not configuration.
func fields(config any) (map[string]any, error) {
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var set map[string]any
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, err
	}
	if notes, ok := set["metadata"].(map[string]any); ok {
		maps.DeleteFunc(notes, func(key string, _ any) bool { return strings.HasPrefix(key, "_nats.") })
	}
	maps.DeleteFunc(set, func(_ string, value any) bool { return empty(value) })
	return set, nil
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return reflect.ValueOf(v).IsZero()
	}
}

// show formats a value for people; durations travel as nanoseconds.
func show(name string, value any) string {
	switch v := value.(type) {
	case nil:
		return "not set"
	case float64:
		switch name {
		case "max_age", "duplicate_window", "ack_wait", "inactive_threshold", "max_expires", "subject_delete_marker_ttl":
			return time.Duration(v).String()
		}
		return fmt.Sprintf("%.0f", v)
	default:
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // subjects hold '>'
		if err := encoder.Encode(v); err != nil {
			return fmt.Sprint(v)
		}
		return strings.TrimSpace(text.String())
	}
}

// normal writes a durable's configuration in the one way that this package
// writes it, and leaves out a pause, which is an operator's.
func normal(c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	c.FilterSubjects, c.FilterSubject = filters(c), ""
	c.PauseUntil = nil
	return c
}
