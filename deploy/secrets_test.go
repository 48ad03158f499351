package deploy_test

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orderpaid/demo"
	"orderpaid/platform/httpserver"
	"orderpaid/platform/opsapi"
)

// operated are the processes with an ops API.
var operated = []string{"order", "points", "notify", "search", "console"}

// A service that was taken over has what is in its volume, and with that it is
// itself and nobody else: it is no person, and it is not another service.
func TestNoVolumeHoldsTheTokenOfAnother(t *testing.T) {
	t.Parallel()
	dir := madeSecrets(t)
	tokens := map[string]string{ // token → the process whose own it is
		secretOf(t, dir, "check/ops-alice"): "check", secretOf(t, dir, "check/ops-bob"): "check",
	}
	for _, process := range operated[:4] { // the console looks with the token of a viewer, as the check may
		tokens[secretOf(t, dir, process+"/ops-peer")] = process
	}
	if got, want := len(tokens), 6; got != want {
		t.Fatalf("got %d different tokens, want %d", got, want)
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == "console/demo-actors" { // one click, for the demo: the page about security says so
			return err
		}
		raw, err := os.ReadFile(filepath.Join(dir, path))
		for token, owner := range tokens {
			if strings.Contains(string(raw), token) && !strings.HasPrefix(path, owner+"/") {
				t.Errorf("%s holds a token of %s", path, owner)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A service's token on the listener of each other one opens what fills gaps and
// replays, and nothing else; a person's opens what he may do there.
func TestAServicesTokenOpensNothingButEventsOfTheOthers(t *testing.T) {
	t.Parallel()
	dir := madeSecrets(t)
	for _, listener := range operated {
		api, err := opsapi.New(opsapi.Config{Service: listener, Flags: opsapi.Flags{OpsTokensFile: filepath.Join(dir, listener, "ops-tokens")}})
		if err != nil {
			t.Fatalf("%s: %v", listener, err)
		}
		router := httpserver.NewRouter("test")
		api.Mount(router)
		for _, tc := range []struct {
			bearer, request string
			want            int
		}{
			// Let in, and then told that the request makes no sense: no database is behind it.
			{"order/ops-peer", "GET /ops/outbox/between", http.StatusBadRequest},
			{"search/ops-peer", "GET /ops/outbox/between", http.StatusBadRequest},
			{"check/ops-alice", "POST /ops/dead-letters/discard", http.StatusBadRequest},
			{"points/ops-peer", "GET /ops/dead-letters", http.StatusForbidden},
			{"points/ops-peer", "POST /ops/dead-letters/discard", http.StatusForbidden},
			{"notify/ops-peer", "POST /ops/replays", http.StatusForbidden},
			{"search/ops-peer", "GET /ops/evidence", http.StatusForbidden},
			{"order/ops-peer", "POST /ops/replays/1/approve", http.StatusForbidden},
			{"console/ops-peer", "POST /ops/dead-letters/discard", http.StatusForbidden},
			{"console/ops-peer", "GET /ops/outbox/between", http.StatusForbidden},
			{"check/ops-viewer", "POST /ops/replays", http.StatusForbidden},
			{"check/ops-alice", "POST /ops/replays/1/approve", http.StatusForbidden},
		} {
			method, path, _ := strings.Cut(tc.request, " ")
			r := httptest.NewRequest(method, path, strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer "+secretOf(t, dir, tc.bearer))
			w := httptest.NewRecorder()
			if router.ServeHTTP(w, r); w.Code != tc.want {
				t.Errorf("%s: %s as %s: got %d %s, want %d", listener, tc.request, tc.bearer, w.Code, w.Body, tc.want)
			}
		}
	}
}

func madeSecrets(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := (demo.SecretsCommand{Dir: dir}).Run(io.Discard); err != nil {
		t.Fatal(err)
	}
	return dir
}

func secretOf(t *testing.T, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}
