package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// A replaysPage lists replays, and shows what one that is not made yet would do.
type replaysPage struct {
	Services  []answerOf[[]messaging.Replay]
	Consumers []string // service/consumer
	Plan      *opsapi.ReplayPlan
	Wrong     string

	// What was asked for, kept in the form.
	Consumer, Source, Key, Kind, Reason string
	AllowExternal                       bool
}

func (s *Service) getReplays(w http.ResponseWriter, r *http.Request) {
	s.showReplays(w, r, http.StatusOK, replaysPage{Source: "outbox"})
}

func (s *Service) showReplays(w http.ResponseWriter, r *http.Request, status int, p replaysPage) {
	p.Services = everywhere(r.Context(), s, r, func(ctx context.Context, c *opsapi.Client) ([]messaging.Replay, error) { return c.Replays(ctx) })
	infos := everywhere(r.Context(), s, r, func(ctx context.Context, c *opsapi.Client) (opsapi.ServiceInfo, error) { return c.Info(ctx) })
	for _, info := range infos {
		for _, c := range info.Answer.Consumers {
			p.Consumers = append(p.Consumers, info.Service+"/"+c.Name)
		}
	}
	s.render(w, r, status, "replays", view{Nav: "replays", Data: p})
}

// postReplay plans a replay, or makes the one that was planned. The plan
// changes nothing; what is made is started by a second click.
func (s *Service) postReplay(w http.ResponseWriter, r *http.Request) {
	p := replaysPage{Consumer: r.PostFormValue("consumer"), Source: r.PostFormValue("source"), Key: strings.TrimSpace(r.PostFormValue("key")),
		Kind: r.PostFormValue("kind"), Reason: r.PostFormValue("reason"), AllowExternal: r.PostFormValue("external") != ""}
	service, consumer, _ := strings.Cut(p.Consumer, "/")
	client, err := s.act(r, service)
	if err != nil {
		s.notFound(w, r)
		return
	}
	asked := opsapi.ReplayRequest{Consumer: consumer, AllowExternal: p.AllowExternal, Reason: p.Reason, From: opsapi.Selection{Source: p.Source}}
	switch p.Source {
	case "outbox":
		asked.From.AggregateID = p.Key
	case "failures":
		asked.From.Code = p.Key
	}
	if r.PostFormValue("action") == "create" {
		plan, err := client.CreateReplay(r.Context(), asked)
		if err == nil {
			setNotice(w, r, s.text(r, "replay.made", plan.Items))
			http.Redirect(w, r, "/operate/replays", http.StatusSeeOther)
			return
		}
		p.Wrong = s.opsSaid(r, err)
	} else if plan, err := client.PlanReplay(r.Context(), asked); err != nil {
		p.Wrong = s.opsSaid(r, err)
	} else {
		p.Plan = &plan
	}
	status := http.StatusOK
	if p.Wrong != "" {
		status = http.StatusUnprocessableEntity
	}
	s.showReplays(w, r, status, p)
}

// postMoveReplay starts, stops, approves or refuses a replay.
func (s *Service) postMoveReplay(w http.ResponseWriter, r *http.Request) {
	move := r.PostFormValue("action")
	id, err := uuid.Parse(chi.URLParam(r, "id"))
	client, unknown := s.act(r, chi.URLParam(r, "service"))
	if err != nil || unknown != nil || !slices.Contains([]string{"start", "stop", "approve", "refuse"}, move) {
		s.notFound(w, r)
		return
	}
	if _, err := client.MoveReplay(r.Context(), id, move, r.PostFormValue("reason")); err != nil {
		setNotice(w, r, s.opsSaid(r, err))
	} else {
		setNotice(w, r, s.text(r, "replay.moved."+move))
	}
	http.Redirect(w, r, "/operate/replays", http.StatusSeeOther)
}
