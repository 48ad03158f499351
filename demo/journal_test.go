package demo

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestTheJournalReturnsWhatManyWritersAppended(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "journal.jsonl")
	j, err := CreateJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 25
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if err := j.Append(Entry{Order: w*each + i, Op: OpPay, Outcome: Accepted}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	entries, err := ReadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]int{}
	for _, e := range entries {
		seen[e.Order]++
	}
	if len(entries) != writers*each || len(seen) != writers*each {
		t.Errorf("got %d entries of %d orders, want %d of each", len(entries), len(seen), writers*each)
	}
}

func TestALineCutShortByACrashIsNotAnEntry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	whole, cut := `{"order":1,"op":"pay","key":"k","outcome":"accepted"}`+"\n", `{"order":2,"op":"pa`
	if err := os.WriteFile(path, []byte(whole+cut), 0o644); err != nil {
		t.Fatal(err)
	}
	entries, err := ReadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Order != 1 {
		t.Errorf("got %+v, want the first entry alone", entries)
	}
}

func TestAJournalIsNeverWrittenOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	j, err := CreateJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := CreateJournal(path); err == nil {
		t.Error("a second journal took the place of the first")
	}
}
