package search

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// C10: blanks do not end words in every script. C110: nor do accents count in
// every one.
func TestTextIsCutTheWayItIsWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"words", "Ultralight Backpack, 38 L", "ultralight backpack 38 l"},
		{"Chinese", "登山背包", "登 登山 山 山背 背 背包 包"},
		{"one character", "包 背", "包 背"},
		{"Japanese, all scripts as one run", "語のテスト", "語 語の の のテ テ テス ス スト ト"},
		{"Japanese long vowel", "ルーム", "ル ルー ー ーム ム"},
		{"Japanese iteration mark", "人々", "人 人々 々"},
		{"Korean", "등산 배낭", "등 등산 산 배 배낭 낭"},
		{"Thai, marks with their letters", "กี่วัน", "กี่ กี่วั วั วัน น"},
		{"Latin within Chinese", "男士T恤", "男 男士 士 t 恤"},
		{"full width", "Ｔシャ　Ａ４", "t シ シャ ャ a4"},
		{"half width", "ｼｬ ｶﾞ", "シ シャ ャ ガ"},
		{"emoji", "🎁礼物", "🎁 🎁礼 礼 礼物 物"},
		{"emoji with skin tone, joiner and variation selector", "👩🏽‍🚀 ❤️", "👩 👩🚀 🚀 ❤"},
		{"a flag", "🇯🇵", "🇯 🇯🇵 🇵"},
		{"Arabic with points, digits and tatweel", "حَقِيبَة ظـهر ٣٨ لتر", "حقيبة ظهر 38 لتر"},
		{"Hebrew with points", "שָׁלוֹם 38", "שלום 38"},
		{"a number that touches a Hebrew word", "שָׁלוֹם123 123שלום", "שלום 123 123 שלום"},
		{"a number that touches an Arabic word", "حقيبة٣٨", "حقيبة 38"},
		{"a number in a code", "A4b 38L ｘ１", "a4b 38l x1"},
		{"a number between two scripts", "a1я2b", "a1 я 2b"},
		{"bidirectional controls", "\u202eabc\u202c d\u200fe\u2066f\u2069", "abc def"},
		{"German sharp s and capitals", "STRASSE straße", "strasse strasse"},
		{"Greek final sigma", "ΣΟΦΟΣ σοφος", "σοφοσ σοφοσ"},
		{"ligatures, circled and Roman numbers", "ﬁt ① Ⅷ", "fit 1 viii"},
		{"accents", "Café CRÈME Ångström piñata phở ὀδύσσεια", "cafe creme angstrom pinata pho οδυσσεια"},
		{"marks that make another letter", "чай ガ", "чай ガ"},
		{"punctuation only", "！？…--", ""},
		{"nothing", "", ""},
		{"a mark on nothing", "\u0301 a", "a"},
		{"Han that is younger than the tables", "\U000323b0\U000323b1", "\U000323b0 \U000323b0\U000323b1 \U000323b1"},
		{"not UTF-8", "a\xff\xfeb", "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, token := range tokenize(fold(tt.text)) {
				got = append(got, token.text)
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("tokens of %q: got %s, want %s", tt.text, got, tt.want)
			}
		})
	}
}

func TestWhatLooksTheSameIsTheSame(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"Café Crème é", "ガラスびん", "등산", "Ⅷ ﷺ", "Ångström Å", "آب", "x\u0323\u0307"} {
		want := vectorOf(norm.NFC.String(text))
		for name, form := range map[string]norm.Form{"NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD} {
			if got := vectorOf(form.String(text)); got != want {
				t.Errorf("%s of %q: got %s, want %s", name, text, got, want)
			}
		}
	}
}

// C78: of signs alone nothing is left to look for, which finds nothing.
func TestAQueryIsPhrasesThatMustAllBeThere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ query, want string }{
		{"Backpack 38", `'backpack' & '38'`},
		{"登山", `'登山'`},
		{"登山背包", `'登山' <1> '山背' <1> '背包'`},
		{"包", `'包'`},
		{"🎁", `'🎁'`},
		{"男士T恤 red", `'男士' <2> 't' <1> '恤' & 'red'`},
		{"state-of-the-art", `'state' <1> 'of' <1> 'the' <1> 'art'`},
		{"  ", ""},
		{"!!! --", ""},
		{"שלום123", `'שלום' <1> '123'`},
		{`' & \ | ! ( ) :* <->`, ""},
		{`o'neil\`, `'o' <1> 'neil'`},
	} {
		if got := queryOf(tt.query); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.query, got, tt.want)
		}
	}
}

// C08: PostgreSQL refuses a vector that is too large, so each has bounds.
func TestAVectorHasBounds(t *testing.T) {
	t.Parallel()
	var words strings.Builder
	for i := range 400_000 {
		words.WriteString(strings.ToLower(string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + string(rune('a'+i/17576)) + " "))
	}
	for name, texts := range map[string][]string{
		"two megabytes of words":     {words.String()},
		"a hundred long texts":       slicesOf(words.String(), 100),
		"a word without an end":      {strings.Repeat("x", 3<<20)},
		"many copies of one word":    slicesOf(strings.Repeat("again ", 2000), 50),
		"a run without an end":       {strings.Repeat("包", 1<<20)},
		"a mountain of marks":        {"e" + strings.Repeat("\u0301", 1<<16)},
		"a mountain of marks on Han": {strings.Repeat("包"+strings.Repeat("\u0301", 500), 1000)},
	} {
		vector := vectorOf(texts...)
		if len(vector) > 1<<20 {
			t.Errorf("%s: the literal has %d bytes", name, len(vector))
		}
		for _, token := range tokenize(fold(truncate(texts[0], maxTextBytes))) {
			if len(token.text) > maxLexemeBytes {
				t.Fatalf("%s: a lexeme has %d bytes, want at most %d", name, len(token.text), maxLexemeBytes)
			}
		}
	}
}

func slicesOf(text string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = text
	}
	return texts
}

func TestEveryDecimalDigitHasItsValue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		zero rune
		name string
	}{{'0', "ASCII"}, {'٠', "Arabic"}, {'۰', "Persian"}, {'०', "Devanagari"}, {'๐', "Thai"}, {'０', "full width"}, {'𝟎', "bold"}, {0x1E950, "Adlam"}} {
		for i := range rune(10) {
			if r := tt.zero + i; !unicode.Is(unicode.Nd, r) || digit(r) != i {
				t.Errorf("%s %d: got %d", tt.name, i, digit(r))
			}
		}
	}
}

func TestTruncateCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for n := range 12 {
		if got := truncate("a背包🎁", n); !utf8.ValidString(got) || len(got) > n || !strings.HasPrefix("a背包🎁", got) {
			t.Errorf("%d bytes: got %q", n, got)
		}
	}
}
