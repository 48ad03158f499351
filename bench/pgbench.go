package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"orderpaid/platform/pgserver"
)

// pgbench is PostgreSQL's own load generator: C, prepared statements, one
// session a client. It gets a script made of the recorded statements, with the
// same round trips, and with expressions where the ids of an order stand.

// payByPgbench measures PostgreSQL with the service's statements.
func (s *stand) payByPgbench(ctx context.Context) (Reading, error) {
	statements, err := s.capturePayment(ctx)
	if err != nil {
		return nil, err
	}
	perClient := s.payments / payClients
	shop, err := s.openShop(ctx, s.always, perClient*payClients, shopSetup{conns: 1})
	if err != nil {
		return nil, err
	}
	defer shop.close()
	script := filepath.Join(s.dir, "pay.pgbench")
	if err := os.WriteFile(script, []byte(statements.script(perClient)), 0o600); err != nil {
		return nil, err
	}
	m, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	tps, err := runPgbench(ctx, shop.db.dsn, script, perClient)
	if err != nil {
		return nil, err
	}
	r, err := m.stop(ctx, perClient*payClients)
	if err != nil {
		return nil, err
	}
	r[rate] = tps // without the start of the program and its connections
	delete(r, cpuOwn)
	return r, checkPaid(ctx, shop.pool, perClient*payClients)
}

var pgbenchRate = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)`)

func runPgbench(ctx context.Context, dsn, script string, perClient int) (tps float64, err error) {
	program, err := findPgbench()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "--no-vacuum", "--protocol=prepared",
		"--client="+strconv.Itoa(payClients), "--jobs=2", "--transactions="+strconv.Itoa(perClient), "--define=i=-1", "--file="+script, dsn)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	m := pgbenchRate.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench does not say how fast it was:\n%s", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// findPgbench looks beside the server's own programs, and then on the PATH.
func findPgbench() (string, error) {
	bin, err := pgserver.Find()
	if err != nil {
		return "", err
	}
	server, err := filepath.EvalSymlinks(filepath.Join(bin, "postgres"))
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(server), "pgbench")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	return exec.LookPath("pgbench")
}

// script writes the payment for pgbench. Each client counts through orders of
// its own.
func (p *payStatements) script(perClient int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\\set i :i + 1\n\\set n :client_id * %d + :i\n", perClient)
	for _, step := range p.steps {
		if len(step) > 1 {
			b.WriteString("\\startpipeline\n")
		}
		for _, st := range step {
			b.WriteString(p.literal(st) + ";\n")
		}
		if len(step) > 1 {
			b.WriteString("\\endpipeline\n")
		}
	}
	return b.String()
}

var parameter = regexp.MustCompile(`\$[0-9]+`)

// literal puts the arguments into the statement's text.
func (p *payStatements) literal(st statement) string {
	text := parameter.ReplaceAllStringFunc(st.sql, func(name string) string {
		i, err := strconv.Atoi(name[1:])
		if err != nil || i < 1 || i > len(st.args) {
			return name // PostgreSQL will say what is wrong
		}
		return p.value(st.args[i-1])
	})
	return strings.Join(strings.Fields(text), " ")
}

// value writes an argument as SQL.
func (p *payStatements) value(arg any) string {
	switch v := arg.(type) {
	case nil:
		return "NULL"
	case []byte:
		return p.bytes(v)
	case uuid.UUID:
		return p.text(v.String())
	case time.Time:
		return p.text(v.Format(time.RFC3339Nano))
	}
	v := reflect.ValueOf(arg)
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "NULL"
		}
		return p.value(v.Elem().Interface())
	case reflect.Slice:
		elements := make([]string, v.Len())
		for i := range elements {
			elements[i] = p.value(v.Index(i).Interface())
		}
		return "ARRAY[" + strings.Join(elements, ", ") + "]"
	case reflect.String:
		return p.text(v.String())
	default: // numbers and booleans
		return fmt.Sprint(arg)
	}
}

// text writes a string, with an expression for each id of the recorded order.
// Colons and blanks are escaped: pgbench takes the first for its variables,
// and the script has each statement on one line.
func (p *payStatements) text(s string) string {
	const number = `lpad(to_hex(:n::bigint), 32, '0')`
	s = escapes.Replace(s)
	for _, id := range []struct{ recorded, expression string }{
		{orderID(0), `ord_' || ` + number + ` || E'`},
		{paymentID(0), `pay_' || ` + number + ` || E'`},
		{callbackID(0), `msg_' || ` + number + ` || E'`},
		{p.event.String(), p.event.String()[:24] + `' || lpad(to_hex(:n::bigint), 12, '0') || E'`},
	} {
		s = strings.ReplaceAll(s, id.recorded, id.expression)
	}
	if strings.Contains(s, "||") {
		return "(E'" + s + "')"
	}
	return "E'" + s + "'"
}

var escapes = strings.NewReplacer(`\`, `\\`, `'`, `''`, ":", `\x3A`, " ", `\x20`, "\n", `\n`, "\t", `\t`, ";", `\x3B`, "|", `\x7C`)

func (p *payStatements) bytes(b []byte) string {
	if !utf8.Valid(b) {
		return `'\x` + hex.EncodeToString(b) + `'::bytea`
	}
	return "convert_to(" + p.text(string(b)) + ", 'UTF8')"
}
