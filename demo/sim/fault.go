package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Fault is something the mail server does wrong on purpose.
type Fault struct {
	// Kind is one of
	//	refuse  answer with Code at Stage
	//	hang    take the whole mail, answer nothing for DelayMS or until the fault is cleared, then hang up
	//	drop    take the whole mail and hang up instead of answering
	//	slow    take the whole mail and answer after DelayMS
	Kind string `json:"kind"`

	Stage   string `json:"stage,omitempty"`    // refuse: hello, sender, recipient or data. Defaults to data
	Code    int    `json:"code,omitempty"`     // refuse: 400 to 599. Defaults to 451
	Status  string `json:"status,omitempty"`   // refuse: the enhanced status beside the code (RFC 3463), such as 5.4.5. Defaults to 4.0.0 or 5.0.0
	Text    string `json:"text,omitempty"`     // refuse: the words after them, in ASCII. Defaults to "refused on request"
	Keep    bool   `json:"keep,omitempty"`     // hang, drop: keep the mail all the same: accepted, and nobody told
	DelayMS int    `json:"delay_ms,omitempty"` // hang, slow: how long. A hang without it lasts until it is cleared
	Times   int    `json:"times,omitempty"`    // how often it strikes. 0: until it is cleared
	To      string `json:"to,omitempty"`       // only recipients whose address contains this; not for stages hello and sender
}

// The kinds of faults and the stages of a refusal.
const (
	refuse = "refuse"
	hang   = "hang"
	drop   = "drop"
	slow   = "slow"

	atHello     = "hello"
	atSender    = "sender"
	atRecipient = "recipient"
	atData      = "data"
)

const maxDelay = 10 * time.Minute

var (
	statusPattern = regexp.MustCompile(`^[45]\.[0-9]{1,3}\.[0-9]{1,3}$`)
	textPattern   = regexp.MustCompile(`^[ -~]{1,200}$`)
)

// complete fills in the defaults and refuses what makes no sense.
func (f *Fault) complete() error {
	if f.Kind == refuse && f.Stage == "" {
		f.Stage = atData
	}
	if f.Kind == refuse && f.Code == 0 {
		f.Code = 451
	}
	if f.Status == "" {
		f.Status = fmt.Sprintf("%d.0.0", f.Code/100)
	}
	if f.Text == "" {
		f.Text = "refused on request"
	}
	switch {
	case !slices.Contains([]string{refuse, hang, drop, slow}, f.Kind):
		return fmt.Errorf("kind %q is none of refuse, hang, drop, slow", f.Kind)
	case f.Kind == refuse && !slices.Contains([]string{atHello, atSender, atRecipient, atData}, f.Stage):
		return fmt.Errorf("stage %q is none of hello, sender, recipient, data", f.Stage)
	case f.Kind == refuse && (f.Code < 400 || f.Code > 599):
		return fmt.Errorf("code %d is not between 400 and 599", f.Code)
	case f.Kind == refuse && !statusPattern.MatchString(f.Status):
		return fmt.Errorf("status %q is not three numbers such as 5.4.5", f.Status)
	case f.Kind == refuse && !textPattern.MatchString(f.Text):
		return fmt.Errorf("text %q is not one line of at most 200 letters of ASCII", f.Text)
	case f.DelayMS < 0 || f.delay() > maxDelay:
		return fmt.Errorf("delay_ms must be between 0 and %d", maxDelay.Milliseconds())
	case f.Times < 0:
		return fmt.Errorf("times must not be negative")
	}
	return nil
}

func (f *Fault) delay() time.Duration { return time.Duration(f.DelayMS) * time.Millisecond }

// faults is the list of what goes wrong at the moment. The first that fits a
// mail strikes.
type faults struct {
	mu      sync.Mutex
	list    []Fault
	cleared chan struct{} // closed when the list is replaced, which ends every hang
}

func newFaults() *faults { return &faults{cleared: make(chan struct{})} }

// set replaces all faults.
func (f *faults) set(list []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
	close(f.cleared)
	f.cleared = make(chan struct{})
}

func (f *faults) current() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// strike returns the fault that hits a mail to these recipients at this stage,
// and counts it. The channel is closed when the faults change.
func (f *faults) strike(stage string, to ...string) (fault Fault, cleared <-chan struct{}, hit bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, candidate := range f.list {
		if !candidate.fits(stage, to) {
			continue
		}
		if candidate.Times == 1 {
			f.list = slices.Delete(f.list, i, i+1)
		} else if candidate.Times > 1 {
			f.list[i].Times--
		}
		return candidate, f.cleared, true
	}
	return Fault{}, nil, false
}

func (f *Fault) fits(stage string, to []string) bool {
	if f.Kind == refuse && f.Stage != stage || f.Kind != refuse && stage != atData {
		return false
	}
	return f.To == "" || slices.ContainsFunc(to, func(address string) bool { return strings.Contains(address, f.To) })
}
