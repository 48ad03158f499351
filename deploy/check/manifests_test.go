// Package check_test builds the base of deploy/k8s and reads it as strictly as a
// server of Kubernetes would, and asks our programs whether they know what it
// tells them. No cluster is needed.
package check_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// scaledObject is what we use of KEDA's type, which belongs to no module of
// Kubernetes itself.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef                   struct{ Name string }
		MinReplicaCount, MaxReplicaCount int32
		PollingInterval, CooldownPeriod  int32
		Triggers                         []struct {
			Type     string
			Metadata map[string]string
		}
	}
}

// base is deploy/k8s, built.
type base struct {
	deployments map[string]*appsv1.Deployment
	jobs        map[string]*batchv1.Job
	settings    map[string]*corev1.ConfigMap
	services    map[string]*corev1.Service
	budgets     map[string]*policyv1.PodDisruptionBudget
	scaled      map[string]*scaledObject
	policies    map[string]*networkingv1.NetworkPolicy
}

func build(t *testing.T) base {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../k8s")
	if err != nil {
		t.Fatal(err)
	}
	b := base{map[string]*appsv1.Deployment{}, map[string]*batchv1.Job{}, map[string]*corev1.ConfigMap{}, map[string]*corev1.Service{},
		map[string]*policyv1.PodDisruptionBudget{}, map[string]*scaledObject{}, map[string]*networkingv1.NetworkPolicy{}}
	for _, resource := range resources.Resources() {
		raw, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		name := resource.GetName()
		switch kind := resource.GetApiVersion() + " " + resource.GetKind(); kind {
		case "v1 Namespace":
			decode[corev1.Namespace](t, raw)
		case "v1 ConfigMap":
			b.settings[name] = decode[corev1.ConfigMap](t, raw)
		case "v1 Service":
			b.services[name] = decode[corev1.Service](t, raw)
		case "apps/v1 Deployment":
			b.deployments[name] = decode[appsv1.Deployment](t, raw)
		case "batch/v1 Job":
			b.jobs[name] = decode[batchv1.Job](t, raw)
		case "policy/v1 PodDisruptionBudget":
			b.budgets[name] = decode[policyv1.PodDisruptionBudget](t, raw)
		case "networking.k8s.io/v1 NetworkPolicy":
			b.policies[name] = decode[networkingv1.NetworkPolicy](t, raw)
		case "keda.sh/v1alpha1 ScaledObject":
			b.scaled[name] = decode[scaledObject](t, raw)
		default:
			t.Errorf("%s: nobody has checked this kind", kind)
		}
	}
	return b
}

// decode refuses fields that the type does not have, and fields given twice.
func decode[T any](t *testing.T, raw []byte) *T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(raw, &object, func(d *json.Decoder) *json.Decoder { d.DisallowUnknownFields(); return d }); err != nil {
		t.Errorf("%v in\n%s", err, raw)
	}
	return &object
}

func TestAnUnknownFieldIsSeen(t *testing.T) {
	t.Parallel()
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte("spec: {replica: 2}"), &d); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("got %v, want an error about the field", err)
	}
}

func TestEveryDeploymentIsCompleteAndCannotDoMore(t *testing.T) {
	t.Parallel()
	b := build(t)
	for name, d := range b.deployments {
		pod := d.Spec.Template.Spec
		c := pod.Containers[0]
		if len(pod.Containers) != 1 || c.Name != "program" || !strings.HasPrefix(c.Image, "registry.example/orderpaid:") {
			t.Errorf("%s: container %s of image %s", name, c.Name, c.Image)
		}
		if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != ready(d) {
			t.Errorf("%s lacks a probe", name)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s has no limits", name)
		}
		if b.budgets[name] == nil || b.budgets[name].Spec.Selector.MatchLabels["app"] != name {
			t.Errorf("%s has no disruption budget", name)
		}
		if d.Spec.Template.Labels["app"] != name || d.Spec.Selector.MatchLabels["app"] != name {
			t.Errorf("%s does not select its own pods", name)
		}
		restricted(t, name, pod)
	}
	for name, j := range b.jobs {
		restricted(t, name, j.Spec.Template.Spec)
	}
	for name, s := range b.scaled {
		target := b.deployments[s.Spec.ScaleTargetRef.Name]
		if target == nil || target.Spec.Replicas != nil {
			t.Errorf("%s scales %q, which has a fixed number or does not exist", name, s.Spec.ScaleTargetRef.Name)
		}
	}
	if got, want := len(b.deployments), 6; got != want || len(b.jobs) != 2 {
		t.Errorf("got %d deployments and %d jobs, want %d and 2", got, len(b.jobs), want)
	}
}

// ready is what a program is asked for before it gets its work: a service, by
// customers, who do not need the broker; the relay, by nobody else than itself.
func ready(d *appsv1.Deployment) string {
	if d.Labels["tier"] == "service" {
		return "/readyz?exclude=broker&exclude=durable"
	}
	return "/readyz"
}

func restricted(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	c := pod.Containers[0].SecurityContext
	if c == nil || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s may do too much: %+v", name, c)
	}
	if !*pod.SecurityContext.RunAsNonRoot || *pod.AutomountServiceAccountToken {
		t.Errorf("%s runs as root or has a token of Kubernetes", name)
	}
}

// Variables that programs of Go know without being told.
var foreign = regexp.MustCompile(`^(GOMEMLIMIT|OTEL_[A-Z_]+)$`)

func TestProgramsKnowEveryVariableAndFlag(t *testing.T) {
	t.Parallel()
	b := build(t)
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/order", "./cmd/points", "./cmd/notify", "./cmd/search", "./cmd/console", "./cmd/relay", "./cmd/shopctl")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pods := map[string]corev1.PodSpec{}
	for name, d := range b.deployments {
		pods[name] = d.Spec.Template.Spec
	}
	for name, j := range b.jobs {
		pods[name] = j.Spec.Template.Spec
	}
	for name, pod := range pods {
		c := pod.Containers[0]
		var words []string // the program and its subcommand
		for _, arg := range c.Command {
			if !strings.HasPrefix(arg, "-") && (len(words) == 0 || !regexp.MustCompile(`^\d+$`).MatchString(arg)) {
				words = append(words, arg)
			}
		}
		help := exec.Command(filepath.Join(bin, words[0]), append(words[1:], "--help")...)
		help.Env = []string{"PATH=" + os.Getenv("PATH")}
		text, err := help.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		for _, variable := range variables(b, c) {
			known := bytes.Contains(text, []byte("$"+strings.TrimSuffix(variable, "_FILE"))) || bytes.Contains(text, []byte("$"+variable))
			if !known && !foreign.MatchString(variable) {
				t.Errorf("%s does not know %s", name, variable)
			}
		}
		for _, arg := range c.Command {
			if flag, _, _ := strings.Cut(arg, "="); strings.HasPrefix(flag, "--") && !bytes.Contains(text, []byte(flag)) {
				t.Errorf("%s does not know %s", name, flag)
			}
		}
	}
}

func variables(b base, c corev1.Container) (names []string) {
	for _, e := range c.Env {
		names = append(names, e.Name)
	}
	for _, from := range c.EnvFrom {
		for name := range b.settings[from.ConfigMapRef.Name].Data {
			names = append(names, name)
		}
	}
	return names
}
