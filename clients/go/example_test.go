package notificationintent_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	intents "github.com/galaxy-notify/galaxy-notify/clients/go"
	"github.com/galaxy-notify/galaxy-notify/clients/go/notification"
	"github.com/galaxy-notify/galaxy-notify/clients/go/notifytest"
)

// A producer publishes with redis.NewClient; here a stream in memory takes its place.
func ExamplePublish() {
	var client notifytest.Stream
	intent, err := intents.NewGameTurnReady(
		intents.Event{
			IdempotencyKey: "game-7/turn-54",
			OccurredAt:     time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC),
		},
		[]string{"user-1", "user-2"},
		intents.GameTurnReadyPayload{GameID: "game-7", GameName: "Andromeda", TurnNumber: 54},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	notificationID, err := intents.Publish(context.Background(), &client, intent)
	fmt.Println(notificationID, err)
	fmt.Println(intent.PayloadJSON())
	// Output:
	// 1-0 <nil>
	// {"game_id":"game-7","game_name":"Andromeda","turn_number":54}
}

func ExampleInvalidIntentError() {
	_, err := intents.NewLobbyRaceNameRegistered(
		intents.Event{IdempotencyKey: "race-name/vireo", OccurredAt: time.UnixMilli(1790000000000)},
		[]string{"user-1"},
		intents.LobbyRaceNameRegisteredPayload{RaceName: " "},
	)
	var refusal *intents.InvalidIntentError
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Code, refusal.Field)
	}
	fmt.Println(err)
	// Output:
	// invalid_payload payload_json.race_name
	// invalid_payload: payload_json.race_name must not be blank
}

// What Gateway hands on as payload_bytes of an event of the type game.turn.ready.
func Example_pushEvent() {
	payloadBytes, _ := base64.StdEncoding.DecodeString("DAAAAAgAEAAMAAQACAAAAAwAAAAAAAAABAAAAAYAAABnYW1lLTcAAA==")
	event := notification.GetRootAsGameTurnReadyEvent(payloadBytes, 0)
	fmt.Println(string(event.GameId()), event.TurnNumber())
	// Output:
	// game-7 12
}
