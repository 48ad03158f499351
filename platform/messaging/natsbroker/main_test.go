package natsbroker_test

import (
	"testing"

	"orderpaid/platform/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
