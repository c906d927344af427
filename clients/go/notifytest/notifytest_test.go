package notifytest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	intents "github.com/galaxy-notify/galaxy-notify/clients/go"
	"github.com/galaxy-notify/galaxy-notify/clients/go/notifytest"
)

// recorder is a testing.TB that keeps what a failure says.
type recorder struct{ failure string }

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func registered(t *testing.T, key, name string) intents.Intent {
	t.Helper()
	intent, err := intents.NewLobbyRaceNameRegistered(
		intents.Event{IdempotencyKey: key, OccurredAt: time.UnixMilli(1790000000000)},
		[]string{"user-1", "user-2"},
		intents.LobbyRaceNameRegisteredPayload{RaceName: name},
	)
	if err != nil {
		t.Fatal(err)
	}
	return intent
}

func TestWhatWasPublishedIsFound(t *testing.T) {
	var stream notifytest.Stream
	ctx := context.Background()
	for _, key := range []string{"one", "two", "one"} {
		if _, err := intents.Publish(ctx, &stream, registered(t, key, "Vireo")); err != nil {
			t.Fatal(err)
		}
	}
	found := notifytest.ExpectPublished(t, &stream, notifytest.Expectation{
		Type:           "lobby.race_name.registered",
		IdempotencyKey: "one",
		Recipients:     []string{"user-2", "user-1"},
		PayloadJSON:    `{ "race_name": "\u0056ireo" }`,
	})
	if found.IdempotencyKey() != "one" {
		t.Error(found)
	}
	published := stream.Published()
	if len(published) != 3 || published[1].IsDuplicate || !published[2].IsDuplicate {
		t.Errorf("%+v", published)
	}
}

func TestWhatWasNotPublishedFailsTheTest(t *testing.T) {
	var stream notifytest.Stream
	for _, key := range []string{"one", "two"} {
		if _, err := intents.Publish(context.Background(), &stream, registered(t, key, "Vireo")); err != nil {
			t.Fatal(err)
		}
	}
	for _, expected := range []notifytest.Expectation{
		{Type: "game.finished"},
		{IdempotencyKey: "three"},
		{Recipients: []string{"user-1"}},
		{PayloadJSON: `{"race_name":"Zorgons"}`},
		{PayloadJSON: `{`},
		{}, // two are as expected, and it should be one
	} {
		var test recorder
		notifytest.ExpectPublished(&test, &stream, expected)
		if !strings.Contains(test.failure, `1-0 lobby.race_name.registered "one"`) {
			t.Errorf("%+v: %q", expected, test.failure)
		}
	}
}

func TestTheStreamRefusesWhatTheServiceRefuses(t *testing.T) {
	var stream notifytest.Stream
	ctx := context.Background()
	if _, err := intents.Publish(ctx, &stream, registered(t, "one", "Vireo")); err != nil {
		t.Fatal(err)
	}
	expectCode := func(err error, code intents.FailureCode) {
		t.Helper()
		var refusal *intents.InvalidIntentError
		if !errors.As(err, &refusal) || refusal.Code != code {
			t.Errorf("%v is not %s", err, code)
		}
	}
	_, err := intents.Publish(ctx, &stream, registered(t, "one", "Zorgons"))
	expectCode(err, notifytest.IdempotencyConflict)
	if !strings.Contains(err.Error(), "with other content (payload_json)") {
		t.Errorf("%v does not say what differs", err)
	}
	for _, values := range []any{
		[]string{"notification_type", "game.turn.ready"},
		[]any{"notification_type", []byte("game.turn.ready")},
		map[string]any{"notification_type": "game.turn.ready"},
		map[string]string{"notification_type": "game.turn.ready"},
	} {
		expectCode(stream.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: values}).Err(), intents.InvalidEnvelope)
	}
	trimming := registered(t, "two", "Vireo").XAddArgs("s")
	trimming.MaxLen = 10
	if stream.XAdd(ctx, trimming).Err() == nil {
		t.Error("a producer may trim the stream")
	}
	if _, err := intents.Publish(ctx, &stream, intents.Intent{}); err == nil {
		t.Error("an intent from nowhere was published")
	}
	if count := len(stream.Published()); count != 1 {
		t.Errorf("%d were published", count)
	}
}

func TestAFailureOfRedisIsTheCallers(t *testing.T) {
	var stream notifytest.Stream
	away := errors.New("connection refused")
	stream.FailNext(away)
	intent := registered(t, "one", "Vireo")
	if _, err := intents.Publish(context.Background(), &stream, intent); !errors.Is(err, away) {
		t.Error(err)
	}
	if _, err := intents.PublishTo(context.Background(), &stream, "other", intent); err != nil {
		t.Error(err)
	}
	if stream.Published()[0].Stream != "other" {
		t.Error(stream.Published())
	}
}
