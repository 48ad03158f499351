// Package shopctl is the operator's tool: what must exist before services run
// (topology, migrations), what became of an order, and what to do about what
// went wrong.
//
// Its commands are thin: what they know is in the package operator, and what
// they change is changed by the services' ops APIs. Each is a struct with kong
// tags and a Run method, so that cmd/shopctl is a list. Nothing here deletes.
//
// Commands ask the ops APIs of the services ([Services]) or, where services may
// be down or have no say, databases ([Databases]) and the broker. Where those
// are is told by flags, by the environment, or by the file .orderpaid/shopctl.env
// that the demo writes ([LoadEnv]).
//
// Read why.go, outbox.go, deadletters.go, exceptions.go, replay.go, sandbox.go, reconcile.go;
// topology.go, migrate.go, retention.go; services.go and envfile.go.
package shopctl
