package orderpaid_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// A place is a file of deploy/ that has to know every service.
type place struct {
	file   string
	marker string // a regular expression that finds the service there; SERVICE and KEY stand for its name
	what   string
}

// deployPlaces are those that nothing else misses: a service without them runs
// in the demo and in every test, and not where customers are.
var deployPlaces = []place{
	{"deploy/k8s/SERVICE.yaml", `(?m)^kind: Deployment$`, "Kubernetes manifest"},
	{"deploy/k8s/kustomization.yaml", `\bSERVICE\.yaml\b`, "entry in the kustomization"},
	{"deploy/observability/prometheus.yml", `(?m)^ *- names: \[.*\bSERVICE\b.*\]`, "target of Prometheus"},
	{"deploy/nats/accounts.conf", `nkey: \$KEY_KEY\b`, "user of the broker"},
	{"deploy/postgres/roles.sql", `\('shop_SERVICE',`, "role in the database"},
	{"deploy/postgres/roles.sql", `(?m)^CREATE DATABASE shop_SERVICE `, "database"},
}

// servicesAreDeployed looks for each service in each of the places.
func servicesAreDeployed(t tree) (findings []string) {
	services := map[string]bool{}
	for _, f := range t.files {
		if s := f.service(); s != "" {
			services[s] = true
		}
	}
	for s := range services {
		named := strings.NewReplacer("SERVICE", s, "KEY_KEY", "KEY_"+strings.ToUpper(s))
		for _, p := range deployPlaces {
			file := named.Replace(p.file)
			raw, _ := fs.ReadFile(t.fsys, file) // if it is missing, it names nothing
			if !regexp.MustCompile(named.Replace(p.marker)).Match(raw) {
				findings = append(findings, fmt.Sprintf("services/%s has no %s in %s", s, p.what, file))
			}
		}
	}
	slices.Sort(findings)
	return findings
}
