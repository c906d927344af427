package notificationintent

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Field is one field of an entry of the stream. Both are the bytes of the entry, which need not be text.
type Field struct {
	Name, Value string
}

var (
	requiredFields = []string{
		"notification_type", "producer", "audience_kind", "idempotency_key", "occurred_at_ms", "payload_json",
	}
	optionalFields = []string{"recipient_user_ids_json", "deliver_at_ms", "expires_at_ms", "request_id", "trace_id"}
)

// ParseEntry checks an entry as the service does.
//
// It returns an [*InvalidIntentError] for what the service would refuse. Unknown fields are ignored, and an empty optional
// field counts as absent.
func ParseEntry(fields []Field) (Intent, error) { return Catalog.ParseEntry(fields) }

// ParseEntry checks an entry as a service with this catalog does. See [ParseEntry].
func (c TypeCatalog) ParseEntry(fields []Field) (Intent, error) {
	intent, refusal := c.parseEntry(fields)
	if refusal != nil {
		return Intent{}, refusal
	}
	return intent, nil
}

func (c TypeCatalog) parseEntry(fields []Field) (Intent, *InvalidIntentError) {
	if refusal := checkSize(fields); refusal != nil {
		return Intent{}, refusal
	}
	envelope, refusal := readEnvelope(fields)
	if refusal != nil {
		return Intent{}, refusal
	}
	intent := Intent{
		notificationType: envelope["notification_type"],
		producer:         envelope["producer"],
		idempotencyKey:   envelope["idempotency_key"],
		requestID:        envelope["request_id"],
		traceID:          envelope["trace_id"],
		traceParent:      traceParent(fields),
	}
	if refusal := checkIdentifier("idempotency_key", intent.idempotencyKey); refusal != nil {
		return Intent{}, refusal
	}
	if intent.occurredAtMs, refusal = readTimestamp("occurred_at_ms", envelope); refusal != nil {
		return Intent{}, refusal
	}
	if _, isLater := envelope["deliver_at_ms"]; isLater {
		if intent.deliverAtMs, refusal = readTimestamp("deliver_at_ms", envelope); refusal != nil {
			return Intent{}, refusal
		}
		if intent.deliverAtMs > intent.occurredAtMs+maxDelayMs {
			return Intent{}, refuse(InvalidEnvelope, "deliver_at_ms", "must be at most 366 days after occurred_at_ms")
		}
	}
	if _, expires := envelope["expires_at_ms"]; expires {
		if intent.expiresAtMs, refusal = readTimestamp("expires_at_ms", envelope); refusal != nil {
			return Intent{}, refusal
		}
		// Seconds instead of milliseconds, for instance, would be an intent of which nothing is ever sent.
		if intent.expiresAtMs <= intent.occurredAtMs {
			return Intent{}, refuse(InvalidEnvelope, "expires_at_ms", "must be after occurred_at_ms")
		}
		if intent.expiresAtMs <= intent.deliverAtMs {
			return Intent{}, refuse(InvalidEnvelope, "expires_at_ms", "must be after deliver_at_ms")
		}
	}
	for _, name := range []string{"request_id", "trace_id"} {
		if refusal := checkIdentifier(name, envelope[name]); refusal != nil {
			return Intent{}, refusal
		}
	}
	row, known := c[intent.notificationType]
	if !known {
		return Intent{}, refuse(UnknownNotificationType, "notification_type", "%s is not in the catalog", quote(intent.notificationType))
	}
	if row.Retired {
		return Intent{}, refuse(UnknownNotificationType, "notification_type", "%s is retired", quote(intent.notificationType))
	}
	if intent.producer != row.Producer {
		return Intent{}, refuse(InvalidEnvelope, "producer", "of %s must be %s, not %s", intent.notificationType, row.Producer, quote(intent.producer))
	}
	intent.audienceKind = AudienceKind(envelope["audience_kind"])
	if !slices.Contains(row.Audiences, intent.audienceKind) {
		return Intent{}, refuse(InvalidAudience, "audience_kind", "of %s must be one of %v, not %s", intent.notificationType, row.Audiences, quote(string(intent.audienceKind)))
	}
	recipients, given := envelope["recipient_user_ids_json"]
	if intent.recipientUserIDs, refusal = readRecipients(recipients, given, intent.audienceKind); refusal != nil {
		return Intent{}, refusal
	}
	if intent.payloadJSON, refusal = readPayload(envelope["payload_json"], row); refusal != nil {
		return Intent{}, refusal
	}
	return intent, nil
}

func checkSize(fields []Field) *InvalidIntentError {
	bytes := 0
	for _, field := range fields {
		bytes += len(field.Name) + len(field.Value)
	}
	if bytes > maxEntryBytes {
		return refuse(EntryTooLarge, "", "has %d bytes; at most %d are accepted", bytes, maxEntryBytes)
	}
	if len(fields) > maxEntryFields {
		return refuse(EntryTooLarge, "", "has %d fields; at most %d are accepted", len(fields), maxEntryFields)
	}
	return nil
}

func readEnvelope(fields []Field) (map[string]string, *InvalidIntentError) {
	envelope := make(map[string]string, len(requiredFields)+len(optionalFields))
	for _, field := range fields {
		if !slices.Contains(requiredFields, field.Name) && !slices.Contains(optionalFields, field.Name) {
			continue
		}
		if _, taken := envelope[field.Name]; taken {
			return nil, refuse(InvalidEnvelope, field.Name, "is given more than once")
		}
		if !utf8.ValidString(field.Value) {
			return nil, refuse(InvalidEnvelope, field.Name, "is not UTF-8")
		}
		envelope[field.Name] = field.Value
	}
	for _, name := range optionalFields {
		if envelope[name] == "" {
			delete(envelope, name)
		}
	}
	for _, name := range requiredFields {
		value, given := envelope[name]
		if !given {
			return nil, refuse(InvalidEnvelope, name, "is missing")
		}
		if isBlank(value) {
			return nil, refuse(InvalidEnvelope, name, "is empty")
		}
	}
	return envelope, nil
}

func checkIdentifier(name, value string) *InvalidIntentError {
	if hasControlCharacters(value) {
		return refuse(InvalidEnvelope, name, "has control characters")
	}
	if len(value) > maxKeyBytes {
		return refuse(InvalidEnvelope, name, "is longer than %d bytes", maxKeyBytes)
	}
	return nil
}

// traceParentForm is that of W3C trace context, version 00.
var traceParentForm = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

func isTraceParent(text string) bool {
	return traceParentForm.MatchString(text) && text[3:35] != strings.Repeat("0", 32) && text[36:52] != strings.Repeat("0", 16)
}

// traceParent is the one of an entry. An entry is never refused for it: anything else counts as absent.
func traceParent(fields []Field) string {
	found := ""
	count := 0
	for _, field := range fields {
		if field.Name == "traceparent" {
			found = field.Value
			count++
		}
	}
	if count != 1 || !isTraceParent(found) {
		return ""
	}
	return found
}

func readTimestamp(name string, envelope map[string]string) (int64, *InvalidIntentError) {
	text := envelope[name]
	if len(text) <= 15 && strings.Trim(text, "0123456789") == "" {
		value, err := strconv.ParseInt(text, 10, 64)
		if err == nil && value >= minTimestampMs && value <= maxTimestampMs {
			return value, nil
		}
	}
	return 0, refuse(InvalidEnvelope, name, "must be whole milliseconds since 1970, of the years 2000 to 9999")
}

func readRecipients(text string, given bool, audience AudienceKind) ([]string, *InvalidIntentError) {
	refusal := func(problem string, values ...any) *InvalidIntentError {
		return refuse(InvalidRecipients, "recipient_user_ids_json", problem, values...)
	}
	if audience == AudienceAdminEmail {
		if given {
			return nil, refusal("is not allowed for audience_kind admin_email")
		}
		return nil, nil
	}
	if !given {
		return nil, refusal("is required for audience_kind user")
	}
	value, problem := parseJSON(text)
	if problem != "" {
		return nil, refusal("%s", problem)
	}
	items, isArray := value.([]any)
	if !isArray || len(items) == 0 {
		return nil, refusal("must be a JSON array with at least one user id")
	}
	seen := make(map[string]bool, len(items))
	ids := make([]string, 0, len(items))
	for at, item := range items {
		id, isText := item.(string)
		if !isText || isBlank(id) {
			return nil, refusal("has no user id at position %d", at)
		}
		if seen[id] {
			return nil, refusal("names %s more than once", quote(id))
		}
		if len(id) > maxUserIDBytes {
			return nil, refusal("has a user id longer than %d bytes at position %d", maxUserIDBytes, at)
		}
		// A user id becomes a segment of the User Service's URL, where these two would name something else.
		if hasControlCharacters(id) || id == "." || id == ".." {
			return nil, refusal("has an unusable user id at position %d", at)
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids, nil
}

func readPayload(text string, row TypeSpec) (string, *InvalidIntentError) {
	if len(text) > maxPayloadBytes {
		return "", refuse(InvalidPayload, "payload_json", "has %d bytes; at most %d are accepted", len(text), maxPayloadBytes)
	}
	value, problem := parseJSON(text)
	if problem != "" {
		return "", refuse(InvalidPayload, "payload_json", "%s", problem)
	}
	payload, isObject := value.(map[string]any)
	if !isObject {
		return "", refuse(InvalidPayload, "payload_json", "must be a JSON object")
	}
	for _, field := range row.Fields {
		member, given := payload[field.Name]
		if !given && field.Optional {
			continue
		}
		if problem := field.problem(member); problem != "" {
			return "", refuse(InvalidPayload, "payload_json."+field.Name, "%s", problem)
		}
	}
	return string(appendCanonical(nil, payload)), nil
}

func hasControlCharacters(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Cc, r) })
}

// isBlank is whether a text has nothing but what ECMAScript, which the service speaks, takes for white space.
func isBlank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= '\t' && r <= '\r' || r == '\ufeff' || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Zs, r))
	})
}

// quote shows the beginning of a text on one line.
func quote(text string) string {
	const shown = 100
	if runes := []rune(text[:min(len(text), 4*shown)]); len(runes) > shown {
		text = string(runes[:shown]) + "…"
	}
	return strconv.Quote(text)
}
