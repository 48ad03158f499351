package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// The pages of operators. Everything goes through the services' ops APIs with
// the visitor's own token: they decide what it may do and write down who it
// was, so this file can neither allow nor hide anything.

type signInPage struct {
	Actors []Actor
	Wrong  string
	To     string
}

func (s *Service) showSignIn(w http.ResponseWriter, r *http.Request, status int, wrong string) {
	to := "/operate/"
	if r.Method == http.MethodGet && r.URL.Path != "/sign-in" {
		to = r.URL.RequestURI()
	}
	s.render(w, r, status, "signin", view{Nav: "operate", Data: signInPage{s.actors, wrong, to}})
}

func (s *Service) getSignIn(w http.ResponseWriter, r *http.Request) {
	s.showSignIn(w, r, http.StatusOK, "")
}

// postSignIn takes a token, or the name of somebody whom the demo lends one.
// A token that no service knows is refused here, so that nobody believes to be
// signed in who is not.
func (s *Service) postSignIn(w http.ResponseWriter, r *http.Request) {
	token, name := process.Secret(strings.TrimSpace(r.PostFormValue("token"))), s.text(r, "signed_in")
	for _, a := range s.actors {
		if a.Name == r.PostFormValue("actor") {
			token, name = a.token, a.Name
		}
	}
	if token == "" || !s.known(r.Context(), token) {
		s.showSignIn(w, r, http.StatusUnauthorized, s.text(r, "token_unknown"))
		return
	}
	signIn(w, r, name, token)
	http.Redirect(w, r, localPath(r.PostFormValue("to")), http.StatusSeeOther)
}

func (s *Service) known(ctx context.Context, token process.Secret) bool {
	for _, name := range serviceNames {
		client, err := s.client(name, token)
		if err != nil {
			continue
		}
		if _, err := client.Info(ctx); err == nil {
			return true
		}
	}
	return false
}

func (s *Service) postSignOut(w http.ResponseWriter, r *http.Request) {
	setCookie(w, r, actorCookie, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// act returns the ops API of the service that the path names, for the visitor.
func (s *Service) act(r *http.Request, service string) (*opsapi.Client, error) {
	_, token := actorOf(r)
	return s.client(service, token)
}

// opsSaid puts an answer of an ops API into a sentence.
func (s *Service) opsSaid(r *http.Request, err error) string {
	var no *httpserver.Error
	if errors.As(err, &no) {
		return s.text(r, "refused", no.Detail)
	}
	return s.text(r, "no_answer")
}

// everywhere asks every service at once and keeps the order of the names.
func everywhere[T any](ctx context.Context, s *Service, r *http.Request, ask func(context.Context, *opsapi.Client) (T, error)) []answerOf[T] {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	answers := make([]answerOf[T], len(serviceNames))
	var wg sync.WaitGroup
	for i, name := range serviceNames {
		wg.Go(func() {
			answers[i].Service = name
			client, err := s.act(r, name)
			if err == nil {
				answers[i].Answer, err = ask(ctx, client)
			}
			if err != nil {
				answers[i].Wrong = s.opsSaid(r, err)
			}
		})
	}
	wg.Wait()
	return answers
}

type answerOf[T any] struct {
	Service string
	Answer  T
	Wrong   string // why there is no answer
}

// getDeadLetters lists what could not be applied, in all services, or in the one
// whose list goes on. A list of another state is a page that does not exist: to
// show the unresolved for it would answer a question that nobody has asked.
func (s *Service) getDeadLetters(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	state, after := cmp.Or(q.Get("state"), "unresolved"), q.Get("after")
	if !slices.Contains([]string{"unresolved", "resolved", "discarded"}, state) {
		s.notFound(w, r)
		return
	}
	data := struct {
		State    string
		Services []answerOf[opsapi.Page[messaging.DeadLetter]]
		Total    int
	}{State: state}
	data.Services = everywhere(r.Context(), s, r, func(ctx context.Context, c *opsapi.Client) (opsapi.Page[messaging.DeadLetter], error) {
		if after != "" && c.Service() != q.Get("service") {
			return opsapi.Page[messaging.DeadLetter]{}, nil
		}
		return c.DeadLetters(ctx, opsapi.FailureFilter{State: state, After: after, Size: 50})
	})
	for _, answer := range data.Services {
		data.Total += len(answer.Answer.Items)
	}
	s.render(w, r, http.StatusOK, "deadletters", view{Nav: "operate", Data: data})
}

// A letterPage is one dead letter. Payload is set once the visitor has said why
// it must be seen; Masked shows its shape to everybody.
type letterPage struct {
	Service string
	ID      string
	opsapi.FailureDetail
	Shape   string
	Payload string
	Wrong   string
	Owned   string // the reason that was given, kept in the form
}

// Settled reports whether nothing is to be done any more.
func (p letterPage) Settled() bool { return p.State == "resolved" || p.State == "discarded" }

func (s *Service) getDeadLetter(w http.ResponseWriter, r *http.Request) {
	s.showDeadLetter(w, r, http.StatusOK, letterPage{})
}

func (s *Service) showDeadLetter(w http.ResponseWriter, r *http.Request, status int, p letterPage) {
	p.Service, p.ID = chi.URLParam(r, "service"), chi.URLParam(r, "id")
	client, err := s.act(r, p.Service)
	if err == nil {
		p.FailureDetail, err = client.DeadLetter(r.Context(), p.ID)
	}
	if err != nil {
		s.render(w, r, http.StatusNotFound, "missing", view{Nav: "operate", Notice: s.opsSaid(r, err)})
		return
	}
	p.Shape = indented(p.Masked)
	v := view{Nav: "operate", Data: p}
	if p.State == "retrying" && p.Payload == "" {
		v.Refresh = 3
	}
	s.render(w, r, status, "deadletter", v)
}

// indented writes JSON for people, with every digit as it was: a number that
// goes through a float64 is another one above 2^53.
func indented(raw json.RawMessage) string {
	var out bytes.Buffer
	if len(raw) == 0 || json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}

// postDeadLetter does what the form asks for: reveal, retry, fix or discard.
func (s *Service) postDeadLetter(w http.ResponseWriter, r *http.Request) {
	id, reason, action := chi.URLParam(r, "id"), r.PostFormValue("reason"), r.PostFormValue("action")
	p := letterPage{Owned: reason, Payload: r.PostFormValue("event")}
	client, err := s.act(r, chi.URLParam(r, "service"))
	if err != nil {
		s.notFound(w, r)
		return
	}
	one := opsapi.FailureSelection{IDs: []string{id}, Reason: reason}
	switch action {
	case "reveal":
		var shown opsapi.FailurePayload
		if shown, err = client.Reveal(r.Context(), id, reason); err == nil {
			p.Payload = indented(shown.Event)
			if shown.Event == nil {
				p.Payload = string(shown.Raw)
			}
			s.showDeadLetter(w, r, http.StatusOK, p)
			return
		}
	case "retry":
		_, err = client.Retry(r.Context(), one)
	case "discard":
		_, err = client.Discard(r.Context(), one)
	case "fix":
		if !json.Valid([]byte(p.Payload)) {
			p.Wrong = s.text(r, "letter.not_json")
			s.showDeadLetter(w, r, http.StatusUnprocessableEntity, p)
			return
		}
		_, err = client.Fix(r.Context(), id, opsapi.Fix{Event: json.RawMessage(p.Payload), Reason: reason})
	default:
		s.notFound(w, r)
		return
	}
	if err != nil {
		p.Wrong = s.opsSaid(r, err)
		s.showDeadLetter(w, r, http.StatusUnprocessableEntity, p)
		return
	}
	setNotice(w, r, s.text(r, "letter.done."+action))
	http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
}

// getActions shows what people did, with their reasons.
func (s *Service) getActions(w http.ResponseWriter, r *http.Request) {
	answers := everywhere(r.Context(), s, r, func(ctx context.Context, c *opsapi.Client) (opsapi.Page[messaging.Action], error) {
		return c.Actions(ctx, "", 50)
	})
	type entry struct {
		Service string
		messaging.Action
	}
	data := struct {
		Entries []entry
		Wrong   []string
	}{}
	for _, a := range answers {
		for _, action := range a.Answer.Items {
			data.Entries = append(data.Entries, entry{a.Service, action})
		}
		if a.Wrong != "" {
			data.Wrong = append(data.Wrong, a.Service+": "+a.Wrong)
		}
	}
	slices.SortFunc(data.Entries, func(a, b entry) int { return b.At.Compare(a.At) })
	s.render(w, r, http.StatusOK, "actions", view{Nav: "actions", Data: data})
}
