package shopctl

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"orderpaid/platform/opsapi"
)

// A list is what services answered to one question. One that does not answer
// must not hide what the others say.
type list[T any] struct {
	entries []T
	more    []string // the services that have more than they were asked for
	errs    []error  // of those that did not answer, and what to do if that was everybody
}

// askEach asks one service after the other; own puts its name to an entry.
func askEach[E, T any](clients []*opsapi.Client, ask func(*opsapi.Client) (opsapi.Page[E], error), own func(service string, entry E) T) list[T] {
	l := list[T]{entries: []T{}}
	for _, c := range clients {
		page, err := ask(c)
		if err != nil {
			l.errs = append(l.errs, err)
			continue
		}
		for _, entry := range page.Items {
			l.entries = append(l.entries, own(c.Service(), entry))
		}
		if page.Next != "" {
			l.more = append(l.more, c.Service())
		}
	}
	l.errs = unanswered(l.errs, len(clients))
	return l
}

// write prints the entries: as JSON, or a row for each below the head, and
// whether there are more. Its error says who did not answer.
func (l list[T]) write(out io.Writer, asJSON bool, head string, row func(T) []string) error {
	if asJSON {
		return errors.Join(append(l.errs, printJSON(out, l.entries))...)
	}
	if len(l.entries) == 0 && len(l.errs) > 0 { // that there are none was not said
		return errors.Join(l.errs...)
	}
	rows := make([][]string, len(l.entries))
	for i, entry := range l.entries {
		rows[i] = row(entry)
	}
	err := table(out, head, rows)
	if err == nil && len(l.more) > 0 {
		_, err = fmt.Fprintf(out, "… and more of %s: --limit shows more lines\n", strings.Join(l.more, ", "))
	}
	return errors.Join(append(l.errs, err)...)
}
