package alarms

import (
	"fmt"
	"testing"
	"time"
)

// moving is everything that is measured, each with what it is asked for by
// and an expression that must have changed by the end of a bad night: a metric
// that never moves looks like health.
var moving = []struct{ what, expr string }{
	{"outbox: pending", `max(shop_outbox_pending)`},
	{"outbox: age of the oldest", `max(shop_outbox_oldest_seconds)`},
	{"outbox: publish attempts that were stored", `sum(shop_outbox_publish_attempts_total{result="stored"})`},
	{"outbox: publish attempts that were refused", `sum(shop_outbox_publish_attempts_total{result="refused"})`},
	{"outbox: from commit to acknowledgement", `sum(shop_outbox_publish_lag_seconds_count)`},
	{"outbox: the hottest shard", `max(shop_outbox_hottest_shard)`},
	{"outbox: held", `sum(shop_outbox_held_total)`},
	{"outbox: held now", `max(shop_outbox_held_events{state="failed"})`},
	{"instances: relays", `max(shop_outbox_relays{database="order"})`},
	{"instances: processes that answer", `sum(up)`},
	{"instances: active consumers", `min(shop_consumer_active)`},
	{"publishing, by convention: calls", `sum(messaging_client_operation_duration_seconds_count)`},
	{"publishing, by convention: messages", `sum(messaging_client_sent_messages_total)`},
	{"size of messages", `sum(shop_event_size_bytes_count)`},
	{"consumer: pending", `max(shop_durable_pending{durable="points-awarder"})`},
	{"consumer: in flight", `max(shop_durable_in_flight)`},
	{"consumer: age of the oldest", `max(shop_durable_oldest_seconds{durable="points-awarder"})`},
	{"consumer: ahead of the stream", `max(shop_durable_ahead{durable="notify-sender"})`},
	{"consumer: handling time, by convention", `sum(messaging_process_duration_seconds_count)`},
	{"consumer: deliveries, by convention", `sum(messaging_client_consumed_messages_total)`},
	{"consumer: database time", `sum(shop_consumer_transaction_duration_seconds_count)`},
	{"consumer: size of groups", `sum(shop_consumer_group_size_count)`},
	{"consumer: retries by class", `sum(shop_consumer_retries_total{class="transient"})`},
	{"consumer: redeliveries", `sum(shop_consumer_redeliveries_total)`},
	{"consumer: duplicates absorbed", `sum(shop_consumer_events_total{result="duplicate"})`},
	{"consumer: applied, the rate out", `sum(shop_consumer_events_total{result="applied"})`},
	{"consumer: parked", `max(shop_consumer_unresolved{state="parked"})`},
	{"consumer: retrying", `max(shop_consumer_unresolved{state="retrying"})`},
	{"consumer: gap open", `max(shop_consumer_unresolved{state="gap"})`},
	{"consumer: dead letters open", `max(shop_consumer_unresolved{state="dead_letter"})`},
	{"consumer: their age", `max(shop_consumer_oldest_failure_seconds)`},
	{"consumer: overdue", `max(shop_consumer_overdue)`},
	{"consumer: schema failures", `sum(shop_consumer_dead_letters_total{code="bad_data"})`},
	{"consumer: pauses by cause", `sum(shop_consumer_pauses_total{code="sqlstate_23514"})`},
	{"age of events at their effect", `sum(shop_event_age_at_effect_seconds_count)`},
	{"stream: messages, the rate in", `max(shop_stream_messages)`},
	{"stream: disk", `max(shop_stream_size_bytes)`},
	{"stream: bound of the disk", `max(shop_stream_size_limit_bytes)`},
	{"pools: waits for a connection", `sum(pgxpool_empty_acquire_total)`},
	{"board: paid", `max(shop_board_orders{state="paid"})`},
	{"board: lost", `max(shop_board_orders{state="lost"})`},
	{"board: unfinished", `max(shop_board_oldest_unfinished_seconds)`},
	{"decisions: payments", `sum(shop_decisions_waiting{what="payment_exception"})`},
	{"decisions: mails", `sum(shop_decisions_waiting{what="mail"})`},
	{"decisions: age of the oldest", `max(shop_decisions_oldest_seconds)`},
	{"reconciliation: age of the last run", `max(shop_reconcile_age_seconds)`},
	{"reconciliation: differences", `sum(shop_reconcile_findings{check="on the stream, not consumed", service="points"})`},
	{"services that are silent", `max(shop_service_silent)`},
	{"mails: attempts", `sum(shop_notify_attempts_total)`},
	{"mails: their time", `sum(shop_notify_attempt_duration_seconds_count)`},
	{"callbacks of the payment provider", `sum(shop_payment_callbacks_total)`},
	{"requests", `sum(http_server_request_duration_seconds_count)`},
}

// requireMoved asks Prometheus what it has scraped since a time before the
// first order. A metric that was not there yet counts as 0.
func requireMoved(t *testing.T, p prometheus, began time.Time) {
	t.Helper()
	for _, m := range moving {
		since := fmt.Sprintf("((%s) or vector(0))[%ds:1s]", m.expr, int(time.Since(began).Seconds()))
		if len(p.query(t, "max_over_time("+since+") - min_over_time("+since+") > 0")) != 1 {
			t.Errorf("%s did not move: %s", m.what, m.expr)
		}
	}
}
