// Command publish publishes one intent and prints its notification id.
//
//	go run ./examples/publish redis://127.0.0.1:6379 user-1 [idempotency key]
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	intents "github.com/galaxy-notify/galaxy-notify/clients/go"
)

func run(url, userID, key string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	// An intent that waits for a server which is away would hold the caller up: fail, and repeat it with the same key.
	options.MaxRetries = -1
	client := redis.NewClient(options)
	defer client.Close()
	intent, err := intents.NewGameTurnReady(
		intents.Event{
			IdempotencyKey: key,
			// Of the event, so that a repeat has the same.
			OccurredAt: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC),
		},
		[]string{userID},
		intents.GameTurnReadyPayload{GameID: "game-7", GameName: "Andromeda", TurnNumber: 54},
	)
	if err != nil {
		return err
	}
	notificationID, err := intents.Publish(context.Background(), client, intent)
	if err != nil {
		return err
	}
	fmt.Println(notificationID)
	return nil
}

func main() {
	arguments := os.Args[1:]
	if len(arguments) < 2 {
		fmt.Fprintln(os.Stderr, "give the URL of Redis, a user id, and if you like a key")
		os.Exit(2)
	}
	key := "example/turn-54"
	if len(arguments) > 2 {
		key = arguments[2]
	}
	if err := run(arguments[0], arguments[1], key); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
