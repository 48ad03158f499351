package shopctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"orderpaid/operator"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// Services are whom most commands ask.
type Services struct {
	Services map[string]string `name:"service-url" env:"SHOPCTL_SERVICES" mapsep:" " placeholder:"NAME=URL" help:"The listener for operators of a service, under the service's name. Repeat it, or separate several with blanks."`
	Token    process.Secret    `name:"token" env:"SHOPCTL_TOKEN" help:"Who you are to the services. Better in the environment than here: other users can see flags."`
	Deadline time.Duration     `name:"deadline" default:"3s" help:"How long a service may take before it counts as silent. Defaults to 3s."`
	JSON     bool              `name:"json" help:"Print JSON, for programs."`
}

// Reason is why something is done. It is kept with the action.
type Reason struct {
	Reason string `name:"reason" required:"" help:"Why. It is kept with your name, for whoever asks later."`
}

func (s Services) fleet() (*operator.Fleet, error) {
	if len(s.Services) == 0 || s.Token == "" {
		return nil, errNobody(setServices)
	}
	return operator.NewFleet(s.Services, s.Token, s.Deadline)
}

func (s Services) client(service string) (*opsapi.Client, error) {
	fleet, err := s.fleet()
	if err != nil {
		return nil, err
	}
	return fleet.Service(service)
}

// clients returns one service's API, or all of them.
func (s Services) clients(service string) ([]*opsapi.Client, error) {
	fleet, err := s.fleet()
	if err != nil {
		return nil, err
	}
	if service != "" {
		c, err := fleet.Service(service)
		return []*opsapi.Client{c}, err
	}
	var all []*opsapi.Client
	for _, name := range fleet.Names() {
		c, err := fleet.Service(name)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// ownerOf returns the service that has a consumer.
func (s Services) ownerOf(ctx context.Context, consumer string) (*opsapi.Client, error) {
	clients, err := s.clients("")
	if err != nil {
		return nil, err
	}
	var names []string
	var errs []error
	for _, c := range clients {
		info, err := c.Info(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, has := range info.Consumers {
			if has.Name == consumer {
				return c, nil
			}
			names = append(names, has.Name)
		}
	}
	if len(errs) == len(clients) {
		return nil, errors.Join(unanswered(errs, len(clients))...)
	}
	return nil, errors.Join(append(errs, fmt.Errorf("no service has a consumer %q; there are %s", consumer, strings.Join(names, ", ")))...)
}

// atLeastOne refuses a number of lines or events that a list would answer with
// nothing, as if there were nothing, or with another number than was asked for.
func atLeastOne(flag string, n int) error {
	if n < 1 {
		return fmt.Errorf("--%s %d: at least 1", flag, n)
	}
	return nil
}

// printJSON writes a value for programs.
func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// nothing stands where a list has no lines: a bare head would leave the reader
// in doubt whether the command has worked.
const nothing = "none"

// history writes what people did to something, if they did.
func history(out io.Writer, actions [][]string) error {
	if len(actions) == 0 {
		return nil
	}
	return table(out, "at\twho\tdid\tbecause", actions)
}

// table writes rows in columns. What came from outside is made printable.
func table(out io.Writer, head string, rows [][]string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, nothing)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, operator.Printable(operator.OneLine(cell)))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// splitRef reads service/id.
func splitRef(ref string) (service, id string, err error) {
	service, id, found := strings.Cut(ref, "/")
	if !found || service == "" || id == "" {
		return "", "", fmt.Errorf("%q is not service/id, such as points/12", ref)
	}
	return service, id, nil
}

// byService sorts references by their service, which must be asked once each.
func byService(refs []string) (map[string][]string, error) {
	groups := map[string][]string{}
	for _, ref := range refs {
		service, id, err := splitRef(ref)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(groups[service], id) {
			groups[service] = append(groups[service], id)
		}
	}
	return groups, nil
}

func parseEvents(texts []string) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(texts))
	for i, text := range texts {
		var err error
		if ids[i], err = uuid.Parse(text); err != nil {
			return nil, fmt.Errorf("%q is not the id of an event", text)
		}
	}
	return ids, nil
}

func moment(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func text[T any](p *T) string {
	if p == nil {
		return ""
	}
	return fmt.Sprint(*p)
}
