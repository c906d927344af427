package notificationintent

import (
	"context"
	"database/sql"
	"errors"
)

// OutboxStatement writes [Intent.OutboxEntry], its one parameter, into the outbox of a producer (client/outbox.sql), in the
// transaction in which it is executed, and returns the number of the row: for drivers that are used without database/sql.
const OutboxStatement = "SELECT notification_outbox.publish($1::jsonb)"

// OutboxWriter is the part of database/sql that [WriteToOutbox] needs. *sql.Tx, *sql.Conn and *sql.DB have it.
type OutboxWriter interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// WriteToOutbox writes an intent into the outbox in the producer's own transaction; the relay, galaxy-notify outbox relay,
// brings it to the service once that is committed.
//
// It returns the number of the row. An error is PostgreSQL's; the transaction is then to be rolled back.
func WriteToOutbox(ctx context.Context, tx OutboxWriter, intent Intent) (int64, error) {
	if intent.notificationType == "" {
		return 0, errors.New("notificationintent: this intent comes from no constructor")
	}
	var row int64
	err := tx.QueryRowContext(ctx, OutboxStatement, intent.OutboxEntry()).Scan(&row)
	return row, err
}

// OutboxEntry is the intent's entry as JSON, the parameter of [OutboxStatement].
func (i Intent) OutboxEntry() string {
	entry := make(map[string]any)
	for _, field := range i.Fields() {
		entry[field.Name] = field.Value
	}
	return string(appendCanonical(nil, entry))
}
