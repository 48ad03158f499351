package notify

import (
	"testing"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestEveryStatementFitsTheSchema(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, pgtest.New(t, "notify"), map[string]string{
		"sqlInsertTask": sqlInsertTask, "sqlClaim": sqlClaim, "sqlSettle": sqlSettle, "sqlLockUser": sqlLockUser,
		"sqlPutContact": sqlPutContact, "sqlRevive": sqlRevive, "sqlContact": sqlContact, "sqlNotifications": sqlNotifications,
	})
}

func TestTheTablesRefuseWhatCannotBe(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "notify")
	const task = `INSERT INTO delivery_task (notification_id, order_id, user_id, template, amount, currency, exponent, paid_at, event_id, correlation_id, tenant, state) `
	for _, c := range []struct{ name, sql, state string }{
		{"a mail", task + `VALUES ('n1', 'o1', 'u1', 'order_paid', 1, 'CNY', 2, now(), gen_random_uuid(), '', '', 'queued')`, ""},
		{"a second mail of its kind", task + `VALUES ('n2', 'o1', 'u1', 'order_paid', 1, 'CNY', 2, now(), gen_random_uuid(), '', '', 'queued')`, "23505"},
		{"another kind of mail", task + `VALUES ('n3', 'o1', 'u1', 'birthday', 1, 'CNY', 2, now(), gen_random_uuid(), '', '', 'queued')`, "23514"},
		{"a negative amount", task + `VALUES ('n4', 'o4', 'u1', 'order_paid', -1, 'CNY', 2, now(), gen_random_uuid(), '', '', 'queued')`, "23514"},
		{"another state", task + `VALUES ('n5', 'o5', 'u1', 'order_paid', 1, 'CNY', 2, now(), gen_random_uuid(), '', '', 'lost')`, "23514"},
		{"no currency", task + `VALUES ('n6', 'o6', 'u1', 'order_paid', 1, '', 2, now(), gen_random_uuid(), '', '', 'queued')`, "23514"},
		{"a contact", `INSERT INTO contact VALUES ('u1', 'jo@mail.example', 'en')`, ""},
		{"a contact in another language", `INSERT INTO contact VALUES ('u2', 'jo@mail.example', 'de')`, "23514"},
	} {
		_, err := pool.Exec(t.Context(), c.sql)
		if got := postgres.Code(err); got != c.state {
			t.Errorf("%s: got SQLSTATE %q, want %q", c.name, got, c.state)
		}
	}
}
