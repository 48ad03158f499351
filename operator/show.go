package operator

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"
)

// Write writes an explanation for people; what a customer may be told is in
// Chinese if chinese, else in English.
func (e Explanation) Write(out io.Writer, chinese bool) error {
	w := &writer{out: out}
	for i, t := range e.Trails {
		if i > 0 {
			w.line("")
		}
		t.write(w, chinese)
	}
	if len(e.Trails) == 0 {
		w.silences(e.Silent)
	}
	return w.err
}

func (t Trail) write(w *writer, chinese bool) {
	w.line("%s", t.Order)
	if chinese {
		w.line("%s", t.Verdict.ZH)
	} else {
		w.line("%s", t.Verdict.EN)
	}
	w.silences(t.Silent)
	w.table("\nevent\tversion\tat\tstate\tconsumer\tis\tsince\tmore", func(row func(...any)) {
		for _, e := range t.Events {
			row(e.Kind+" "+e.EventID.String(), number(e.AggregateVersion), moment(e.CreatedAt), e.outbox(), "", "", "", "")
			for _, c := range e.Consumers {
				row("", "", "", "", c.Consumer, c.is(), momentOf(c.At), c.more())
			}
		}
	})
	w.table("\nservice\trow\tid\tstate\tat\tsays", func(row func(...any)) {
		for _, e := range t.Effects {
			row(e.Service, e.What, e.ID, e.State, moment(e.At), pairs(e.Says))
		}
	})
	if len(t.Replays) > 0 {
		w.table("\nreplay\tof\tto\tis\texpected\tresult", func(row func(...any)) {
			for _, r := range t.Replays {
				row(r.ReplayID, r.EventID, r.Consumer, r.State, r.Expected, deref(r.Result))
			}
		})
	}
	if len(t.Actions) > 0 {
		w.table("\nat\twho\tdid\tto\tbecause", func(row func(...any)) {
			for _, a := range t.Actions {
				row(moment(a.At), a.Actor, a.Action.Action, a.Service+" "+a.Target, OneLine(a.Reason))
			}
		})
	}
}

// outbox says where an event is on its way to the broker.
func (e EventTrail) outbox() string {
	switch {
	case e.Stream != nil && e.StreamSeq != nil:
		return fmt.Sprintf("%s %s/%d", e.State, *e.Stream, *e.StreamSeq)
	case e.LastError != nil && *e.LastError != "":
		return fmt.Sprintf("%s, %d attempts: %s", e.State, e.Attempts, OneLine(*e.LastError))
	default:
		return e.State
	}
}

func (c ConsumerTrail) is() string {
	if c.Result != "" && c.Result != c.State {
		return c.State + " (" + c.Result + ")"
	}
	return c.State
}

func (c ConsumerTrail) more() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if c.ErrorCode != "" {
		add("%s, %d attempts", c.ErrorCode, c.Attempts)
	}
	if c.Behind != "" {
		add("behind %s", c.Behind)
	}
	if c.State == AtRetrying && c.NextAttemptAt != nil {
		add("next %s", moment(*c.NextAttemptAt))
	}
	if c.State == AtDeadLetter {
		add("for %s by %s; shopctl dead-letters show %s; %s", c.Owner, momentOf(c.DueAt), c.DeadLetter, c.Runbook)
	}
	return strings.Join(parts, ", ")
}

// Write writes a report for people.
func (r Report) Write(out io.Writer) error {
	w := &writer{out: out}
	w.line("looked at %s to %s, %d %% of the orders", moment(r.Since), moment(r.Until), r.Sample)
	if r.Shortened {
		w.line("messages from before that are put away, and nothing can be compared with them")
	}
	w.table("", func(row func(...any)) {
		row("facts that must be published", r.Facts)
		row("events compared with the stream", r.OnStream)
		row("events too old to be on it", r.Aged)
		row("events compared with inboxes", r.Handled)
		row("of these, recorded as failures", r.Waiting)
		row("effects traced to their events", r.Effects)
		row("invariants checked", r.Checks)
		row("findings", len(r.Findings))
	})
	for _, known := range r.Known {
		w.line("on somebody's desk already: %s", known)
	}
	w.silences(r.Silent)
	counts := map[string]int{}
	for _, f := range r.Findings {
		counts[f.Check+"\t"+f.Service+"\t"+f.Consumer+"\t"+f.Repair]++
	}
	if len(counts) == 0 {
		return w.err
	}
	w.table("\nfinding\tin\tconsumer\tmended by\tcount", func(row func(...any)) {
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			parts := strings.Split(key, "\t")
			row(parts[0], parts[1], parts[2], orNothing(parts[3]), counts[key])
		}
	})
	r.writeFindings(w)
	return w.err
}

// maxShown bounds the findings that are listed one by one; --json has all.
const maxShown = 50

func (r Report) writeFindings(w *writer) {
	w.table("\nfinding\tin\tabout\tevent\tsays\tdone\tlook with", func(row func(...any)) {
		for i, f := range r.Findings {
			if i == maxShown {
				break
			}
			about := f.Event.Key
			if f.Event.Kind != "" {
				about += " " + f.Event.Kind
			}
			row(f.Check, f.Service, about, eventID(f.Event.EventID), OneLine(f.Says), f.Repaired, f.Look)
		}
	})
	if len(r.Findings) > maxShown {
		w.line("… and %d more: --json lists them all", len(r.Findings)-maxShown)
	}
	if r.Cut {
		w.line("there were too many findings: the run ended early")
	}
}

func orNothing(repair string) string {
	if repair == "" {
		return "a person"
	}
	return repair
}

func eventID(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// Outcomes writes what a replay expects, in a fixed order: apply 3, stale 1.
func Outcomes(expected map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, expected[name]))
	}
	return strings.Join(parts, ", ")
}

// A writer remembers its first error, so that the code above reads as text.
type writer struct {
	out io.Writer
	err error
}

func (w *writer) line(format string, args ...any) {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = Printable(s)
		}
	}
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}

// table writes aligned columns; cells may not hold tabs.
func (w *writer) table(head string, fill func(row func(...any))) {
	t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	if head != "" {
		fmt.Fprintln(t, head)
	}
	fill(func(cells ...any) {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, Printable(fmt.Sprint(cell)))
		}
		fmt.Fprintln(t)
	})
	if err := t.Flush(); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *writer) silences(silent []Silence) {
	for _, s := range silent {
		w.line("! %s: %s", s.Service, s.Reason)
	}
}

// OneLine keeps a text from breaking a table.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Printable keeps what came from outside (an id, the text of an error) from
// moving the cursor, clearing the screen or turning the direction of writing.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '?'
		}
		return r
	}, s)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func momentOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return moment(*t)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return formatID(n)
}

func pairs(says map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(says)) {
		parts = append(parts, name+" "+says[name])
	}
	return strings.Join(parts, ", ")
}
