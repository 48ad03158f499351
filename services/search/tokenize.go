package search

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// PostgreSQL's own parsers take a run of Chinese or Japanese for one word, and
// an emoji for a blank. So text is cut here, in the same way for documents and
// for queries, and PostgreSQL only stores the pieces and intersects them:
//
//	登山背包 38L    登 登山 山 山背 背 背包 包 · 38l
//	Ｔシャツ        t · シ シャ ャ ャツ ツ
//	🎁礼物盒        🎁 🎁礼 礼 礼物 物 物盒 盒
//
// Scripts that put no blanks between words are cut into characters and
// overlapping pairs. A query of one character looks for it; one of more
// characters is a phrase of pairs, which is exact, because lexemes carry
// positions. (With pairs alone, one character would be a prefix search: smaller
// to store, but PostgreSQL misjudges it and reads the whole table for it.)

// What one document may add to the index. Without these bounds PostgreSQL
// refuses a text of some megabytes ("string is too long for tsvector"), now
// and at every retry. What lies beyond them is not found; the rest is.
const (
	maxTextBytes   = 16 << 10  // of each text are looked at
	maxLexemeBytes = 128       // longer words are cut, in queries too; PostgreSQL allows 2046
	maxPosition    = 1<<14 - 1 // PostgreSQL's own: beyond it all positions become equal
	maxPerLexeme   = 255       // positions of one lexeme, PostgreSQL's own
	maxVectorBytes = 256 << 10 // of all lexemes; PostgreSQL allows 1 MiB with the positions
	textGap        = 3         // positions between two texts, so that no phrase spans them
)

// vectorOf returns the literal of a tsvector of texts, the most important
// first: what does not fit is left out from the end.
func vectorOf(texts ...string) string {
	positions := map[string][]int{}
	size, start := 0, 1
	for _, text := range texts {
		tokens := tokenize(fold(truncate(text, maxTextBytes)))
		for _, t := range tokens {
			known := positions[t.text]
			if known == nil {
				size += len(t.text)
			}
			if start+t.pos > maxPosition || size > maxVectorBytes {
				return vectorLiteral(positions)
			}
			if len(known) < maxPerLexeme {
				positions[t.text] = append(known, start+t.pos)
			}
		}
		if n := len(tokens); n > 0 {
			start += tokens[n-1].pos + 1 + textGap
		}
	}
	return vectorLiteral(positions)
}

// vectorLiteral writes 'lexeme':1,7 'other':2.
func vectorLiteral(positions map[string][]int) string {
	var b strings.Builder
	for _, lexeme := range slices.Sorted(maps.Keys(positions)) {
		b.WriteString(quote(lexeme))
		for i, pos := range positions[lexeme] {
			b.WriteByte(":,"[min(i, 1)])
			b.WriteString(strconv.Itoa(pos))
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// queryOf returns the literal of the tsquery that finds q, or "" if q holds
// nothing that could be found. What stands between blanks is one phrase, and
// all phrases must be there, in any order. q has no operators.
func queryOf(q string) string {
	var phrases []string
	for chunk := range strings.FieldsSeq(fold(q)) {
		if p := phrase(tokenize(chunk)); p != "" {
			phrases = append(phrases, p)
		}
	}
	return strings.Join(phrases, " & ")
}

// phrase demands that the tokens stand as far apart as they do in the query.
func phrase(tokens []token) string {
	var b strings.Builder
	last := 0
	for _, t := range tokens {
		if t.part {
			continue // the pairs say the same
		}
		if b.Len() > 0 {
			fmt.Fprintf(&b, " <%d> ", t.pos-last)
		}
		b.WriteString(quote(t.text))
		last = t.pos
	}
	return b.String()
}

// quote makes a lexeme of any text.
func quote(lexeme string) string { return "'" + quotes.Replace(lexeme) + "'" }

var quotes = strings.NewReplacer(`'`, `''`, `\`, `\\`)

// A token is one lexeme of a text.
type token struct {
	text string
	pos  int  // counts words and characters, from 0
	part bool // a character that is also in a pair
}

// tokenize cuts folded text.
func tokenize(text string) []token {
	var c cutter
	for _, r := range text {
		c.add(r)
	}
	c.flush()
	return c.tokens
}

// A cutter holds the word, or the run without blanks, that it is in.
type cutter struct {
	tokens []token
	next   int // position
	word   []byte
	kind   alphabet // of the last letter or digit of the word
	run    []string // characters, each with its marks
}

func (c *cutter) add(r rune) {
	switch classOf(r) {
	case unspaced:
		c.flushWord()
		c.run = append(c.run, string(r))
	case spaced:
		c.flushRun()
		kind := alphabetOf(r)
		if c.kind == digits && kind == foreign || c.kind == foreign && kind == digits {
			c.flushWord()
		}
		c.kind = kind
		c.extendWord(r)
	case mark: // belongs to what it stands on, if it stands on anything
		if n := len(c.run); n > 0 && len(c.run[n-1])+utf8.RuneLen(r) <= maxLexemeBytes/2 {
			c.run[n-1] += string(r)
		} else if len(c.word) > 0 {
			c.extendWord(r)
		}
	default:
		c.flush()
	}
}

func (c *cutter) extendWord(r rune) {
	if len(c.word)+utf8.RuneLen(r) <= maxLexemeBytes {
		c.word = utf8.AppendRune(c.word, r)
	}
}

func (c *cutter) flush() {
	c.flushWord()
	c.flushRun()
}

func (c *cutter) flushWord() {
	if len(c.word) > 0 {
		c.tokens = append(c.tokens, token{text: string(c.word), pos: c.next})
		c.next++
		c.word = c.word[:0]
	}
	c.kind = none
}

func (c *cutter) flushRun() {
	for i, char := range c.run {
		c.tokens = append(c.tokens, token{text: char, pos: c.next, part: len(c.run) > 1})
		if i+1 < len(c.run) {
			c.tokens = append(c.tokens, token{text: char + c.run[i+1], pos: c.next})
		}
		c.next++
	}
	c.run = c.run[:0]
}

// fold removes the differences that no one searches for: composed or not, full
// or half width, upper or lower case, accents, which digits, and what is not seen.
func fold(text string) string {
	text = strings.Map(plain, norm.NFKC.String(text))
	text = norm.NFKC.String(cases.Fold().String(text))
	return norm.NFC.String(withoutAccents(norm.NFD.String(text)))
}

// withoutAccents drops the accents of Latin and Greek letters, which stand
// behind them in a decomposed text: who looks for a café types cafe, on a
// keyboard that has no é. In other scripts a mark makes another letter: й is no и.
func withoutAccents(decomposed string) string {
	accented := false // the letter before is one whose accents do not count
	return strings.Map(func(r rune) rune {
		if 0x0300 <= r && r <= 0x036F {
			if accented {
				return -1
			}
			return r
		}
		accented = unicode.In(r, unicode.Latin, unicode.Greek)
		return r
	}, decomposed)
}

// plain drops what is not seen, bidirectional controls above all, and the
// points of Arabic and Hebrew, which most people leave out. It writes all
// decimal digits as 0 to 9.
func plain(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
		return r
	case unicode.In(r, unicode.Cf, unicode.Me, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector),
		unicode.Is(optionalMarks, r):
		return -1
	case unicode.Is(unicode.Nd, r):
		return '0' + digit(r)
	}
	return r
}

// optionalMarks: points of Hebrew, and of Arabic with the tatweel; skin tones.
var optionalMarks = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x0591, 0x05BD, 1}, {0x05BF, 0x05BF, 1}, {0x05C1, 0x05C2, 1}, {0x05C4, 0x05C5, 1}, {0x05C7, 0x05C7, 1},
		{0x0610, 0x061A, 1}, {0x0640, 0x0640, 1}, {0x064B, 0x065F, 1}, {0x0670, 0x0670, 1}, {0x06D6, 0x06DC, 1}, {0x06DF, 0x06E4, 1},
		{0x06E7, 0x06E8, 1}, {0x06EA, 0x06ED, 1},
	},
	R32: []unicode.Range32{{0x1F3FB, 0x1F3FF, 1}},
}

// digit returns the value of a decimal digit. Unicode keeps each script's ten
// together and in order, so the start of the range gives it.
func digit(r rune) rune {
	for _, ten := range unicode.Nd.R16 {
		if lo, hi := rune(ten.Lo), rune(ten.Hi); r <= hi {
			return (r - lo) % 10
		}
	}
	for _, ten := range unicode.Nd.R32 {
		if lo, hi := rune(ten.Lo), rune(ten.Hi); r <= hi {
			return (r - lo) % 10
		}
	}
	return 0
}

// A class says how a character takes part in the cutting.
type class int

const (
	separator class = iota // blanks, punctuation, controls
	spaced                 // letters and digits of scripts that put blanks between words
	unspaced               // characters of scripts that do not, and symbols
	mark                   // combining: part of the character before it
)

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		if '0' <= r && r <= '9' || 'a' <= r && r <= 'z' {
			return spaced
		}
		return separator
	case unicode.In(r, unicode.Mn, unicode.Mc):
		return mark
	case unicode.IsLetter(r) || unicode.IsNumber(r):
		if r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
			unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) {
			return unspaced
		}
		return spaced
	case r != utf8.RuneError && unicode.Is(unicode.So, r),
		// Emoji and Han that are younger than this program's Unicode tables.
		0x1F000 <= r && r <= 0x1FBFF, 0x20000 <= r && r <= 0x3FFFF:
		return unspaced
	}
	return separator
}

// An alphabet says what a letter or digit of a spaced script is next to.
type alphabet int

const (
	none    alphabet = iota // the word has not begun
	latin                   // letters of codes
	foreign                 // all other letters
	digits
)

// alphabetOf tells where words end that are written without a blank: a number
// that touches a Hebrew, Arabic or Cyrillic word is one of its own, because
// whoever looks for שלום means שלום123 too. A number in Latin letters is a part
// of a code (A4, 38L, ord_0198…), which is one word.
func alphabetOf(r rune) alphabet {
	switch {
	case unicode.Is(unicode.Latin, r):
		return latin
	case unicode.IsNumber(r):
		return digits
	default:
		return foreign
	}
}

// truncate cuts a text to at most n bytes, between two characters.
func truncate(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
