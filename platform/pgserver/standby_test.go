package pgserver

import "testing"

// What a commit has answered is on the standby when its primary dies, and the
// address of both leads to whoever takes writes.
func TestAPromotedStandbyHasEveryCommit(t *testing.T) {
	t.Parallel()
	primary := start(t, Config{Dir: newDir(t), SharedBuffersMB: 16})
	standby, err := primary.StartStandby(t.Context(), Config{Dir: newDir(t), SharedBuffersMB: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	either := EitherDSN(primary, standby, "postgres")
	query(t, either, `CREATE TABLE payment (id text)`, `INSERT INTO payment VALUES ('pay_1')`)
	if got, want := query(t, primary.DSN("postgres"), `SELECT sync_state FROM pg_stat_replication`), "sync"; got != want {
		t.Errorf("the standby is %q, want %q", got, want)
	}
	primary.Kill()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, either, `INSERT INTO payment VALUES ('pay_2')`)
	if got, want := query(t, standby.DSN("postgres"), `SELECT string_agg(id, ' ' ORDER BY id) FROM payment`), "pay_1 pay_2"; got != want {
		t.Errorf("after the promotion there are %q, want %q", got, want)
	}
}
