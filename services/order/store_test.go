package order

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
)

func TestEveryStatementFitsTheSchema(t *testing.T) {
	t.Parallel()
	statements := statements(t)
	if len(statements) < 20 {
		t.Fatalf("got %d statements, want all of them", len(statements))
	}
	pgtest.PrepareAll(t, pgtest.New(t, "order"), statements)
}

// statements returns all constants of this package whose names begin with sql.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "sql") {
				return true
			}
			if text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value); err == nil {
				found[spec.Names[0].Name] = text
			}
			return true
		})
	}
	return found
}

// C14: nothing here counts in 32 bits, and what is refused or repeated burns
// no numbers worth speaking of.
func TestIDsDoNotRunOut(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rows, _ := s.pool.Query(t.Context(), `SELECT sequencename::text || ' ' || data_type::text FROM pg_sequences WHERE data_type <> 'bigint'::regtype`)
	small, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, sequence := range small {
		if !strings.HasPrefix(sequence, "goose_") { // counts migrations
			t.Errorf("sequence %s is not a bigint", sequence)
		}
	}
	for _, sequence := range []string{"order_history_history_id_seq", "payment_exception_exception_id_seq", "message_outbox_id_seq"} {
		s.exec(t, `SELECT setval($1::regclass, 2147483646)`, sequence)
	}
	for i := range 5 {
		o := s.placed(t)
		s.pay(t, o, fmt.Sprintf("pay_%d", i))
		s.pay(t, o, fmt.Sprintf("pay_%d_again", i))
	}
	exceptions := s.exceptions(t)
	if len(exceptions) != 5 || exceptions[4].ExceptionID != "2147483651" {
		t.Errorf("got %+v, want five exceptions with ids beyond 32 bits", exceptions)
	}
}

// C20: a repetition is recognised by rows and SQLSTATE, not by the words of a
// server that speaks another language.
func TestRepetitionsAreRecognisedInAnyLanguage(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Language: "zh_CN", Unsafe: true, SharedBuffersMB: 16, MaxConnections: 30})
	s := newShopOn(t, pgtest.On(t, srv, "order"), ServiceConfig{})
	_, err := s.pool.Exec(t.Context(), "SELECT nothing")
	t.Logf("the server says: %v", err)
	for range 3 {
		if r := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "key-1"); r.status != 201 {
			t.Errorf("order: got %s, want 201", r)
		}
	}
	messagingtest.RequireStaged[OrderCreated](t, s.pool)
	o := decode[orderView](t, s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "key-1"))
	atOnce(5, func(int) {
		if r := s.pay(t, o, "pay_1"); !status(r, 200) {
			t.Errorf("pay: got %s, want 200", r)
		}
	})
	message := awarded(t, o.OrderID, o.CreatedAt)
	for range 3 {
		if answers := messagingtest.Deliver(t, s.consumer(), message); !messagingtest.AllAcked(answers) {
			t.Errorf("got %+v, want it acknowledged", answers)
		}
	}
	if got := s.count(t, "message_inbox"); got != 1 {
		t.Errorf("got %d events applied, want 1", got)
	}
}

// The rules are in the schema as well, for the day on which the code forgets.
// C89: among these, a price of nothing.
func TestSchemaRefusesWhatTheRulesForbid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.paid(t)
	for _, sql := range []string{
		`UPDATE orders SET state = 'CANCELLED'`,
		`UPDATE orders SET state = 'CANCELLED', cancelled_at = now(), cancel_reason = 'x'`,
		`UPDATE orders SET refunded_amount = total_amount + 1`,
		`UPDATE orders SET points_taken_back = points + 1`,
		`UPDATE orders SET paid_at = NULL`,
		`UPDATE orders SET version = 0`,
		`INSERT INTO payment SELECT 'pay_2', order_id, amount, currency, provider_at, recorded_at FROM payment`,
		`UPDATE order_line SET line_amount = line_amount + 1`,
		`INSERT INTO product VALUES ('BAD SKU', 'a', 'b', 'c')`,
		`UPDATE product SET title_en = repeat('x', 10240) WHERE sku = 'OUT-PACK-38UL'`,
		`UPDATE product_price SET amount = 0`,
	} {
		if _, err := s.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: got no error", sql)
		}
	}
	if got := s.get(t, o.OrderID); got.State != StatePaid || got.Version != 2 {
		t.Errorf("got %+v, want it untouched", got)
	}
}
