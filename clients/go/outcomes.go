package notificationintent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// OutcomesStream is where the service tells what became of intents, unless it is told otherwise.
const OutcomesStream = "notification:outcomes"

// OutcomeKind says what an event tells. The contract, outcomes-asyncapi.yaml, says which kind has which fields.
type OutcomeKind string

// How an intent ends: exactly one of these for each.
const (
	Settled   OutcomeKind = "settled"
	Cancelled OutcomeKind = "cancelled"
	Expired   OutcomeKind = "expired"
	Duplicate OutcomeKind = "duplicate"
	Conflict  OutcomeKind = "conflict"
	Malformed OutcomeKind = "malformed"
)

// What may be told besides, before the end or after it.
const (
	Accepted          OutcomeKind = "accepted"
	RoutePublished    OutcomeKind = "route_published"
	RouteSkipped      OutcomeKind = "route_skipped"
	RouteDeadLettered OutcomeKind = "route_dead_lettered"
	Recovered         OutcomeKind = "recovered"
)

// Outcome is one event. What its kind does not have is empty.
type Outcome struct {
	// EventID is the same whenever the event is repeated, and of no other event.
	EventID        string
	Kind           OutcomeKind
	NotificationID string
	OccurredAt     time.Time

	// What a malformed entry did not say is empty.
	NotificationType, Producer, IdempotencyKey, RequestID, TraceID string

	// Of the end of an accepted intent; Skipped also of its acceptance.
	Published, Skipped, DeadLettered int
	// Routes of an accepted intent.
	Routes int
	// The notification that has the idempotency key, of duplicates and conflicts.
	DuplicateOf, ConflictsWith string
	// Of malformed ones; Field is what the refusal is about, if it is about one.
	FailureCode, Field string
	// Of events about one route. Generation is 0 as accepted; each replay is the next one.
	Route, Channel, Reason string
	Generation             int
}

// IsTerminal tells whether the event is the end of its intent.
func (o Outcome) IsTerminal() bool {
	switch o.Kind {
	case Settled, Cancelled, Expired, Duplicate, Conflict, Malformed:
		return true
	}
	return false
}

// OutcomeError tells why an entry is no event of this contract; it may be one of a later contract.
type OutcomeError struct{ problem string }

func (e *OutcomeError) Error() string { return "notificationintent: " + e.problem }

var requiredOfOutcome = map[OutcomeKind][]string{
	Settled:           {"published", "skipped", "dead_lettered"},
	Cancelled:         {"published", "skipped", "dead_lettered"},
	Expired:           {"published", "skipped", "dead_lettered"},
	Duplicate:         {"duplicate_of"},
	Conflict:          {"conflicts_with"},
	Malformed:         {"failure_code"},
	Accepted:          {"routes", "skipped"},
	RoutePublished:    {"route", "channel", "generation"},
	RouteSkipped:      {"route", "channel", "generation", "reason"},
	RouteDeadLettered: {"route", "channel", "generation", "reason"},
	Recovered:         {"route", "channel", "generation"},
}

// ReadOutcome reads the values of an entry as go-redis hands them out. The error is an [*OutcomeError] that names what is
// missing or wrong.
func ReadOutcome(values map[string]any) (Outcome, error) {
	text := func(name string) string {
		value, _ := values[name].(string)
		return value
	}
	kind := OutcomeKind(text("kind"))
	required, known := requiredOfOutcome[kind]
	if !known {
		return Outcome{}, &OutcomeError{fmt.Sprintf("kind %q is unknown", string(kind))}
	}
	for _, name := range append([]string{"event_id", "notification_id", "occurred_at_ms"}, required...) {
		if _, isThere := values[name].(string); !isThere {
			return Outcome{}, &OutcomeError{name + " is missing"}
		}
	}
	var problem error
	number := func(name string) int64 {
		if values[name] == nil {
			return 0
		}
		value, err := strconv.ParseUint(text(name), 10, 50)
		if err != nil && problem == nil {
			problem = &OutcomeError{name + " must be a whole number"}
		}
		return int64(value)
	}
	outcome := Outcome{
		EventID:          text("event_id"),
		Kind:             kind,
		NotificationID:   text("notification_id"),
		OccurredAt:       time.UnixMilli(number("occurred_at_ms")).UTC(),
		NotificationType: text("notification_type"),
		Producer:         text("producer"),
		IdempotencyKey:   text("idempotency_key"),
		RequestID:        text("request_id"),
		TraceID:          text("trace_id"),
		Published:        int(number("published")),
		Skipped:          int(number("skipped")),
		DeadLettered:     int(number("dead_lettered")),
		Routes:           int(number("routes")),
		DuplicateOf:      text("duplicate_of"),
		ConflictsWith:    text("conflicts_with"),
		FailureCode:      text("failure_code"),
		Field:            text("field"),
		Route:            text("route"),
		Channel:          text("channel"),
		Reason:           text("reason"),
		Generation:       int(number("generation")),
	}
	if problem != nil {
		return Outcome{}, problem
	}
	return outcome, nil
}

// OutcomeSource is the part of a Redis client that reading needs. Every client of go-redis has it.
type OutcomeSource interface {
	XGroupCreateMkStream(ctx context.Context, stream, group, start string) *redis.StatusCmd
	XReadGroup(ctx context.Context, args *redis.XReadGroupArgs) *redis.XStreamSliceCmd
	XAck(ctx context.Context, stream, group string, ids ...string) *redis.IntCmd
}

// OutcomeReader reads events as one consumer of a group.
type OutcomeReader struct {
	// Group is one for each producer or purpose. It is made when it is not there, and then begins with the oldest event.
	Group string
	// Consumer names this reader within the group: the same after a restart.
	Consumer string
	// Stream is [OutcomesStream] if empty.
	Stream string
	// OnUnreadable takes entries that are no event of the contract; without it they end the reading.
	OnUnreadable func(err error, entryID string)
}

// Read hands events to handle until the context ends or something fails. An event is acknowledged when handle returns nil:
// what a process did not come to before it ended, it gets again. Events come at least once and in the order of each intent;
// who must not act twice remembers EventID.
func (r OutcomeReader) Read(ctx context.Context, client OutcomeSource, handle func(context.Context, Outcome) error) error {
	stream := r.Stream
	if stream == "" {
		stream = OutcomesStream
	}
	if err := makeGroup(ctx, client, stream, r.Group); err != nil {
		return err
	}
	// First what was read before and not acknowledged, then what is new.
	for from := "0"; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: r.Group, Consumer: r.Consumer, Streams: []string{stream, from}, Count: 100, Block: 2 * time.Second,
		}).Result()
		if err != nil && strings.HasPrefix(err.Error(), "NOGROUP") {
			// The stream was deleted, and its groups with it.
			err = makeGroup(ctx, client, stream, r.Group)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		var messages []redis.XMessage
		if len(streams) > 0 {
			messages = streams[0].Messages
		}
		if len(messages) == 0 {
			from = ">"
		} else if from != ">" {
			from = messages[len(messages)-1].ID
		}
		for _, message := range messages {
			if err := r.take(ctx, message, handle); err != nil {
				return err
			}
			if err := client.XAck(ctx, stream, r.Group, message.ID).Err(); err != nil {
				return err
			}
		}
	}
}

func (r OutcomeReader) take(ctx context.Context, message redis.XMessage, handle func(context.Context, Outcome) error) error {
	// Trimmed since it was read.
	if len(message.Values) == 0 {
		return nil
	}
	outcome, err := ReadOutcome(message.Values)
	if err == nil {
		return handle(ctx, outcome)
	}
	if r.OnUnreadable == nil {
		return err
	}
	r.OnUnreadable(err, message.ID)
	return nil
}

func makeGroup(ctx context.Context, client OutcomeSource, stream, group string) error {
	err := client.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return nil
	}
	return err
}
