package notificationintent

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

var turnEvent = Event{IdempotencyKey: "game-7/turn-54", OccurredAt: time.UnixMilli(1790000000000)}

func turnPayload() GameTurnReadyPayload {
	return GameTurnReadyPayload{GameID: "game-7", GameName: "Andromeda", TurnNumber: 54}
}

// In the order of the catalog; the compiler sees that none is missing or has other parameters.
func TestEveryTypeHasAConstructor(t *testing.T) {
	users := []string{"user-2", "user-1"}
	made := map[string]int{}
	keep := func(intent Intent, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
			return
		}
		made[intent.NotificationType()+" to "+string(intent.AudienceKind())]++
		again, err := ParseEntry(intent.Fields())
		if err != nil || again.Fingerprint() != intent.Fingerprint() {
			t.Errorf("%s: its entry is %+v, %v", intent.NotificationType(), again, err)
		}
	}
	const game, name, at = "game-7", "Andromeda", 1790000000000
	keep(NewGeoReviewRecommended(turnEvent, GeoReviewRecommendedPayload{UserID: "u", UserEmail: "a@example.com", ObservedCountry: "PT", UsualConnectionCountry: "SE", ReviewReason: "one\ntwo"}))
	keep(NewGameTurnReady(turnEvent, users, turnPayload()))
	keep(NewGameFinished(turnEvent, users, GameFinishedPayload{GameID: game, GameName: name, FinalTurnNumber: 120}))
	keep(NewGameGenerationFailed(turnEvent, GameGenerationFailedPayload{GameID: game, GameName: name, FailureReason: "memory"}))
	keep(NewLobbyRuntimePausedAfterStart(turnEvent, LobbyRuntimePausedAfterStartPayload{GameID: game, GameName: name}))
	application := LobbyApplicationSubmittedPayload{GameID: game, GameName: name, ApplicantUserID: "u", ApplicantName: "Noor"}
	keep(NewLobbyApplicationSubmitted(turnEvent, users, application))
	keep(NewLobbyApplicationSubmittedToAdministrators(turnEvent, application))
	keep(NewLobbyMembershipApproved(turnEvent, users, LobbyMembershipApprovedPayload{GameID: game, GameName: name}))
	keep(NewLobbyMembershipRejected(turnEvent, users, LobbyMembershipRejectedPayload{GameID: game, GameName: name}))
	keep(NewLobbyMembershipBlocked(turnEvent, users, LobbyMembershipBlockedPayload{GameID: game, GameName: name, MembershipUserID: "u", MembershipUserName: "Noor", Reason: "spam"}))
	keep(NewLobbyInviteCreated(turnEvent, users, LobbyInviteCreatedPayload{GameID: game, GameName: name, InviterUserID: "u", InviterName: "Noor"}))
	keep(NewLobbyInviteRedeemed(turnEvent, users, LobbyInviteRedeemedPayload{GameID: game, GameName: name, InviteeUserID: "u", InviteeName: "Noor"}))
	keep(NewLobbyInviteExpired(turnEvent, users, LobbyInviteExpiredPayload{GameID: game, GameName: name, InviteeUserID: "u", InviteeName: "Noor"}))
	keep(NewLobbyRaceNameRegistrationEligible(turnEvent, users, LobbyRaceNameRegistrationEligiblePayload{GameID: game, GameName: name, RaceName: "Vireo", EligibleUntilMs: at}))
	keep(NewLobbyRaceNameRegistered(turnEvent, users, LobbyRaceNameRegisteredPayload{RaceName: "Vireo"}))
	keep(NewLobbyRaceNameRegistrationDenied(turnEvent, users, LobbyRaceNameRegistrationDeniedPayload{GameID: game, GameName: name, RaceName: "Vireo", Reason: "held"}))
	keep(NewRuntimeImagePullFailed(turnEvent, RuntimeImagePullFailedPayload{GameID: game, ImageRef: "i", ErrorCode: "c", ErrorMessage: "m", AttemptedAtMs: at}))
	keep(NewRuntimeContainerStartFailed(turnEvent, RuntimeContainerStartFailedPayload{GameID: game, ImageRef: "i", ErrorCode: "c", ErrorMessage: "m", AttemptedAtMs: at}))
	keep(NewRuntimeStartConfigInvalid(turnEvent, RuntimeStartConfigInvalidPayload{GameID: game, ImageRef: "i", ErrorCode: "c", ErrorMessage: "m", AttemptedAtMs: at}))
	audiences := 0
	for _, row := range Catalog {
		audiences += len(row.Audiences)
	}
	if len(made) != audiences {
		t.Errorf("%d types and audiences have no constructor in this test: %v", audiences-len(made), made)
	}
}

func TestConstructorsRefuseWhatTheServiceRefuses(t *testing.T) {
	turn := func(change func(*Event, *[]string, *GameTurnReadyPayload)) error {
		event, users, payload := turnEvent, []string{"user-1"}, turnPayload()
		change(&event, &users, &payload)
		_, err := NewGameTurnReady(event, users, payload)
		return err
	}
	cases := map[string]struct {
		err         error
		code, field string
	}{
		"no key":                              {turn(func(e *Event, _ *[]string, _ *GameTurnReadyPayload) { e.IdempotencyKey = "" }), "invalid_envelope", "idempotency_key"},
		"a key that is no text":               {turn(func(e *Event, _ *[]string, _ *GameTurnReadyPayload) { e.IdempotencyKey = "\xff" }), "invalid_envelope", "idempotency_key"},
		"no time":                             {turn(func(e *Event, _ *[]string, _ *GameTurnReadyPayload) { e.OccurredAt = time.Time{} }), "invalid_envelope", "occurred_at_ms"},
		"expired before it happened":          {turn(func(e *Event, _ *[]string, _ *GameTurnReadyPayload) { e.ExpiresAt = e.OccurredAt }), "invalid_envelope", "expires_at_ms"},
		"expired at the zero of time":         {turn(func(e *Event, _ *[]string, _ *GameTurnReadyPayload) { e.ExpiresAt = time.UnixMilli(0) }), "invalid_envelope", "expires_at_ms"},
		"a request id of two lines":           {turn(func(e *Event, _ *[]string, _ *GameTurnReadyPayload) { e.RequestID = "a\nb" }), "invalid_envelope", "request_id"},
		"no recipient":                        {turn(func(_ *Event, u *[]string, _ *GameTurnReadyPayload) { *u = nil }), "invalid_recipients", "recipient_user_ids_json"},
		"a recipient twice":                   {turn(func(_ *Event, u *[]string, _ *GameTurnReadyPayload) { *u = []string{"a", "a"} }), "invalid_recipients", "recipient_user_ids_json"},
		"a user id that is no text":           {turn(func(_ *Event, u *[]string, _ *GameTurnReadyPayload) { *u = []string{"\xff"} }), "invalid_recipients", "recipient_user_ids_json"},
		"no game":                             {turn(func(_ *Event, _ *[]string, p *GameTurnReadyPayload) { p.GameID = "" }), "invalid_payload", "payload_json.game_id"},
		"a turn before the first":             {turn(func(_ *Event, _ *[]string, p *GameTurnReadyPayload) { p.TurnNumber = -1 }), "invalid_payload", "payload_json.turn_number"},
		"a turn beyond 2^53":                  {turn(func(_ *Event, _ *[]string, p *GameTurnReadyPayload) { p.TurnNumber = 1 << 53 }), "invalid_payload", "payload_json"},
		"a name that is no text":              {turn(func(_ *Event, _ *[]string, p *GameTurnReadyPayload) { p.GameName = "\xff" }), "invalid_payload", "payload_json"},
		"a further text of invalid UTF-8":     {turn(func(_ *Event, _ *[]string, p *GameTurnReadyPayload) { p.Further = map[string]any{"a": []any{"\xff"}} }), "invalid_payload", "payload_json"},
		"a further value without a JSON form": {turn(func(_ *Event, _ *[]string, p *GameTurnReadyPayload) { p.Further = map[string]any{"a": math.NaN()} }), "invalid_payload", "payload_json"},
		"a typed field as a further one":      {turn(func(_ *Event, _ *[]string, p *GameTurnReadyPayload) { p.Further = map[string]any{"game_id": "b"} }), "invalid_payload", "payload_json.game_id"},
	}
	for name, expected := range cases {
		var refusal *InvalidIntentError
		if !errors.As(expected.err, &refusal) {
			t.Errorf("%s: not refused, but %v", name, expected.err)
			continue
		}
		if string(refusal.Code) != expected.code || refusal.Field != expected.field {
			t.Errorf("%s: %v", name, refusal)
		}
		if !strings.HasPrefix(refusal.Error(), expected.code+": "+expected.field) {
			t.Errorf("%s: the message %q does not begin with code and field", name, refusal)
		}
	}
}

func TestAnIntentIsWhatWasAskedFor(t *testing.T) {
	event := turnEvent
	event.RequestID, event.TraceID = "request-1", "trace-1"
	event.ExpiresAt = event.OccurredAt.Add(time.Hour)
	event.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	payload := turnPayload()
	payload.Further = map[string]any{"map": map[string]any{"sectors": 7}, "<&>": "\u2028"}
	intent, err := NewGameTurnReady(event, []string{"user-2", "user-1"}, payload)
	if err != nil {
		t.Fatal(err)
	}
	expected := []Field{
		{"notification_type", "game.turn.ready"},
		{"producer", "game_master"},
		{"audience_kind", "user"},
		{"recipient_user_ids_json", `["user-2","user-1"]`},
		{"idempotency_key", "game-7/turn-54"},
		{"occurred_at_ms", "1790000000000"},
		{"expires_at_ms", "1790003600000"},
		{"payload_json", "{\"<&>\":\"\u2028\",\"game_id\":\"game-7\",\"game_name\":\"Andromeda\",\"map\":{\"sectors\":7},\"turn_number\":54}"},
		{"request_id", "request-1"},
		{"trace_id", "trace-1"},
		{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	}
	if !slices.Equal(intent.Fields(), expected) {
		t.Errorf("%q", intent.Fields())
	}
	if !intent.ExpiresAt().Equal(event.ExpiresAt) {
		t.Errorf("it expires at %v", intent.ExpiresAt())
	}
	if !intent.OccurredAt().Equal(event.OccurredAt) {
		t.Error(intent.OccurredAt())
	}
	intent.RecipientUserIDs()[0] = "user-3"
	if intent.RecipientUserIDs()[0] != "user-2" {
		t.Error("a caller can change an intent")
	}
}
