package order

import (
	"strings"
	"testing"
	"time"
)

// A person who answers a customer reads these aloud.
func TestFollowUpsAreToldInWords(t *testing.T) {
	t.Parallel()
	promised := testTime.Add(30 * time.Second)
	followUp := func(kind FollowUpKind, state FollowUpState, code string) FollowUp {
		return FollowUp{Kind: kind, State: state, Since: testTime, PromisedBy: promised, Code: code}
	}
	for _, c := range []struct {
		followUp FollowUp
		want     string
	}{
		{followUp(FollowUpPoints, FollowUpPending, ""), "The points will come by 02:00:30 UTC on 3 October 2026."},
		{followUp(FollowUpPoints, FollowUpPending, "").At(promised.Add(1)),
			"The points should have come by 02:00:30 UTC on 3 October 2026. It is late, not lost: the shop is still working on it."},
		{followUp(FollowUpPoints, FollowUpDone, ""), "The points were booked at 02:00:00 UTC on 3 October 2026."},
		{followUp(FollowUpNotification, FollowUpDone, ""),
			"The mail that confirms the payment was handed to the customer's mail server at 02:00:00 UTC on 3 October 2026."},
	} {
		if got := c.followUp.says(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for code, want := range map[string]string{
		"no_contact": "no mail address is known", "rejected": "refused it for good", "gave_up": "refused it too often",
		"outcome_unknown": "may have arrived", "": "not known", "invented_later": "invented_later",
	} {
		if got := followUp(FollowUpNotification, FollowUpFailed, code).says(); !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want it to say %q", code, got, want)
		}
	}
}
