package deploy_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/shopctl"
)

// eachKindOnce is one event of every kind that anybody listens to.
func (f fleet) eachKindOnce(t *testing.T) {
	t.Helper()
	if err := natsbroker.EnsureTopology(t.Context(), f.url("topology"), shopctl.Topology()); err != nil {
		t.Fatal(err)
	}
	kinds := map[messaging.Kind]bool{}
	var list []messaging.Message
	for _, sub := range shopctl.Topology().Subscriptions {
		for _, kind := range sub.Kinds {
			if !kinds[kind] {
				kinds[kind] = true
				list = append(list, messaging.Message{ID: uuid.Must(uuid.NewV7()), Key: kind.Aggregate + "/1", Subject: kind.Subject(1), Data: []byte("{}")})
			}
		}
	}
	for _, receipt := range f.broker(t, "relay").Publish(t.Context(), list) {
		if receipt.Err != nil {
			t.Fatal(receipt.Err)
		}
	}
}

func TestAReplayReadsTheStreamWithTheRightsOfItsService(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.eachKindOnce(t)
	for _, sub := range shopctl.Topology().Subscriptions {
		b := f.broker(t, owner(sub.Durable))
		for range 2 { // the first leaves nothing behind that is in the way of the second
			read, err := b.Replay(t.Context(), sub.Durable, sub.Kinds, natsbroker.Span{From: 1})
			if err != nil || len(read) != len(sub.Kinds) {
				t.Errorf("%s read %d messages, %v; want %d", sub.Durable, len(read), err, len(sub.Kinds))
			}
		}
	}
}

// The name in the subject is what the server's permissions see; the filter in
// the body is what a consumer gets. They must not be two things.
func TestAReplayCannotSayOneFilterAndTakeAnother(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.eachKindOnce(t)
	seed, err := nats.NkeyOptionFromSeed(filepath.Join(f.secrets, "points", "nats.nk"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(f.URL(), seed, nats.CustomInboxPrefix("_INBOX_points"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// The subject's name wins: a body cannot reach another's durable.
	const taken = `{"stream_name":"EVENTS","config":{"name":"search-indexer","durable_name":"search-indexer","filter_subject":"shop.events.order.OrderPaid.v1.*"}}`
	const allowed = "$JS.API.CONSUMER.CREATE.EVENTS.points-awarder-replay.shop.events.order.OrderPaid.v1.*"
	for name, config := range map[string]string{
		"another kind":    `"filter_subject":"shop.events.order.OrderCreated.v1.*"`,
		"everything":      `"filter_subject":">"`,
		"no filter":       `"description":"all"`,
		"several filters": `"filter_subjects":["shop.events.order.OrderPaid.v1.*","shop.events.notify.>"]`,
	} {
		body := fmt.Sprintf(`{"stream_name":"EVENTS","config":{"name":"points-awarder-replay","ack_policy":"none",%s}}`, config)
		msg, err := nc.Request(allowed, []byte(body), patience)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var answer struct{ Error *jetstream.APIError }
		if err := json.Unmarshal(msg.Data, &answer); err != nil || answer.Error == nil {
			t.Errorf("%s: the server answered %s, %v; want a refusal", name, msg.Data, err)
		}
	}
	if _, err := nc.Request(allowed, []byte(taken), patience); err != nil {
		t.Fatal(err)
	}
	if changes, err := natsbroker.PlanTopology(t.Context(), f.url("topology"), shopctl.Topology()); err != nil || len(changes) > 0 {
		t.Errorf("the durables have changed: %v, %v", changes, err)
	}
}
