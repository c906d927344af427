package notificationintent

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// DefaultStream is where the service reads intents unless it is told otherwise.
const DefaultStream = "notification:intents"

// StreamAppender is the part of a Redis client that publication needs. Every client of go-redis has it.
type StreamAppender interface {
	XAdd(ctx context.Context, args *redis.XAddArgs) *redis.StringCmd
}

// Publish appends an intent to [DefaultStream] with one plain XADD, without trimming and without its own retry. Most
// clients of go-redis repeat a command whose answer is lost, unless MaxRetries is -1: the second entry is then a duplicate
// without effect.
//
// It returns the id of the stream's entry, which is the notification id. An error is the client's; the caller may publish
// the same intent again, since its key makes that harmless.
func Publish(ctx context.Context, client StreamAppender, intent Intent) (string, error) {
	return PublishTo(ctx, client, DefaultStream, intent)
}

// PublishTo is [Publish] for a stream of another name.
func PublishTo(ctx context.Context, client StreamAppender, stream string, intent Intent) (string, error) {
	if intent.notificationType == "" {
		return "", errors.New("notificationintent: this intent comes from no constructor")
	}
	return client.XAdd(ctx, intent.XAddArgs(stream)).Result()
}

// XAddArgs is the command that appends the intent, for pipelines and transactions.
func (i Intent) XAddArgs(stream string) *redis.XAddArgs {
	var values []string
	for _, field := range i.Fields() {
		values = append(values, field.Name, field.Value)
	}
	return &redis.XAddArgs{Stream: stream, Values: values}
}
