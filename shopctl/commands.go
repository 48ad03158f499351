package shopctl

// Commands are all that this package can do; cmd/shopctl adds what needs others.
type Commands struct {
	Why    Why `cmd:"" help:"Tell what became of an order, a payment, an event or a customer's orders."`
	Outbox struct {
		Summary   OutboxSummary   `cmd:"" help:"Show how far each outbox is."`
		List      OutboxList      `cmd:"" help:"Show events that are not published, and why."`
		Show      OutboxShow      `cmd:"" help:"Show events by their id, or by an order's, published or not."`
		Republish OutboxRepublish `cmd:"" help:"Publish events again that the broker has lost."`
		Release   OutboxRelease   `cmd:"" help:"Let events be tried again that the broker had refused."`
	} `cmd:"" help:"Events between a commit and the broker."`
	DeadLetters struct {
		List    DeadLettersList    `cmd:"" help:"Show what consumers could not apply."`
		Groups  DeadLettersGroups  `cmd:"" help:"Count it by cause."`
		Show    DeadLettersShow    `cmd:"" help:"Show one with its history."`
		Retry   DeadLettersRetry   `cmd:"" help:"Have some tried again."`
		Fix     DeadLettersFix     `cmd:"" help:"Apply a corrected event instead of one."`
		Discard DeadLettersDiscard `cmd:"" help:"Give some up."`
	} `cmd:"" help:"Events that a consumer could not apply."`
	Exceptions struct {
		List   ExceptionsList   `cmd:"" help:"Show what the payment provider announced and no order shows."`
		Show   ExceptionsShow   `cmd:"" help:"Show one with its history."`
		Settle ExceptionsSettle `cmd:"" help:"End some that a person has dealt with."`
	} `cmd:"" help:"Announcements that no order can follow."`
	Doubts struct {
		List   DoubtsList   `cmd:"" help:"Show mails that may or may not have arrived."`
		Settle DoubtsSettle `cmd:"" help:"Say what became of one."`
	} `cmd:"" help:"Effects of which nobody knows whether they happened."`
	Replay struct {
		Plan    ReplayPlan    `cmd:"" help:"Tell what a replay would do, or try it on a copy."`
		Create  ReplayCreate  `cmd:"" help:"Make a replay."`
		Start   ReplayStart   `cmd:"" help:"Start one, or have it go on."`
		Stop    ReplayStop    `cmd:"" help:"Stop one."`
		Approve ReplayApprove `cmd:"" help:"Let somebody else's large one be started, or refuse it."`
		List    ReplayList    `cmd:"" help:"Show the latest."`
		Show    ReplayShow    `cmd:"" help:"Show one with its report."`
	} `cmd:"" help:"Bring events to one consumer again, each with one effect."`
	Reconcile Reconcile `cmd:"" help:"Compare what all services and the stream have recorded, and mend it."`
	Retention struct {
		Prepare RetentionPrepare `cmd:"" help:"Make the partitions of the coming months."`
		Detach  RetentionDetach  `cmd:"" help:"Take old partitions off, and erase old payloads."`
	} `cmd:"" help:"How long events, inboxes and payloads stay."`
	Topology struct {
		Plan  TopologyPlan  `cmd:"" help:"Show how JetStream differs from what the services need."`
		Apply TopologyApply `cmd:"" help:"Create the stream and the durables that are missing."`
	} `cmd:"" help:"The stream of all events, and one durable for each consumer."`
	Migrate Migrate `cmd:"" help:"Bring databases to the schema of this build."`
}
