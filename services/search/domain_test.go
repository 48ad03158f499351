package search

import (
	"errors"
	"testing"
	"time"

	"orderpaid/platform/opsapi"
)

// One such time in the index would make every list with its order unreadable.
func TestChangesAtATimeThatCannotBeWrittenAreRefused(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"9999-12-31T23:59:59-23:59", "1970-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z"} {
		at, err := time.Parse(time.RFC3339, zone)
		if err != nil {
			t.Fatal(err)
		}
		for name, ev := range map[string]interface {
			change(version int64) (Change, error)
		}{
			"paid":      OrderPaid{"ord_1", at},
			"refunded":  OrderRefunded{"ord_1", Money{1, "CNY", 2}, at},
			"cancelled": OrderCancelled{"ord_1", at},
		} {
			if _, err := ev.change(2); err == nil {
				t.Errorf("%s at %s: got no error", name, zone)
			}
		}
	}
}

func TestACursorOfEffectsThatIsNoneIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, after := range []string{"rubbish", "rubbish ord_1", "9999-12-31T23:59:59-23:59 ord_1"} {
		if _, err := f.service.effects(t.Context(), opsapi.Window{Since: noon, Until: noon, After: after, Limit: 1}); !errors.Is(err, opsapi.ErrBadCursor) {
			t.Errorf("%q: got %v, want bad_cursor", after, err)
		}
	}
}
