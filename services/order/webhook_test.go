package order

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"orderpaid/platform/pgtest"
)

func secret(key []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(key) }

func signedHeader(id, timestamp, signature string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", timestamp)
	h.Set("webhook-signature", signature)
	return h
}

// The example of the specification's own test suite, so that the verifier and
// the signer of these tests cannot be wrong in the same way.
// C84: it says which bytes are signed.
func TestVerifierAcceptsTheExampleOfTheSpecification(t *testing.T) {
	t.Parallel()
	v, err := NewVerifier([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	header := signedHeader("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	id, err := v.Verify(header, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0))
	if err != nil || id != "msg_p5jXN8AQM9LWM0D4loKWxJek" {
		t.Errorf("got %q, %v", id, err)
	}
}

// C84: the signature is of the bytes as they came and of the time beside them, which
// may be five minutes off in both directions.
func TestOnlyTheProvidersFreshSignatureIsAccepted(t *testing.T) {
	t.Parallel()
	oldKey, newKey, foreign := bytes.Repeat([]byte{1}, 24), bytes.Repeat([]byte{2}, 64), bytes.Repeat([]byte{3}, 32)
	v, err := NewVerifier([]string{secret(oldKey), secret(newKey)})
	if err != nil {
		t.Fatal(err)
	}
	const id, body = "msg_1", `{"type":"payment.succeeded"}`
	now := testTime
	stamp := strconv.FormatInt(now.Unix(), 10)
	good := sign(oldKey, id, now, body)
	signedAt := func(at time.Time) http.Header {
		return signedHeader(id, strconv.FormatInt(at.Unix(), 10), sign(oldKey, id, at, body))
	}
	dotted := "msg.1"
	for _, c := range []struct {
		name   string
		header http.Header
		want   error
	}{
		{"old key", signedHeader(id, stamp, good), nil},
		{"new key", signedHeader(id, stamp, sign(newKey, id, now, body)), nil},
		{"rotation: both", signedHeader(id, stamp, sign(foreign, id, now, body)+" "+good), nil},
		{"beside another scheme", signedHeader(id, stamp, "v1a,AAAA "+good), nil},
		{"almost five minutes old", signedAt(now.Add(-5 * time.Minute)), nil},
		{"almost five minutes early", signedAt(now.Add(5 * time.Minute)), nil},
		{"older", signedAt(now.Add(-5*time.Minute - time.Second)), errStale},
		{"from the future", signedAt(now.Add(5*time.Minute + time.Second)), errStale},
		{"foreign key", signedHeader(id, stamp, sign(foreign, id, now, body)), errBadSignature},
		{"of another body", signedHeader(id, stamp, sign(oldKey, id, now, body+" ")), errBadSignature},
		{"of another id", signedHeader("msg_2", stamp, good), errBadSignature},
		{"of another time", signedHeader(id, strconv.FormatInt(now.Unix()+1, 10), good), errBadSignature},
		{"without its scheme", signedHeader(id, stamp, strings.TrimPrefix(good, "v1,")), errBadSignature},
		{"of the asymmetric scheme", signedHeader(id, stamp, strings.Replace(good, "v1,", "v1a,", 1)), errBadSignature},
		{"cut short", signedHeader(id, stamp, good[:20]), errBadSignature},
		{"empty", signedHeader(id, stamp, "v1,"), errBadSignature},
		{"too many", signedHeader(id, stamp, strings.Repeat("v1,AAAA ", 8)+good), errBadSignature},
		{"time in words", signedHeader(id, "now", good), errBadSignature},
		{"long id", signedHeader(strings.Repeat("i", 201), stamp, good), errBadSignature},
		{"id with a dot", signedHeader(dotted, stamp, sign(oldKey, dotted, now, body)), errBadSignature},
		{"none", signedHeader(id, stamp, ""), errUnsigned},
		{"no id", signedHeader("", stamp, good), errUnsigned},
		{"no time", signedHeader(id, "", good), errUnsigned},
	} {
		if _, err := v.Verify(c.header, []byte(body), now); err != c.want && (err == nil || c.want == nil || err.Error() != c.want.Error()) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

func TestBadWebhookSecretsStopTheStartAndAreNotShown(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][]string{
		"none": nil, "no prefix": {base64.StdEncoding.EncodeToString(testKey)}, "not base64": {"whsec_***"},
		"short": {secret(make([]byte, 23))}, "long": {secret(make([]byte, 65))}, "second": {secret(testKey), "whsec_"},
	} {
		_, err := NewVerifier(secrets)
		if err == nil {
			t.Errorf("%s: got no error", name)
			continue
		}
		for _, s := range secrets {
			if strings.Contains(err.Error(), s) && s != "whsec_" {
				t.Errorf("%s: the error shows the secret: %v", name, err)
			}
		}
	}
}

// A callback that cannot be read is refused with its reason and
// leaves nothing, so that the provider shows it as failed.
func TestUnreadableCallbacksAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	body := func(amount, paymentID string) string {
		return fmt.Sprintf(`{"type":"payment.succeeded","timestamp":"2026-10-03T02:00:00Z","data":{"payment_id":%s,"order_id":%q,"amount":%s,"currency":"CNY"}}`,
			paymentID, o.OrderID, amount)
	}
	good := body("49900", `"pay_1"`)
	before := s.written(t)
	for _, c := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"nothing", "", 400, "empty_body"},
		{"not JSON", "<html>", 400, "malformed_json"},
		{"null", "null", 400, "missing_field"},
		{"an array", "[]", 400, "bad_type"},
		{"float amount", body("499.00", `"pay_1"`), 400, "bad_type"},
		{"float without a fraction", body("49900.0", `"pay_1"`), 400, "bad_type"},
		{"amount as text", body(`"49900"`, `"pay_1"`), 400, "bad_type"},
		{"amount null", body("null", `"pay_1"`), 400, "bad_type"},
		{"amount beyond int64", body("9223372036854775808", `"pay_1"`), 400, "bad_type"},
		{"amount zero", body("0", `"pay_1"`), 422, "invalid_callback"},
		{"amount negative", body("-49900", `"pay_1"`), 422, "invalid_callback"},
		{"two amounts", strings.Replace(good, `"amount":49900`, `"amount":49900,"amount":1`, 1), 400, "duplicate_field"},
		{"NUL", body("49900", `"pay\u0000"`), 400, "bad_text"},
		{"lone surrogate", body("49900", `"\ud83d"`), 400, "bad_text"},
		{"invalid UTF-8", body("49900", "\"\xff\""), 400, "bad_text"},
		{"payment id as number", body("49900", "1"), 400, "bad_type"},
		{"payment id empty", body("49900", `""`), 422, "invalid_callback"},
		{"payment id long", body("49900", `"`+strings.Repeat("p", 201)+`"`), 422, "invalid_callback"},
		{"no amount", strings.Replace(good, `"amount":49900,`, "", 1), 400, "missing_field"},
		{"amount misspelt", strings.Replace(good, `"amount"`, `"Amount"`, 1), 400, "missing_field"},
		{"no data", `{"type":"payment.succeeded","timestamp":"2026-10-03T02:00:00Z"}`, 400, "missing_field"},
		{"refund without id", strings.Replace(good, "succeeded", "refunded", 1), 400, "missing_field"},
		{"time in words", strings.Replace(good, "2026-10-03T02:00:00Z", "yesterday", 1), 400, "bad_type"},
		{"time as number", strings.Replace(good, `"2026-10-03T02:00:00Z"`, "1790992800", 1), 400, "bad_type"},
		{"time of another era", strings.Replace(good, "2026", "0001", 1), 422, "invalid_callback"},
		{"time of the year 10000 in UTC", strings.Replace(good, "2026-10-03T02:00:00Z", "9999-12-31T23:59:59-23:59", 1), 422, "invalid_callback"},
		{"time of the year 1969 in UTC", strings.Replace(good, "2026-10-03T02:00:00Z", "1970-01-01T00:00:00+14:00", 1), 422, "invalid_callback"},
		{"over 1 MiB", good + strings.Repeat(" ", 1<<20), 413, "body_too_large"},
	} {
		if r := s.callback(t, "msg_1", c.body); r.status != c.status || r.code() != c.code {
			t.Errorf("%s: got %s, want %d %s", c.name, r, c.status, c.code)
		}
	}
	if r := s.do(t, "POST", "/v1/webhooks/payments", good); r.status != 401 || r.code() != "signature_missing" {
		t.Errorf("unsigned: got %s, want 401 signature_missing", r)
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	r := s.do(t, "POST", "/v1/webhooks/payments", good, "webhook-id", "msg_1", "webhook-timestamp", stamp, "webhook-signature", "v1,AAAA")
	if r.status != 401 || r.code() != "signature_invalid" {
		t.Errorf("forged: got %s, want 401 signature_invalid", r)
	}
	if got := s.written(t); got != before {
		t.Errorf("got %d rows written, want none", got-before)
	}
	if r := s.callback(t, "msg_1", good); r.result() != applied() {
		t.Errorf("the same id with a body that can be read: got %s, want applied", r)
	}
}

// C124: a provider repeats what is too large for ever, and nobody else knows.
func TestACallbackThatIsTooLargeIsCountedAsRefused(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	s := newShopOn(t, pgtest.New(t, "order"), ServiceConfig{Meters: metric.NewMeterProvider(metric.WithReader(reader))})
	if r := s.callback(t, "msg_1", strings.Repeat(" ", 1<<20+1)); r.status != http.StatusRequestEntityTooLarge {
		t.Fatalf("got %s, want 413", r)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "shop_payment_callbacks" {
				for _, point := range sum.DataPoints {
					reason, _ := point.Attributes.Value("reason")
					refused = append(refused, reason.AsString())
				}
			}
		}
	}
	if !slices.Equal(refused, []string{"body_too_large"}) {
		t.Errorf("got %q, want body_too_large", refused)
	}
}

func TestFieldsThatTheProviderAddsAreIgnored(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	body := fmt.Sprintf(`{"type":"payment.succeeded","api":"2027","timestamp":"2026-10-03T10:00:00+08:00","data":
		{"payment_id":"pay_1","order_id":%q,"amount":49900,"exponent":2,"AMOUNT":1,"currency":"CNY","card":{"last4":"0000"}}}`, o.OrderID)
	if r := s.callback(t, "msg_1", body); r.result() != applied() {
		t.Errorf("got %s, want applied", r)
	}
	if got, want := s.get(t, o.OrderID).Payments[0].At, testTime; !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The provider would repeat for ever what is refused for a field that nobody needs.
func TestNullInAFieldThatATypeDoesNotNeedCountsAsAbsent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i, field := range []string{`"refund_id":null`, `"refund_id":7`, `"refund_id":"` + strings.Repeat("r", 201) + `"`} {
		o := s.placed(t)
		body := fmt.Sprintf(`{"type":"payment.succeeded","timestamp":"2026-10-03T02:00:00Z","data":{"payment_id":"pay_%d","order_id":%q,"amount":49900,"currency":"CNY",%s}}`,
			i, o.OrderID, field)
		if r := s.callback(t, fmt.Sprintf("msg_%d", i), body); r.result() != applied() {
			t.Errorf("%.20s: got %s, want applied", field, r)
		}
	}
}

// What is signed may be about money, whatever it looks like: a person has to see it.
func TestCallbackOfAnUnknownTypeIsKeptHoweverItLooks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	disputed := func(amount string) string {
		return fmt.Sprintf(`{"type":"payment.disputed","timestamp":"2026-10-03T02:00:00Z","data":{"order_id":%q,"payment_id":"pay_1","amount":%s,"currency":"CNY"}}`,
			o.OrderID, amount)
	}
	for i, body := range []string{
		disputed(`"19.99"`), disputed("19.99"), disputed("null"), disputed("1999"),
		`{"type":"payout.done","timestamp":"2026-10-03T02:00:00Z","data":{"order_id":null}}`,
		`{"type":"ping","timestamp":"2026-10-03T02:00:00Z","data":{}}`,
		`{"type":"ping","timestamp":"2026-10-03T02:00:00Z","data":[]}`,
		`{"type":"ping","timestamp":"2026-10-03T02:00:00Z","data":null}`,
		`{"type":"ping","timestamp":"2026-10-03T02:00:00Z"}`,
		`{"type":"ping"}`,
		`{"type":"ping","timestamp":1790992800}`,
		`{"type":"ping","timestamp":"9999-12-31T23:59:59-23:59"}`,
		`{"type":"ping","data":{"payment_id":"` + strings.Repeat("p", 5000) + `"}}`,
	} {
		for range 2 { // and a repetition gets the same answer
			if r := s.callback(t, fmt.Sprintf("msg_%d", i), body); r.result() != kept(ReasonUnknownType) || r.status != 202 {
				t.Errorf("%.80s: got %s, want 202 kept %s", body, r, ReasonUnknownType)
			}
		}
	}
	for _, e := range s.exceptions(t) {
		if e.Reason != ReasonUnknownType || e.State != ExceptionOpen {
			t.Errorf("got %+v, want it open for its type", e)
		}
	}
	if got := s.get(t, o.OrderID); len(got.Exceptions) != 4 { // each says something else
		t.Errorf("got %d exceptions of the order, want 4", len(got.Exceptions))
	}
}

// Two disputes that name no order are two, and who settles one has not seen the
// other. The same one, announced again at another time, is known.
func TestCallbacksOfAnUnknownTypeAreToldApartByWhatTheySay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	alice, viewer := s.operators(t)
	disputed := func(second int, charge string) string {
		return fmt.Sprintf(`{"type":"charge.disputed","timestamp":"2026-10-03T02:00:%02dZ","data":{"charge":%q}}`, second, charge)
	}
	s.callback(t, "msg_1", disputed(1, "ch_1"))
	settleAll(t, alice, "won", waiting(t, viewer)...)
	s.callback(t, "msg_2", disputed(2, "ch_1"))
	if left := waiting(t, viewer); len(left) != 0 {
		t.Errorf("got %+v, want the same dispute to stay settled", left)
	}
	s.callback(t, "msg_3", disputed(2, "ch_2"))
	if left := waiting(t, viewer); len(left) != 1 || left[0].About["callback_id"] != "msg_3" {
		t.Errorf("got %+v, want the second dispute to wait for a person", left)
	}
}

// Not every provider puts what it says into data. Its own id and its time are
// others each time, and make no other dispute.
func TestCallbacksOfAnUnknownTypeWithoutDataAreToldApartToo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, viewer := s.operators(t)
	disputed := func(id string, second int, charge string) {
		s.callback(t, id, fmt.Sprintf(`{"event_id":%q,"type":"charge.disputed","timestamp":"2026-10-03T02:00:%02dZ","charge":%q}`, id, second, charge))
	}
	disputed("msg_1", 1, "ch_1")
	disputed("msg_2", 2, "ch_1")
	disputed("msg_3", 2, "ch_2")
	s.callback(t, "msg_4", `{"type":"charge.disputed","id":"dp_3"}`)
	s.callback(t, "msg_5", `{"type":"charge.disputed","id":"dp_4"}`)
	var first []string
	for _, e := range waiting(t, viewer) {
		first = append(first, e.About["callback_id"])
	}
	slices.Sort(first)
	if want := []string{"msg_1", "msg_3", "msg_4", "msg_5"}; !slices.Equal(first, want) {
		t.Errorf("got exceptions that began with %v, want %v", first, want)
	}
}
