package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
)

func keepMail(t *testing.T, box *mailbox, id string) {
	t.Helper()
	if err := box.add(Mail{MessageID: id, To: []string{"a@shop.example"}, Text: "for " + id}); err != nil {
		t.Fatal(err)
	}
}

func findAll(t *testing.T, box *mailbox) (ids []string) {
	t.Helper()
	mails, err := box.find(Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mails {
		ids = append(ids, m.MessageID)
	}
	return ids
}

func TestMailsSurviveARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mails")
	first, err := openMailbox(path, 10)
	if err != nil {
		t.Fatal(err)
	}
	keepMail(t, first, "<1>")
	keepMail(t, first, "<2>")
	keepMail(t, first, "<1>")
	first.close()

	second := openBox(t, path, 10)
	if got, want := fmt.Sprint(findAll(t, second)), "[<1> <2> <1>]"; got != want {
		t.Errorf("after the restart: got %s, want %s", got, want)
	}
	if got, want := second.totals(), (Totals{Mails: 3, MessageIDs: 2, Copies: 1}); got != want {
		t.Errorf("totals: got %+v, want %+v", got, want)
	}
}

func TestAMailThatWasHalfWrittenAtACrashIsCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mails")
	first, err := openMailbox(path, 10)
	if err != nil {
		t.Fatal(err)
	}
	keepMail(t, first, "<1>")
	if _, err := first.file.WriteAt([]byte(`{"message_id":"<2>","te`), first.size); err != nil {
		t.Fatal(err)
	}
	first.close()

	second := openBox(t, path, 10)
	keepMail(t, second, "<3>")
	second.close()
	third := openBox(t, path, 10)
	if got, want := fmt.Sprint(findAll(t, third)), "[<1> <3>]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheIndexIsBoundedAndTheFileKeepsAll(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mails")
	box := openBox(t, path, 2)
	for i := range 5 {
		keepMail(t, box, fmt.Sprintf("<%d>", i))
	}
	if got, want := fmt.Sprint(findAll(t, box)), "[<3> <4>]"; got != want {
		t.Errorf("in the index: got %s, want %s", got, want)
	}
	if got, want := box.totals(), (Totals{Mails: 2, MessageIDs: 2, Dropped: 3}); got != want {
		t.Errorf("totals: got %+v, want %+v", got, want)
	}
	all := openBox(t, path, 100)
	if got, want := len(findAll(t, all)), 5; got != want {
		t.Errorf("in the file: got %d mails, want %d", got, want)
	}
}

func TestMailsArrivingTogetherAreAllKept(t *testing.T) {
	t.Parallel()
	box := openBox(t, "", 1000)
	var g errgroup.Group
	for i := range 200 {
		g.Go(func() error { return box.add(Mail{MessageID: fmt.Sprint(i)}) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := box.totals().MessageIDs, 200; got != want {
		t.Errorf("got %d mails, want %d", got, want)
	}
	if box.synced != box.size {
		t.Errorf("%d of %d bytes are on the disk", box.synced, box.size)
	}
}

func TestClearedMailsAreGoneFromTheFileToo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mails")
	box := openBox(t, path, 10)
	keepMail(t, box, "<1>")
	if err := box.clear(); err != nil {
		t.Fatal(err)
	}
	if got := findAll(t, box); len(got) != 0 {
		t.Errorf("still there: %v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("the file has %d bytes (%v)", info.Size(), err)
	}
}
