package notificationintent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	intents "github.com/galaxy-notify/galaxy-notify/clients/go"
)

type outcomeVectors struct {
	Read    []map[string]any
	Refused []struct {
		Fields map[string]any
		About  string
	}
}

func readOutcomeVectors(t *testing.T) outcomeVectors {
	t.Helper()
	text, err := os.ReadFile("../../api/intent/outcome-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors outcomeVectors
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

func TestOutcomesOfEveryKindAreRead(t *testing.T) {
	for _, fields := range readOutcomeVectors(t).Read {
		outcome, err := intents.ReadOutcome(fields)
		if err != nil {
			t.Errorf("%v: %v", fields["kind"], err)
		}
		numbers := fmt.Sprint(outcome.Published, outcome.Skipped, outcome.DeadLettered, outcome.Routes, outcome.Generation)
		texts := []string{
			outcome.EventID, string(outcome.Kind), outcome.NotificationID, fmt.Sprint(outcome.OccurredAt.UnixMilli()),
			outcome.NotificationType, outcome.Producer, outcome.IdempotencyKey, outcome.DuplicateOf, outcome.ConflictsWith,
			outcome.FailureCode, outcome.Field, outcome.Route, outcome.Channel, outcome.Reason,
		}
		for name, value := range fields {
			if !slices.Contains(append(texts, strings.Fields(numbers)...), value.(string)) {
				t.Errorf("%s of %v is not in %+v", name, fields["kind"], outcome)
			}
		}
	}
}

func TestWhatIsWrongWithAnOutcomeIsNamed(t *testing.T) {
	for _, refused := range readOutcomeVectors(t).Refused {
		_, err := intents.ReadOutcome(refused.Fields)
		var problem *intents.OutcomeError
		if !errors.As(err, &problem) || !strings.Contains(err.Error(), refused.About) {
			t.Errorf("%v: %v does not name %s", refused.Fields, err, refused.About)
		}
	}
}

// outcomeSource answers reads in their order, and then ends the context.
type outcomeSource struct {
	answers [][]redis.XMessage
	calls   []string
	end     context.CancelFunc
}

func (s *outcomeSource) XGroupCreateMkStream(ctx context.Context, stream, group, start string) *redis.StatusCmd {
	s.calls = append(s.calls, "create "+start)
	return redis.NewStatusResult("", errors.New("BUSYGROUP Consumer Group name already exists"))
}

func (s *outcomeSource) XReadGroup(ctx context.Context, args *redis.XReadGroupArgs) *redis.XStreamSliceCmd {
	s.calls = append(s.calls, "read "+args.Streams[1])
	if len(s.answers) == 0 {
		s.end()
		return redis.NewXStreamSliceCmdResult(nil, redis.Nil)
	}
	messages := s.answers[0]
	s.answers = s.answers[1:]
	return redis.NewXStreamSliceCmdResult([]redis.XStream{{Stream: args.Streams[0], Messages: messages}}, nil)
}

func (s *outcomeSource) XAck(ctx context.Context, stream, group string, ids ...string) *redis.IntCmd {
	s.calls = append(s.calls, "ack "+strings.Join(ids, " "))
	return redis.NewIntResult(1, nil)
}

func TestOutcomesAreAcknowledgedOnceHandled(t *testing.T) {
	settled := readOutcomeVectors(t).Read[0]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	strange := redis.XMessage{ID: "3-0", Values: map[string]any{"kind": "delivered"}}
	source := &outcomeSource{end: cancel, answers: [][]redis.XMessage{
		{{ID: "1-0", Values: settled}}, {}, {{ID: "2-0", Values: settled}, strange},
	}}
	var unreadable []string
	reader := intents.OutcomeReader{Group: "g", Consumer: "c", OnUnreadable: func(_ error, id string) {
		unreadable = append(unreadable, id)
	}}
	handled := 0
	err := reader.Read(ctx, source, func(context.Context, intents.Outcome) error {
		handled++
		return nil
	})
	if !errors.Is(err, context.Canceled) || handled != 2 || !slices.Equal(unreadable, []string{"3-0"}) {
		t.Errorf("%v, handled %d, unreadable %v", err, handled, unreadable)
	}
	expected := "create 0, read 0, ack 1-0, read 1-0, read >, ack 2-0, ack 3-0, read >"
	if calls := strings.Join(source.calls, ", "); calls != expected {
		t.Errorf("calls were %s", calls)
	}
}

func TestAnOutcomeThatIsNotHandledStaysUnacknowledged(t *testing.T) {
	settled := readOutcomeVectors(t).Read[0]
	source := &outcomeSource{end: func() {}, answers: [][]redis.XMessage{{{ID: "1-0", Values: settled}}}}
	failure := errors.New("the database is away")
	reader := intents.OutcomeReader{Group: "g", Consumer: "c"}
	err := reader.Read(context.Background(), source, func(context.Context, intents.Outcome) error { return failure })
	if !errors.Is(err, failure) || slices.Contains(source.calls, "ack 1-0") {
		t.Errorf("%v after %v", err, source.calls)
	}
}
