package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Env is the environment variable that names the point to die at.
const Env = "ORDERPAID_FAULT"

// armed is nil in every process that is not the subject of an experiment.
var armed = parse(os.Getenv(Env))

// Hit dies if the environment says that this is the point, and this the time.
// point is a literal: lower case, words joined by underscores, the part of the
// system in front of a dot.
func Hit(point string) {
	if armed != nil {
		armed.hit(point)
	}
}

type fault struct {
	point string
	nth   int64
	hits  atomic.Int64
}

// parse panics on a value that it cannot read: an experiment with a fault that
// never fires would look like a success.
func parse(value string) *fault {
	if value == "" {
		return nil
	}
	point, count, given := strings.Cut(value, ":")
	nth := int64(1)
	if given {
		var err error
		if nth, err = strconv.ParseInt(count, 10, 64); err != nil || nth < 1 {
			panic(fmt.Sprintf("%s=%q: behind the colon belongs a number from 1", Env, value))
		}
	}
	return &fault{point: point, nth: nth}
}

func (f *fault) hit(point string) {
	if point != f.point || f.hits.Add(1) != f.nth {
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // the signal may reach another thread first: nothing behind this point may run
}
