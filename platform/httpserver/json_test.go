package httpserver

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestBodyIsReadStrictlyOrRefusedWithACode(t *testing.T) {
	t.Parallel()
	srv := startServer(t, readingHandler(), defaultLimits)
	for name, tc := range map[string]struct {
		body, contentType string
		status            int
		code              string
	}{
		"good":                      {`{"name":"mei","count":2}`, "application/json", 200, ""},
		"no content type":           {`{"name":"mei","count":2}`, "", 200, ""},
		"charset":                   {`{"name":"mei"}`, "application/json; charset=UTF-8", 200, ""},
		"form":                      {`name=mei`, "application/x-www-form-urlencoded", 415, "unsupported_media_type"},
		"text":                      {`{"name":"mei"}`, "text/plain", 415, "unsupported_media_type"},
		"other charset":             {`{"name":"mei"}`, "application/json; charset=gbk", 415, "unsupported_media_type"},
		"nonsense content type":     {`{"name":"mei"}`, ";;", 415, "unsupported_media_type"},
		"empty":                     {``, "application/json", 400, "empty_body"},
		"blank":                     {"\n\n", "application/json", 400, "empty_body"},
		"cut short":                 {`{"name":"me`, "application/json", 400, "malformed_json"},
		"HTML":                      {`<p>`, "application/json", 400, "malformed_json"},
		"two documents":             {`{}{}`, "application/json", 400, "malformed_json"},
		"array":                     {`[]`, "application/json", 400, "bad_type"},
		"null":                      {`null`, "application/json", 400, "bad_type"},
		"float for a whole number":  {`{"count":19.99}`, "application/json", 400, "bad_type"},
		"string for a whole number": {`{"count":"1"}`, "application/json", 400, "bad_type"},
		"overflow":                  {`{"count":9223372036854775808}`, "application/json", 400, "bad_type"},
		"unknown field":             {`{"nome":"mei"}`, "application/json", 400, "unknown_field"},
		"other spelling":            {`{"Name":"mei"}`, "application/json", 400, "unknown_field"},
		"twice":                     {`{"count":1,"count":2}`, "application/json", 400, "duplicate_field"},
		"NUL":                       {`{"name":"a\u0000b"}`, "application/json", 400, "bad_text"},
		"invalid UTF-8":             {"{\"name\":\"\xff\"}", "application/json", 400, "bad_text"},
		"lone surrogate":            {`{"name":"\ud83d"}`, "application/json", 400, "bad_text"},
		"nested deeply":             {strings.Repeat("[", 100_000), "application/json", 400, "malformed_json"},
		"largest body":              {largest(0), "application/json", 200, ""},
		"larger body":               {largest(1), "application/json", 413, "body_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var header []string
			if tc.contentType != "" {
				header = []string{"Content-Type", tc.contentType}
			}
			got := srv.do(t, "POST", "/", tc.body, header...)
			if got.status != tc.status {
				t.Fatalf("answer = %+v, want status %d", got, tc.status)
			}
			if tc.code == "" {
				return
			}
			p := got.problem(t)
			if p.Code != tc.code || p.Detail == "" {
				t.Errorf("problem = %+v, want code %s and a detail", p, tc.code)
			}
			if strings.Contains(got.body, "mei") {
				t.Errorf("problem repeats a value: %s", got.body)
			}
		})
	}
}

// largest returns a body of exactly MaxBodyBytes, and extra bytes more.
func largest(extra int) string {
	const frame = len(`{"name":""}`)
	return `{"name":"` + strings.Repeat("x", MaxBodyBytes-frame+extra) + `"}`
}

func TestProblemNamesFieldAndPosition(t *testing.T) {
	t.Parallel()
	srv := startServer(t, readingHandler(), defaultLimits)
	got := srv.do(t, "POST", "/", `{"name":"mei","count":"many"}`).problem(t).Detail
	if want := `field "count": value has the wrong type or does not fit, at byte 21`; got != want {
		t.Errorf("detail = %s, want %s", got, want)
	}
}

func TestBodyWithoutLengthHasTheSameLimit(t *testing.T) {
	t.Parallel()
	srv := startServer(t, readingHandler(), defaultLimits)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+srv.addr, io.MultiReader(strings.NewReader(largest(1)))) // chunked
	if err != nil {
		t.Fatal(err)
	}
	resp, err := new(http.Transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status = %d, want 413", resp.StatusCode)
	}
}

func TestCompressedBodyIsRefused(t *testing.T) {
	t.Parallel()
	srv := startServer(t, readingHandler(), defaultLimits)
	if p := srv.do(t, "POST", "/", `{}`, "Content-Encoding", "gzip").problem(t); p.Status != 415 || p.Code != "unsupported_encoding" {
		t.Errorf("problem = %+v, want 415 unsupported_encoding", p)
	}
	if got := srv.do(t, "POST", "/", `{}`, "Content-Encoding", "identity"); got.status != 200 {
		t.Errorf("identity = %+v, want 200", got)
	}
}

func TestBodyThatEndsEarlyIsAProblem(t *testing.T) {
	t.Parallel()
	srv := startServer(t, readingHandler(), defaultLimits)
	conn := dial(t, srv.addr)
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if answer := untilCut(t, conn); !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, `"code":"body_incomplete"`) {
		t.Errorf("answer = %q, want 400 body_incomplete", answer)
	}
}

func TestAnswerThatCannotBeEncodedIsA500(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	WriteJSON(rec, http.StatusOK, math.Inf(1))
	got := answer{status: rec.Code, header: rec.Header(), body: rec.Body.String()}
	if p := got.problem(t); p.Status != 500 || p.Code != "internal" {
		t.Errorf("problem = %+v, want 500 internal", p)
	}
}
