package messaging

// What tests of the SQL and of the decoding need to see.
const (
	SQLPinPlans    = sqlPinPlans
	SQLReadPending = sqlReadPending
)

var (
	ParseEnvelope = parseEnvelope
	ScanEnvelope  = scanEnvelope
)
