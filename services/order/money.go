package order

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// exponents holds how many digits of an amount in minor units stand behind the
// decimal point. ISO 4217; currencies that are not listed are refused, because
// to guess two digits is to be wrong by a hundred times.
var exponents = map[string]int{
	"AED": 2, "AUD": 2, "BHD": 3, "BRL": 2, "CAD": 2, "CHF": 2, "CLF": 4, "CLP": 0, "CNY": 2, "CZK": 2, "DKK": 2,
	"EUR": 2, "GBP": 2, "HKD": 2, "HUF": 2, "IDR": 2, "INR": 2, "IQD": 3, "ISK": 0, "JOD": 3, "JPY": 0, "KRW": 0,
	"KWD": 3, "LYD": 3, "MOP": 2, "MXN": 2, "MYR": 2, "NOK": 2, "NZD": 2, "OMR": 3, "PHP": 2, "PLN": 2, "SEK": 2,
	"SGD": 2, "THB": 2, "TND": 3, "TWD": 2, "USD": 2, "VND": 0, "ZAR": 2,
}

// Exponent returns the number of decimal places of a currency.
func Exponent(currency string) (places int, known bool) {
	places, known = exponents[currency]
	return places, known
}

// ErrOverflow: the result does not fit into an int64.
var ErrOverflow = errors.New("amount overflows")

// Money is an exact amount: a whole number of minor units of a currency.
// There is no float anywhere near it, because 19.99 × 100 is not 1999 there.
type Money struct {
	Amount   int64  // minor units: 1990 is 19.90 CNY, and 1990 JPY
	Currency string // ISO 4217
}

// Add returns m + o. Both must be of one currency.
func (m Money) Add(o Money) (Money, error) {
	if m.Currency != o.Currency {
		return Money{}, fmt.Errorf("add %s to %s: different currencies", o.Currency, m.Currency)
	}
	sum := m.Amount + o.Amount
	if (sum > m.Amount) != (o.Amount > 0) {
		return Money{}, fmt.Errorf("add %s to %s: %w", o, m, ErrOverflow)
	}
	return Money{sum, m.Currency}, nil
}

// Times returns m × n for n ≥ 0.
func (m Money) Times(n int64) (Money, error) {
	high, low := bits.Mul64(magnitude(m.Amount), uint64(n))
	if n < 0 || high != 0 || low > math.MaxInt64 {
		return Money{}, fmt.Errorf("%s times %d: %w", m, n, ErrOverflow)
	}
	if m.Amount < 0 {
		return Money{-int64(low), m.Currency}, nil
	}
	return Money{int64(low), m.Currency}, nil
}

// String returns the amount as people write it: "19.90 CNY", "1990 JPY".
func (m Money) String() string {
	places, known := Exponent(m.Currency)
	if !known {
		return fmt.Sprintf("%d minor units of %s", m.Amount, m.Currency)
	}
	digits := strconv.FormatUint(magnitude(m.Amount), 10)
	if missing := places + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	if places > 0 {
		digits = digits[:len(digits)-places] + "." + digits[len(digits)-places:]
	}
	if m.Amount < 0 {
		digits = "-" + digits
	}
	return digits + " " + m.Currency
}

// magnitude is |n|, which for the smallest int64 only fits unsigned.
func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// A PointsRule says how many minor units of a currency earn one point. A
// currency that it does not name earns one point for each whole major unit:
// 19.90 CNY earn 19.
type PointsRule map[string]int64

// DefaultPointsRule differs from one point per major unit only where that unit
// is small: a yen is worth about as much as a cent, so 1050 JPY earn 10.
func DefaultPointsRule() PointsRule { return PointsRule{"JPY": 100} }

// Points returns what a payment earns. Fractions of a point are dropped.
func (r PointsRule) Points(m Money) int64 {
	per, named := r[m.Currency]
	if !named {
		places, _ := Exponent(m.Currency)
		per = 1
		for range places {
			per *= 10
		}
	}
	return m.Amount / per
}
