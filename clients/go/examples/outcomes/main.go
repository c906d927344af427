// Command outcomes prints what becomes of intents, one line an event, until it is interrupted.
//
//	go run ./examples/outcomes redis://127.0.0.1:6379 [group]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"

	intents "github.com/galaxy-notify/galaxy-notify/clients/go"
)

func run(ctx context.Context, url, group string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	reader := intents.OutcomeReader{Group: group, Consumer: "example"}
	return reader.Read(ctx, client, func(_ context.Context, outcome intents.Outcome) error {
		fmt.Println(outcome.NotificationID, outcome.Kind, outcome.IdempotencyKey)
		return nil
	})
}

func main() {
	arguments := os.Args[1:]
	if len(arguments) < 1 {
		fmt.Fprintln(os.Stderr, "give the URL of Redis, and if you like a consumer group")
		os.Exit(2)
	}
	group := "example"
	if len(arguments) > 1 {
		group = arguments[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, arguments[0], group); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
