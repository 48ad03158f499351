package natsbroker_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// What a relay and a consumer may do, and no more; docs/07-security has the
// same as a server configuration. "test" is the name of the clients here.
var (
	relayPermissions = &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"shop.events.>"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_test.>", "shop.wake.*"}},
	}
	consumerPermissions = &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			"$JS.API.CONSUMER.INFO.EVENTS.points-awarder",
			"$JS.API.CONSUMER.MSG.NEXT.EVENTS.points-awarder",
			"$JS.ACK.EVENTS.points-awarder.>",
			"$JS.ACK.*.*.EVENTS.points-awarder.>", // the form that a later server makes the default
			"shop.wake.shop_points",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_test.>"}},
	}
)

func TestRelayAndConsumerNeedFewPermissions(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "owner", Password: "o"},
			{Username: "relay", Password: "r", Permissions: relayPermissions},
			{Username: "points", Password: "p", Permissions: consumerPermissions},
		}
	})
	as := func(user string) string { return strings.Replace(s.URL(), "nats://", "nats://"+user+"@", 1) }
	topology := natsbroker.Topology{Subscriptions: []messaging.Subscription{awarder}}
	if err := natsbroker.EnsureTopology(within(t), as("owner:o"), topology); err != nil {
		t.Fatal(err)
	}
	relay, points := connect(t, as("relay:r"), natsbroker.Config{}), connect(t, as("points:p"), natsbroker.Config{})
	hints, stop, err := relay.OnWake("shop_points")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, b := range []*natsbroker.Broker{relay, points} {
		if err := b.Ready(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	points.Wake("shop_points")(messaging.AllShards)
	select {
	case <-hints:
	case <-within(t).Done():
		t.Fatal("no hint came")
	}
	list := messages(20, 4)
	publishAll(t, relay, list[:1])
	publishAll(t, relay, list[:10]) // with a duplicate inside: batch, then one by one
	publishAll(t, relay, list[10:])
	source := subscribe(t, points)
	fetchAll(t, source, len(list))
	if err := points.Ready(within(t)); err != nil {
		t.Fatal(err)
	}
	consumer, err := admin(t, as("owner:o")).Consumer(within(t), natsbroker.DefaultStream, awarder.Durable)
	if err != nil {
		t.Fatal(err)
	}
	if got := consumer.CachedInfo().NumAckPending; got != 0 {
		t.Errorf("%d messages are unacknowledged, want none", got)
	}
}
