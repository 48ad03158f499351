package console

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"

	"golang.org/x/text/language"
)

// Languages of the pages. Every text is in locale/<language>.json under the
// same key; a test compares the files.
var languages = []string{"en", "zh"}

//go:embed locale/*.json
var localeFiles embed.FS

// A catalogue holds the texts of one language.
type catalogue map[string]string

func loadCatalogue(language string) (catalogue, error) {
	raw, err := localeFiles.ReadFile("locale/" + language + ".json")
	if err != nil {
		return nil, fmt.Errorf("texts in %s: %w", language, err)
	}
	var c catalogue
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("texts in %s: %w", language, err)
	}
	return c, nil
}

// text returns the text for a key, with its places filled. A key without a
// text is shown as it is: ugly, and never a broken page.
func (c catalogue) text(key string, args ...any) string {
	text, ok := c[key]
	if !ok {
		return key
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// has returns the text for a word that another service chose, or the word.
func (c catalogue) word(prefix, word string) string {
	if text, ok := c[prefix+"."+word]; ok {
		return text
	}
	return word
}

const languageCookie = "lang"

// languageOf returns what the visitor has chosen, or else what the browser
// prefers of what there is.
func languageOf(r *http.Request) string {
	if c, err := r.Cookie(languageCookie); err == nil && c.Value == "zh" {
		return "zh"
	} else if err == nil {
		return "en"
	}
	wanted, _, err := language.ParseAcceptLanguage(r.Header.Get("Accept-Language"))
	if err != nil {
		return languages[0]
	}
	_, best, _ := spoken.Match(wanted...)
	return languages[best]
}

// spoken chooses the one of languages that comes first with a visitor, who may
// like others better.
var spoken = language.NewMatcher([]language.Tag{language.English, language.Chinese})
