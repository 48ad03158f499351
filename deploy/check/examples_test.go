package check_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The examples are for an operator and a chart whose types are not ours to
// check: they are read, and compared with what else says the same.

func TestTheExampleOfPostgreSQLHasASessionForEveryRole(t *testing.T) {
	t.Parallel()
	var cluster struct {
		Spec struct {
			ImageName  string
			PostgreSQL struct {
				Parameters map[string]string `json:"parameters"`
			} `json:"postgresql"`
		}
	}
	readExample(t, "postgres.yaml", &cluster)
	got, err := strconv.Atoi(cluster.Spec.PostgreSQL.Parameters["max_connections"])
	if err != nil {
		t.Fatal(err)
	}
	want := 10 // the administrator, the operator and replication
	for _, m := range regexp.MustCompile(`\('shop_[a-z]+', +(\d+),`).FindAllStringSubmatch(read(t, "../postgres/roles.sql"), -1) {
		sessions, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		want += sessions
	}
	if got < want || want < 100 {
		t.Errorf("got max_connections %d, want %d at least, for the limits of roles.sql together", got, want)
	}
	if _, version, _ := strings.Cut(cluster.Spec.ImageName, ":"); !strings.Contains(read(t, "../../docker-compose.yml"), "image: postgres:"+version+"\n") {
		t.Errorf("got PostgreSQL %s, which is not what the containers run", version)
	}
}

func TestTheExampleOfNATSIsTheBrokerOfTheContainers(t *testing.T) {
	t.Parallel()
	var values struct {
		Config struct {
			Cluster   struct{ Replicas int }
			JetStream struct {
				Merge map[string]string `json:"merge"`
			} `json:"jetstream"`
			Merge map[string]string `json:"merge"`
		}
		Container struct {
			Image struct{ Repository, Tag string }
		}
	}
	readExample(t, "nats-values.yaml", &values)
	c := values.Config
	if c.Cluster.Replicas != 3 || c.JetStream.Merge["sync_interval"] != "always" {
		t.Errorf("got %d servers with sync_interval %q, want 3 and always", c.Cluster.Replicas, c.JetStream.Merge["sync_interval"])
	}
	if got := values.Container.Image.Repository + ":" + values.Container.Image.Tag; !strings.Contains(read(t, "../../docker-compose.yml"), "image: "+got+"\n") {
		t.Errorf("got %s, which is not what the containers run", got)
	}
	conf := read(t, "../nats/nats-server.conf")
	for _, name := range []string{"max_payload", "write_deadline"} {
		if line := name + ": " + c.Merge[name] + "\n"; !strings.Contains(conf, line) {
			t.Errorf("got %q, which nats-server.conf does not say", line)
		}
	}
}

func readExample(t *testing.T, name string, v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, "../k8s/examples/"+name)), v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
