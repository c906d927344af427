package notificationintent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// AudienceKind says who an intent is addressed to.
type AudienceKind string

const (
	// AudienceUser stands for users whom the producer names.
	AudienceUser AudienceKind = "user"
	// AudienceAdminEmail stands for administrators, whose addresses the service has for each type.
	AudienceAdminEmail AudienceKind = "admin_email"
)

// FailureCode is what the service records about an entry that it refuses.
type FailureCode string

const (
	InvalidEnvelope         FailureCode = "invalid_envelope"
	UnknownNotificationType FailureCode = "unknown_notification_type"
	InvalidAudience         FailureCode = "invalid_audience"
	InvalidRecipients       FailureCode = "invalid_recipients"
	InvalidPayload          FailureCode = "invalid_payload"
	EntryTooLarge           FailureCode = "entry_too_large"
)

// InvalidIntentError tells that the service would refuse an intent.
type InvalidIntentError struct {
	// Code is what the service would record.
	Code FailureCode
	// Field is the field of the envelope that is wrong; for a field of the payload, payload_json, a dot and its name; empty
	// when the entry is too large.
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error says all that is known, on one line.
func (e *InvalidIntentError) Error() string {
	field := e.Field
	if field == "" {
		field = "the entry"
	}
	return fmt.Sprintf("%s: %s %s", e.Code, field, e.Problem)
}

func refuse(code FailureCode, field, problem string, values ...any) *InvalidIntentError {
	return &InvalidIntentError{Code: code, Field: field, Problem: fmt.Sprintf(problem, values...)}
}

// Event is what every intent says about the event that it tells of.
type Event struct {
	// IdempotencyKey is unique for each event of a producer. The same key with the same content is a duplicate without
	// effect, with other content a conflict.
	IdempotencyKey string
	// OccurredAt is when the event happened, to the millisecond. It is a part of the content: take it from the event, so that
	// a repeat has the same.
	OccurredAt time.Time
	// DeliverAt is when the intent is delivered, to the millisecond and up to a year after OccurredAt; the zero time for now. It
	// can be cancelled until then. It is no part of the content.
	DeliverAt time.Time
	// ExpiresAt is from when on the intent is not worth sending any more, to the millisecond and after OccurredAt; the zero
	// time for never. Who has not got it by then does not get it. It is no part of the content: of a repeat with another
	// one, the first counts.
	ExpiresAt time.Time
	// RequestID and TraceID are for correlation only, and may be empty.
	RequestID, TraceID string
	// TraceParent is the W3C trace context of the span that publishes, and may be empty. The service links its spans to it,
	// and hands it on.
	TraceParent string
}

// Intent is one that the service accepts. Only constructors and [ParseEntry] make one; the zero value cannot be published.
type Intent struct {
	notificationType string
	producer         string
	audienceKind     AudienceKind
	recipientUserIDs []string
	idempotencyKey   string
	occurredAtMs     int64
	deliverAtMs      int64
	expiresAtMs      int64
	payloadJSON      string
	requestID        string
	traceID          string
	traceParent      string
}

// NotificationType is the type's name, such as game.turn.ready.
func (i Intent) NotificationType() string { return i.notificationType }

// Producer is the one service that may publish the type.
func (i Intent) Producer() string { return i.producer }

// AudienceKind says whether users or administrators are told.
func (i Intent) AudienceKind() AudienceKind { return i.audienceKind }

// RecipientUserIDs are the users to tell; none for administrators.
func (i Intent) RecipientUserIDs() []string { return slices.Clone(i.recipientUserIDs) }

// IdempotencyKey is what a repeat of the intent is known by.
func (i Intent) IdempotencyKey() string { return i.idempotencyKey }

// OccurredAt is when the event happened, in UTC.
func (i Intent) OccurredAt() time.Time { return time.UnixMilli(i.occurredAtMs).UTC() }

// DeliverAt is when it is delivered, in UTC; the zero time for now.
func (i Intent) DeliverAt() time.Time {
	if i.deliverAtMs == 0 {
		return time.Time{}
	}
	return time.UnixMilli(i.deliverAtMs).UTC()
}

// ExpiresAt is from when on it is not worth sending any more, in UTC; the zero time for never.
func (i Intent) ExpiresAt() time.Time {
	if i.expiresAtMs == 0 {
		return time.Time{}
	}
	return time.UnixMilli(i.expiresAtMs).UTC()
}

// PayloadJSON is the payload in canonical form (RFC 8785).
func (i Intent) PayloadJSON() string { return i.payloadJSON }

// RequestID is for correlation, and may be empty.
func (i Intent) RequestID() string { return i.requestID }

// TraceID is for correlation, and may be empty.
func (i Intent) TraceID() string { return i.traceID }

// TraceParent is the W3C trace context of the producer, and may be empty.
func (i Intent) TraceParent() string { return i.traceParent }

// Fields are the fields of the intent's entry, in the order in which they are appended.
func (i Intent) Fields() []Field {
	fields := []Field{
		{"notification_type", i.notificationType},
		{"producer", i.producer},
		{"audience_kind", string(i.audienceKind)},
	}
	if len(i.recipientUserIDs) > 0 {
		fields = append(fields, Field{"recipient_user_ids_json", string(appendCanonical(nil, jsonArray(i.recipientUserIDs)))})
	}
	fields = append(fields,
		Field{"idempotency_key", i.idempotencyKey},
		Field{"occurred_at_ms", strconv.FormatInt(i.occurredAtMs, 10)},
	)
	if i.deliverAtMs != 0 {
		fields = append(fields, Field{"deliver_at_ms", strconv.FormatInt(i.deliverAtMs, 10)})
	}
	if i.expiresAtMs != 0 {
		fields = append(fields, Field{"expires_at_ms", strconv.FormatInt(i.expiresAtMs, 10)})
	}
	fields = append(fields, Field{"payload_json", i.payloadJSON})
	if i.requestID != "" {
		fields = append(fields, Field{"request_id", i.requestID})
	}
	if i.traceID != "" {
		fields = append(fields, Field{"trace_id", i.traceID})
	}
	if i.traceParent != "" {
		fields = append(fields, Field{"traceparent", i.traceParent})
	}
	return fields
}

// Fingerprint is the SHA-256, in hex, by which the service tells a duplicate from a conflict. The order of recipients and of
// keys makes no difference. DeliverAt, ExpiresAt, RequestID, TraceID and TraceParent make none either.
func (i Intent) Fingerprint() string {
	recipients := slices.Clone(i.recipientUserIDs)
	slices.SortFunc(recipients, compareUTF16)
	content := map[string]any{
		"notification_type":  i.notificationType,
		"producer":           i.producer,
		"audience_kind":      string(i.audienceKind),
		"recipient_user_ids": jsonArray(recipients),
		"idempotency_key":    i.idempotencyKey,
		"occurred_at_ms":     float64(i.occurredAtMs),
		"payload":            i.payloadJSON,
	}
	return sha256Hex(appendCanonical(nil, content))
}

// Member is one field of a payload.
type Member struct {
	Name  string
	Value any
}

// Payload is what constructors take: the fields of a type, and further ones.
type Payload interface {
	Members() (typed []Member, further map[string]any)
}

// NewIntent makes an intent of a type of a catalog; constructors of each type call it. It returns an [*InvalidIntentError]
// for what the service would refuse.
//
// It writes the entry as it would be appended, and runs the service's checks on it.
func NewIntent(catalog TypeCatalog, kind string, audience AudienceKind, recipients []string, event Event, payload Payload) (Intent, error) {
	for _, text := range []Field{
		{"idempotency_key", event.IdempotencyKey}, {"request_id", event.RequestID}, {"trace_id", event.TraceID},
	} {
		if !utf8.ValidString(text.Value) {
			return Intent{}, refuse(InvalidEnvelope, text.Name, "is not UTF-8")
		}
	}
	// The service would take it for absent, and the trace would end here without a word.
	if event.TraceParent != "" && !isTraceParent(event.TraceParent) {
		return Intent{}, refuse(InvalidEnvelope, "traceparent", "must be a W3C traceparent of version 00")
	}
	for at, id := range recipients {
		if !utf8.ValidString(id) {
			return Intent{}, refuse(InvalidRecipients, "recipient_user_ids_json", "has a user id at position %d that is not UTF-8", at)
		}
	}
	payloadJSON, err := encodePayload(payload)
	if err != nil {
		return Intent{}, err
	}
	draft := Intent{
		notificationType: kind,
		producer:         catalog[kind].Producer,
		audienceKind:     audience,
		recipientUserIDs: recipients,
		idempotencyKey:   event.IdempotencyKey,
		occurredAtMs:     event.OccurredAt.UnixMilli(),
		payloadJSON:      payloadJSON,
		requestID:        event.RequestID,
		traceID:          event.TraceID,
		traceParent:      event.TraceParent,
	}
	if !event.DeliverAt.IsZero() {
		// As with ExpiresAt.
		if draft.deliverAtMs = event.DeliverAt.UnixMilli(); draft.deliverAtMs == 0 {
			draft.deliverAtMs = -1
		}
	}
	if !event.ExpiresAt.IsZero() {
		// The zero of milliseconds stands for never: 1970 is before every event all the same.
		if draft.expiresAtMs = event.ExpiresAt.UnixMilli(); draft.expiresAtMs == 0 {
			draft.expiresAtMs = -1
		}
	}
	return catalog.ParseEntry(draft.Fields())
}

// encodePayload writes the typed fields, and further ones as encoding/json does.
func encodePayload(payload Payload) (string, error) {
	typed, further := payload.Members()
	whole := make(map[string]any, len(typed)+len(further))
	for name, value := range further {
		whole[name] = value
	}
	for _, field := range typed {
		if _, taken := whole[field.Name]; taken {
			return "", refuse(InvalidPayload, "payload_json."+field.Name, "is given twice: typed, and as a further field")
		}
		whole[field.Name] = field.Value
	}
	if place := invalidText(whole); place != "" {
		return "", refuse(InvalidPayload, "payload_json", "has text that is not UTF-8 at %s", place)
	}
	text, err := marshal(whole)
	if err != nil {
		return "", refuse(InvalidPayload, "payload_json", "cannot be written as JSON: %v", err)
	}
	return text, nil
}

// invalidText is where a value has text that JSON would change without a word; empty when it has none.
func invalidText(value any) string {
	switch value := value.(type) {
	case string:
		if !utf8.ValidString(value) {
			return "a value"
		}
	case map[string]any:
		for name, inner := range value {
			if !utf8.ValidString(name) {
				return "a key"
			}
			if invalidText(inner) != "" {
				return name
			}
		}
	case map[string]string:
		for name, inner := range value {
			if !utf8.ValidString(name) || !utf8.ValidString(inner) {
				return strings.ToValidUTF8(name, "?")
			}
		}
	case []any:
		for at, inner := range value {
			if invalidText(inner) != "" {
				return strconv.Itoa(at)
			}
		}
	case []string:
		for at, inner := range value {
			if !utf8.ValidString(inner) {
				return strconv.Itoa(at)
			}
		}
	}
	return ""
}
