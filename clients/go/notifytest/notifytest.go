// Package notifytest has a stream in memory for the tests of producers: it refuses what the service refuses, and shows what
// was published.
package notifytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	intents "github.com/galaxy-notify/galaxy-notify/clients/go"
)

// IdempotencyConflict is what the service records when a key comes again with other content.
const IdempotencyConflict intents.FailureCode = "idempotency_conflict"

// Published is one intent that the stream has taken.
type Published struct {
	// ID is the entry's, and the notification's.
	ID     string
	Stream string
	Intent intents.Intent
	// IsDuplicate is true for a repeat of an earlier intent, which has no effect.
	IsDuplicate bool
}

// Stream takes the place of a Redis client in a producer's test. The zero value is ready for use, also concurrently.
type Stream struct {
	// Catalog has the types of the service; nil for those of Galaxy.
	Catalog   intents.TypeCatalog
	mutex     sync.Mutex
	published []Published
	failures  []error
}

var _ intents.StreamAppender = (*Stream)(nil)

// FailNext lets the next publication fail with an error, as if Redis did not answer.
func (s *Stream) FailNext(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.failures = append(s.failures, err)
}

// Published are the intents so far, in their order, duplicates included.
func (s *Stream) Published() []Published {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.published)
}

// XAdd appends an entry as Redis would, unless the service would refuse it: then the command's error is an
// [*intents.InvalidIntentError], also for a key that comes again with other content, and for an entry that trims the stream.
func (s *Stream) XAdd(ctx context.Context, args *redis.XAddArgs) *redis.StringCmd {
	command := redis.NewStringCmd(ctx, "xadd", args.Stream)
	id, err := s.append(args)
	command.SetVal(id)
	if err != nil {
		command.SetErr(err)
	}
	return command
}

func (s *Stream) append(args *redis.XAddArgs) (string, error) {
	if args.MaxLen != 0 || args.MinID != "" {
		return "", errors.New("notifytest: producers do not trim the stream")
	}
	fields, err := fieldsOf(args.Values)
	if err != nil {
		return "", err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.failures) > 0 {
		err, s.failures = s.failures[0], s.failures[1:]
		return "", err
	}
	catalog := s.Catalog
	if catalog == nil {
		catalog = intents.Catalog
	}
	intent, err := catalog.ParseEntry(fields)
	if err != nil {
		return "", err
	}
	next := Published{ID: fmt.Sprintf("%d-0", len(s.published)+1), Stream: args.Stream, Intent: intent}
	for _, earlier := range s.published {
		if earlier.Stream != args.Stream ||
			earlier.Intent.Producer() != intent.Producer() ||
			earlier.Intent.IdempotencyKey() != intent.IdempotencyKey() {
			continue
		}
		if earlier.Intent.Fingerprint() != intent.Fingerprint() {
			return "", &intents.InvalidIntentError{
				Code:    IdempotencyConflict,
				Field:   "idempotency_key",
				Problem: "came before, as " + earlier.ID + ", with other content (" + differences(earlier.Intent, intent) + ")",
			}
		}
		next.IsDuplicate = true
	}
	s.published = append(s.published, next)
	return next.ID, nil
}

// differences names the fields in which two intents with one idempotency key differ.
func differences(one, other intents.Intent) string {
	recipients := func(intent intents.Intent) []string { return slices.Sorted(slices.Values(intent.RecipientUserIDs())) }
	var names []string
	for _, field := range []struct {
		name   string
		isSame bool
	}{
		{"notification_type", one.NotificationType() == other.NotificationType()},
		{"audience_kind", one.AudienceKind() == other.AudienceKind()},
		{"recipient_user_ids_json", slices.Equal(recipients(one), recipients(other))},
		{"occurred_at_ms", one.OccurredAt().Equal(other.OccurredAt())},
		{"payload_json", one.PayloadJSON() == other.PayloadJSON()},
	} {
		if !field.isSame {
			names = append(names, field.name)
		}
	}
	return strings.Join(names, ", ")
}

// fieldsOf reads the values of XADD in the forms that go-redis takes, but for structs.
func fieldsOf(values any) ([]intents.Field, error) {
	var flat []any
	switch values := values.(type) {
	case []string:
		for _, value := range values {
			flat = append(flat, value)
		}
	case []any:
		flat = values
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(values)) {
			flat = append(flat, name, values[name])
		}
	case map[string]string:
		for _, name := range slices.Sorted(maps.Keys(values)) {
			flat = append(flat, name, values[name])
		}
	default:
		return nil, fmt.Errorf("notifytest: values of an entry as %T are not known", values)
	}
	if len(flat)%2 != 0 {
		return nil, errors.New("notifytest: a field has no value")
	}
	fields := make([]intents.Field, 0, len(flat)/2)
	for at := 0; at < len(flat); at += 2 {
		fields = append(fields, intents.Field{Name: textOf(flat[at]), Value: textOf(flat[at+1])})
	}
	return fields, nil
}

func textOf(value any) string {
	if bytes, isBytes := value.([]byte); isBytes {
		return string(bytes)
	}
	return fmt.Sprint(value)
}

// Expectation says which intents count. What is left empty may be anything.
type Expectation struct {
	Type           string
	IdempotencyKey string
	// Recipients are user ids, in any order.
	Recipients []string
	// PayloadJSON is the whole payload in any notation.
	PayloadJSON string
}

// TB is what of testing.TB an expectation needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// ExpectPublished fails the test unless exactly one intent was published that is as expected, repeats of it left aside, and
// returns it. The failure lists what was published instead.
func ExpectPublished(t TB, stream *Stream, expected Expectation) intents.Intent {
	t.Helper()
	var found []intents.Intent
	var seen []string
	for _, published := range stream.Published() {
		if published.IsDuplicate {
			continue
		}
		problem := expected.problemOf(published.Intent)
		if problem == "" {
			found = append(found, published.Intent)
			problem = "as expected"
		}
		seen = append(seen, fmt.Sprintf("\n  %s %s %q: %s", published.ID, published.Intent.NotificationType(), published.Intent.IdempotencyKey(), problem))
	}
	if len(found) != 1 {
		t.Fatalf("expected one intent %+v, found %d among %d published:%s", expected, len(found), len(seen), strings.Join(seen, ""))
		return intents.Intent{}
	}
	return found[0]
}

func (e Expectation) problemOf(intent intents.Intent) string {
	if e.Type != "" && e.Type != intent.NotificationType() {
		return "another type"
	}
	if e.IdempotencyKey != "" && e.IdempotencyKey != intent.IdempotencyKey() {
		return "another key"
	}
	if e.Recipients != nil && !slices.Equal(slices.Sorted(slices.Values(e.Recipients)), slices.Sorted(slices.Values(intent.RecipientUserIDs()))) {
		return fmt.Sprintf("other recipients, %q", intent.RecipientUserIDs())
	}
	if e.PayloadJSON != "" {
		canonical, err := intents.CanonicalJSON(e.PayloadJSON)
		if err != nil {
			return "the expected payload " + err.Error()
		}
		if canonical != intent.PayloadJSON() {
			return "another payload, " + intent.PayloadJSON()
		}
	}
	return ""
}
