package check_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Everything is closed first, and each pod that needs a database or the broker
// has the label that opens the way.
func TestPoliciesOpenOnlyWhatIsNeeded(t *testing.T) {
	t.Parallel()
	b := build(t)
	all := b.policies["nothing"]
	if all == nil || len(all.Spec.PodSelector.MatchLabels)+len(all.Spec.Ingress)+len(all.Spec.Egress) > 0 || len(all.Spec.PolicyTypes) != 2 {
		t.Fatalf("the policy that closes everything: %+v", all)
	}
	for name, d := range b.deployments {
		text := fmt.Sprint(d.Spec.Template.Spec.Containers[0].Env)
		if strings.Contains(text, "postgres://") != (d.Spec.Template.Labels["database"] == "yes") {
			t.Errorf("%s: its address of a database and its label disagree", name)
		}
		if d.Spec.Template.Labels["broker"] != "yes" {
			t.Errorf("%s cannot reach the broker", name)
		}
	}
}

// Who may come to which port of a program, as docs/08-scale-out.md says it: what
// comes from the namespace of the ingress ends at the API.
func TestNobodyReachesAPortThatIsNotHis(t *testing.T) {
	t.Parallel()
	b := build(t)
	const customers, operators = int32(8080), int32(9080)
	for _, tc := range []struct {
		from, to string // a namespace, or a program
		port     int32
		want     bool
	}{
		{"namespace ingress", "order", customers, true},
		{"namespace ingress", "console", customers, true},
		{"namespace ingress", "order", operators, false},
		{"namespace ingress", "relay", operators, false},
		{"namespace observability", "relay", operators, true},
		{"namespace observability", "points", operators, true},
		{"namespace observability", "points", customers, false},
		{"namespace default", "order", customers, false},
		{"namespace default", "order", operators, false},
		{"console", "order", customers, true},
		{"points", "order", operators, true},
		{"points", "order", customers, false},
		{"relay", "order", customers, false},
		{"relay", "order", operators, false},
		{"order", "relay", operators, false},
	} {
		if got := b.lets(t, tc.from, tc.to, tc.port); got != tc.want {
			t.Errorf("from %s to %s, port %d: got %v, want %v", tc.from, tc.to, tc.port, got, tc.want)
		}
	}
}

// lets reports whether the policies of ingress let a connection in.
func (b base) lets(t *testing.T, from, to string, port int32) bool {
	t.Helper()
	namespace, fromOutside := strings.CutPrefix(from, "namespace ")
	source := map[string]string{}
	if !fromOutside {
		source = b.deployments[from].Spec.Template.Labels
	}
	for _, p := range b.policies {
		if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || !selects(t, &p.Spec.PodSelector, b.deployments[to].Spec.Template.Labels) {
			continue
		}
		for _, rule := range p.Spec.Ingress {
			open := slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == port })
			if open && slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
				if fromOutside {
					return peer.NamespaceSelector != nil && selects(t, peer.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": namespace})
				}
				return peer.NamespaceSelector == nil && peer.PodSelector != nil && selects(t, peer.PodSelector, source)
			}) {
				return true
			}
		}
	}
	return false
}

func selects(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(set))
}

// A rule without ports opens all of them, and one without peers lets everybody
// in: neither may come about by a slip of the pen.
func TestEveryRuleNamesItsPeersAndPorts(t *testing.T) {
	t.Parallel()
	for name, p := range build(t).policies {
		for _, rule := range p.Spec.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) == 0 {
				t.Errorf("%s: a rule lets in everybody, or to every port: %+v", name, rule)
			}
		}
		for _, rule := range p.Spec.Egress {
			if (len(rule.To) == 0 || len(rule.Ports) == 0) && name != "postgres" { // backups go where its operator says
				t.Errorf("%s: a rule leads everywhere, or to every port: %+v", name, rule)
			}
		}
	}
}

// What docs/08-scale-out.md says about stops, replicas and zones.
func TestAProgramMayFinishAndIsSpreadByItself(t *testing.T) {
	t.Parallel()
	b := build(t)
	for _, name := range slices.Sorted(maps.Keys(b.deployments)) {
		pod := b.deployments[name].Spec.Template.Spec
		if got, least := *pod.TerminationGracePeriodSeconds, int64(25+pause(b.deployments[name])); got < least {
			t.Errorf("%s has %d s to stop, and needs up to %d", name, got, least)
		}
		if u := b.deployments[name].Spec.Strategy.RollingUpdate; u == nil || u.MaxUnavailable.IntValue() != 0 {
			t.Errorf("%s: an update takes a replica away before another is ready: %+v", name, u)
		}
		for _, c := range pod.TopologySpreadConstraints {
			// A server refuses a key that is in both.
			if _, twice := c.LabelSelector.MatchLabels["app"]; twice || !slices.Equal(c.MatchLabelKeys, []string{"app"}) {
				t.Errorf("%s is counted together with others: %+v", name, c)
			}
			if !selects(t, c.LabelSelector, b.deployments[name].Spec.Template.Labels) {
				t.Errorf("%s does not count its own pods: %+v", name, c)
			}
		}
		if got, want := len(pod.TopologySpreadConstraints), 2; got != want {
			t.Errorf("%s: got %d constraints, want %d", name, got, want)
		}
	}
}

// pause is how many seconds pass before a pod gets its signal.
func pause(d *appsv1.Deployment) int {
	if life := d.Spec.Template.Spec.Containers[0].Lifecycle; life != nil && life.PreStop != nil && life.PreStop.Sleep != nil {
		return int(life.PreStop.Sleep.Seconds)
	}
	return 0
}
