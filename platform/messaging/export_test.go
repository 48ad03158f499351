package messaging

// What tests of the SQL need to see.
const (
	SQLPinPlans    = sqlPinPlans
	SQLReadPending = sqlReadPending
)
