package notificationintent

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/galaxy-notify/galaxy-notify/clients/go/notification"
)

// What the service decides; every client is tested against this file.
const vectorsFile = "../../api/intent/vectors.json"

type vectorEntry struct {
	Name          string
	Fields        [][2]json.RawMessage
	FurtherFields int `json:"further_fields"`
	Accepted      *struct {
		Fingerprint      string
		PayloadJSON      string   `json:"payload_json"`
		RecipientUserIDs []string `json:"recipient_user_ids"`
		ExpiresAtMs      int64    `json:"expires_at_ms"`
		TraceParent      string
	}
	Refused *struct {
		Code  FailureCode
		Names string
	}
}

type pushPayload struct {
	Type   string
	Table  string
	Fields map[string]any
	Base64 []byte
}

func readVectors(t testing.TB) (vectors struct {
	PushPayloads []pushPayload `json:"push_payloads"`
	Entries      []vectorEntry
}) {
	t.Helper()
	content, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

func mustUnmarshal(t testing.TB, raw json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// valueOf joins the pieces of a value: text, text that comes again, bytes.
func valueOf(t testing.TB, raw json.RawMessage) string {
	t.Helper()
	var text string
	if raw[0] != '[' {
		mustUnmarshal(t, raw, &text)
		return text
	}
	var parts []json.RawMessage
	mustUnmarshal(t, raw, &parts)
	for _, part := range parts {
		if part[0] != '{' {
			text += valueOf(t, part)
			continue
		}
		var piece struct {
			Repeat string
			Times  int
			Base64 string
		}
		mustUnmarshal(t, part, &piece)
		bytes, err := base64.StdEncoding.DecodeString(piece.Base64)
		if err != nil {
			t.Fatal(err)
		}
		text += strings.Repeat(piece.Repeat, piece.Times) + string(bytes)
	}
	return text
}

func entryOf(t testing.TB, vector vectorEntry) []Field {
	var fields []Field
	for _, field := range vector.Fields {
		fields = append(fields, Field{valueOf(t, field[0]), valueOf(t, field[1])})
	}
	for at := range vector.FurtherFields {
		fields = append(fields, Field{fmt.Sprintf("further-%d", at), "x"})
	}
	return fields
}

func TestEntriesAreDecidedAsByTheService(t *testing.T) {
	entries := readVectors(t).Entries
	if len(entries) < 400 {
		t.Fatalf("%d vectors are too few", len(entries))
	}
	for _, vector := range entries {
		t.Run(vector.Name, func(t *testing.T) {
			intent, err := ParseEntry(entryOf(t, vector))
			var refusal *InvalidIntentError
			if vector.Refused != nil {
				if !errors.As(err, &refusal) {
					t.Fatalf("not refused, but %v", err)
				}
				names := refusal.Field
				if names == "" {
					names = "the entry"
				}
				if refusal.Code != vector.Refused.Code || names != vector.Refused.Names {
					t.Fatalf("refused as %q of %q, not %+v", refusal.Code, names, *vector.Refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := intent.Fingerprint(); got != vector.Accepted.Fingerprint {
				t.Errorf("fingerprint %s of %+v", got, intent)
			}
			if expected := vector.Accepted.PayloadJSON; expected != "" && intent.PayloadJSON() != expected {
				t.Errorf("payload %s, not %s", intent.PayloadJSON(), expected)
			}
			if expected := vector.Accepted.RecipientUserIDs; expected != nil && !slices.Equal(intent.RecipientUserIDs(), expected) {
				t.Errorf("recipients %q, not %q", intent.RecipientUserIDs(), expected)
			}
			if intent.expiresAtMs != vector.Accepted.ExpiresAtMs {
				t.Errorf("expires at %d, not %d", intent.expiresAtMs, vector.Accepted.ExpiresAtMs)
			}
			if intent.TraceParent() != vector.Accepted.TraceParent {
				t.Errorf("traceparent %q, not %q", intent.TraceParent(), vector.Accepted.TraceParent)
			}
			again, err := ParseEntry(intent.Fields())
			if err != nil || again.Fingerprint() != intent.Fingerprint() {
				t.Errorf("published, it would be %+v, %v", again, err)
			}
		})
	}
}

func TestPushPayloadsOfTheServiceCanBeRead(t *testing.T) {
	readers := map[string]func([]byte) map[string]any{
		"game.turn.ready": func(bytes []byte) map[string]any {
			event := notification.GetRootAsGameTurnReadyEvent(bytes, 0)
			return map[string]any{"game_id": string(event.GameId()), "turn_number": float64(event.TurnNumber())}
		},
		"game.finished": func(bytes []byte) map[string]any {
			event := notification.GetRootAsGameFinishedEvent(bytes, 0)
			return map[string]any{"game_id": string(event.GameId()), "final_turn_number": float64(event.FinalTurnNumber())}
		},
		"lobby.application.submitted": func(bytes []byte) map[string]any {
			event := notification.GetRootAsLobbyApplicationSubmittedEvent(bytes, 0)
			return map[string]any{"game_id": string(event.GameId()), "applicant_user_id": string(event.ApplicantUserId())}
		},
		"lobby.membership.approved": func(bytes []byte) map[string]any {
			return map[string]any{"game_id": string(notification.GetRootAsLobbyMembershipApprovedEvent(bytes, 0).GameId())}
		},
		"lobby.membership.rejected": func(bytes []byte) map[string]any {
			return map[string]any{"game_id": string(notification.GetRootAsLobbyMembershipRejectedEvent(bytes, 0).GameId())}
		},
		"lobby.membership.blocked": func(bytes []byte) map[string]any {
			event := notification.GetRootAsLobbyMembershipBlockedEvent(bytes, 0)
			return map[string]any{
				"game_id":            string(event.GameId()),
				"membership_user_id": string(event.MembershipUserId()),
				"reason":             string(event.Reason()),
			}
		},
		"lobby.invite.created": func(bytes []byte) map[string]any {
			event := notification.GetRootAsLobbyInviteCreatedEvent(bytes, 0)
			return map[string]any{"game_id": string(event.GameId()), "inviter_user_id": string(event.InviterUserId())}
		},
		"lobby.invite.redeemed": func(bytes []byte) map[string]any {
			event := notification.GetRootAsLobbyInviteRedeemedEvent(bytes, 0)
			return map[string]any{"game_id": string(event.GameId()), "invitee_user_id": string(event.InviteeUserId())}
		},
		"lobby.race_name.registration_eligible": func(bytes []byte) map[string]any {
			event := notification.GetRootAsLobbyRaceNameRegistrationEligibleEvent(bytes, 0)
			return map[string]any{
				"game_id":           string(event.GameId()),
				"race_name":         string(event.RaceName()),
				"eligible_until_ms": float64(event.EligibleUntilMs()),
			}
		},
		"lobby.race_name.registered": func(bytes []byte) map[string]any {
			return map[string]any{"race_name": string(notification.GetRootAsLobbyRaceNameRegisteredEvent(bytes, 0).RaceName())}
		},
	}
	payloads := readVectors(t).PushPayloads
	if len(payloads) != len(readers) {
		t.Fatalf("%d payloads, %d readers", len(payloads), len(readers))
	}
	for _, payload := range payloads {
		read, known := readers[payload.Type]
		if !known {
			t.Errorf("%s has no reader here", payload.Type)
			continue
		}
		if got, expected := fmt.Sprint(read(payload.Base64)), fmt.Sprint(payload.Fields); got != expected {
			t.Errorf("%s: %s, not %s", payload.Type, got, expected)
		}
	}
}
