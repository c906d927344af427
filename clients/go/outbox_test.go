package notificationintent

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"io"
	"testing"
)

// recorder is a database that keeps the statement it was given, and answers with row 7.
type recorder struct {
	query string
	args  []driver.NamedValue
	read  bool
}

func (r *recorder) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r *recorder) Driver() driver.Driver                        { return nil }
func (r *recorder) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (r *recorder) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (r *recorder) Close() error                                 { return nil }
func (r *recorder) Columns() []string                            { return []string{"publish"} }

func (r *recorder) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r.query, r.args = query, args
	return r, nil
}

func (r *recorder) Next(into []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, into[0] = true, int64(7)
	return nil
}

func TestAnIntentIsWrittenIntoTheOutboxAsItsEntry(t *testing.T) {
	intent, err := NewGameTurnReady(turnEvent, []string{"user-1"}, turnPayload())
	if err != nil {
		t.Fatal(err)
	}
	database := &recorder{}
	row, err := WriteToOutbox(context.Background(), sql.OpenDB(database), intent)
	if err != nil || row != 7 || database.query != OutboxStatement {
		t.Fatalf("row %d of %q, %v", row, database.query, err)
	}
	var entry map[string]string
	if err := json.Unmarshal([]byte(database.args[0].Value.(string)), &entry); err != nil {
		t.Fatal(err)
	}
	for _, field := range intent.Fields() {
		if entry[field.Name] != field.Value {
			t.Errorf("%s is %q, not %q", field.Name, entry[field.Name], field.Value)
		}
	}
	if len(entry) != len(intent.Fields()) {
		t.Errorf("there is more: %v", entry)
	}
	if _, err := WriteToOutbox(context.Background(), sql.OpenDB(&recorder{}), Intent{}); err == nil {
		t.Error("an intent of no constructor was written")
	}
}
