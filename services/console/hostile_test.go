package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgtest"
)

// C58: every text that a service may answer with was once written by somebody:
// a title, a reason to cancel, the text of an error, why an operator acted. On
// each page it is text.
func TestNoAnswerOfAServiceBecomesMarkupOnAnyPage(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(answerHostile))
	s.pool = pgtest.New(t, "console")
	order := newOrder()
	cookies := []*http.Cookie{
		{Name: actorCookie, Value: url.QueryEscape(hostile + ":token")}, {Name: cartCookie, Value: url.QueryEscape("A-1*2")},
		{Name: ordersCookie, Value: order}, {Name: noticeCookie, Value: url.QueryEscape(hostile)},
	}
	pages := map[string]string{}
	for _, path := range []string{
		"/", "/cart", "/orders", "/orders/" + order, "/pay/" + order, "/search?q=" + url.QueryEscape(hostile), "/account", "/live",
		"/why?key=" + url.QueryEscape(hostile), "/operate/", "/operate/dead-letters/points/1", "/operate/replays", "/operate/reconcile?window=1h",
		"/operate/actions", "/operate/desk", "/operate/exceptions/order/1", "/sign-in?to=" + url.QueryEscape(hostile),
	} {
		pages[path] = get(t, s, path, cookies...).Body.String()
	}
	const letter = "/operate/dead-letters/points/1"
	pages["reveal"] = post(t, s, letter, url.Values{"action": {"reveal"}, "reason": {hostile}}).Body.String()
	pages["fix"] = post(t, s, letter, url.Values{"action": {"fix"}, "reason": {hostile}, "event": {hostile}}).Body.String()
	pages["plan"] = post(t, s, "/operate/replays", url.Values{"consumer": {"points/" + hostile}, "source": {hostile}, "key": {hostile}, "kind": {hostile}, "reason": {hostile}}).Body.String()
	pages["sign in"] = post(t, s, "/sign-in", url.Values{"token": {hostile}, "to": {hostile}}).Body.String()
	for page, body := range pages {
		for _, markup := range []string{"<img", "alert(2)</script"} {
			if strings.Contains(body, markup) {
				at := strings.Index(body, markup)
				t.Errorf("%s: text became markup: %s", page, body[max(0, at-80):min(len(body), at+80)])
			}
		}
		if page != "/live" && page != "sign in" && !strings.Contains(body, "&lt;img src=x") {
			t.Errorf("%s shows nothing of it: the test has lost its subject", page)
		}
	}
}

// answerHostile answers as the service that has the route would, with hostile
// in the place of every text.
func answerHostile(w http.ResponseWriter, r *http.Request) {
	var v any
	switch p := r.URL.Path; {
	case p == "/v1/products":
		v = hostileOf[struct {
			Items []product `json:"items"`
		}]()
	case strings.HasPrefix(p, "/v1/products/"):
		v = hostileOf[product]()
	case p == "/v1/orders/search":
		v = hostileOf[hits]()
	case strings.HasPrefix(p, "/v1/orders/"):
		v = hostileOf[order]()
	case strings.HasSuffix(p, "/points"):
		v = hostileOf[account]().Balance
	case strings.HasSuffix(p, "/entries"):
		v = map[string]any{"entries": hostileOf[account]().Entries.Entries}
	case strings.HasSuffix(p, "/notifications"):
		v = map[string]any{"notifications": hostileOf[account]().Mails.Notifications}
	case p == "/mails":
		v = map[string]any{"mails": []any{map[string]any{"subject": hostile, "text": hostile}}}
	case p == "/ops/dead-letters":
		v = hostileOf[opsapi.Page[messaging.DeadLetter]]()
	case strings.HasSuffix(p, "/reveal"):
		v = opsapi.FailurePayload{Event: json.RawMessage(quoted(hostile))}
	case strings.HasPrefix(p, "/ops/dead-letters/"):
		v = hostileOf[opsapi.FailureDetail]()
	case p == "/ops/exceptions":
		v = hostileOf[opsapi.Page[opsapi.Exception]]()
	case strings.HasPrefix(p, "/ops/exceptions/"):
		v = hostileOf[opsapi.ExceptionDetail]()
	case p == "/ops/doubts":
		v = hostileOf[opsapi.Page[opsapi.Doubt]]()
	case p == "/ops/actions":
		v = hostileOf[opsapi.Page[messaging.Action]]()
	case p == "/ops/replays":
		v = hostileOf[opsapi.Page[messaging.Replay]]()
	case p == "/ops/service":
		v = hostileOf[opsapi.ServiceInfo]()
	case p == "/ops/evidence":
		v = hostileOf[opsapi.Evidence]()
	case p == "/ops/invariants":
		v = hostileOf[opsapi.Page[opsapi.Invariant]]()
	default:
		httpserver.WriteError(w, r, &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: "no", Detail: hostile})
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, v)
}

// hostileOf returns a T with hostile in every text, and one entry in each list.
func hostileOf[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem(), "")
	return v
}

func fill(v reflect.Value, field string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Now()))
		return
	case uuid.UUID:
		v.Set(reflect.ValueOf(uuid.Must(uuid.NewV7())))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(quoted(hostile))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		switch field {
		case "Currency":
			v.SetString("CNY") // another one is not sold
		case "OrderID":
			v.SetString(newOrder()) // others are left out
		default:
			v.SetString(hostile)
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), v.Type().Field(i).Name)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), field)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, field)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("en").Convert(v.Type().Key()), value)
	}
}

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}
