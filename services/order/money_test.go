package order

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// C06, C07: amounts are exact, and each currency has its own exponent.
func TestMoneyReadsAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		money Money
		want  string
	}{
		{Money{1999, "CNY"}, "19.99 CNY"},
		{Money{829, "USD"}, "8.29 USD"},
		{Money{820, "USD"}, "8.20 USD"},
		{Money{59980, "CNY"}, "599.80 CNY"},
		{Money{5, "CNY"}, "0.05 CNY"},
		{Money{0, "CNY"}, "0.00 CNY"},
		{Money{-5, "CNY"}, "-0.05 CNY"},
		{Money{1050, "JPY"}, "1050 JPY"},
		{Money{1234, "BHD"}, "1.234 BHD"},
		{Money{7, "KWD"}, "0.007 KWD"},
		{Money{1234, "XXX"}, "1234 minor units of XXX"},
		{Money{math.MaxInt64, "CNY"}, "92233720368547758.07 CNY"},
		{Money{math.MinInt64, "CNY"}, "-92233720368547758.08 CNY"},
	} {
		if got := c.money.String(); got != c.want {
			t.Errorf("%d %s: got %q, want %q", c.money.Amount, c.money.Currency, got, c.want)
		}
	}
}

func TestMoneyAddsAndMultipliesExactlyOrSaysThatItOverflows(t *testing.T) {
	t.Parallel()
	cny := func(amount int64) Money { return Money{amount, "CNY"} }
	if got, err := cny(10).Add(cny(20)); err != nil || got != cny(30) { // 0.10 + 0.20
		t.Errorf("got %v, %v; want 0.30", got, err)
	}
	if got, err := cny(1999).Times(100); err != nil || got != cny(199900) {
		t.Errorf("got %v, %v; want 1999.00", got, err)
	}
	for name, overflow := range map[string]func() (Money, error){
		"max + 1":   func() (Money, error) { return cny(math.MaxInt64).Add(cny(1)) },
		"min + -1":  func() (Money, error) { return cny(math.MinInt64).Add(cny(-1)) },
		"2^62 × 2":  func() (Money, error) { return cny(1 << 62).Times(2) },
		"max × max": func() (Money, error) { return cny(math.MaxInt64).Times(math.MaxInt64) },
	} {
		if got, err := overflow(); !errors.Is(err, ErrOverflow) {
			t.Errorf("%s: got %v, %v; want ErrOverflow", name, got, err)
		}
	}
	if got, err := cny(1).Add(Money{1, "JPY"}); err == nil {
		t.Errorf("1 CNY + 1 JPY: got %v, want an error", got)
	}
}

func TestMoneyTimesEqualsRepeatedAddition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := Money{rapid.Int64Range(-1<<40, 1<<40).Draw(t, "amount"), "CNY"}
		n := rapid.Int64Range(0, 50).Draw(t, "n")
		want := Money{0, "CNY"}
		for range n {
			sum, err := want.Add(m)
			if err != nil {
				t.Fatal(err)
			}
			want = sum
		}
		if got, err := m.Times(n); err != nil || got != want {
			t.Fatalf("%v × %d: got %v, %v; want %v", m, n, got, err, want)
		}
	})
}

// C07: the rule names its currencies; a yen is not a yuan.
func TestPointsAreOneForEachWholeUnit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		money Money
		want  int64
	}{
		{Money{1990, "CNY"}, 19},
		{Money{99, "CNY"}, 0},
		{Money{1999, "USD"}, 19},
		{Money{1050, "JPY"}, 10},
		{Money{99, "JPY"}, 0},
		{Money{1234, "BHD"}, 1},
		{Money{5000, "KRW"}, 5000},
	} {
		if got := DefaultPointsRule().Points(c.money); got != c.want {
			t.Errorf("%s: got %d points, want %d", c.money, got, c.want)
		}
	}
	if got, want := (PointsRule{"CNY": 1000}).Points(Money{49900, "CNY"}), int64(49); got != want {
		t.Errorf("one point for each 10 CNY: got %d points of 499 CNY, want %d", got, want)
	}
}
